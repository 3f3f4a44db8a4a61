//! The only source of the current time.
//!
//! Wall time serves people and stored timestamps. Monotonic time serves windows and durations, because it is not affected when
//! the system clock is set. Tests use [`Clock::manual`], which advances both together and steps one of them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// One point in time. A request reads the clock once and passes the value down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Wall time, UTC.
    pub wall: Timestamp,
    /// Time since a fixed point in the life of this process. It never decreases.
    pub monotonic: Duration,
    /// The wall time in seconds since the Unix epoch, but a step forward of the system clock counts only a day later: what is kept
    /// for some time is not removed because the clock is wrong for a while. It is never later than the wall time.
    pub steady_seconds: i64,
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

/// A clock: the system's, or one that a test advances. Copies share what they know of steps.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    manual: Option<Arc<Manual>>,
    steps: Arc<Mutex<Steps>>,
}

#[derive(Debug)]
struct Manual {
    start: Timestamp,
    elapsed_nanos: AtomicI64,
    stepped_nanos: AtomicI64,
}

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Clock {
        Clock::default()
    }

    /// Returns a clock that shows `start` until [`Clock::advance`] is called. Tests use it.
    pub fn manual(start: Timestamp) -> Clock {
        let manual = Manual { start, elapsed_nanos: AtomicI64::new(0), stepped_nanos: AtomicI64::new(0) };
        Clock { manual: Some(Arc::new(manual)), steps: Arc::default() }
    }

    /// Advances a manual clock. It has no effect on the system clock.
    pub fn advance(&self, by: Duration) {
        if let Some(manual) = &self.manual {
            manual.elapsed_nanos.fetch_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }

    /// Sets the wall time of a manual clock forward or back, as an administrator does. It has no effect on the system clock.
    pub fn step(&self, by: SignedDuration) {
        if let Some(manual) = &self.manual {
            manual.stepped_nanos.fetch_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }

    /// Returns the current time.
    pub fn now(&self) -> Moment {
        let (wall, monotonic) = match &self.manual {
            Some(manual) => manual.now(),
            None => (system_wall(), process_age()),
        };
        let steady_seconds = self.steps.lock().steady_seconds(wall.as_second(), monotonic);
        Moment { wall, monotonic, steady_seconds }
    }
}

impl Manual {
    fn now(&self) -> (Timestamp, Duration) {
        let elapsed = Duration::from_nanos(self.elapsed_nanos.load(Ordering::SeqCst).unsigned_abs());
        let stepped = SignedDuration::from_nanos(self.stepped_nanos.load(Ordering::SeqCst));
        let wall = self.start.checked_add(elapsed).and_then(|wall| wall.checked_add(stepped));
        (wall.unwrap_or(Timestamp::MAX), elapsed)
    }
}

/// The steps of the wall clock, which are seen when its distance from the monotonic clock changes.
#[derive(Debug, Default)]
struct Steps {
    /// The distance in seconds without a step forward that does not count yet.
    distance: Option<i64>,
    /// When that step was seen, in monotonic time.
    stepped_at: Option<Duration>,
}

/// Seconds from which a change of the distance is a step. The system corrects smaller errors gradually.
const STEP: i64 = 60;

/// How long a step forward does not count.
const DISTRUST: Duration = Duration::from_hours(24);

impl Steps {
    fn steady_seconds(&mut self, wall: i64, monotonic: Duration) -> i64 {
        let age = i64::try_from(monotonic.as_secs()).unwrap_or(i64::MAX);
        let distance = wall.saturating_sub(age);
        let known = *self.distance.get_or_insert(distance);
        let is_step = distance > known.saturating_add(STEP);
        if is_step && monotonic.saturating_sub(*self.stepped_at.get_or_insert(monotonic)) < DISTRUST {
            return age.saturating_add(known);
        }
        (self.distance, self.stepped_at) = (Some(distance), None);
        wall
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
    fn a_step_forward_counts_a_day_later_and_a_step_back_at_once() {
        let clock = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap());
        let lag = || clock.now().unix_seconds() - clock.now().steady_seconds;
        let [hour, year] = [1, 365 * 24].map(SignedDuration::from_hours);
        assert_eq!(lag(), 0);
        clock.step(hour);
        assert_eq!(lag(), 3_600);
        clock.step(-hour);
        assert_eq!(lag(), 0);
        clock.step(-year);
        assert_eq!(lag(), 0);
        clock.step(year);
        assert_eq!(lag(), year.as_secs());
        clock.advance(DISTRUST - Duration::from_secs(1));
        assert_eq!(lag(), year.as_secs());
        clock.advance(Duration::from_secs(1));
        assert_eq!(lag(), 0);
        for _ in 0..100 {
            clock.step(SignedDuration::from_secs(STEP));
            assert_eq!(lag(), 0, "the clock is corrected gradually");
        }
    }

    #[test]
    fn time_outside_the_calendar_is_clamped() {
        assert_eq!(rfc3339(i64::MAX), "9999-12-30T22:00:00Z");
    }
}
