//! The operations on records (contract section 3).

use std::borrow::Cow;

use super::change::Change;
use super::errors;
use super::idempotency::{self, IdempotencyKey};
use super::list;
use super::precondition::{IfMatch, etag, is_unchanged};
use super::query::{Query, RequestedId};
use crate::http::request::MAX_BODY;
use crate::http::{ApiError, Body, ErrorCode, Method, Request, Response};
use crate::model::json_object::parse_object;
use crate::model::validation::shorten;
use crate::model::{Inclusion, JsonObject, ListQuery, Resource, Scopes};
use crate::store::{Reading, Tenant};

/// GET and HEAD: one record, or a page of records. The caller's `scopes` limit `include`.
pub(super) fn read(
    tenant: &Tenant,
    request: &Request,
    resource: &'static Resource,
    scopes: Scopes,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.query.as_deref())?;
    let Some(id) = query.get("id") else {
        let list = list::parse(resource, &query, scopes)?;
        return page(tenant, request, &query, &list);
    };
    let has_include = !resource.inclusions().is_empty();
    query.only(["id"].into_iter().chain(has_include.then_some("include")))?;
    let id = RequestedId::parse(id)?;
    let include = list::parse_include(resource, &query, scopes)?;
    record(tenant, request, resource, &id, &include)
}

fn record(
    tenant: &Tenant,
    request: &Request,
    resource: &'static Resource,
    id: &RequestedId,
    include: &[&Inclusion],
) -> Result<Response, ApiError> {
    let number = id.number().ok_or_else(|| id.not_found(resource))?;
    let read = |reading: &Reading<'_>| reading.json(resource, number, include);
    let found = tenant.read(super::deadline(request), read)?;
    let (json, version) = found.ok_or_else(|| id.not_found(resource))?;
    if !include.is_empty() {
        // The version is that of the record alone.
        return Ok(Response::json_bytes(200, json));
    }
    let etag = etag(version);
    let response = if is_unchanged(request, &etag) {
        Response::empty(304)
    } else {
        Response::json_bytes(200, json)
    };
    Ok(response.header("ETag", etag))
}

fn page(
    tenant: &Tenant,
    request: &Request,
    query: &Query,
    list: &ListQuery,
) -> Result<Response, ApiError> {
    let page = tenant.read(super::deadline(request), |reading| reading.page(list))?;
    let cursor = page.next.map(|position| list::write_cursor(&position, list));
    let response = Response::json_bytes(200, page_body(page.json, cursor.as_deref(), page.total));
    Ok(match cursor {
        Some(cursor) => response.header("Link", query.link_to_next(&request.path, &cursor)),
        None => response,
    })
}

/// The JSON of a page. `records` is the array of its records.
fn page_body(records: Vec<u8>, next_cursor: Option<&str>, total: Option<i64>) -> Vec<u8> {
    // In place, since a new allocation of this size would miss the CPU caches.
    let mut body = records;
    body.splice(0..0, *b"{\"data\":");
    match next_cursor {
        Some(cursor) => body.extend_from_slice(format!(",\"next_cursor\":\"{cursor}\"").as_bytes()),
        None => body.extend_from_slice(b",\"next_cursor\":null"),
    }
    if let Some(total) = total {
        body.extend_from_slice(format!(",\"total\":{total}").as_bytes());
    }
    body.push(b'}');
    body
}

/// POST, PUT and DELETE: makes the checks that need no database, in their order. DELETE ignores a
/// body.
pub(super) fn check(
    request: &Request,
    resource: &'static Resource,
) -> Result<(Change, Option<IdempotencyKey>), ApiError> {
    let key = idempotency::parse_key(request)?;
    let (body, object) = match request.method {
        Method::DELETE => (&[][..], JsonObject::new()),
        _ => json_object(request, MAX_BODY)?,
    };
    let query = Query::parse(request.query.as_deref())?;
    let if_match = IfMatch::of(request);
    let change = Change::check(&request.method, resource, &query, &object, if_match)?;
    let id = query.get("id").unwrap_or_default();
    let key = key.map(|key| IdempotencyKey::new(key, &request.method, resource.path, id, body));
    Ok((change, key))
}

fn unsupported(message: impl Into<Cow<'static, str>>) -> ApiError {
    ApiError::new(ErrorCode::UnsupportedMediaType, message)
}

/// Returns the body, and the object that it is.
///
/// # Errors
///
/// `unsupported_media_type`, `payload_too_large` or `invalid_json`, in this order. `limit` is the
/// size that the path takes, for the message.
pub(super) fn json_object(
    request: &Request,
    limit: usize,
) -> Result<(&[u8], JsonObject), ApiError> {
    let body = json_body(request, limit)?;
    Ok((body, parse_object(body).map_err(|error| errors::invalid_json(&error))?))
}

fn json_body(request: &Request, limit: usize) -> Result<&[u8], ApiError> {
    let remedy = "Send \"Content-Type: application/json\"";
    let mut values = request.headers("content-type");
    let declared = values
        .next()
        .ok_or_else(|| unsupported(format!("The header \"Content-Type\" is missing. {remedy}.")))?;
    let media_type = declared.split(';').next().unwrap_or_default().trim();
    if values.next().is_some() {
        return Err(unsupported(
            "The header \"Content-Type\" is given twice. Send it once.".to_owned(),
        ));
    }
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(unsupported(format!("The body's type is {:?}. {remedy}.", shorten(declared))));
    }
    if request.header("content-encoding").is_some() {
        return Err(unsupported(
            "The body has a \"Content-Encoding\". Send it plain, without that header.".to_owned(),
        ));
    }
    match &request.body {
        Body::Whole(body) => Ok(body),
        Body::TooLarge => Err(ApiError::payload_too_large(limit)),
    }
}
