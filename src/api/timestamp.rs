//! Timestamps as filters of lists have them (contract section 4).

use jiff::SignedDuration;
use jiff::civil::DateTime;

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
    let (local, offset) = split_offset(text)?;
    let moment: DateTime = local.parse().ok()?;
    let utc = moment.checked_sub(offset).unwrap_or(if offset.is_negative() {
        DateTime::MAX
    } else {
        DateTime::MIN
    });
    let whole = utc.with().subsec_nanosecond(0).build().ok()?;
    let whole = match bound {
        Bound::From if whole != utc => {
            whole.checked_add(SignedDuration::from_secs(1)).unwrap_or(DateTime::MAX)
        }
        Bound::Equal => return Some(format!("{utc}Z")),
        Bound::From | Bound::To => whole,
    };
    Some(whole.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Length of a local date and time with a fraction of nine digits. Further digits are ignored
/// (contract section 4).
const MAX_LOCAL: usize = "2026-11-20T19:30:00.123456789".len();

/// Splits a timestamp into local date and time, and the offset from UTC. Accepts the grammar of RFC
/// 3339 section 5.6 only; jiff accepts more.
fn split_offset(text: &str) -> Option<(&str, SignedDuration)> {
    let (local, zone) =
        text.split_at_checked(text.find(['Z', 'z']).or_else(|| text.len().checked_sub(6))?)?;
    let (date, time) = local.split_once(['T', 't'])?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let has_shape = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text
                .bytes()
                .zip(pattern.bytes())
                .all(|(b, p)| if p == b'd' { b.is_ascii_digit() } else { b == p })
    };
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !(has_shape(date, "dddd-dd-dd") && has_shape(clock, "dd:dd:dd") && is_fraction) {
        return None;
    }
    let local = local.get(..MAX_LOCAL).unwrap_or(local);
    if zone.eq_ignore_ascii_case("z") {
        return Some((local, SignedDuration::ZERO));
    }
    if !(has_shape(zone, "+dd:dd") || has_shape(zone, "-dd:dd")) {
        return None;
    }
    let hours: i64 = zone.get(1..3)?.parse().ok()?;
    let minutes: i64 = zone.get(4..6)?.parse().ok()?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset = SignedDuration::from_mins(hours * 60 + minutes);
    Some((local, if zone.starts_with('-') { -offset } else { offset }))
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
