//! The change log of a tenant: what was changed, in the order of the commits (contract section 12).

use serde_json::json;

use super::cursor::{MAX_CURSOR, parse_change_cursor, write_change_cursor};
use super::errors::invalid_parameter;
use super::list::{DEFAULT_LIMIT, MAX_LIMIT, names, parse_limit};
use super::operations::page_of;
use super::query::{Query, QueryParameter};
use crate::clock::Timestamp;
use crate::http::{ApiError, ErrorCode, Request, Response};
use crate::model::{ALL, Access, Resource, Scope, Scopes};
use crate::store::{ChangesPage, ChangesQuery, Start, Tenant};

/// The value of `cursor` for the end of the change log.
const NOW: &str = "now";

/// Every parameter in the order of the reference. Validation, the OpenAPI document and the
/// documentation page follow from this table.
pub static PARAMETERS: [QueryParameter<()>; 4] = [
    QueryParameter {
        name: "limit",
        about: "The most entries on a page; 50 if absent.",
        values: |()| format!("1 to {MAX_LIMIT}"),
        schema: |()| json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT }),
        example: || json!(DEFAULT_LIMIT),
    },
    QueryParameter {
        name: "cursor",
        about: "The `next_cursor` of an earlier answer, or `now` for what comes from this moment \
                on. If it is absent or empty, the answer begins with the oldest entry that is kept.",
        values: |()| "text".to_owned(),
        schema: |()| json!({ "type": "string", "maxLength": MAX_CURSOR }),
        example: || json!(NOW),
    },
    QueryParameter {
        name: "resource",
        about: "The entries of this resource alone.",
        values: |()| names(resource_names().into_iter()),
        schema: |()| json!({ "type": "string", "enum": resource_names() }),
        example: || json!("customers"),
    },
    QueryParameter {
        name: "id",
        about: "With `resource`: the entries of this record alone.",
        values: |()| "integer".to_owned(),
        schema: |()| json!({ "type": "integer", "format": "int64", "minimum": 1 }),
        example: || json!(1),
    },
];

/// The values of `resource`.
fn resource_names() -> Vec<&'static str> {
    ALL.iter().map(|resource: &&Resource| resource.plural).collect()
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
    let page = tenant.read(super::deadline(request), |reading| reading.changes(&changes))?;
    Ok(respond(request, &query, page.ok_or(ErrorCode::ChangesGone)?))
}

/// Converts the parameters.
///
/// # Errors
///
/// `bad_request` if a parameter is unknown or its value is not valid.
pub fn parse(query: &Query, scopes: Scopes, oldest: Timestamp) -> Result<ChangesQuery, ApiError> {
    query.only(&PARAMETERS.each_ref().map(|parameter| parameter.name))?;
    let limit = parse_limit(query)?;
    let start = match query.get("cursor") {
        None | Some("") => Start::Oldest,
        Some(NOW) => Start::Now,
        Some(cursor) => Start::After(parse_change_cursor(cursor)?),
    };
    let find = |plural| {
        let expectation = || format!("send one of {}", resource_names().join(", "));
        let invalid = || invalid_parameter("resource", plural, &expectation());
        Resource::find(plural).ok_or_else(invalid)
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
    Ok(ChangesQuery { readable: readable.collect(), resource, record, start, limit, oldest })
}

fn respond(request: &Request, query: &Query, page: ChangesPage) -> Response {
    let ChangesPage { json, next, more } = page;
    let cursor = write_change_cursor(&next);
    let response = page_of(&json, |body| {
        body.member("next_cursor", &cursor);
        body.member("more", &more);
    });
    if more {
        response.header("Link", query.link_to_next(&request.path, &cursor))
    } else {
        response
    }
}
