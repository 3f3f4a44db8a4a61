//! Lists (contract section 4): the declarations of their parameters, and the parser of a query.
//!
//! The OpenAPI document and the page `/docs` follow from the declarations, too.

use serde_json::json;

pub use super::cursor::write_cursor;
use super::cursor::{MAX_CURSOR, parse_cursor};
use super::errors::{self, invalid_parameter};
use super::filter::{filters, parse_custom, parse_filter};
use super::query::{Query, QueryParameter};
use crate::http::ApiError;
use crate::model::custom::PREFIX;
use crate::model::validation::is_positive_integer;
use crate::model::{Access, Field, ID, Inclusion, Json, ListQuery, Resource, Scope, Scopes};

/// Records on a page if `limit` is absent.
pub const DEFAULT_LIMIT: usize = 50;
/// Maximum of `limit`.
pub const MAX_LIMIT: usize = 200;
/// Maximum number of words in `q`.
pub const MAX_WORDS: usize = 20;
/// Maximum number of characters in `q`.
pub const MAX_SEARCH_LENGTH: usize = 200;
/// The cursor of a list of customers by id.
pub const EXAMPLE_CURSOR: &str = "AXJ0ZW5hbnRkZQAAAAAAAAABaQAAAAAAAAABJ3y5cPzGmQ4";

// The descriptions name them.
const _: () = assert!(DEFAULT_LIMIT == 50 && MAX_WORDS == 20);

/// Every list parameter in the order of the reference.
pub static PARAMETERS: [QueryParameter<&'static Resource>; 6] = [
    QueryParameter {
        name: "limit",
        about: "The most records on a page; 50 if absent.",
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
        values: |resource| names(resource.sortable_fields().map(|field| field.name)),
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
    let columns = || resource.sortable_fields().map(|field| field.name);
    let orders: Vec<String> =
        columns().flat_map(|name| [name.to_owned(), format!("-{name}")]).collect();
    // Generators derive identifiers from the values, and a leading minus is not valid in one.
    let names: Vec<String> =
        columns().flat_map(|name| [name.to_owned(), format!("{name}_descending")]).collect();
    json!({ "type": "string", "enum": orders, "x-enum-varnames": names })
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
    // Any name may follow `custom.`. The message about `customs.room` suggests `custom.room`.
    let behind_a_dot = query.names().filter_map(|name| Some(name.split_once('.')?.1));
    let custom: Vec<String> = behind_a_dot.map(|name| format!("{PREFIX}{name}")).collect();
    // A request with `id` is no list. The name is known here so that the message about a similar
    // one suggests it.
    let mut known = vec!["id"];
    known.extend(parameters(resource).map(|parameter| parameter.name));
    known.extend(filters(resource).iter().map(|filter| filter.name.as_str()));
    known.extend(custom.iter().map(String::as_str));
    query.only(&known)?;
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
    for filter in filters(resource) {
        if let Some(text) = query.get(&filter.name) {
            list.filters.push((filter.column, filter.bound, parse_filter(filter, text)?));
        }
    }
    let cursor = query.get("cursor").filter(|cursor| !cursor.is_empty());
    list.after = cursor.map(|cursor| parse_cursor(cursor, &list)).transpose()?;
    Ok(list)
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
    match resource.sortable_fields().find(|field| field.name == name) {
        Some(field) => Ok((field, descending)),
        None => {
            let names: Vec<&str> = resource.sortable_fields().map(|field| field.name).collect();
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
