//! Lists: their parameters and their cursors (contract section 4).

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use sha2::{Digest, Sha256};

use super::query::Query;
use crate::http::ApiError;
use crate::model::field::is_date;
use crate::model::{ALL, Column, Field, KeysetPosition, Kind, ListQuery, Predicate, Resource, Value};

/// Records a page, unless `limit` says otherwise.
pub const DEFAULT_LIMIT: usize = 50;
/// The most records a page.
pub const MAX_LIMIT: usize = 200;
/// The most words of `q`.
pub const MAX_WORDS: usize = 20;

/// Every column that lists of the resource can be sorted by: `id`, the fields but `notes`, the timestamps.
pub fn sortable(resource: &'static Resource) -> impl Iterator<Item = Column> + Clone {
    let fields = resource.fields.iter().filter(|field| field.is_sortable()).map(Column::Field);
    [Column::Id].into_iter().chain(fields).chain([Column::CreatedAt, Column::UpdatedAt])
}

/// What a filter's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Text,
    Integer,
    Boolean,
    Date,
    Timestamp,
    Choice(&'static [&'static str]),
}

fn type_of(column: Column) -> Type {
    match column {
        Column::Id => Type::Integer,
        Column::CreatedAt | Column::UpdatedAt => Type::Timestamp,
        Column::Field(Field { kind, .. }) => match kind {
            Kind::Text { .. } | Kind::Email => Type::Text,
            Kind::Integer => Type::Integer,
            Kind::Boolean => Type::Boolean,
            Kind::Date => Type::Date,
            Kind::Choice(allowed) => Type::Choice(allowed),
        },
    }
}

/// Which side of a filter a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Equal,
    /// `FIELD_from`, inclusive.
    From,
    /// `FIELD_to`, inclusive.
    To,
}

impl Bound {
    const fn suffix(self) -> &'static str {
        match self {
            Bound::Equal => "",
            Bound::From => "_from",
            Bound::To => "_to",
        }
    }
}

/// A parameter that filters: its name, the column and the side.
pub type Filter = (String, Column, Bound);

