//! Lists: the query string becomes a [`ListQuery`] (contract section 4).

mod parameters;

use std::sync::LazyLock;

use super::cursor::parse_cursor;
pub use super::cursor::write_cursor;
use super::errors;
use super::query::Query;
use crate::http::ApiError;
use crate::model::validation::{is_date, is_integer, is_positive_integer, shorten};
use crate::model::{
    ALL, Access, Column, Inclusion, Kind, ListQuery, Predicate, Resource, Scope, Scopes, Value,
};

use parameters::parse_timestamp;
pub use parameters::{
    DEFAULT_LIMIT, EXAMPLE_CURSOR, MAX_LIMIT, MAX_SEARCH_LENGTH, MAX_WORDS, PARAMETERS, parameters,
};

/// The columns that lists of the resource can be sorted by: `id`, the fields except `notes`, and
/// the timestamps.
pub fn sortable(resource: &'static Resource) -> impl Iterator<Item = Column> + Clone {
    let fields = resource.fields.iter().filter(|field| field.is_sortable()).map(Column::Field);
    [Column::Id].into_iter().chain(fields).chain([Column::CreatedAt, Column::UpdatedAt])
}

/// The columns that lists of the resource can be filtered by: those of sorts but `id`, each
/// reference followed by the column of the referenced record.
fn filterable(resource: &'static Resource) -> impl Iterator<Item = Column> {
    let own = sortable(resource).filter(|column| *column != Column::Id);
    own.flat_map(|column| [Some(column), column.referenced()].into_iter().flatten())
}

/// The kind of a filter's values; `None` is a timestamp.
fn kind_of(column: Column) -> Option<Kind> {
    match column {
        Column::Id => Some(Kind::Integer),
        Column::CreatedAt | Column::UpdatedAt => None,
        Column::Field(field) | Column::Referenced { field, .. } => Some(field.kind),
    }
}

/// How a filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `FIELD`.
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

/// A query parameter that filters a list.
#[derive(Clone, Debug)]
pub struct Filter {
    pub name: String,
    /// The column that is compared.
    pub column: Column,
    /// How it is compared.
    pub bound: Bound,
}

