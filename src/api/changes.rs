//! The change log of a tenant: what was changed, in the order of the commits (contract section 12).

use super::list::{parse_change_cursor, parse_limit, write_change_cursor};
use super::operations::page_response;
use super::query::{Query, invalid_parameter};
use crate::http::{ApiError, ErrorCode, Request, Response};
use crate::model::{ALL, Access, Resource, Scope, Scopes};
use crate::store::{ChangesPage, ChangesQuery, Deadline, Start, Tenant};

/// The value of `cursor` for the end of the change log.
const NOW: &str = "now";

/// Every parameter in the order of the reference.
pub static PARAMETERS: [&str; 4] = ["limit", "cursor", "resource", "id"];

/// GET and HEAD: a page of the entries that `scopes` permit.
pub fn read(tenant: &Tenant, request: &Request, scopes: Scopes) -> Result<Response, ApiError> {
    let query = Query::parse(request.query.as_deref())?;
    let changes = parse(&query, scopes)?;
    let deadline = Deadline::new(&request.abandoned);
    let page = tenant.read(deadline, |reading| reading.changes(&changes))?;
    Ok(respond(request, &query, page.ok_or(ErrorCode::ChangesGone)?))
}

/// Converts the parameters.
///
/// # Errors
///
/// `bad_request` if a parameter is unknown or its value is not valid.
fn parse(query: &Query, scopes: Scopes) -> Result<ChangesQuery, ApiError> {
    query.only(&PARAMETERS)?;
    let limit = parse_limit(query)?;
    let start = match query.get("cursor") {
        None | Some("") => Start::Oldest,
        Some(NOW) => Start::Now,
        Some(cursor) => Start::After(parse_change_cursor(cursor)?),
    };
    let find = |plural| {
        let names = ALL.map(|resource| resource.plural).join(", ");
        Resource::find(plural)
            .ok_or_else(|| invalid_parameter("resource", plural, &format!("send one of {names}")))
    };
    let resource = query.get("resource").map(find).transpose()?;
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
    Ok(ChangesQuery { readable: readable.collect(), resource, record, start, limit })
}

fn respond(request: &Request, query: &Query, page: ChangesPage) -> Response {
    let ChangesPage { json, next, more } = page;
    let cursor = write_change_cursor(&next);
    let response = page_response(&json, |body| {
        body.member("next_cursor", &cursor);
        body.member("more", &more);
    });
    if more {
        response.header("Link", query.link_to_next(&request.path, &cursor))
    } else {
        response
    }
}
