//! Passwords are verified, and failed attempts are throttled (contract section 9).

use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

use super::notice::{Notice, TOO_MANY_ATTEMPTS};
use crate::http::Request;
use crate::http::request::address_of;
use crate::password;

/// Failures within [`WINDOW`] from which on one address is refused.
const MAX_OF_ADDRESS: usize = 5;

/// Failures within [`WINDOW`] from which on every address is refused.
const MAX_OF_SUBJECT: usize = 50;

const WINDOW: Duration = Duration::from_secs(60);

/// One form with a password runs at a time (`Lane::Passwords`), so attempts at the same time cannot
/// exceed the limits together.
#[derive(Debug, Default)]
pub(super) struct Passwords {
    /// The failures of the last minute, the oldest first. Each has taken the time of a hash, so
    /// there are some thousand at most.
    failures: Mutex<Vec<Failure>>,
}

#[derive(Debug)]
struct Failure {
    subject: Subject,
    /// See [`address_of`].
    address: IpAddr,
    /// Monotonic.
    at: Duration,
}

/// Failures are counted by this hash. At a sign-in, it is the hash of the name as the user typed
/// it. At a change of the password, it is the hash of the session.
pub(super) type Subject = [u8; 32];

impl Passwords {
    /// Whether `password` matches the hash `stored`. Without a hash, which means an unknown tenant,
    /// the same work is done and the result is `false`.
    ///
    /// # Errors
    ///
    /// [`TOO_MANY_ATTEMPTS`] after too many failures, without any work.
    pub(super) fn verify(
        &self,
        subject: Subject,
        request: &Request,
        password: &str,
        stored: Option<&str>,
    ) -> Result<bool, Notice> {
        let (now, address) = (request.received_at.monotonic, address_of(request.client));
        let mut failures = self.failures.lock();
        failures.retain(|failure| now.saturating_sub(failure.at) < WINDOW);
        let of_subject = || failures.iter().filter(|failure| failure.subject == subject);
        if of_subject().filter(|failure| failure.address == address).count() >= MAX_OF_ADDRESS
            || of_subject().count() >= MAX_OF_SUBJECT
        {
            return Err(TOO_MANY_ATTEMPTS);
        }
        drop(failures);
        let matches = password::verify(password, stored);
        if !matches {
            self.failures.lock().push(Failure { subject, address, at: now });
        }
        Ok(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::http::Method;

    const ACME: Subject = [1; 32];

    fn request(clock: &Clock, client: &str) -> Request {
        Request { client: client.parse().unwrap(), ..Request::new(Method::POST, "/", clock.now()) }
    }

    fn clock() -> Clock {
        Clock::manual("2026-11-20T19:30:42Z".parse().unwrap())
    }

    #[test]
    fn failures_are_counted_for_a_minute_by_subject_and_network() {
        let (passwords, clock) = (Passwords::default(), clock());
        let fail = |subject, client| {
            passwords.verify(subject, &request(&clock, client), "wrong", None).is_ok()
        };
        for _ in 0..5 {
            assert!(fail(ACME, "2001:db8::1"));
            clock.advance(Duration::from_secs(10));
        }
        assert!(!fail(ACME, "2001:db8::2"), "the same /64");
        assert!(fail(ACME, "2001:db8:0:1::1") && fail([2; 32], "2001:db8::1"));
        clock.advance(Duration::from_millis(9_999));
        assert!(!fail(ACME, "2001:db8::1"));
        clock.advance(Duration::from_millis(1));
        assert!(fail(ACME, "2001:db8::1") && !fail(ACME, "2001:db8::1"));
    }

    #[test]
    fn fifty_failures_from_wherever_are_enough() {
        let (passwords, clock) = (Passwords::default(), clock());
        let tries = |subject| {
            let tries = (0..60).map(|last| {
                let request = request(&clock, &format!("192.0.2.{last}"));
                passwords.verify(subject, &request, "wrong", None).is_ok()
            });
            tries.filter(|tried| *tried).count()
        };
        assert_eq!(tries(ACME), 50);
    }
}
