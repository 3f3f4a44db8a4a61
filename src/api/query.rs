//! The query of a request (contract section 3): its parameters, the filters of lists (section 4),
//! and the messages about parameters that TenantDesk does not have.

use std::sync::LazyLock;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::routes::insufficient_scope;
use crate::clock::{self, Timestamp};
use crate::http::ApiError;
use crate::http::request::{decode_form, form_pairs};
use crate::model::validation::{
    CUSTOM_NAME_RULE, CUSTOM_PREFIX, custom_name_in, is_integer, is_positive_integer, shorten,
    split_range,
};
use crate::model::{
    ALL, Access, Bound, Field, ID, Inclusion, Json, Kind, RecordId, Resource, Scope, Scopes,
    UPDATED_AT, Value,
};
use crate::words;

/// The parameter for a moment of the past.
pub const AT: &str = "at";

/// The only parameter that a request may repeat: many generated clients repeat a list.
pub const INCLUDE: &str = "include";

/// The parameters of a query in the order sent: names and values, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query string.
    ///
    /// # Errors
    ///
    /// `bad_request` if a name or value is not UTF-8, or if a parameter other than `include` occurs
    /// twice.
    pub fn parse(raw: Option<&str>) -> Result<Query, ApiError> {
        let mut query = Query::default();
        for (name, value) in form_pairs(raw.unwrap_or_default()) {
            let name = decode(name, None)?;
            let value = decode(value, Some(&name))?;
            query.0.push((name, value));
        }
        // A batch operation may have 200,000 parameters, so they are sorted.
        let mut names: Vec<&str> = query.names().filter(|name| *name != INCLUDE).collect();
        names.sort_unstable();
        match names.iter().zip(names.iter().skip(1)).find(|(name, next)| name == next) {
            None => Ok(query),
            Some((name, _)) => Err(ApiError::bad_request(format!(
                "The query parameter {name:?} is given twice. It takes one value; for several \
                 values, send a request for each."
            ))),
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The values of a parameter that may be repeated.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs().filter(move |(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The parameter `id`: decimal digits without sign or leading zero.
    ///
    /// # Errors
    ///
    /// `bad_request` for any other text.
    pub fn id(&self) -> Result<Option<RecordId>, ApiError> {
        let Some(text) = self.get("id") else { return Ok(None) };
        if is_positive_integer(text) {
            // No record has an id beyond 64 bits, and none has the last one.
            return Ok(Some(RecordId(text.parse().unwrap_or(i64::MAX))));
        }
        let expectation = if text.contains(',') {
            "send one id, and a request for each"
        } else {
            "send a positive integer without sign or leading zero, such as 12"
        };
        Err(invalid_parameter("id", text, expectation))
    }

    /// The parameter `at`: a second that is over, or the end of a day that is.
    ///
    /// # Errors
    ///
    /// `bad_request` for another text, for the second `now` and for a later one.
    pub fn at(&self, now: Timestamp) -> Result<Option<Timestamp>, ApiError> {
        let Some(text) = self.get(AT) else { return Ok(None) };
        let stored = clock::last_second(text).ok_or_else(|| invalid_moment(AT, text))?;
        match stored.parse() {
            Ok(at) if at < now => Ok(Some(at)),
            _ => {
                let last = now.before(Duration::from_secs(1));
                let expectation =
                    format!("the last second that is over, and can be read, is {last}");
                Err(invalid_parameter(AT, text, &expectation))
            }
        }
    }

    /// Checks that every parameter is in `known`.
    ///
    /// # Errors
    ///
    /// `bad_request` for an unknown parameter; the message names the right one if it can.
    pub fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.names().find(|name| !known.contains(name)) {
            Some(name) => Err(ApiError::bad_request(unknown_parameter(name, known))),
            None => Ok(()),
        }
    }

    /// The value of `Link` (RFC 8288) for the page from `cursor` on. `path` is the request's path.
    pub fn link_to_next(&self, path: &str, cursor: &str) -> String {
        /// Some clients cut the header at a comma or a semicolon.
        const ENCODED: &AsciiSet =
            &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');
        let encode = |text| utf8_percent_encode(text, ENCODED);
        let kept = self.pairs().filter(|(name, _)| *name != "cursor");
        let mut pieces: Vec<String> =
            kept.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        pieces.push(format!("cursor={cursor}"));
        format!("<{path}?{}>; rel=\"next\"", pieces.join("&"))
    }
}

/// `bad_request` for the value of a query parameter. `expectation` says what to send.
pub fn invalid_parameter(name: &str, sent: &str, expectation: &str) -> ApiError {
    ApiError::bad_request(format!(
        "The query parameter \"{name}\" was {:?}; {expectation}.",
        shorten(sent)
    ))
}

/// `bad_request` for a parameter that takes a timestamp or a date.
pub(super) fn invalid_moment(name: &str, sent: &str) -> ApiError {
    let hint = if sent.contains(' ') { PLUS } else { "" };
    invalid_parameter(name, sent, &format!("{}, or a date{hint}", UPDATED_AT.expectation()))
}

/// Clients forget to encode the sign.
const PLUS: &str = " (a \"+\" in a query means a space; write it as %2B)";

fn decode(text: &str, parameter: Option<&str>) -> Result<String, ApiError> {
    decode_form(text).map_err(|_| {
        let subject = match parameter {
            Some(name) => format!("The query parameter {name:?}"),
            None => "A name in the query".to_owned(),
        };
        let message = format!("{subject} is not UTF-8 after percent-decoding. Encode it as UTF-8.");
        ApiError::bad_request(message)
    })
}

/// The parameter `include`.
///
/// # Errors
///
/// `bad_request` for an unknown or repeated name, `insufficient_scope` if `scopes` does not permit
/// to read what is included.
pub fn parse_include(
    resource: &'static Resource,
    query: &Query,
    scopes: Scopes,
) -> Result<Vec<&'static Inclusion>, ApiError> {
    let values: Vec<&str> = query.all(INCLUDE).collect();
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let text = values.join(",");
    let sent: Vec<&str> = text.split(',').collect();
    let possible = resource.inclusions().iter();
    let included: Vec<&Inclusion> =
        possible.clone().filter(|one| sent.contains(&one.name())).collect();
    if included.len() < sent.len() {
        let names: Vec<&str> = possible.map(Inclusion::name).collect();
        let expectation =
            format!("send names out of {} with commas between, each once", names.join(", "));
        return Err(invalid_parameter(INCLUDE, &text, &expectation));
    }
    let read = included.iter().map(|one| Scope { resource: one.resource, access: Access::Read });
    let lacking: Scopes = read.filter(|scope| !scopes.contains(*scope)).collect();
    if lacking.is_empty() { Ok(included) } else { Err(insufficient_scope(lacking, "and")) }
}

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

/// The filters by custom fields. Both bounds of a range count as one.
pub(super) fn parse_custom(query: &Query) -> Result<Vec<(String, Bound, Value)>, ApiError> {
    let mut filters = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for label in query.names().filter(|name| name.starts_with(CUSTOM_PREFIX)) {
        let text = query.get(label).unwrap_or_default();
        let (label_of_field, bound) = split_range(label);
        let Some(name) = custom_name_in(label_of_field) else {
            return Err(ApiError::bad_request(format!(
                "The query parameter {:?} names no custom field. {CUSTOM_NAME_RULE}",
                shorten(label)
            )));
        };
        let value = match text {
            "null" if bound == Bound::Equal => Value::Null,
            text if text.trim().is_empty() || text == "null" => {
                return Err(invalid_parameter(label, text, "send the text to compare with"));
            }
            text => Value::of(text.trim()),
        };
        if bound == Bound::Equal || !names.contains(&name) {
            names.push(name);
        }
        filters.push((name.to_owned(), bound, value));
    }
    if names.len() > MAX_CUSTOM_FILTERS {
        return Err(ApiError::bad_request(format!(
            "The query has {} filters by custom fields; send at most {MAX_CUSTOM_FILTERS}.",
            names.len()
        )));
    }
    Ok(filters)
}

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
        Some(_) if matches!(field.kind, Kind::Timestamp | Kind::Email) => PLUS,
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
        Kind::Email if text.trim().contains(' ') => return None,
        Kind::Text { .. } | Kind::Email => return Some(Value::of(text.trim())),
        Kind::Timestamp => {
            let stored = match bound {
                Bound::Equal => clock::exact_time(text),
                Bound::From => clock::first_second(text),
                Bound::To => clock::last_second(text),
            };
            return stored.map(Value::Text);
        }
        Kind::Boolean if matches!(text, "true" | "false") => Json::from(text == "true"),
        Kind::Boolean | Kind::Integer if is_integer(text) => serde_json::from_str(text).ok()?,
        Kind::Boolean | Kind::Integer => return None,
        Kind::Date | Kind::Choice(_) => Json::from(text),
        // It is not indexed, so no list has a filter by the whole object.
        Kind::Custom => return None,
    };
    field.check(&input).ok()
}

