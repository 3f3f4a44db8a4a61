//! The only source of the current time.
//!
//! Wall time serves people and stored timestamps. Monotonic time serves windows and durations, because it is not affected when
//! the system clock is set. Tests use [`Clock::manual`], which advances both together.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;

/// One point in time. A request reads the clock once and passes the value down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Wall time, UTC.
    pub wall: Timestamp,
    /// Time since a fixed point in the life of this process. It never decreases.
    pub monotonic: Duration,
}

impl Moment {
    /// Returns whole seconds since the Unix epoch.
    pub fn unix_seconds(self) -> i64 {
        self.wall.as_second()
    }

    /// Returns the wall time as RFC 3339 in UTC and whole seconds, `2026-11-20T19:30:00Z` (contract section 2).
    pub fn rfc3339(self) -> String {
        rfc3339(self.wall.as_second())
    }

    /// Returns the day in UTC, `2026-11-20`.
    pub fn date(self) -> String {
        self.wall.strftime("%Y-%m-%d").to_string()
    }
}

/// Returns `seconds` since the Unix epoch as RFC 3339 in UTC, `2026-11-20T19:30:00Z`. Values outside the calendar are clamped
/// to its first or last timestamp.
pub fn rfc3339(seconds: i64) -> String {
    let bounded = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(bounded).map_or_else(|_| String::new(), |t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A clock: the system's, or one that a test advances.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Manual>>);

#[derive(Debug)]
struct Manual {
    start: Timestamp,
    elapsed_nanos: AtomicI64,
}

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Clock {
        Clock(None)
    }

    /// Returns a clock that shows `start` until [`Clock::advance`] is called. Tests use it.
    pub fn manual(start: Timestamp) -> Clock {
        Clock(Some(Arc::new(Manual { start, elapsed_nanos: AtomicI64::new(0) })))
    }

    /// Advances a manual clock. It has no effect on the system clock.
    pub fn advance(&self, by: Duration) {
        if let Some(manual) = &self.0 {
            manual.elapsed_nanos.fetch_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }

    /// Returns the current time.
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

#[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
fn system_wall() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The age of the process, roughly: the time since the first call.
fn process_age() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_advances_both_times_together() {
        let clock = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap());
        let before = clock.now();
        clock.advance(Duration::from_secs(61));
        let after = clock.now();
        assert_eq!(after.rfc3339(), "2026-11-20T19:31:01Z");
        assert_eq!(after.monotonic - before.monotonic, Duration::from_secs(61));
    }

    #[test]
    fn time_outside_the_calendar_is_clamped() {
        assert_eq!(rfc3339(i64::MAX), "9999-12-30T22:00:00Z");
    }
}
