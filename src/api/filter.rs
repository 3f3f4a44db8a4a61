//! The filters of lists (contract section 4): by fields and by custom fields.

use std::sync::LazyLock;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;

use super::parameters::{Query, invalid_parameter};
use crate::http::ApiError;
use crate::model::custom::{NAME_RULE, PREFIX, name_in};
use crate::model::validation::{is_date, is_integer, shorten};
use crate::model::{ALL, Bound, Field, ID, Json, Kind, Resource, Value};

/// Maximum number of filters by custom fields.
pub const MAX_CUSTOM_FILTERS: usize = 3;

/// A query parameter that filters a list.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The name of the field; of a bound of a range with `_from` or `_to`.
    pub name: String,
    pub field: &'static Field,
    pub bound: Bound,
}

/// The filters of the resource's lists: by the fields of sorts but `id`.
pub fn filters(resource: &'static Resource) -> &'static [Filter] {
    /// Built once, since every request for a list needs them.
    static BY_RESOURCE: LazyLock<[Vec<Filter>; ALL.len()]> =
        LazyLock::new(|| ALL.map(|resource| filters_of(resource).collect()));
    resource.by_resource::<Vec<Filter>>(&BY_RESOURCE)
}

fn filters_of(resource: &'static Resource) -> impl Iterator<Item = Filter> {
    let fields = resource.sortable_fields().filter(|field| **field != ID);
    fields.flat_map(|field| {
        let is_range = matches!(field.kind, Kind::Date | Kind::Timestamp);
        let bounds = [("", Bound::Equal), ("_from", Bound::From), ("_to", Bound::To)];
        let bounds = bounds.into_iter().take(if is_range { 3 } else { 1 });
        bounds.map(move |(suffix, bound)| Filter {
            name: format!("{}{suffix}", field.name),
            field,
            bound,
        })
    })
}

/// The filters by custom fields, in the order of their names.
pub(super) fn parse_custom(query: &Query) -> Result<Vec<(String, Value)>, ApiError> {
    let mut filters = Vec::new();
    for label in query.names().filter(|name| name.starts_with(PREFIX)) {
        let text = query.get(label).unwrap_or_default();
        let Some(name) = name_in(label) else {
            return Err(ApiError::bad_request(format!(
                "The query parameter {:?} names no custom field. {NAME_RULE}",
                shorten(label)
            )));
        };
        let value = match text {
            "null" => Value::Null,
            text if text.trim().is_empty() => {
                return Err(invalid_parameter(label, text, "send the text to compare with"));
            }
            text => Value::of(text),
        };
        filters.push((name.to_owned(), value));
    }
    if filters.len() > MAX_CUSTOM_FILTERS {
        return Err(ApiError::bad_request(format!(
            "The query has {} filters by custom fields; send at most {MAX_CUSTOM_FILTERS}.",
            filters.len()
        )));
    }
    filters.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(filters)
}

/// The value of a filter in the query.
pub(super) fn parse_filter(filter: &Filter, text: &str) -> Result<Value, ApiError> {
    let Filter { name, field, bound } = filter;
    if *bound == Bound::Equal && text == "null" {
        return Ok(Value::Null);
    }
    if let Some(value) = parse_value(field, *bound, text).filter(|_| !text.trim().is_empty()) {
        return Ok(value);
    }
    let (or_date, or_null) = match bound {
        Bound::Equal => ("", ", or null"),
        Bound::From | Bound::To if field.kind == Kind::Timestamp => (", or a date", ""),
        Bound::From | Bound::To => ("", ""),
    };
    let with_plus = parse_value(field, *bound, &text.replace(' ', "+"));
    let hint = match with_plus {
        Some(_) if matches!(field.kind, Kind::Timestamp | Kind::Email) => {
            " (a \"+\" in a query means a space; write it as %2B)"
        }
        _ => "",
    };
    let expectation = match field.kind {
        Kind::Text { .. } | Kind::Email => "send the text to compare with".to_owned(),
        _ => field.expectation(),
    };
    Err(invalid_parameter(name, text, &format!("{expectation}{or_date}{or_null}{hint}")))
}

/// The value of a filter that has one.
fn parse_value(field: &Field, bound: Bound, text: &str) -> Option<Value> {
    let input = match field.kind {
        // No address has a space. It was a `+` that the client did not encode.
        Kind::Email if text.contains(' ') => return None,
        Kind::Text { .. } | Kind::Email => return Some(Value::of(text)),
        Kind::Timestamp => return parse_timestamp(text, bound).map(Value::Text),
        Kind::Boolean if matches!(text, "true" | "false") => Json::from(text == "true"),
        Kind::Boolean | Kind::Integer if is_integer(text) => serde_json::from_str(text).ok()?,
        Kind::Boolean | Kind::Integer => return None,
        Kind::Date | Kind::Choice(_) => Json::from(text),
        // It is not indexed, so no list has a filter by the whole object.
        Kind::Custom => return None,
    };
    field.check(&input).ok()
}

/// Converts an RFC 3339 timestamp, or a date at a bound of a range, to the stored form: UTC and
/// whole seconds. Returns `None` if the text is neither.
///
/// Stored timestamps have no fraction. A lower bound with a fraction is therefore rounded up. An
/// equality with a fraction keeps it and matches no record.
pub fn parse_timestamp(text: &str, bound: Bound) -> Option<String> {
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
