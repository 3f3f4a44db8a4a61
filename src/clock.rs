//! The only source of wall time.
//!
//! Wall time serves people and stored timestamps. Monotonic time serves windows and durations,
//! because it is not affected when the system clock is set.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{RoundMode, Span, TimestampRound, Unit};
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

/// Returns whether `text` is an existing calendar date, `YYYY-MM-DD`. The form is checked first
/// because jiff accepts others too.
pub fn is_date(text: &str) -> bool {
    let shape = text.replace(|c: char| c.is_ascii_digit(), "d");
    shape == "dddd-dd-dd" && text.parse::<Date>().is_ok()
}

/// The first stored second from a date or an RFC 3339 timestamp on. Stored timestamps have no
/// fraction, so a fraction is rounded up. `None` if `text` is neither.
pub fn first_second(text: &str) -> Option<String> {
    if is_date(text) { Some(format!("{text}T00:00:00Z")) } else { whole(text, RoundMode::Ceil) }
}

/// The last stored second up to a date or an RFC 3339 timestamp. `None` if `text` is neither.
pub fn last_second(text: &str) -> Option<String> {
    if is_date(text) { Some(format!("{text}T23:59:59Z")) } else { whole(text, RoundMode::Floor) }
}

/// An RFC 3339 timestamp in UTC, with its fraction. With one, it equals no stored timestamp.
pub fn exact_time(text: &str) -> Option<String> {
    parse_rfc3339(text).map(|time| time.to_string())
}

fn whole(text: &str, mode: RoundMode) -> Option<String> {
    let seconds = TimestampRound::new().smallest(Unit::Second).mode(mode);
    parse_rfc3339(text)?.round(seconds).ok().map(|time| time.to_string())
}

/// jiff also accepts other forms of ISO 8601, so the shape of RFC 3339 section 5.6 is checked
/// first.
fn parse_rfc3339(text: &str) -> Option<jiff::Timestamp> {
    let shape = text.to_ascii_uppercase().replace(|c: char| c.is_ascii_digit(), "d");
    let rest = shape.strip_prefix("dddd-dd-ddTdd:dd:dd")?;
    let zone = rest.strip_prefix(".d").map_or(rest, |rest| rest.trim_start_matches('d'));
    if matches!(zone, "Z" | "+dd:dd" | "-dd:dd") { text.parse().ok() } else { None }
}

/// Reads a date and time without an offset, or a time of today, in a time zone. An hour that comes
/// twice is the first one.
pub fn local_second(text: &str, now: Moment, zone: &TimeZone) -> Option<Timestamp> {
    let local = match text.replace(|c: char| c.is_ascii_digit(), "d").as_str() {
        "dddd-dd-dd dd:dd" | "dddd-dd-dd dd:dd:dd" => text.to_owned(),
        "dd:dd" | "dd:dd:dd" => format!("{} {text}", zone.to_datetime(now.wall).date()),
        _ => return None,
    };
    zone.to_timestamp(local.parse().ok()?).ok().map(Timestamp::from)
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
    fn a_local_time_is_that_of_the_zone() {
        let now = Clock::manual("2026-11-29T23:30:00Z".parse().unwrap()).now();
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let local = |text| local_second(text, now, &berlin).map(|time| time.to_string());
        for (text, utc) in [
            ("2026-11-29 14:00", "2026-11-29T13:00:00Z"),
            ("2026-06-29 14:00:30", "2026-06-29T12:00:30Z"),
            // Today is the 30th in Berlin.
            ("14:00", "2026-11-30T13:00:00Z"),
            ("00:15:30", "2026-11-29T23:15:30Z"),
            ("2026-10-25 02:30", "2026-10-25T00:30:00Z"),
        ] {
            assert_eq!(local(text).as_deref(), Some(utc), "{text}");
        }
        for text in ["2026-11-29", "2026-02-30 14:00", "25:00", "2026-11-29 14", "14", "2 pm", ""] {
            assert_eq!(local(text), None, "{text}");
        }
    }

    #[test]
    fn time_outside_the_calendar_is_clamped() {
        assert_eq!(Timestamp::from_unix(i64::MAX).to_string(), "9999-12-30T22:00:00Z");
    }

    #[test]
    fn timestamps_in_any_offset_become_utc() {
        let [exact, first, last]: [fn(&str) -> Option<String>; 3] =
            [exact_time, first_second, last_second];
        for (text, parse, utc) in [
            ("2026-11-20T19:30:00Z", exact, "2026-11-20T19:30:00Z"),
            ("2026-11-20t20:30:00+01:00", exact, "2026-11-20T19:30:00Z"),
            ("2026-11-20T19:30:00.5Z", first, "2026-11-20T19:30:01Z"),
            ("2026-11-20T19:30:00.5Z", last, "2026-11-20T19:30:00Z"),
            ("2026-11-20T19:30:59.999999999+00:00", last, "2026-11-20T19:30:59Z"),
            ("1969-12-31T23:59:59.5Z", first, "1970-01-01T00:00:00Z"),
            ("1969-12-31T23:59:58.5Z", last, "1969-12-31T23:59:58Z"),
            ("2026-11-20", first, "2026-11-20T00:00:00Z"),
            ("2026-11-20", last, "2026-11-20T23:59:59Z"),
            ("9999-12-31", last, "9999-12-31T23:59:59Z"),
            ("2026-11-20T19:30:00+23:59", exact, "2026-11-19T19:31:00Z"),
        ] {
            assert_eq!(parse(text).as_deref(), Some(utc), "{text}");
        }
        for bad in [
            "2026-11-20",
            "2026-11-20T19:30Z",
            "2026-11-20 19:30:00Z",
            "2026-11-20T19:30:00",
            "2026-02-30T00:00:00Z",
            "2026-11-20T19:30:00+0100",
            "2026-11-20T25:00:00Z",
            "x",
            "",
            "ä-11-20T19:30:00Z",
            "2026-11-20T19:30:00+00:60",
            "2026-11-20T19:30:00.Z",
            "2026-11-20T19:30:00.0123456789Z",
            "2026-11-20T19:30:00.012.0Z",
        ] {
            assert_eq!(exact(bad), None, "{bad}");
        }
    }

    #[test]
    fn dates() {
        assert!(is_date("2024-02-29") && is_date("0001-01-01") && is_date("9999-12-31"));
        for invalid in [
            "2023-02-29",
            "2024-13-01",
            "2024-1-01",
            "20240101",
            "2024-01-01T00:00:00Z",
            "+024-01-01",
            "2024-W01-1",
        ] {
            assert!(!is_date(invalid), "{invalid}");
        }
    }
}
