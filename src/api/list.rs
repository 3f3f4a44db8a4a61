//! Lists (contract section 4): the declarations of their parameters and filters, from which the
//! OpenAPI document and the documentation page follow too, and what a query string asks for.

use std::sync::LazyLock;

use serde_json::json;

pub use super::cursor::write_cursor;
use super::cursor::{MAX_CURSOR, parse_cursor};
use super::errors::{self, invalid_parameter};
use super::query::{Query, QueryParameter};
use super::timestamp::parse_timestamp;
use crate::http::ApiError;
use crate::model::custom::{NAME_RULE, PREFIX, name_in};
use crate::model::validation::{is_positive_integer, shorten};
use crate::model::{
    ALL, Access, Bound, CREATED_AT, Column, Field, ID, Inclusion, Json, Kind, ListQuery, Resource,
    Scope, Scopes, UPDATED_AT, Value,
};

/// Records on a page if `limit` is absent.
pub const DEFAULT_LIMIT: usize = 50;
/// Maximum of `limit`.
pub const MAX_LIMIT: usize = 200;
/// Maximum number of words in `q`.
pub const MAX_WORDS: usize = 20;
/// Maximum number of characters in `q`.
pub const MAX_SEARCH_LENGTH: usize = 200;
/// Maximum number of filters by custom fields.
pub const MAX_CUSTOM_FILTERS: usize = 3;
/// The cursor of a list of customers by id.
pub const EXAMPLE_CURSOR: &str = "AXJ0ZW5hbnRkZQAAAAAAAAABaQAAAAAAAAABJ3y5cPzGmQ4";

// The descriptions name them.
const _: () = assert!(DEFAULT_LIMIT == 50 && MAX_WORDS == 20);

/// Every list parameter in the order of the reference.
pub static PARAMETERS: [QueryParameter<&'static Resource>; 6] = [
    QueryParameter {
        name: "limit",
        about: "Records on a page; 50 if absent.",
        values: |_| format!("1 to {MAX_LIMIT}"),
        schema: |_| json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT }),
        example: || json!(DEFAULT_LIMIT),
    },
    QueryParameter {
        name: "cursor",
        about: "The `next_cursor` of the previous page; empty for the first page. Sort, filters and \
                `q` must be the same.",
        values: |_| "text".to_owned(),
        schema: |_| json!({ "type": "string", "maxLength": MAX_CURSOR }),
        example: || json!(EXAMPLE_CURSOR),
    },
    QueryParameter {
        name: "sort",
        about: "The order; `id` if absent. A leading `-` means descending. Nulls come first; ties \
                are ordered by `id`.",
        values: |resource| names(sortable(resource).map(|field| field.name)),
        schema: sort_schema,
        example: || json!("-updated_at"),
    },
    QueryParameter {
        name: "total",
        about: "Whether the response has `total`, the number of all matching records.",
        values: |_| "true or false".to_owned(),
        schema: |_| {
            let digits = json!({ "type": "string", "enum": ["1", "0"] });
            json!({ "anyOf": [{ "type": "boolean" }, digits] })
        },
        example: || json!(true),
    },
    QueryParameter {
        name: "q",
        about: "A record matches if each word occurs in one of its text, e-mail or custom fields. \
                Case is ignored. At most 20 words.",
        values: |_| format!("text, at most {MAX_SEARCH_LENGTH}"),
        schema: |_| json!({ "type": "string", "maxLength": MAX_SEARCH_LENGTH }),
        example: || json!("eva"),
    },
    QueryParameter {
        name: "include",
        about: "Adds to each record the records that it belongs to. Needs the scope for reading \
                each.",
        values: |resource| names(resource.inclusions().iter().map(Inclusion::name)),
        schema: include_schema,
        example: || json!(["customer"]),
    },
];

/// The parameters of the resource's lists. Records without references have no `include`.
pub fn parameters(
    resource: &'static Resource,
) -> impl Iterator<Item = &'static QueryParameter<&'static Resource>> + Clone {
    let has = |name| name != "include" || !resource.inclusions().is_empty();
    PARAMETERS.iter().filter(move |parameter| has(parameter.name))
}

/// The values of a parameter, for the documentation page.
pub fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(" · ")
}