/// A table: a parameter that the request takes or `-`, names that other services have, the hint.
static FOREIGN_NAMES: &str = include_str!("foreign_names.txt");

/// The words in front of or behind the name of a field by which other services mean a bound, and
/// the end of the name here. A hint to the other bound would find the wrong records.
const BOUNDS: [(&str, &str); 2] =
    [("gte ge gt after since min from", "_from"), ("lte le lt before until till max to", "_to")];

/// Other operators behind the name of a field.
const OPERATORS: [(&str, &str); 3] = [
    (
        "contains icontains like ilike startswith istartswith with match regex",
        "A filter takes the whole value. For a part of a text, send \"q\".",
    ),
    ("ne neq not", "No filter leaves out a value."),
    ("in any", "A filter takes one value. For several values, send a request for each."),
];

fn unknown_parameter(name: &str, known: &[&str]) -> String {
    let plain = plain_name(name);
    match hint(&plain, known) {
        Some(hint) => format!("Unknown query parameter {name:?}. {hint}"),
        None => words::unknown("query parameter", name, known.iter().copied()),
    }
}

/// The name in small letters with `_` between its words: `createdAt[gte]` is `created_at_gte`.
fn plain_name(name: &str) -> String {
    let mut spaced = String::new();
    for character in name.chars() {
        match character {
            '>' => spaced.push_str(" gte"),
            '<' => spaced.push_str(" lte"),
            '!' => spaced.push_str(" not"),
            _ if character.is_ascii_uppercase() => {
                spaced.push(' ');
                spaced.push(character.to_ascii_lowercase());
            }
            _ if character.is_ascii_alphanumeric() => spaced.push(character),
            _ => spaced.push(' '),
        }
    }
    spaced.split_whitespace().collect::<Vec<_>>().join("_")
}

