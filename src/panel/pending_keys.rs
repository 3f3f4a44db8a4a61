//! New keys between the form that creates them and the page that shows them once. They are kept in
//! memory only.

use std::time::Duration;

use parking_lot::Mutex;

use super::templates::ShownKey;
use crate::model::KeyId;

/// How long a key is kept.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Maximum number of keys. The oldest is dropped first.
const CAPACITY: usize = 1_000;

#[derive(Default)]
pub(super) struct PendingKeys(Mutex<Vec<PendingKey>>);

struct PendingKey {
    /// The hash of the session that created it.
    session: [u8; 32],
    id: KeyId,
    new: ShownKey,
    /// Monotonic.
    since: Duration,
}

impl std::fmt::Debug for PendingKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingKeys").finish_non_exhaustive()
    }
}

impl PendingKeys {
    /// Keeps a key for the session that created it. `now` is monotonic.
    pub(super) fn put(&self, session: [u8; 32], id: KeyId, new: ShownKey, now: Duration) {
        self.purge(now);
        let mut keys = self.0.lock();
        if keys.len() >= CAPACITY {
            keys.remove(0);
        }
        keys.push(PendingKey { session, id, new, since: now });
    }

    /// Removes and returns a key of the session, if its time is not over.
    pub(super) fn take(&self, session: [u8; 32], id: KeyId, now: Duration) -> Option<ShownKey> {
        self.purge(now);
        let mut keys = self.0.lock();
        let place =
            keys.iter().position(|pending| (pending.session, pending.id) == (session, id))?;
        Some(keys.remove(place).new)
    }

    /// Removes the keys whose time is over.
    pub(super) fn purge(&self, now: Duration) {
        self.0.lock().retain(|pending| now.saturating_sub(pending.since) < LIFETIME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> ShownKey {
        ShownKey { name: "Web shop".to_owned(), key: "tdk_a".to_owned() }
    }

    #[test]
    fn a_key_is_shown_once_to_its_session_in_time() {
        let (keys, now) = (PendingKeys::default(), Duration::from_secs(9));
        keys.put([1; 32], KeyId(7), new(), now);
        assert!(keys.take([2; 32], KeyId(7), now).is_none());
        assert!(keys.take([1; 32], KeyId(8), now).is_none());
        assert_eq!(keys.take([1; 32], KeyId(7), now).unwrap().key, "tdk_a");
        assert!(keys.take([1; 32], KeyId(7), now).is_none());

        keys.put([1; 32], KeyId(7), new(), now);
        assert!(keys.take([1; 32], KeyId(7), now + LIFETIME).is_none());
    }

    #[test]
    fn a_key_that_nobody_fetches_leaves_memory_when_its_time_is_over() {
        let keys = PendingKeys::default();
        keys.put([1; 32], KeyId(7), new(), Duration::ZERO);
        keys.put([1; 32], KeyId(8), new(), LIFETIME);
        assert_eq!(keys.0.lock().len(), 1);
        keys.purge(2 * LIFETIME);
        assert!(keys.0.lock().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let keys = PendingKeys::default();
        for id in 0..2_000 {
            keys.put([1; 32], KeyId(id), new(), Duration::from_millis(id.unsigned_abs()));
        }
        assert_eq!(keys.0.lock().len(), CAPACITY);
        assert!(keys.take([1; 32], KeyId(1_999), Duration::from_secs(2)).is_some());
    }
}
