//! Lists (contract section 4): the names of their parameters, and the parser of a query.

use super::cursor::parse_cursor;
pub use super::cursor::{MAX_CURSOR, write_cursor};
use super::errors::{self, invalid_parameter};
use super::filter::{filters, parse_custom, parse_filter};
use super::query::Query;
use crate::http::ApiError;
use crate::model::custom::PREFIX;
use crate::model::validation::is_positive_integer;
use crate::model::{Access, Field, ID, Inclusion, ListQuery, Resource, Scope, Scopes};

/// Records on a page if `limit` is absent.
pub const DEFAULT_LIMIT: usize = 50;
/// Maximum of `limit`.
pub const MAX_LIMIT: usize = 200;
/// Maximum number of words in `q`.
pub const MAX_WORDS: usize = 20;
/// Maximum number of characters in `q`.
pub const MAX_SEARCH_LENGTH: usize = 200;

/// Every list parameter in the order of the reference.
pub static PARAMETERS: [&str; 6] = ["limit", "cursor", "sort", "total", "q", "include"];

/// The parameters of the resource's lists. Records without references have no `include`.
pub fn parameters(resource: &'static Resource) -> impl Iterator<Item = &'static str> {
    let has = |name| name != "include" || !resource.inclusions().is_empty();
    PARAMETERS.into_iter().filter(move |name| has(*name))
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
    let mut known: Vec<&str> = ["id"].into_iter().chain(parameters(resource)).collect();
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
            list.filters.push((filter.field, filter.bound, parse_filter(filter, text)?));
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
