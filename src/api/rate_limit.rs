//! The rate limit of each key: exactly N requests in a fixed window of one minute (contract section
//! 7).
//!
//! governor replenishes cells continuously, which would admit up to 2N - 1 requests in the first
//! minute. Each window therefore has a limiter of its own with a stopped clock, which replenishes
//! nothing.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use governor::clock::FakeRelativeClock;
use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::http::{ApiError, ErrorCode};
use crate::model::KeyId;
use crate::words;

/// The length of a window.
const SECONDS: u32 = 60;
const WINDOW: Duration = Duration::from_secs(SECONDS as u64);

/// The state of a key's window. Every response after the check has it in its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// Requests allowed in a window.
    pub limit: u32,
    /// Requests left in the current window.
    pub remaining: u32,
    /// The end of the window in Unix seconds.
    pub reset: i64,
}

impl RateLimitStatus {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub fn headers(self) -> [(&'static str, String); 3] {
        [
            ("X-RateLimit-Limit", self.limit.to_string()),
            ("X-RateLimit-Remaining", self.remaining.to_string()),
            ("X-RateLimit-Reset", self.reset.to_string()),
        ]
    }

    /// The error `rate_limited` with these headers.
    pub fn error(self) -> ApiError {
        let message = format!(
            "This API key has used its {} of this minute. Wait 60 seconds, or until the moment in \
             X-RateLimit-Reset.",
            words::count(self.limit.into(), "request")
        );
        let error = ApiError::new(ErrorCode::RateLimited, message).header("Retry-After", "60");
        self.headers().into_iter().fold(error, |error, (name, value)| error.header(name, value))
    }
}

type Cells =
    governor::RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, StateInformationMiddleware>;

#[derive(Debug)]
struct Window {
    /// Monotonic, so that setting back the system clock does not prolong the window.
    ends: Duration,
    reset: i64,
    limit: NonZeroU32,
    cells: Cells,
}

/// The windows of all keys, in memory. A restart begins new ones.
#[derive(Debug)]
pub struct RateLimiter {
    limit: NonZeroU32,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    by_key: HashMap<KeyId, Window>,
    /// When expired windows are dropped next.
    sweep_at: Duration,
}

impl RateLimiter {
    /// A limiter that allows each key `limit` requests in a window, unless the key has a limit of
    /// its own.
    pub fn new(limit: NonZeroU32) -> RateLimiter {
        RateLimiter { limit, windows: Mutex::default() }
    }

    /// Counts a request of the key, with the key's own limit, if it has one. A refused request does
    /// not count.
    ///
    /// # Errors
    ///
    /// `rate_limited` if the window has no requests left.
    pub fn count(
        &self,
        key: KeyId,
        limit: Option<NonZeroU32>,
        now: Moment,
    ) -> Result<RateLimitStatus, ApiError> {
        let limit = limit.unwrap_or(self.limit);
        let mut windows = self.windows.lock();
        if now.monotonic >= windows.sweep_at {
            windows.by_key.retain(|_, window| window.ends > now.monotonic);
            windows.sweep_at = now.monotonic + WINDOW;
        }
        let window = windows.by_key.entry(key).or_insert_with(|| Window::open(limit, now));
        if window.ends <= now.monotonic {
            *window = Window::open(limit, now);
        }
        let Window { limit, reset, .. } = *window;
        let status = |remaining| RateLimitStatus { limit: limit.get(), remaining, reset };
        match window.cells.check() {
            Ok(state) => Ok(status(state.remaining_burst_capacity())),
            Err(_) => Err(status(0).error()),
        }
    }
}

impl Window {
    fn open(limit: NonZeroU32, now: Moment) -> Window {
        let (quota, stopped) = (Quota::per_minute(limit), FakeRelativeClock::default());
        let cells = governor::RateLimiter::direct_with_clock(quota, stopped).with_middleware();
        let reset = now.unix_seconds() + i64::from(SECONDS);
        Window { ends: now.monotonic + WINDOW, reset, limit, cells }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_window_that_is_over_is_dropped() {
        let clock = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap());
        let limiter = RateLimiter::new(NonZeroU32::MIN);
        for key in 1..=2 {
            assert!(limiter.count(KeyId(key), None, clock.now()).is_ok());
        }
        clock.advance(Duration::from_secs(120));
        assert!(limiter.count(KeyId(3), None, clock.now()).is_ok());
        assert_eq!(limiter.windows.lock().by_key.len(), 1);
    }

    #[test]
    fn a_change_of_the_limit_holds_from_the_next_window_on() {
        let clock = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap());
        let limiter = RateLimiter::new(NonZeroU32::new(3).unwrap());
        let count = |limit| {
            let status = limiter.count(KeyId(1), NonZeroU32::new(limit), clock.now());
            status.map(|status| (status.limit, status.remaining))
        };
        assert_eq!(count(0).unwrap(), (3, 2));
        assert_eq!(count(5).unwrap(), (3, 1));
        assert_eq!(count(1).unwrap(), (3, 0));
        assert!(count(5).is_err());
        clock.advance(Duration::from_secs(60));
        assert_eq!(count(5).unwrap(), (5, 4));
    }
}
