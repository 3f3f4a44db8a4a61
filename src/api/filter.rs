//! The filters of lists (contract section 4): by fields and by custom fields.

use std::sync::LazyLock;

use super::query::{Query, invalid_parameter};
use crate::clock;
use crate::http::ApiError;
use crate::model::custom::{NAME_RULE, PREFIX, name_in};
use crate::model::validation::{is_integer, shorten};
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
            text => Value::of(text.trim()),
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
