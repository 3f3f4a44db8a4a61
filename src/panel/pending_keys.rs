//! New keys between the form that creates them and the page that shows them once. They are kept in
//! memory only.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::model::KeyId;

/// How long a key is kept.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Maximum number of keys. The oldest is dropped first.
const CAPACITY: usize = 1_000;

#[derive(Default)]
pub(super) struct PendingKeys(Mutex<HashMap<PendingId, PendingKey>>);

/// The session's hash and the key's id.
type PendingId = ([u8; 32], KeyId);

struct PendingKey {
    key: String,
    since: Duration,
}

impl std::fmt::Debug for PendingKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingKeys").finish_non_exhaustive()
    }
}

impl PendingKeys {
    /// Keeps a key for the session that created it. `now` is monotonic.
    pub(super) fn put(&self, session: [u8; 32], id: KeyId, key: String, now: Duration) {
        let mut keys = self.0.lock();
        keys.retain(|_, pending| now.saturating_sub(pending.since) < LIFETIME);
        if keys.len() >= CAPACITY {
            let oldest = keys.iter().min_by_key(|(_, pending)| pending.since).map(|(id, _)| *id);
            oldest.and_then(|id| keys.remove(&id));
        }
        keys.insert((session, id), PendingKey { key, since: now });
    }

    /// Removes and returns a key of the session, if it is not too old.
    pub(super) fn take(&self, session: [u8; 32], id: KeyId, now: Duration) -> Option<String> {
        let pending = self.0.lock().remove(&(session, id))?;
        (now.saturating_sub(pending.since) < LIFETIME).then_some(pending.key)
    }

    /// Drops the keys of a session.
    pub(super) fn forget(&self, session: [u8; 32]) {
        self.0.lock().retain(|(owner, _), _| *owner != session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_once_to_its_session_in_time() {
        let (keys, now) = (PendingKeys::default(), Duration::from_secs(9));
        keys.put([1; 32], KeyId(7), "tdk_a".to_owned(), now);
        assert_eq!(keys.take([2; 32], KeyId(7), now), None);
        assert_eq!(keys.take([1; 32], KeyId(8), now), None);
        assert_eq!(keys.take([1; 32], KeyId(7), now).as_deref(), Some("tdk_a"));
        assert_eq!(keys.take([1; 32], KeyId(7), now), None);

        keys.put([1; 32], KeyId(7), "tdk_a".to_owned(), now);
        assert_eq!(keys.take([1; 32], KeyId(7), now + LIFETIME), None);
        keys.put([1; 32], KeyId(7), "tdk_a".to_owned(), now);
        keys.forget([1; 32]);
        assert_eq!(keys.take([1; 32], KeyId(7), now), None);
    }

    #[test]
    fn memory_is_bounded() {
        let keys = PendingKeys::default();
        for id in 0..2_000 {
            keys.put([1; 32], KeyId(id), String::new(), Duration::from_millis(id.unsigned_abs()));
        }
        assert_eq!(keys.0.lock().len(), CAPACITY);
        assert!(keys.take([1; 32], KeyId(1_999), Duration::from_secs(2)).is_some());
    }
}