fn include_schema(resource: &'static Resource) -> Json {
    let names: Vec<&str> = resource.inclusions().iter().map(Inclusion::name).collect();
    let items = json!({ "type": "string", "enum": names });
    json!({ "type": "array", "items": items, "minItems": 1, "uniqueItems": true })
}

fn sort_schema(resource: &'static Resource) -> Json {
    let columns = || sortable(resource).map(|field| field.name);
    let orders: Vec<String> =
        columns().flat_map(|name| [name.to_owned(), format!("-{name}")]).collect();
    // Generators derive identifiers from the values, and a leading minus is not valid in one.
    let names: Vec<String> =
        columns().flat_map(|name| [name.to_owned(), format!("{name}_descending")]).collect();
    json!({ "type": "string", "enum": orders, "x-enum-varnames": names })
}

/// The fields by which lists of the resource can be sorted: `id`, the fields with an index,
/// and the timestamps.
pub fn sortable(resource: &'static Resource) -> impl Iterator<Item = &'static Field> + Clone {
    let fields = resource.fields.iter().filter(|field| field.is_indexed);
    [&ID].into_iter().chain(fields).chain([&CREATED_AT, &UPDATED_AT])
}

/// A query parameter that filters a list.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The name of the field; of a bound of a range with `_from` or `_to`.
    pub name: String,
    pub column: Column,
    pub bound: Bound,
}

