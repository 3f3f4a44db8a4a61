//! The end of a key (contract section 14).

use std::fmt;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span};
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};

use crate::clock::{Moment, Timestamp};

/// The second from which on a key is expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(Timestamp);

/// How long before its end the responses to a key announce it.
const NOTICE: SignedDuration = SignedDuration::from_hours(14 * 24);

impl Expiry {
    pub fn at(timestamp: Timestamp) -> Expiry {
        Expiry(timestamp)
    }

    /// The last second of a date `YYYY-MM-DD` in UTC, or `None` if `date` is no date.
    pub fn at_end_of(date: &str) -> Option<Expiry> {
        let last_second = date.parse::<jiff::civil::Date>().ok()?.at(23, 59, 59, 0);
        last_second.to_zoned(TimeZone::UTC).ok().map(|zoned| Expiry(zoned.timestamp().into()))
    }

    /// The second that is `span` after `now`, or `None` beyond the calendar. Years and months are
    /// those of the calendar, in UTC.
    pub fn after(now: Moment, span: Span) -> Option<Expiry> {
        let end = now.wall.to_zoned(TimeZone::UTC).checked_add(span).ok()?;
        Some(Expiry(end.timestamp().into()))
    }

    /// Whether the end has come.
    pub fn is_over(self, now: Moment) -> bool {
        self.0 <= now.timestamp()
    }

    /// Whether the end has come or is at most 14 days away.
    pub fn is_near(self, now: Moment) -> bool {
        jiff::Timestamp::from(self.0).duration_since(now.wall) <= NOTICE
    }
}

/// RFC 3339 in UTC and whole seconds, which is also the stored form.
impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ToSql for Expiry {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for Expiry {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Expiry> {
        Timestamp::column_result(value).map(Expiry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn moment(text: &str) -> Moment {
        Clock::manual(text.parse().unwrap()).now()
    }

    #[test]
    fn a_key_is_expired_from_the_second_of_its_end_on() {
        let expiry = Expiry::at_end_of("2026-12-31").unwrap();
        assert_eq!(expiry.to_string(), "2026-12-31T23:59:59Z");
        assert!(!expiry.is_over(moment("2026-12-31T23:59:58.999Z")));
        assert!(expiry.is_over(moment("2026-12-31T23:59:59Z")));
        assert!(
            Expiry::at("2026-11-20T20:30:00.9+01:00".parse().unwrap())
                .is_over(moment("2026-11-20T19:30:00Z"))
        );
    }

    #[test]
    fn an_end_is_announced_for_14_days() {
        let expiry = Expiry::at_end_of("2026-12-31").unwrap();
        assert!(!expiry.is_near(moment("2026-12-17T23:59:58Z")));
        assert!(expiry.is_near(moment("2026-12-17T23:59:59Z")));
    }

    #[test]
    fn a_span_is_added_in_utc() {
        let now = moment("2028-02-29T12:00:00.5Z");
        let after =
            |span: &str| Expiry::after(now, span.parse().unwrap()).map(|expiry| expiry.to_string());
        assert_eq!(after("30d").as_deref(), Some("2028-03-30T12:00:00Z"));
        assert_eq!(after("1y").as_deref(), Some("2029-02-28T12:00:00Z"));
        assert_eq!(after("90s").as_deref(), Some("2028-02-29T12:01:30Z"));
        assert_eq!(after("9000y"), None);
    }

    #[test]
    fn what_is_no_date_has_no_end() {
        for text in ["", "2026-02-30", "x", "9999-12-31"] {
            assert_eq!(Expiry::at_end_of(text), None, "{text}");
        }
    }
}
