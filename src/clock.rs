//! The only source of the current time.
//!
//! Wall time serves people and stored timestamps. Monotonic time serves windows and durations,
//! because it is not affected when the system clock is set.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use jiff::Span;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A second of wall time, UTC: how records, keys and entries of the change log are dated. Its text
/// is RFC 3339, `2026-11-20T19:30:00Z` (contract section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// Clamped to the first or last second of the calendar.
    pub fn from_unix(seconds: i64) -> Timestamp {
        let (first, last) = (jiff::Timestamp::MIN, jiff::Timestamp::MAX);
        let seconds = seconds.clamp(first.as_second(), last.as_second());
        Timestamp(jiff::Timestamp::from_second(seconds).unwrap_or(last))
    }

    pub fn unix(self) -> i64 {
        self.0.as_second()
    }

    /// The last second of a date `YYYY-MM-DD` in UTC, or `None` if `date` is no date.
    pub fn end_of_day(date: &str) -> Option<Timestamp> {
        let last_second = date.parse::<Date>().ok()?.at(23, 59, 59, 0);
        last_second.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp().into())
    }

    /// The text in a format of `strftime`, in UTC.
    pub fn format(self, format: &str) -> impl fmt::Display {
        self.0.strftime(format)
    }

    /// The second that is this long before.
    #[must_use]
    pub fn before(self, duration: Duration) -> Timestamp {
        let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_unix(self.unix().saturating_sub(seconds))
    }
}

impl From<jiff::Timestamp> for Timestamp {
    /// A fraction is dropped.
    fn from(timestamp: jiff::Timestamp) -> Timestamp {
        Timestamp::from_unix(timestamp.as_second())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Timestamp, jiff::Error> {
        text.parse::<jiff::Timestamp>().map(Timestamp::from)
    }
}

/// One point in time. A request reads the clock once and passes the value down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Wall time, UTC.
    pub wall: jiff::Timestamp,
    /// Time since a fixed point in the life of this process. It never decreases.
    pub monotonic: Duration,
}

impl Moment {
    pub fn timestamp(self) -> Timestamp {
        self.wall.into()
    }

    /// The second that is `span` later, or `None` beyond the calendar. Years and months have their
    /// length in the calendar, in UTC.
    pub fn after(self, span: Span) -> Option<Timestamp> {
        let end = self.wall.to_zoned(TimeZone::UTC).checked_add(span).ok()?;
        Some(end.timestamp().into())
    }

    /// Whole seconds since the Unix epoch.
    pub fn unix_seconds(self) -> i64 {
        self.wall.as_second()
    }

    /// The day in UTC, `2026-11-20`.
    pub fn date(self) -> String {
        self.wall.strftime("%Y-%m-%d").to_string()
    }
}

/// The system's clock, or one that a test advances.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    manual: Option<Arc<Mutex<Moment>>>,
}

impl Clock {
    pub fn system() -> Clock {
        Clock::default()
    }

    /// A clock that shows `start` until [`Clock::advance`] is called, for tests.
    pub fn manual(start: jiff::Timestamp) -> Clock {
        let start = Moment { wall: start, monotonic: Duration::ZERO };
        Clock { manual: Some(Arc::new(Mutex::new(start))) }
    }

    /// Advances a manual clock. It has no effect on the system clock.
    pub fn advance(&self, by: Duration) {
        if let Some(manual) = &self.manual {
            let mut now = manual.lock();
            now.monotonic += by;
            now.wall = now.wall.saturating_add(by).unwrap_or(jiff::Timestamp::MAX);
        }
    }

    /// Whether the clock shows a year after 9999, which no timestamp can have.
    pub fn is_past_calendar(&self) -> bool {
        self.now().wall == jiff::Timestamp::MAX
    }

    pub fn now(&self) -> Moment {
        match &self.manual {
            Some(manual) => *manual.lock(),
            None => Moment { wall: system_wall(), monotonic: process_age() },
        }
    }
}

/// The system's time; in a year after 9999, the last moment of the calendar.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
fn system_wall() -> jiff::Timestamp {
    jiff::Timestamp::try_from(SystemTime::now()).unwrap_or(jiff::Timestamp::MAX)
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
    fn a_span_is_added_in_utc() {
        let now = Clock::manual("2028-02-29T12:00:00.5Z".parse().unwrap()).now();
        let after = |span: &str| now.after(span.parse().unwrap()).map(|end| end.to_string());
        assert_eq!(after("30d").as_deref(), Some("2028-03-30T12:00:00Z"));
        assert_eq!(after("1y").as_deref(), Some("2029-02-28T12:00:00Z"));
        assert_eq!(after("90s").as_deref(), Some("2028-02-29T12:01:30Z"));
        assert_eq!(after("9000y"), None);
    }

    #[test]
    fn a_day_ends_with_its_last_second() {
        let end = Timestamp::end_of_day("2026-12-31").unwrap();
        assert_eq!(end.to_string(), "2026-12-31T23:59:59Z");
        for text in ["", "2026-02-30", "x", "9999-12-31"] {
            assert_eq!(Timestamp::end_of_day(text), None, "{text}");
        }
    }

    #[test]
    fn time_outside_the_calendar_is_clamped() {
        assert_eq!(Timestamp::from_unix(i64::MAX).to_string(), "9999-12-30T22:00:00Z");
    }
}
