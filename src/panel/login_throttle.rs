//! A throttle for failed sign-ins by tenant name: after five failures within a minute every attempt
//! is refused, even one with the right password, until the first failure is a minute old (contract
//! section 9).
//!
//! Names are kept as hashes, at most [`MAX_KEYS`] of them. Concurrent attempts count as possible
//! failures, so they cannot exceed the limit together.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sha2::{Digest as _, Sha256};

use crate::model::TenantId;

/// Failures allowed within [`WINDOW`].
const MAX_FAILURES: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of names. Beyond it, the name with the oldest failure is evicted. An attacker who
/// wants to evict a name needs as many failed sign-ins.
const MAX_KEYS: usize = 10_000;

/// What failures are counted for: the hash of a name as it was typed, or of a tenant's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ThrottleKey([u8; 32]);

impl ThrottleKey {
    /// A sign-in under this name, known or not.
    pub(super) fn sign_in(name: &str) -> ThrottleKey {
        ThrottleKey(Sha256::new().chain_update("sign in ").chain_update(name).finalize().into())
    }

    /// A change of this tenant's password, which asks for the current one.
    pub(super) fn password_change(tenant_id: TenantId) -> ThrottleKey {
        ThrottleKey(
            Sha256::new()
                .chain_update("password ")
                .chain_update(tenant_id.0.to_be_bytes())
                .finalize()
                .into(),
        )
    }
}

/// Five attempts failed within a minute.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Throttled;

/// The failures and the running attempts of every key.
#[derive(Debug, Default)]
pub(super) struct LoginThrottle {
    counts: Mutex<HashMap<ThrottleKey, Count>>,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct Count {
    /// Times of the recent failures, the oldest first; at most [`MAX_FAILURES`].
    failures: Vec<Duration>,
    /// Attempts without a result yet.
    running: usize,
}

impl Count {
    fn expire(&mut self, now: Duration) {
        self.failures.retain(|failed| now.saturating_sub(*failed) < WINDOW);
    }
}

/// A running attempt. It counts as a success unless [`Attempt::fail`] is called.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    throttle: &'a LoginThrottle,
    key: ThrottleKey,
    now: Duration,
    failed: bool,
}

impl Attempt<'_> {
    /// Records a failure.
    pub(super) fn fail(mut self) {
        self.failed = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut counts = self.throttle.counts.lock();
        if self.failed {
            evict_oldest(&mut counts, &self.key);
        }
        if let Some(count) = counts.get_mut(&self.key) {
            count.running = count.running.saturating_sub(1);
            if self.failed {
                count.failures.push(self.now);
            }
            if count.running == 0 && count.failures.is_empty() {
                counts.remove(&self.key);
            }
        }
        self.throttle.finished.notify_all();
    }
}

impl LoginThrottle {
    /// Checks the limit before any work is done. `now` is monotonic.
    ///
    /// # Errors
    ///
    /// [`Throttled`] if the limit is reached.
    pub(super) fn check(&self, key: &ThrottleKey, now: Duration) -> Result<(), Throttled> {
        match self.counts.lock().get_mut(key) {
            Some(count) => {
                count.expire(now);
                if count.failures.len() < MAX_FAILURES { Ok(()) } else { Err(Throttled) }
            }
            None => Ok(()),
        }
    }

    /// Begins an attempt. Blocks while the running attempts could reach the limit. The caller must
    /// already hold every resource that an attempt needs, otherwise the running attempts could wait
    /// for it.
    ///
    /// # Errors
    ///
    /// [`Throttled`] if the limit is reached.
    pub(super) fn begin(&self, key: ThrottleKey, now: Duration) -> Result<Attempt<'_>, Throttled> {
        let mut counts = self.counts.lock();
        loop {
            let count = counts.entry(key).or_default();
            count.expire(now);
            if count.failures.len() >= MAX_FAILURES {
                return Err(Throttled);
            }
            if count.failures.len() + count.running < MAX_FAILURES {
                count.running += 1;
                return Ok(Attempt { throttle: self, key, now, failed: false });
            }
            self.finished.wait(&mut counts);
        }
    }
}

/// Evicts the key with the oldest failure if there are too many. Never evicts `kept` or a key with
/// a running attempt.
fn evict_oldest(counts: &mut HashMap<ThrottleKey, Count>, kept: &ThrottleKey) {
    if counts.len() <= MAX_KEYS {
        return;
    }
    let idle = counts.iter().filter(|(key, count)| *key != kept && count.running == 0);
    let oldest = idle.min_by_key(|(_, count)| count.failures.last().copied()).map(|(key, _)| *key);
    if let Some(oldest) = oldest {
        counts.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fail(throttle: &LoginThrottle, name: &str, now: Duration) {
        throttle.begin(ThrottleKey::sign_in(name), now).unwrap().fail();
    }

    #[test]
    fn the_sixth_try_waits_until_the_first_is_a_minute_old() {
        let throttle = LoginThrottle::default();
        for second in 0..5 {
            fail(&throttle, "acme", at(second * 10));
        }
        let acme = ThrottleKey::sign_in("acme");
        assert_eq!(throttle.check(&acme, at(59)), Err(Throttled));
        assert_eq!(throttle.begin(acme, at(59)).err(), Some(Throttled));
        assert_eq!(throttle.check(&ThrottleKey::sign_in("Acme"), at(59)), Ok(()));
        assert_eq!(throttle.check(&acme, at(60)), Ok(()));
        fail(&throttle, "acme", at(60));
        assert_eq!(throttle.check(&acme, at(69)), Err(Throttled));
    }

    #[test]
    fn a_right_password_leaves_no_trace() {
        let throttle = LoginThrottle::default();
        for _ in 0..20 {
            drop(throttle.begin(ThrottleKey::sign_in("acme"), at(0)).unwrap());
        }
        assert!(throttle.counts.lock().is_empty());
    }

    #[test]
    fn tries_at_once_are_counted_too() {
        let throttle = LoginThrottle::default();
        let refused = thread::scope(|scope| {
            let tries: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| match throttle.begin(ThrottleKey::sign_in("acme"), at(0)) {
                        Ok(attempt) => {
                            thread::yield_now();
                            attempt.fail();
                            0
                        }
                        Err(Throttled) => 1,
                    })
                })
                .collect();
            tries.into_iter().map(|one| one.join().unwrap()).sum::<usize>()
        });
        assert_eq!(refused, 11);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let throttle = LoginThrottle::default();
        for second in 0..MAX_FAILURES {
            fail(&throttle, "acme", at(30 + second as u64));
        }
        for name in 0..MAX_KEYS + 50 {
            fail(&throttle, &format!("name {name}"), at(20));
        }
        assert!(throttle.counts.lock().len() <= MAX_KEYS + 1, "{}", throttle.counts.lock().len());
        assert_eq!(throttle.check(&ThrottleKey::sign_in("acme"), at(35)), Err(Throttled));
    }
}
