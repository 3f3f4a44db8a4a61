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

    #[test]
    fn fifty_failures_from_wherever_are_enough() {
        let passwords = Passwords::default();
        let tried = (0..60).filter(|last| {
            let now = Clock::system().now();
            let client = IpAddr::from([192, 0, 2, *last]);
            let request = Request { client, ..Request::new(Method::POST, "/", now) };
            passwords.verify([1; 32], &request, "wrong", None).is_ok()
        });
        assert_eq!(tried.count(), 50);
    }
}
