//! New keys between the form that creates them and the page that shows them once. They are kept in
//! memory only.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::model::KeyId;

/// How long a key is kept.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Maximum number of keys. The oldest is dropped first.
const CAPACITY: usize = 1_000;

/// The keys, the oldest first.
#[derive(Default)]
pub(super) struct PendingKeys(Mutex<VecDeque<PendingKey>>);

/// A new key, which is shown once.
pub(super) struct PendingKey {
    /// The hash of the session that created it.
    pub(super) session: [u8; 32],
    pub(super) id: KeyId,
    pub(super) name: String,
    /// The key itself.
    pub(super) secret: String,
    /// Monotonic.
    pub(super) since: Duration,
}

impl PendingKeys {
    pub(super) fn put(&self, key: PendingKey) {
        let mut keys = self.0.lock();
        keys.push_back(key);
        if keys.len() > CAPACITY {
            keys.pop_front();
        }
    }

    /// Removes and returns a key of the session, if its time is not over. `now` is monotonic.
    pub(super) fn take(&self, session: [u8; 32], id: KeyId, now: Duration) -> Option<PendingKey> {
        self.purge(now);
        let mut keys = self.0.lock();
        let place = keys.iter().position(|key| (key.session, key.id) == (session, id))?;
        keys.remove(place)
    }

    /// Removes the keys whose time is over.
    pub(super) fn purge(&self, now: Duration) {
        self.0.lock().retain(|key| now.saturating_sub(key.since) < LIFETIME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: i64, since: Duration) -> PendingKey {
        let (name, secret) = ("Web shop".to_owned(), "tdk_a".to_owned());
        PendingKey { session: [1; 32], id: KeyId(id), name, secret, since }
    }

    #[test]
    fn a_key_is_shown_once_to_its_session_in_time() {
        let (keys, now) = (PendingKeys::default(), Duration::from_secs(9));
        keys.put(key(7, now));
        assert!(keys.take([2; 32], KeyId(7), now).is_none());
        assert!(keys.take([1; 32], KeyId(8), now).is_none());
        assert_eq!(keys.take([1; 32], KeyId(7), now).unwrap().secret, "tdk_a");
        assert!(keys.take([1; 32], KeyId(7), now).is_none());

        keys.put(key(7, now));
        assert!(keys.take([1; 32], KeyId(7), now + LIFETIME).is_none());
    }

    #[test]
    fn a_key_that_nobody_fetches_leaves_memory_when_its_time_is_over() {
        let keys = PendingKeys::default();
        keys.put(key(7, Duration::ZERO));
        keys.put(key(8, LIFETIME));
        keys.purge(LIFETIME);
        assert_eq!(keys.0.lock().len(), 1);
        keys.purge(2 * LIFETIME);
        assert!(keys.0.lock().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let keys = PendingKeys::default();
        for id in 0..2_000 {
            keys.put(key(id, Duration::from_millis(id.unsigned_abs())));
        }
        assert_eq!(keys.0.lock().len(), CAPACITY);
        assert!(keys.take([1; 32], KeyId(1_999), Duration::from_secs(2)).is_some());
    }
}
