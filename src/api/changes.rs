//! The change log of a tenant: what was changed, in the order of the commits (contract section 12).

use super::list::{checksum, decode_cursor, encode_cursor, page_response, parse_limit};
use super::query::{Query, invalid_moment, invalid_parameter};
use crate::clock::{first_second, last_second};
use crate::http::{ApiError, ErrorCode, Request, Response};
use crate::model::validation::is_positive_integer;
use crate::model::{ALL, Access, Resource, Scope, Scopes, Version};
use crate::store::{ChangesQuery, Deadline, EntryFilter, Position, Start, Tenant};

/// The value of `cursor` for the end of the change log.
const NOW: &str = "now";

/// Every parameter in the order of the reference.
pub static PARAMETERS: [&str; 9] =
    ["limit", "cursor", "resource", "id", "at_from", "at_to", "key", "request_id", "action"];

/// The values of `action`.
pub static ACTIONS: [&str; 3] = ["created", "updated", "deleted"];

/// GET and HEAD: a page of the entries that `scopes` permit.
pub(super) fn read(
    tenant: &Tenant,
    request: &Request,
    scopes: Scopes,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.query.as_deref())?;
    let changes = parse(&query, scopes)?;
    let deadline = Deadline::new(&request.abandoned);
    let page = tenant.read(deadline, |reading| reading.changes(&changes))?;
    let page = page.ok_or(ErrorCode::ChangesGone)?;
    let cursor = write_cursor(&page.next, &changes.filters);
    let response = page_response(&page.json, |body| {
        body.member("next_cursor", &cursor);
        body.member("more", &page.more);
    });
    Ok(if page.more {
        response.header("Link", query.link_to_next(&request.path, &cursor))
    } else {
        response
    })
}

fn parse(query: &Query, scopes: Scopes) -> Result<ChangesQuery, ApiError> {
    query.only(&PARAMETERS)?;
    let limit = parse_limit(query)?;
    let filters = parse_filters(query)?;
    let start = match query.get("cursor") {
        None | Some("") => Start::Oldest,
        Some(NOW) => Start::Now,
        Some(cursor) => Start::After(parse_cursor(cursor, &filters)?),
    };
    let resource = match query.get("resource") {
        None => None,
        Some(plural) => {
            let names = ALL.map(|resource| resource.plural).join(", ");
            Some(Resource::find(plural).ok_or_else(|| {
                invalid_parameter("resource", plural, &format!("send one of {names}"))
            })?)
        }
    };
    let record = query.id()?;
    if record.is_some() && resource.is_none() {
        return Err(ApiError::bad_request(
            "The query parameter \"id\" is the id of a record; send \"resource\" with it, such as \
             resource=customers.",
        ));
    }
    let readable = ALL
        .into_iter()
        .filter(|resource| scopes.contains(Scope { resource, access: Access::Read }));
    let readable = readable.collect();
    Ok(ChangesQuery { readable, resource, record, filters, start, limit, selection: None })
}

fn parse_filters(query: &Query) -> Result<Vec<EntryFilter>, ApiError> {
    let mut filters = Vec::new();
    for (name, text) in query.pairs() {
        let moment = |found: Option<String>| found.ok_or_else(|| invalid_moment(name, text));
        let invalid = |expectation| invalid_parameter(name, text, expectation);
        filters.push(match name {
            "at_from" => EntryFilter::AtFrom(moment(first_second(text))?),
            "at_to" => EntryFilter::AtTo(moment(last_second(text))?),
            "key" => parse_key(text)
                .ok_or_else(|| invalid("send the number or the name of a key, such as 3"))?,
            "request_id" => EntryFilter::Request(
                text.parse().map_err(|_| invalid("send the X-Request-Id of a request, a UUID"))?,
            ),
            "action" if ACTIONS.contains(&text) => EntryFilter::Action(text.to_owned()),
            "action" => return Err(invalid("send created, updated or deleted")),
            _ => continue,
        });
    }
    filters.sort();
    Ok(filters)
}

/// Digits are the number of a key, other text its name.
fn parse_key(text: &str) -> Option<EntryFilter> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(EntryFilter::KeyName(text.to_owned()));
    }
    // No key has a number beyond 64 bits.
    is_positive_integer(text).then(|| EntryFilter::Key(text.parse().unwrap_or(i64::MAX)))
}

/// The kind byte of a cursor. The log's lineage and the number of the last entry that the client
/// has seen follow, and with filters their fingerprint. `store/records/change_log.rs` says what the
/// lineage is for.
const CURSOR_KIND: u8 = 0x81;

fn write_cursor(position: &Position, filters: &[EntryFilter]) -> String {
    let mut bytes = position.lineage.to_vec();
    bytes.extend_from_slice(&position.seq.0.to_be_bytes());
    bytes.extend(fingerprint(filters));
    encode_cursor(CURSOR_KIND, &bytes)
}

fn parse_cursor(text: &str, filters: &[EntryFilter]) -> Result<Position, ApiError> {
    let (position, of_filters) = decode_cursor(text, CURSOR_KIND, |bytes| {
        let (lineage, rest) = bytes.split_first_chunk::<16>()?;
        let (seq, of_filters) = rest.split_first_chunk::<8>()?;
        let seq = Version(i64::from_be_bytes(*seq));
        Some((Position { lineage: *lineage, seq }, of_filters.to_vec()))
    })?;
    if of_filters != fingerprint(filters) {
        return Err(ApiError::bad_request(
            "The query parameter \"cursor\" belongs to other filters. Send it with the at_from, \
             at_to, key, request_id and action that it came with.",
        ));
    }
    Ok(position)
}

/// Empty without filters.
fn fingerprint(filters: &[EntryFilter]) -> Vec<u8> {
    if filters.is_empty() {
        return Vec::new();
    }
    // Texts and numbers can always be written.
    checksum(&serde_json::to_vec(filters).unwrap_or_default()).to_vec()
}
