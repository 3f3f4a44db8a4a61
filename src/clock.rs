//! The only source of "now".
//!
//! Wall time is for people and for what is stored; monotonic time is for windows and durations, so that a clock that is
//! set back neither opens nor closes one. A test holds a [`Clock::manual`] and moves both at once.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;

/// One instant, read once for a request and passed down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Wall time, UTC.
    pub wall: Timestamp,
    /// Time since some fixed point of this process; never goes back.
    pub monotonic: Duration,
}

impl Moment {
    /// Whole seconds since the Unix epoch.
    pub fn unix_seconds(self) -> i64 {
        self.wall.as_second()
    }

    /// RFC 3339 in UTC and whole seconds, `2026-11-20T19:30:00Z` (contract section 2).
    pub fn rfc3339(self) -> String {
        rfc3339(self.wall.as_second())
    }

    /// The day in UTC, `2026-11-20`.
    pub fn date(self) -> String {
        self.wall.strftime("%Y-%m-%d").to_string()
    }
}

/// `seconds` since the Unix epoch as RFC 3339 in UTC, `2026-11-20T19:30:00Z`. Beyond the calendar it stays at its end.
pub fn rfc3339(seconds: i64) -> String {
    let bounded = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(bounded).map_or_else(|_| String::new(), |t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Where time comes from: the system, or a test's hand.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Manual>>);

#[derive(Debug)]
struct Manual {
    start: Timestamp,
    elapsed_nanos: AtomicI64,
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Clock {
        Clock(None)
    }

    /// A clock that stands at `start` until [`Clock::advance`] moves it. For tests that run the library.
    pub fn manual(start: Timestamp) -> Clock {
        Clock(Some(Arc::new(Manual { start, elapsed_nanos: AtomicI64::new(0) })))
    }

    /// Moves a manual clock on. Does nothing to the machine's.
    pub fn advance(&self, by: Duration) {
        if let Some(manual) = &self.0 {
            manual.elapsed_nanos.fetch_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Some(manual) => {
                let elapsed = Duration::from_nanos(manual.elapsed_nanos.load(Ordering::SeqCst).unsigned_abs());
                Moment { wall: manual.start.checked_add(elapsed).unwrap_or(Timestamp::MAX), monotonic: elapsed }
            }
            None => Moment { wall: system_wall(), monotonic: process_age() },
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system for the time")]
fn system_wall() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Also what keeps a duration that no test sets: how long a request took, for the log.
fn process_age() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_both_times_together() {
        let clock = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap());
        let before = clock.now();
        clock.advance(Duration::from_secs(61));
        let after = clock.now();
        assert_eq!(after.rfc3339(), "2026-11-20T19:31:01Z");
        assert_eq!(after.monotonic - before.monotonic, Duration::from_secs(61));
    }

    #[test]
    fn time_beyond_the_calendar_stays_at_its_end() {
        assert_eq!(rfc3339(i64::MAX), "9999-12-30T22:00:00Z");
    }
}
