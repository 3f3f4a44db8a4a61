//! The change log of a tenant: what was changed, in the order of the commits (contract section 12).

mod cursor;
mod parameters;

use super::errors;
use super::list::parse_limit;
use super::query::Query;
use super::record_id::RequestedId;
use crate::clock::Timestamp;
use crate::http::{ApiError, Request, Response};
use crate::model::field::shorten;
use crate::model::{ALL, Access, RecordId, Resource, Scope, Scopes};
use crate::store::{Changes, ChangesPage, ChangesQuery, Start, Tenant};

pub use parameters::PARAMETERS;

/// The scopes of which a key needs one.
pub fn scopes() -> [Scope; ALL.len()] {
    ALL.map(|resource| Scope { resource, access: Access::Read })
}

/// GET and HEAD: a page of the entries that `scopes` permit, none of them from before `oldest`.
pub fn read(
    tenant: &Tenant,
    request: &Request,
    scopes: Scopes,
    oldest: Timestamp,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.query.as_deref())?;
    let changes = parse(&query, scopes, oldest)?;
    match tenant.read(super::deadline(request), |reading| reading.changes(&changes))? {
        Changes::Page(page) => Ok(respond(request, &query, page)),
        Changes::Gone => Err(errors::changes_gone()),
    }
}

/// Converts the parameters.
///
/// # Errors
///
/// `bad_request` if a parameter is unknown or its value is not valid.
pub fn parse(query: &Query, scopes: Scopes, oldest: Timestamp) -> Result<ChangesQuery, ApiError> {
    query.only(PARAMETERS.iter().map(|parameter| parameter.name))?;
    let limit = parse_limit(query)?;
    let start = match query.get("cursor") {
        None => Start::Oldest,
        Some(parameters::NOW) => Start::Now,
        Some(cursor) => Start::After(cursor::parse(cursor)?),
    };
    let resource = query.get("resource").map(parse_resource).transpose()?;
    let id = query.get("id").map(RequestedId::parse).transpose()?;
    if id.is_some() && resource.is_none() {
        return Err(ApiError::bad_request(
            "The query parameter \"id\" is the id of a record; send \"resource\" with it, such as resource=customers.",
        ));
    }
    let readable = ALL
        .into_iter()
        .filter(|resource| scopes.contains(Scope { resource, access: Access::Read }));
    // No record has an id of more than 64 bits, and none the id 0.
    let record = id.map(|id| id.number().unwrap_or(RecordId(0)));
    Ok(ChangesQuery { readable: readable.collect(), resource, record, start, limit, oldest })
}

fn parse_resource(text: &str) -> Result<&'static Resource, ApiError> {
    Resource::find(text).ok_or_else(|| {
        let names = parameters::names().join(", ");
        ApiError::bad_request(format!(
            "The query parameter \"resource\" was {:?}; send one of {names}.",
            shorten(text)
        ))
    })
}

fn respond(request: &Request, query: &Query, page: ChangesPage) -> Response {
    let ChangesPage { json, next, more } = page;
    let cursor = cursor::write(&next);
    let mut body = json;
    body.splice(0..0, *b"{\"data\":");
    body.extend_from_slice(format!(",\"next_cursor\":\"{cursor}\",\"more\":{more}}}").as_bytes());
    let response = Response::json_bytes(200, body);
    if more {
        response.header("Link", query.link_to_next(&request.path, &cursor))
    } else {
        response
    }
}