/// The filters of the resource's lists: by the fields of sorts but `id`, each reference followed by
/// the field behind it.
pub fn filters(resource: &'static Resource) -> &'static [Filter] {
    /// Built once, since every request for a list needs them.
    static BY_RESOURCE: LazyLock<[Vec<Filter>; ALL.len()]> =
        LazyLock::new(|| ALL.map(|resource| filters_of(resource).collect()));
    resource.by_resource::<Vec<Filter>>(&BY_RESOURCE)
}

fn filters_of(resource: &'static Resource) -> impl Iterator<Item = Filter> {
    let fields = sortable(resource).filter(|field| **field != ID);
    let columns =
        fields.flat_map(|field| [Column::of(field)].into_iter().chain(Column::behind(field)));
    columns.flat_map(|column| {
        let is_range = matches!(column.field.kind, Kind::Date | Kind::Timestamp);
        let bounds = [("", Bound::Equal), ("_from", Bound::From), ("_to", Bound::To)];
        let bounds = bounds.into_iter().take(if is_range { 3 } else { 1 });
        bounds.map(move |(suffix, bound)| Filter {
            name: format!("{}{suffix}", column.field.name),
            column,
            bound,
        })
    })
}

/// Converts the parameters of a list.
///
/// # Errors
///
/// `bad_request` if a parameter is unknown or its value is not valid, `insufficient_scope` for
/// `include`.
pub fn parse(
    resource: &'static Resource,
    query: &Query,
    scopes: Scopes,
) -> Result<ListQuery, ApiError> {
    let filters = filters(resource);
    let names = parameters(resource).map(|parameter| parameter.name);
    // Any name may follow `custom.`. The message about `customs.room` suggests `custom.room`.
    let behind_a_dot = query.names().filter_map(|name| Some(name.split_once('.')?.1));
    let custom: Vec<String> = behind_a_dot.map(|name| format!("{PREFIX}{name}")).collect();
    // A request with `id` is no list. The name is known here so that the message about a similar
    // one suggests it.
    query.only(
        ["id"]
            .into_iter()
            .chain(names)
            .chain(filters.iter().map(|filter| filter.name.as_str()))
            .chain(custom.iter().map(String::as_str)),
    )?;
    let (sort, descending) = parse_sort(resource, query)?;
    let mut list = ListQuery {
        resource,
        sort,
        descending,
        filters: Vec::new(),
        custom: parse_custom(query)?,
        words: parse_words(query)?,
        limit: parse_limit(query)?,
        after: None,
        total: parse_total(query)?,
        include: parse_include(resource, query, scopes)?,
    };
    // In the order of the declarations, so that the order in the query does not change the cursor's
    // fingerprint.
    for filter in filters {
        if let Some(text) = query.get(&filter.name) {
            list.filters.push((filter.column, filter.bound, parse_filter(filter, text)?));
        }
    }
    let cursor = query.get("cursor").filter(|cursor| !cursor.is_empty());
    list.after = cursor.map(|cursor| parse_cursor(cursor, &list)).transpose()?;
    Ok(list)
}

/// The filters by custom fields, in the order of their names.
fn parse_custom(query: &Query) -> Result<Vec<(String, Value)>, ApiError> {
    let mut filters = Vec::new();
    for label in query.names().filter(|name| name.starts_with(PREFIX)) {
        let text = query.get(label).unwrap_or_default();
        let Some(name) = name_in(label) else {
            let label = shorten(label);
            return Err(ApiError::bad_request(format!(
                "The query parameter {label:?} names no custom field. {NAME_RULE}"
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

/// The parameter `limit`.
///
/// # Errors
///
/// `bad_request` if it is no number from 1 to [`MAX_LIMIT`].
pub fn parse_limit(query: &Query) -> Result<usize, ApiError> {
    let Some(text) = query.get("limit") else { return Ok(DEFAULT_LIMIT) };
    let expectation = format!("send a number from 1 to {MAX_LIMIT}");
    match text.parse().ok().filter(|_| is_positive_integer(text)) {
        Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        _ => Err(invalid_parameter("limit", text, &expectation)),
    }
}

fn parse_total(query: &Query) -> Result<bool, ApiError> {
    match query.get("total") {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(text) => Err(invalid_parameter("total", text, "send true or false")),
    }
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
    let Some(text) = query.get("include") else { return Ok(Vec::new()) };
    let sent: Vec<&str> = text.split(',').collect();
    let possible = resource.inclusions().iter();
    let included: Vec<&Inclusion> =
        possible.clone().filter(|one| sent.contains(&one.name())).collect();
    if included.len() < sent.len() {
        let names: Vec<&str> = possible.map(Inclusion::name).collect();
        let expectation =
            format!("send names out of {} with commas between, each once", names.join(", "));
        return Err(invalid_parameter("include", text, &expectation));
    }
    let read = included.iter().map(|one| Scope { resource: one.resource, access: Access::Read });
    let lacking: Scopes = read.filter(|scope| !scopes.contains(*scope)).collect();
    if lacking.is_empty() { Ok(included) } else { Err(errors::insufficient_scope(lacking)) }
}

fn parse_sort(
    resource: &'static Resource,
    query: &Query,
) -> Result<(&'static Field, bool), ApiError> {
    let Some(text) = query.get("sort") else { return Ok((&ID, false)) };
    let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    match sortable(resource).find(|field| field.name == name) {
        Some(field) => Ok((field, descending)),
        None => {
            let names: Vec<&str> = sortable(resource).map(|field| field.name).collect();
            let expectation = format!(
                "send one of {}, with \"-\" in front for descending order",
                names.join(", ")
            );
            Err(invalid_parameter("sort", text, &expectation))
        }
    }
}

fn parse_words(query: &Query) -> Result<Vec<String>, ApiError> {
    let text = query.get("q").unwrap_or_default();
    let length = text.chars().count();
    if length > MAX_SEARCH_LENGTH {
        return Err(ApiError::bad_request(format!(
            "The query parameter \"q\" has {length} characters; send at most {MAX_SEARCH_LENGTH}."
        )));
    }
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if words.len() > MAX_WORDS {
        return Err(ApiError::bad_request(format!(
            "The query parameter \"q\" has {} words; send at most {MAX_WORDS}.",
            words.len()
        )));
    }
    Ok(words)
}

fn parse_filter(filter: &Filter, text: &str) -> Result<Value, ApiError> {
    let Filter { name, column, bound } = filter;
    let field = column.field;
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
        Some(_) if field.kind == Kind::Timestamp => {
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
        Kind::Text { .. } | Kind::Email => return Some(Value::of(text)),
        Kind::Timestamp => return parse_timestamp(text, bound).map(Value::Text),
        // serde_json passes over white space.
        Kind::Boolean | Kind::Integer if text.contains(char::is_whitespace) => return None,
        // A text in quotation marks is none of theirs, also where it is empty.
        Kind::Boolean | Kind::Integer => {
            serde_json::from_str(text).ok().filter(|value: &Json| !value.is_string())?
        }
        Kind::Date | Kind::Choice(_) => Json::from(text),
        // It is not indexed, so no list has a filter by the whole object.
        Kind::Custom => return None,
    };
    field.check(&input).ok()
}