/// Every filter of the resource's lists.
pub fn filters(resource: &'static Resource) -> &'static [Filter] {
    /// Put together once: every list asks for them.
    static OF_EACH: LazyLock<[Vec<Filter>; ALL.len()]> =
        LazyLock::new(|| ALL.map(|resource| filters_of(resource).collect()));
    resource.pick::<Vec<Filter>>(&OF_EACH)
}

fn filters_of(resource: &'static Resource) -> impl Iterator<Item = Filter> {
    sortable(resource).filter(|column| *column != Column::Id).flat_map(|column| {
        let bounds: &[Bound] = match type_of(column) {
            Type::Date | Type::Timestamp => &[Bound::Equal, Bound::From, Bound::To],
            _ => &[Bound::Equal],
        };
        bounds.iter().map(move |bound| (format!("{}{}", column.name(), bound.suffix()), column, *bound))
    })
}

/// The parameters of every list beside its filters.
pub const PARAMETERS: [&str; 5] = ["limit", "cursor", "sort", "total", "q"];

/// What the query asks for.
pub fn parse(resource: &'static Resource, query: &Query) -> Result<ListQuery, ApiError> {
    let filters = filters(resource);
    query.only(PARAMETERS.into_iter().chain(filters.iter().map(|(name, ..)| name.as_str())))?;
    let (sort, descending) = parse_sort(resource, query)?;
    let mut list = ListQuery {
        resource,
        sort,
        descending,
        filters: Vec::new(),
        words: parse_words(query)?,
        limit: parse_limit(query)?,
        after: None,
        total: parse_total(query)?,
    };
    // In the order of the declarations, so that the same filters in another order are the same list.
    for (name, column, bound) in filters {
        if let Some(text) = query.get(name) {
            list.filters.push((*column, parse_predicate(name, *column, *bound, text)?));
        }
    }
    list.after = query.get("cursor").map(|cursor| parse_cursor(cursor, &list)).transpose()?;
    Ok(list)
}

fn bad(name: &str, sent: &str, right: &str) -> ApiError {
    let shown: String = sent.chars().take(40).collect();
    ApiError::bad_request(format!("The query parameter \"{name}\" was {shown:?}; {right}."))
}

fn parse_limit(query: &Query) -> Result<usize, ApiError> {
    let Some(text) = query.get("limit") else { return Ok(DEFAULT_LIMIT) };
    let right = format!("send a number from 1 to {MAX_LIMIT}");
    match decimal(text) {
        Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        _ => Err(bad("limit", text, &right)),
    }
}

fn decimal(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if digits { text.parse().ok() } else { None }
}

fn parse_total(query: &Query) -> Result<bool, ApiError> {
    query.get("total").map_or(Ok(false), |text| boolean(text).ok_or_else(|| bad("total", text, "send true or false")))
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn parse_sort(resource: &'static Resource, query: &Query) -> Result<(Column, bool), ApiError> {
    let Some(text) = query.get("sort") else { return Ok((Column::Id, false)) };
    let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    match sortable(resource).find(|column| column.name() == name) {
        Some(column) => Ok((column, descending)),
        None => {
            let names: Vec<&str> = sortable(resource).map(Column::name).collect();
            let right = format!("send one of {}, with \"-\" in front for descending order", names.join(", "));
            Err(bad("sort", text, &right))
        }
    }
}

fn parse_words(query: &Query) -> Result<Vec<String>, ApiError> {
    let words: Vec<String> = query.get("q").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    if words.len() > MAX_WORDS {
        return Err(ApiError::bad_request(format!(
            "The query parameter \"q\" has {} words; send at most {MAX_WORDS}.",
            words.len()
        )));
    }
    Ok(words)
}

fn parse_predicate(name: &str, column: Column, bound: Bound, text: &str) -> Result<Predicate, ApiError> {
    let kind = type_of(column);
    if text.trim().is_empty() {
        let null = if bound == Bound::Equal { ", or null" } else { "" };
        return Err(bad(name, text, &format!("{}{null}", expectation(kind, bound))));
    }
    if bound == Bound::Equal && text == "null" {
        return Ok(Predicate::Equals(Value::Null));
    }
    let value = match kind {
        Type::Text => Some(Value::Text(text.to_owned())),
        Type::Integer => integer(text).map(Value::Integer),
        Type::Boolean => boolean(text).map(Value::Boolean),
        Type::Date => is_date(text).then(|| Value::Text(text.to_owned())),
        Type::Timestamp => timestamp(text, bound).map(Value::Text),
        Type::Choice(allowed) => allowed.contains(&text).then(|| Value::Text(text.to_owned())),
    };
    match (value, bound) {
        (Some(value), Bound::Equal) => Ok(Predicate::Equals(value)),
        (Some(Value::Text(value)), Bound::From) => Ok(Predicate::AtLeast(value)),
        (Some(Value::Text(value)), Bound::To) => Ok(Predicate::AtMost(value)),
        _ => {
            let plus =
                kind == Type::Timestamp && text.contains(' ') && timestamp(&text.replace(' ', "+"), bound).is_some();
            let hint = if plus { " (a \"+\" in a query means a space; write it as %2B)" } else { "" };
            Err(bad(name, text, &format!("{}{hint}", expectation(kind, bound))))
        }
    }
}

fn expectation(kind: Type, bound: Bound) -> String {
    match kind {
        Type::Text => "send the text to compare with".to_owned(),
        Type::Integer => "send an integer in the signed 64-bit range".to_owned(),
        Type::Boolean => "send true, false, 1 or 0".to_owned(),
        Type::Date => "send a date that exists in the form YYYY-MM-DD".to_owned(),
        Type::Timestamp if bound == Bound::Equal => {
            "send an RFC 3339 timestamp such as 2026-11-20T19:30:00Z".to_owned()
        }
        Type::Timestamp => "send an RFC 3339 timestamp such as 2026-11-20T19:30:00Z, or a date".to_owned(),
        Type::Choice(allowed) => format!("send one of {}", allowed.join(", ")),
    }
}

/// An integer as JSON writes it.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

/// An RFC 3339 timestamp, or at a range's end a date, as a stored one compares with it: UTC and whole seconds.
///
/// Stored timestamps have no fraction. A range that begins within a second begins with the next one, and no record is of
/// a moment within a second.
fn timestamp(text: &str, bound: Bound) -> Option<String> {
    match bound {
        Bound::From if is_date(text) => return Some(format!("{text}T00:00:00Z")),
        Bound::To if is_date(text) => return Some(format!("{text}T23:59:59Z")),
        _ => (),
    }
    let (local, offset) = split_offset(text)?;
    let moment: DateTime = local.parse().ok()?;
    let utc = moment.checked_sub(offset).unwrap_or(if offset.is_negative() { DateTime::MAX } else { DateTime::MIN });
    let whole = utc.with().subsec_nanosecond(0).build().ok()?;
    let whole = match bound {
        Bound::From if whole != utc => whole.checked_add(SignedDuration::from_secs(1)).unwrap_or(DateTime::MAX),
        Bound::Equal if whole != utc => return Some(format!("{utc}Z")),
        _ => whole,
    };
    Some(whole.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// The bytes of a local date and time with nine digits of a fraction. Further digits are ignored (contract section 4).
const LONGEST_LOCAL: usize = "2026-11-20T19:30:00.123456789".len();

/// The local date and time, and the offset from UTC: exactly RFC 3339's shape, since jiff reads others too.
fn split_offset(text: &str) -> Option<(&str, SignedDuration)> {
    let (local, zone) = text.split_at_checked(text.find(['Z', 'z']).or_else(|| text.len().checked_sub(6))?)?;
    let (date, time) = local.split_once(['T', 't'])?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let shape = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(b, p)| if p == b'd' { b.is_ascii_digit() } else { b == p })
    };
    let fraction_fits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !(shape(date, "dddd-dd-dd") && shape(clock, "dd:dd:dd") && fraction_fits) {
        return None;
    }
    let local = local.get(..LONGEST_LOCAL).unwrap_or(local);
    if zone.eq_ignore_ascii_case("z") {
        return Some((local, SignedDuration::ZERO));
    }
    if !(shape(zone, "+dd:dd") || shape(zone, "-dd:dd")) {
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

// A cursor is the base64url of: a version byte, 8 bytes of what list it belongs to, the last record's id, its sort value,
// and 8 bytes of SHA-256 over all that, so that a damaged one is told from a good one.

const VERSION: u8 = 1;
const SUM: usize = 8;
/// The most characters of a cursor; the longest sort value, an e-mail address, fits.
pub const MAX_CURSOR: usize = 2048;

/// The cursor that stands for `position` in the list.
pub fn write_cursor(position: &KeysetPosition, list: &ListQuery) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&identity(list));
    bytes.extend_from_slice(&position.id.to_be_bytes());
    match &position.value {
        Value::Null => bytes.push(b'n'),
        Value::Boolean(truth) => bytes.extend([b'b', u8::from(*truth)]),
        Value::Integer(number) => {
            bytes.push(b'i');
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        Value::Text(text) => {
            bytes.push(b't');
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes.extend_from_slice(&sum(&bytes));
    URL_SAFE_NO_PAD.encode(bytes)
}

fn parse_cursor(text: &str, list: &ListQuery) -> Result<KeysetPosition, ApiError> {
    let damaged = || {
        ApiError::bad_request(
            "The query parameter \"cursor\" is damaged. Send the \"next_cursor\" of the last page unchanged."
                .to_owned(),
        )
    };
    if text.len() > MAX_CURSOR {
        return Err(damaged());
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| damaged())?;
    let (body, check) = bytes.split_last_chunk::<SUM>().ok_or_else(damaged)?;
    if sum(body) != *check {
        return Err(damaged());
    }
    let (owner, position) = read_cursor(body).ok_or_else(damaged)?;
    if owner != identity(list) {
        return Err(ApiError::bad_request(
            "The query parameter \"cursor\" belongs to another list. Send it with the resource, sort, filters and q that it came with."
                .to_owned(),
        ));
    }
    Ok(position)
}

fn read_cursor(body: &[u8]) -> Option<([u8; SUM], KeysetPosition)> {
    let (version, rest) = body.split_first()?;
    let (owner, rest) = rest.split_first_chunk::<SUM>()?;
    let (id, rest) = rest.split_first_chunk::<8>()?;
    let (tag, rest) = rest.split_first()?;
    let value = match (tag, rest) {
        (b'n', []) => Value::Null,
        (b'b', [truth]) => Value::Boolean(*truth == 1),
        (b'i', number) => Value::Integer(i64::from_be_bytes(number.try_into().ok()?)),
        (b't', text) => Value::Text(str::from_utf8(text).ok()?.to_owned()),
        _ => return None,
    };
    (*version == VERSION).then_some((*owner, KeysetPosition { value, id: i64::from_be_bytes(*id) }))
}

/// What a cursor belongs to: resource, sort, filters and `q`. `limit` and `total` may change from page to page.
fn identity(list: &ListQuery) -> [u8; SUM] {
    let filters: Vec<(&str, &Predicate)> = list.filters.iter().map(|(column, test)| (column.name(), test)).collect();
    sum(format!("{} {} {} {filters:?} {:?}", list.resource.plural, list.sort.name(), list.descending, list.words)
        .as_bytes())
}

fn sum(bytes: &[u8]) -> [u8; SUM] {
    let whole: [u8; 32] = Sha256::digest(bytes).into();
    whole.first_chunk().copied().unwrap_or_default()
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
        ] {
            assert_eq!(timestamp(text, bound).as_deref(), Some(utc), "{text}");
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
            "2026-11-20T19:30:00.Z",
            "2026-11-20T19:30:00.0123456789xZ",
            "2026-11-20T19:30:00.0123456789.0Z",
        ] {
            assert_eq!(timestamp(bad, Bound::Equal), None, "{bad}");
        }
    }
}