/// The filters of the resource's lists, in the order of the columns.
pub fn filters(resource: &'static Resource) -> &'static [Filter] {
    /// Built once, since every request for a list needs them.
    static BY_RESOURCE: LazyLock<[Vec<Filter>; ALL.len()]> =
        LazyLock::new(|| ALL.map(|resource| filters_of(resource).collect()));
    resource.by_resource::<Vec<Filter>>(&BY_RESOURCE)
}

fn filters_of(resource: &'static Resource) -> impl Iterator<Item = Filter> {
    filterable(resource).flat_map(|column| {
        let bounds: &[Bound] = match kind_of(column) {
            Some(Kind::Date) | None => &[Bound::Equal, Bound::From, Bound::To],
            _ => &[Bound::Equal],
        };
        bounds.iter().map(move |bound| {
            let name = format!("{}{}", column.name(), bound.suffix());
            Filter { name, column, bound: *bound }
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
    // A request with `id` is no list. The name is known here so that the message about a similar
    // one suggests it.
    query.only(
        ["id"].into_iter().chain(names).chain(filters.iter().map(|filter| filter.name.as_str())),
    )?;
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
        include: parse_include(resource, query, scopes)?,
    };
    // In the order of the declarations, so that the order in the query does not change the cursor's
    // fingerprint.
    for filter in filters {
        if let Some(text) = query.get(&filter.name) {
            list.filters.push((filter.column, parse_predicate(filter, text)?));
        }
    }
    list.after = query.get("cursor").map(|cursor| parse_cursor(cursor, &list)).transpose()?;
    Ok(list)
}

fn invalid(name: &str, sent: &str, expectation: &str) -> ApiError {
    ApiError::bad_request(format!(
        "The query parameter \"{name}\" was {:?}; {expectation}.",
        shorten(sent)
    ))
}

/// The parameter `limit`.
///
/// # Errors
///
/// `bad_request` if it is no number from 1 to [`MAX_LIMIT`].
pub fn parse_limit(query: &Query) -> Result<usize, ApiError> {
    let Some(text) = query.get("limit") else { return Ok(DEFAULT_LIMIT) };
    let expectation = format!("send a number from 1 to {MAX_LIMIT}");
    match decimal(text) {
        Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        _ => Err(invalid("limit", text, &expectation)),
    }
}

fn decimal(text: &str) -> Option<usize> {
    if is_positive_integer(text) { text.parse().ok() } else { None }
}

fn parse_total(query: &Query) -> Result<bool, ApiError> {
    query.get("total").map_or(Ok(false), |text| {
        boolean(text).ok_or_else(|| invalid("total", text, "send true or false"))
    })
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
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
        return Err(invalid("include", text, &expectation));
    }
    let read = included.iter().map(|one| Scope { resource: one.resource, access: Access::Read });
    let lacking: Scopes = read.filter(|scope| !scopes.contains(*scope)).collect();
    if lacking.is_empty() { Ok(included) } else { Err(errors::insufficient_scope(lacking)) }
}

fn parse_sort(resource: &'static Resource, query: &Query) -> Result<(Column, bool), ApiError> {
    let Some(text) = query.get("sort") else { return Ok((Column::Id, false)) };
    let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    match sortable(resource).find(|column| column.name() == name) {
        Some(column) => Ok((column, descending)),
        None => {
            let names: Vec<&str> = sortable(resource).map(Column::name).collect();
            let expectation = format!(
                "send one of {}, with \"-\" in front for descending order",
                names.join(", ")
            );
            Err(invalid("sort", text, &expectation))
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

fn parse_predicate(filter: &Filter, text: &str) -> Result<Predicate, ApiError> {
    let (kind, bound) = (kind_of(filter.column), filter.bound);
    if text.trim().is_empty() {
        let null = if bound == Bound::Equal { ", or null" } else { "" };
        return Err(invalid(&filter.name, text, &format!("{}{null}", expectation(kind, bound))));
    }
    if bound == Bound::Equal && text == "null" {
        return Ok(Predicate::Equals(Value::Null));
    }
    let value = match kind {
        None => parse_timestamp(text, bound).map(Value::Text),
        Some(Kind::Text { .. } | Kind::Email) => Some(Value::Text(text.to_owned())),
        Some(Kind::Integer) => integer(text).map(Value::Integer),
        Some(Kind::Boolean) => boolean(text).map(Value::Boolean),
        Some(Kind::Date) => is_date(text).then(|| Value::Text(text.to_owned())),
        Some(Kind::Choice(allowed)) => {
            allowed.contains(&text).then(|| Value::Text(text.to_owned()))
        }
    };
    match (value, bound) {
        (Some(value), Bound::Equal) => Ok(Predicate::Equals(value)),
        (Some(Value::Text(value)), Bound::From) => Ok(Predicate::AtLeast(value)),
        (Some(Value::Text(value)), Bound::To) => Ok(Predicate::AtMost(value)),
        _ => {
            let lost_plus = kind.is_none()
                && text.contains(' ')
                && parse_timestamp(&text.replace(' ', "+"), bound).is_some();
            let hint =
                if lost_plus { " (a \"+\" in a query means a space; write it as %2B)" } else { "" };
            Err(invalid(&filter.name, text, &format!("{}{hint}", expectation(kind, bound))))
        }
    }
}

fn expectation(kind: Option<Kind>, bound: Bound) -> String {
    match kind {
        Some(Kind::Text { .. } | Kind::Email) => "send the text to compare with".to_owned(),
        Some(Kind::Integer) => "send an integer in the signed 64-bit range".to_owned(),
        Some(Kind::Boolean) => "send true, false, 1 or 0".to_owned(),
        Some(Kind::Date) => "send a date that exists in the form YYYY-MM-DD".to_owned(),
        None if bound == Bound::Equal => {
            "send an RFC 3339 timestamp such as 2026-11-20T19:30:00Z".to_owned()
        }
        None => "send an RFC 3339 timestamp such as 2026-11-20T19:30:00Z, or a date".to_owned(),
        Some(Kind::Choice(allowed)) => format!("send one of {}", allowed.join(", ")),
    }
}

/// An integer in the form of JSON (RFC 8259 section 6).
fn integer(text: &str) -> Option<i64> {
    if is_integer(text) { text.parse().ok() } else { None }
}