fn has_word(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|known| known == word)
}

fn hint(plain: &str, known: &[&str]) -> Option<String> {
    for line in FOREIGN_NAMES.lines() {
        let mut cells = line.splitn(3, " | ");
        let (if_known, names) = (cells.next()?, cells.next().unwrap_or_default());
        if (if_known == "-" || known.contains(&if_known)) && has_word(names, plain) {
            return cells.next().map(str::to_owned);
        }
    }
    if !known.contains(&"q") {
        return None;
    }
    // `filter[city]` and `custom[room]`
    let bare = plain.strip_prefix("filter_").unwrap_or(plain);
    if let Some(custom) = bare.strip_prefix("custom_") {
        return Some(format!("Did you mean \"{CUSTOM_PREFIX}{custom}\"?"));
    }
    if known.contains(&bare) {
        return Some(format!("Did you mean \"{bare}\"?"));
    }
    let (field, operator) = bare.rsplit_once('_')?;
    let (first, rest) = bare.split_once('_')?;
    for (operators, suffix) in BOUNDS {
        let behind = has_word(operators, operator).then(|| similar_range(field, suffix, known));
        let before = has_word(operators, first).then(|| similar_range(rest, suffix, known));
        if let Some(bound) = behind.flatten().or(before.flatten()) {
            return Some(format!("Did you mean \"{bound}\"? Both ends of a range belong to it."));
        }
    }
    let is_field = known.contains(&field) || known.contains(&field.trim_end_matches("_starts"));
    let operation = OPERATORS.iter().find(|(words, _)| is_field && has_word(words, operator));
    operation.map(|(_, hint)| (*hint).to_owned())
}

fn similar_range(field: &str, suffix: &str, known: &[&str]) -> Option<String> {
    let fields = known.iter().filter_map(|name| name.strip_suffix(suffix));
    words::closest(field, fields).map(|field| format!("{field}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 12] = [
        "limit",
        "cursor",
        "sort",
        "q",
        "city",
        "created_at",
        "created_at_from",
        "created_at_to",
        "purchase_date",
        "purchase_date_from",
        "purchase_date_to",
        "custom.NAME",
    ];

    #[test]
    fn a_bound_of_another_service_is_never_the_opposite_bound() {
        let from = ["gte", "ge", "gt", "after", "since", "min"];
        let to = ["lte", "le", "lt", "before", "until", "max"];
        for (words, bound) in [(from, "from"), (to, "to")] {
            for word in words {
                for (name, field) in [
                    (format!("created_at_{word}"), "created_at"),
                    (format!("created_{word}"), "created_at"),
                    (format!("created_at[{word}]"), "created_at"),
                    (format!("created_at[${word}]"), "created_at"),
                    (format!("created_at__{word}"), "created_at"),
                    (format!("filter[purchase_date][{word}]"), "purchase_date"),
                    (format!("{word}_created_at"), "created_at"),
                    (format!("purchaseDate.{word}"), "purchase_date"),
                ] {
                    let message = unknown_parameter(&name, &KNOWN);
                    let hint = format!("Did you mean \"{field}_{bound}\"?");
                    assert!(message.contains(&hint), "{name}: {message}");
                }
            }
        }
        for (name, bound) in [("created_at>", "from"), ("created_at<", "to")] {
            let message = unknown_parameter(name, &KNOWN);
            assert!(message.contains(&format!("created_at_{bound}")), "{message}");
        }
    }

    #[test]
    fn a_hint_is_for_requests_that_take_its_parameter() {
        for line in FOREIGN_NAMES.lines().filter(|line| !line.starts_with('#')) {
            let [_, names, hint] = line.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert!(hint.ends_with(['.', '?']), "{line}");
            for name in names.split_whitespace() {
                assert_eq!(plain_name(name), name, "no sent name would match");
            }
        }
        assert!(unknown_parameter("pageSize", &KNOWN).contains("\"limit\""));
        assert!(unknown_parameter("page", &["id"]).contains("Known here: id."));
        assert!(unknown_parameter("page", &[]).contains("None is known here"));
    }
}
