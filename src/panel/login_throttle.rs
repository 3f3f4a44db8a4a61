//! Wrong passwords, counted for each name as it was typed: after five within a minute every further try is refused, the
//! right password included, until the first of the five is a minute old (contract section 9).
//!
//! Names are kept as hashes of one size, at most [`NAMES`] of them. Tries of one name that run at once are counted before
//! they are decided: no more can run than could fail.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// So many may fail within [`WINDOW`].
const FAILURES: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);

/// How many names are counted at once. Beyond, the one that failed longest ago is forgotten: whoever wants five more tries that
/// way pays for them with as many wrong sign-ins as this.
const NAMES: usize = 10_000;

/// Who is counted: a name as it was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subject([u8; 32]);

impl Subject {
    /// A sign-in under this name, known or not.
    pub(super) fn sign_in(name: &str) -> Subject {
        Subject(Sha256::new().chain_update("sign in ").chain_update(name).finalize().into())
    }

    /// A change of this tenant's password, for which the present one is asked.
    pub(super) fn password_change(tenant_id: i64) -> Subject {
        Subject(Sha256::new().chain_update("password ").chain_update(tenant_id.to_be_bytes()).finalize().into())
    }
}

/// Five failed within a minute.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exhausted;

#[derive(Debug, Default)]
pub(super) struct Attempts {
    names: Mutex<HashMap<Subject, Count>>,
    decided: Condvar,
}

#[derive(Debug, Default)]
struct Count {
    /// When the last of them failed, the oldest first; [`FAILURES`] at most.
    failures: Vec<Duration>,
    running: usize,
}

impl Count {
    fn forget_before(&mut self, now: Duration) {
        self.failures.retain(|failed| now.saturating_sub(*failed) < WINDOW);
    }
}

/// One try that is not decided yet.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    attempts: &'a Attempts,
    subject: Subject,
    now: Duration,
    failed: bool,
}

impl Attempt<'_> {
    /// It was the wrong password.
    pub(super) fn fail(mut self) {
        self.failed = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut names = self.attempts.lock();
        if self.failed {
            make_room(&mut names, &self.subject);
        }
        if let Some(count) = names.get_mut(&self.subject) {
            count.running = count.running.saturating_sub(1);
            if self.failed {
                count.failures.push(self.now);
            }
            if count.running == 0 && count.failures.is_empty() {
                names.remove(&self.subject);
            }
        }
        self.attempts.decided.notify_all();
    }
}

impl Attempts {
    /// Whether a try may be made at all, before anything is done for it. `now` is monotonic.
    pub(super) fn check(&self, subject: &Subject, now: Duration) -> Result<(), Exhausted> {
        match self.lock().get_mut(subject) {
            Some(count) => {
                count.forget_before(now);
                if count.failures.len() < FAILURES { Ok(()) } else { Err(Exhausted) }
            }
            None => Ok(()),
        }
    }

    /// Begins a try. Where those that run could use up what is left, it waits for one of them: call it with what a try needs
    /// in hand, so that they do go on.
    pub(super) fn begin(&self, subject: Subject, now: Duration) -> Result<Attempt<'_>, Exhausted> {
        let mut names = self.lock();
        loop {
            let count = names.entry(subject).or_default();
            count.forget_before(now);
            if count.failures.len() >= FAILURES {
                return Err(Exhausted);
            }
            if count.failures.len() + count.running < FAILURES {
                count.running += 1;
                return Ok(Attempt { attempts: self, subject, now, failed: false });
            }
            names = self.decided.wait(names).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Subject, Count>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the name that failed longest ago where there are too many; never `kept`, nor one with a try that runs.
fn make_room(names: &mut HashMap<Subject, Count>, kept: &Subject) {
    if names.len() <= NAMES {
        return;
    }
    let idle = names.iter().filter(|(subject, count)| *subject != kept && count.running == 0);
    let oldest = idle.min_by_key(|(_, count)| count.failures.last().copied()).map(|(subject, _)| *subject);
    if let Some(oldest) = oldest {
        names.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fail(attempts: &Attempts, name: &str, now: Duration) {
        attempts.begin(Subject::sign_in(name), now).unwrap().fail();
    }

    #[test]
    fn the_sixth_try_waits_until_the_first_is_a_minute_old() {
        let attempts = Attempts::default();
        for second in 0..5 {
            fail(&attempts, "acme", at(second * 10));
        }
        let acme = Subject::sign_in("acme");
        assert_eq!(attempts.check(&acme, at(59)), Err(Exhausted));
        assert_eq!(attempts.begin(acme, at(59)).err(), Some(Exhausted));
        assert_eq!(attempts.check(&Subject::sign_in("Acme"), at(59)), Ok(()));
        assert_eq!(attempts.check(&acme, at(60)), Ok(()));
        fail(&attempts, "acme", at(60));
        assert_eq!(attempts.check(&acme, at(69)), Err(Exhausted));
    }

    #[test]
    fn a_right_password_leaves_no_trace() {
        let attempts = Attempts::default();
        for _ in 0..20 {
            drop(attempts.begin(Subject::sign_in("acme"), at(0)).unwrap());
        }
        assert!(attempts.lock().is_empty());
    }

    #[test]
    fn tries_at_once_are_counted_too() {
        let attempts = Attempts::default();
        let refused = thread::scope(|scope| {
            let tries: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| match attempts.begin(Subject::sign_in("acme"), at(0)) {
                        Ok(attempt) => {
                            thread::yield_now();
                            attempt.fail();
                            0
                        }
                        Err(Exhausted) => 1,
                    })
                })
                .collect();
            tries.into_iter().map(|one| one.join().unwrap()).sum::<usize>()
        });
        assert_eq!(refused, 11);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let attempts = Attempts::default();
        for second in 0..FAILURES {
            fail(&attempts, "acme", at(30 + second as u64));
        }
        for name in 0..NAMES + 50 {
            fail(&attempts, &format!("name {name}"), at(20));
        }
        assert!(attempts.lock().len() <= NAMES + 1, "{}", attempts.lock().len());
        assert_eq!(attempts.check(&Subject::sign_in("acme"), at(35)), Err(Exhausted));
    }
}
