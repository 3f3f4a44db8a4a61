//! New keys on their way from the form that made them to the page that shows them, once. In memory alone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the page after the form may take.
const KEPT_FOR: Duration = Duration::from_secs(5 * 60);

/// How many are kept; the oldest goes first.
const MOST: usize = 1_000;

#[derive(Default)]
pub(super) struct NewKeys(Mutex<HashMap<Place, Waiting>>);

/// The session's hash and the key's id.
type Place = ([u8; 32], i64);

struct Waiting {
    key: String,
    since: Duration,
}

impl std::fmt::Debug for NewKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewKeys").finish_non_exhaustive()
    }
}

impl NewKeys {
    /// Keeps a key for the session that made it. `now` is monotonic.
    pub(super) fn put(&self, session: [u8; 32], id: i64, key: String, now: Duration) {
        let mut keys = self.lock();
        keys.retain(|_, waiting| now.saturating_sub(waiting.since) < KEPT_FOR);
        if keys.len() >= MOST {
            let oldest = keys.iter().min_by_key(|(_, waiting)| waiting.since).map(|(place, _)| *place);
            oldest.and_then(|place| keys.remove(&place));
        }
        keys.insert((session, id), Waiting { key, since: now });
    }

    /// The key, for the first who asks in its session and in time.
    pub(super) fn take(&self, session: [u8; 32], id: i64, now: Duration) -> Option<String> {
        let waiting = self.lock().remove(&(session, id))?;
        (now.saturating_sub(waiting.since) < KEPT_FOR).then_some(waiting.key)
    }

    /// Forgets what a session that ends has not seen.
    pub(super) fn forget(&self, session: [u8; 32]) {
        self.lock().retain(|(owner, _), _| *owner != session);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_once_to_its_session_in_time() {
        let (keys, now) = (NewKeys::default(), Duration::from_secs(9));
        keys.put([1; 32], 7, "tdk_a".to_owned(), now);
        assert_eq!(keys.take([2; 32], 7, now), None);
        assert_eq!(keys.take([1; 32], 8, now), None);
        assert_eq!(keys.take([1; 32], 7, now).as_deref(), Some("tdk_a"));
        assert_eq!(keys.take([1; 32], 7, now), None);

        keys.put([1; 32], 7, "tdk_a".to_owned(), now);
        assert_eq!(keys.take([1; 32], 7, now + KEPT_FOR), None);
        keys.put([1; 32], 7, "tdk_a".to_owned(), now);
        keys.forget([1; 32]);
        assert_eq!(keys.take([1; 32], 7, now), None);
    }

    #[test]
    fn memory_is_bounded() {
        let keys = NewKeys::default();
        for id in 0..2_000 {
            keys.put([1; 32], id, String::new(), Duration::from_millis(id.unsigned_abs()));
        }
        assert_eq!(keys.lock().len(), MOST);
        assert!(keys.take([1; 32], 1_999, Duration::from_secs(2)).is_some());
    }
}
