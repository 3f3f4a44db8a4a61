//! Lists of records, and cursors (contract section 4).

use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest, Sha256};

use super::query::{
    AT, INCLUDE, Query, filters, invalid_parameter, parse_custom, parse_filter, parse_include,
};
use crate::clock::Timestamp;
use crate::http::{ApiError, Request, Response};
use crate::json_writer::JsonWriter;
use crate::model::validation::{CUSTOM_PREFIX, is_positive_integer};
use crate::model::{
    Field, ID, KeysetPosition, ListQuery, PastMoment, RecordId, Resource, Scopes, Value, Version,
};
use crate::store::{Deadline, Reading, Tenant};

/// Records on a page if `limit` is absent.
pub const DEFAULT_LIMIT: usize = 50;
/// Maximum of `limit`.
pub const MAX_LIMIT: usize = 200;
/// Maximum number of words in `q`.
pub const MAX_WORDS: usize = 20;
/// Maximum number of characters in `q`.
pub const MAX_SEARCH_LENGTH: usize = 200;

/// Every list parameter in the order of the reference.
pub static PARAMETERS: [&str; 7] = ["limit", "cursor", "sort", "total", "q", "include", AT];

/// The parameters of the resource's lists. Records without references have no `include`.
pub fn parameters(resource: &'static Resource) -> impl Iterator<Item = &'static str> {
    let has = |name| name != "include" || !resource.inclusions().is_empty();
    PARAMETERS.into_iter().filter(move |name| has(*name))
}

/// A page of records. The key's `scopes` limit `include`.
pub(super) fn read(
    tenant: &Tenant,
    request: &Request,
    resource: &'static Resource,
    query: &Query,
    scopes: Scopes,
) -> Result<Response, ApiError> {
    let mut list = parse(resource, query, scopes, request.received_at.timestamp())?;
    let deadline = Deadline::new(&request.abandoned);
    let page = match list.moment {
        None => tenant.read(deadline, |reading| reading.page(&list))?,
        Some(moment) => {
            let read = |reading: &Reading<'_>, last| Ok((last, reading.page(&list)?));
            let (last, page) = tenant.read_past(deadline, moment, read)?;
            list.moment = Some(PastMoment { last: Some(last), ..moment });
            page
        }
    };
    let cursor = page.next.map(|position| write_cursor(&position, resource, query, list.moment));
    let response = page_response(&page.json, |body| {
        body.member("next_cursor", &cursor);
        if let Some(total) = page.total {
            body.member("total", &total);
        }
    });
    Ok(match cursor {
        Some(cursor) => response.header("Link", query.link_to_next(&request.path, &cursor)),
        None => response,
    })
}

/// A page: `data` is a JSON array, `write_others` writes the members after it.
pub(super) fn page_response(data: &[u8], write_others: impl FnOnce(&mut JsonWriter)) -> Response {
    let mut body = JsonWriter::with_capacity(data.len() + MAX_CURSOR);
    body.begin_object();
    body.name("data");
    body.raw(data);
    write_others(&mut body);
    body.end_object();
    Response::json_bytes(200, body.take())
}

/// Parses the parameters of a list.
///
/// # Errors
///
/// `bad_request` if a parameter is unknown or its value is not valid, `insufficient_scope` for
/// `include`.
pub fn parse(
    resource: &'static Resource,
    query: &Query,
    scopes: Scopes,
    now: Timestamp,
) -> Result<ListQuery, ApiError> {
    // Any name may follow `custom.`. The message about `customs.room` suggests `custom.room`, and
    // that about `customer.name` does not: such a filter would find nothing.
    let custom: Vec<String> = query
        .names()
        .filter_map(|name| name.split_once('.'))
        .filter(|(object, _)| !["customer", "employee"].contains(object))
        .map(|(_, name)| format!("{CUSTOM_PREFIX}{name}"))
        .collect();
    // A request with `id` is no list. The name is known here so that the message about a similar
    // one suggests it.
    let mut known: Vec<&str> = ["id"].into_iter().chain(parameters(resource)).collect();
    known.extend(filters(resource).iter().map(|filter| filter.name.as_str()));
    known.extend(custom.iter().map(String::as_str));
    known.push("custom.NAME");
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
        moment: query.at(now)?.map(|at| PastMoment { at, last: None }),
        include: parse_include(resource, query, scopes)?,
    };
    for filter in filters(resource) {
        if let Some(text) = query.get(&filter.name) {
            list.filters.push((filter.field, filter.bound, parse_filter(filter, text)?));
        }
    }
    let cursor = query.get("cursor").filter(|cursor| !cursor.is_empty());
    if let Some(cursor) = cursor {
        (list.after, list.moment) = parse_cursor(cursor, resource, query, list.moment)?;
    }
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

fn parse_sort(
    resource: &'static Resource,
    query: &Query,
) -> Result<(&'static Field, bool), ApiError> {
    let Some(text) = query.get("sort") else { return Ok((&ID, false)) };
    let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    let find = |name| resource.sortable_fields().find(|field| field.name == name);
    if let Some(field) = find(name) {
        return Ok((field, descending));
    }
    // `name desc`, `name:desc`, `name,-city`
    let (first, rest) = name.split_once([' ', ':', ',']).unwrap_or((name, ""));
    let expectation = match find(first) {
        Some(_) if rest.eq_ignore_ascii_case("desc") => format!("send \"-{first}\""),
        Some(_) if rest.eq_ignore_ascii_case("asc") => format!("send \"{first}\""),
        Some(_) => "send one field; records with the same value are sorted by \"id\"".to_owned(),
        None if name.starts_with(CUSTOM_PREFIX) => "no list is sorted by a custom field".to_owned(),
        None => {
            let names: Vec<&str> = resource.sortable_fields().map(|field| field.name).collect();
            let names = names.join(", ");
            format!("send one of {names}, with \"-\" in front for descending order")
        }
    };
    Err(invalid_parameter("sort", text, &expectation))
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

// Cursors of lists and of the change log (contract sections 4 and 12). A cursor is a position
// behind a record or an entry. A page number would be wrong after a change: if record 3 is deleted
// while the client reads page 1, page 2 skips a record.
//
// A cursor is base64url of a kind byte, the position and a checksum. The checksum finds a cursor
// that was cut off or mistyped. It is no signature and need not be one: a client that makes its own
// cursor reads nothing that its key may not read.
//
// Cursors stay valid after a restart. So a change of their bytes needs a new kind byte.

/// The length of a checksum in bytes.
const CHECKSUM: usize = 8;
/// The maximum length of a cursor in characters. The longest sort value, an e-mail address, fits.
pub const MAX_CURSOR: usize = 2048;

pub(super) fn encode_cursor(kind: u8, position: &[u8]) -> String {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(position);
    bytes.extend_from_slice(&checksum(&bytes));
    Base64UrlUnpadded::encode_string(&bytes)
}

/// Decodes a cursor of this kind, whose position `read` reads.
///
/// # Errors
///
/// `bad_request` if the cursor was changed or is of another kind.
pub(super) fn decode_cursor<T>(
    text: &str,
    kind: u8,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, ApiError> {
    let bytes = Base64UrlUnpadded::decode_vec(text).unwrap_or_default();
    let position = match bytes.split_last_chunk::<CHECKSUM>() {
        Some((body, sum)) if checksum(body) == *sum => body.strip_prefix(&[kind]).and_then(read),
        _ => None,
    };
    position.ok_or_else(|| {
        ApiError::bad_request(
            "The query parameter \"cursor\" is damaged. Send the \"next_cursor\" of the last page \
             unchanged.",
        )
    })
}

/// A checksum against changes by mistake.
pub(super) fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = Sha256::digest(bytes).into();
    [a, b, c, d, e, f, g, h]
}

/// The kind byte of a list's cursor. JSON follows: the fingerprint of the list, the last entry that
/// belongs to the moment of a list of the past, the id and the sort value of the last record on the
/// page.
///
/// Example: the first page of `sort=city` ends with record 7 in Kiel. The next page begins behind
/// (`Kiel`, 7) in that order, even if record 7 has been deleted since. The fingerprint names the
/// list: behind (`Kiel`, 7) of a list by `email`, the client would silently miss records.
const LIST_KIND: u8 = 2;

pub fn write_cursor(
    KeysetPosition { value, id }: &KeysetPosition,
    resource: &Resource,
    query: &Query,
    moment: Option<PastMoment>,
) -> String {
    let last = moment.and_then(|moment| moment.last);
    let position = (fingerprint(resource, query, moment), last, id, value);
    // Numbers and texts can always be written.
    encode_cursor(LIST_KIND, &serde_json::to_vec(&position).unwrap_or_default())
}

fn parse_cursor(
    text: &str,
    resource: &Resource,
    query: &Query,
    moment: Option<PastMoment>,
) -> Result<(Option<KeysetPosition>, Option<PastMoment>), ApiError> {
    type Position = ([u8; CHECKSUM], Option<Version>, RecordId, Value);
    let read = |bytes: &[u8]| serde_json::from_slice::<Position>(bytes).ok();
    let (list_fingerprint, last, id, value) = decode_cursor(text, LIST_KIND, read)?;
    if list_fingerprint != fingerprint(resource, query, moment) {
        return Err(ApiError::bad_request(
            "The query parameter \"cursor\" belongs to another list. Send it with the resource, \
             sort, filters, q and at that it came with.",
        ));
    }
    let moment = moment.map(|moment| PastMoment { last, ..moment });
    Ok((Some(KeysetPosition { value, id }), moment))
}

/// The checksum of the resource and of the parameters that select and order its records, whatever
/// their order in the query. The others may change from page to page.
///
/// `at` counts as a moment, whatever its spelling.
fn fingerprint(resource: &Resource, query: &Query, moment: Option<PastMoment>) -> [u8; CHECKSUM] {
    let at = moment.map(|moment| moment.at.to_string());
    let mut parameters: Vec<(&str, &str)> = query
        .pairs()
        .filter(|(name, _)| !matches!(*name, "limit" | "cursor" | "total" | INCLUDE | AT))
        // The default.
        .filter(|pair| *pair != ("sort", ID.name))
        .chain(at.as_deref().map(|at| (AT, at)))
        .collect();
    parameters.sort_unstable();
    // Texts can always be written.
    checksum(&serde_json::to_vec(&(resource.plural, parameters)).unwrap_or_default())
}
