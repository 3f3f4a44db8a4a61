//! Timestamps as filters of lists have them (contract section 4).

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;

use crate::model::Bound;
use crate::model::validation::is_date;

/// Converts an RFC 3339 timestamp, or a date at a bound of a range, to the stored form: UTC and
/// whole seconds. Returns `None` if the text is neither.
///
/// Stored timestamps have no fraction. A lower bound with a fraction is therefore rounded up. An
/// equality with a fraction keeps it and matches no record.
pub(super) fn parse_timestamp(text: &str, bound: Bound) -> Option<String> {
    match bound {
        Bound::From if is_date(text) => return Some(format!("{text}T00:00:00Z")),
        Bound::To if is_date(text) => return Some(format!("{text}T23:59:59Z")),
        _ => (),
    }
    let utc = parse_rfc3339(text)?;
    let whole = utc.with().subsec_nanosecond(0).build().ok()?;
    let whole = match bound {
        Bound::Equal => return Some(format!("{utc}Z")),
        Bound::From if whole != utc => whole.saturating_add(SignedDuration::from_secs(1)),
        Bound::From | Bound::To => whole,
    };
    Some(whole.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Length of a local date and time with a fraction of nine digits. jiff takes no more; further
/// digits are ignored (contract section 4).
const MAX_LOCAL: usize = "2026-11-20T19:30:00.123456789".len();

/// Parses a timestamp to the date and time in UTC. jiff also accepts other forms of ISO 8601, so
/// the shape of RFC 3339 section 5.6 is checked first.
///
/// `jiff::Timestamp` ends in 9999 at 22:00 on December 30, before the last moment of a filter.
fn parse_rfc3339(text: &str) -> Option<DateTime> {
    let shape = text.to_ascii_uppercase().replace(|c: char| c.is_ascii_digit(), "d");
    let rest = shape.strip_prefix("dddd-dd-ddTdd:dd:dd")?;
    let zone = rest.strip_prefix(".d").map_or(rest, |rest| rest.trim_start_matches('d'));
    if !matches!(zone, "Z" | "+dd:dd" | "-dd:dd") {
        return None;
    }
    let (local, zone) = text.split_at_checked(text.len() - zone.len())?;
    let text = format!("{}{zone}", local.get(..MAX_LOCAL).unwrap_or(local));
    let pieces = Pieces::parse(&text).ok()?;
    let offset = SignedDuration::from_secs(pieces.to_numeric_offset()?.seconds().into());
    let is_hour = offset.abs() < SignedDuration::from_hours(24);
    is_hour.then_some(DateTime::from_parts(pieces.date(), pieces.time()?).saturating_sub(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_in_any_offset_become_utc() {
        for (text, bound, utc) in [
            ("2026-11-20T19:30:00Z", Bound::Equal, "2026-11-20T19:30:00Z"),
            ("2026-11-20t20:30:00+01:00", Bound::Equal, "2026-11-20T19:30:00Z"),
            ("2026-11-20T19:30:00.5Z", Bound::From, "2026-11-20T19:30:01Z"),
            ("2026-11-20T19:30:00.5Z", Bound::To, "2026-11-20T19:30:00Z"),
            ("2026-11-20T19:30:00.0000000009Z", Bound::From, "2026-11-20T19:30:00Z"),
            ("2026-11-20T19:30:00.0000000019+00:00", Bound::From, "2026-11-20T19:30:01Z"),
            ("2026-11-20T19:30:59.9999999999Z", Bound::To, "2026-11-20T19:30:59Z"),
            ("2026-11-20", Bound::From, "2026-11-20T00:00:00Z"),
            ("2026-11-20", Bound::To, "2026-11-20T23:59:59Z"),
            ("9999-12-31T23:59:59Z", Bound::To, "9999-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59-01:00", Bound::To, "9999-12-31T23:59:59Z"),
            ("2026-11-20T19:30:00+23:59", Bound::Equal, "2026-11-19T19:31:00Z"),
        ] {
            assert_eq!(parse_timestamp(text, bound).as_deref(), Some(utc), "{text}");
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
            "2026-11-20T19:30:00+24:00",
            "2026-11-20T19:30:00+00:60",
            "2026-11-20T19:30:00.Z",
            "2026-11-20T19:30:00.0123456789xZ",
            "2026-11-20T19:30:00.0123456789.0Z",
        ] {
            assert_eq!(parse_timestamp(bad, Bound::Equal), None, "{bad}");
        }
    }
}
