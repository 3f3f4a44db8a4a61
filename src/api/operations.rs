//! The operations on records (contract section 3).

use super::change::{self, CheckedWrite};
use super::headers::{self, Handling, is_unchanged};
use super::idempotency;
use super::list::{self, MAX_CURSOR};
use super::query::Query;
use crate::http::{ApiError, Body, ErrorCode, Method, Request, Responder, Response};
use crate::json_writer::JsonWriter;
use crate::model::json_object::parse_object;
use crate::model::validation::shorten;
use crate::model::{Inclusion, JsonObject, ListQuery, RecordId, Resource, Scopes};
use crate::store::{Reading, Rejection, Tenant};

/// GET and HEAD: one record, or a page of records. The caller's `scopes` limit `include`.
pub(super) fn read(
    tenant: &Tenant,
    request: &Request,
    resource: &'static Resource,
    scopes: Scopes,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.query.as_deref())?;
    if query.get("id").is_none() {
        let list = list::parse(resource, &query, scopes)?;
        return page(tenant, request, &query, &list);
    }
    query.only(if resource.inclusions().is_empty() { &["id"] } else { &["id", "include"] })?;
    let id = query.id()?.ok_or(ErrorCode::MissingId)?;
    let include = list::parse_include(resource, &query, scopes)?;
    record(tenant, request, resource, id, &include)
}

fn record(
    tenant: &Tenant,
    request: &Request,
    resource: &'static Resource,
    id: RecordId,
    include: &[&Inclusion],
) -> Result<Response, ApiError> {
    let read = |reading: &Reading<'_>| reading.json(resource, id, include);
    let found = tenant.read(super::deadline(request), read)?;
    let (json, version) = found.ok_or(Rejection::NotFound(resource, id))?;
    if !include.is_empty() {
        // The version says nothing about the included records, so there is no `ETag`.
        return Ok(Response::json_bytes(200, json));
    }
    let etag = version.etag();
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
    let response = page_of(&page.json, |body| {
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
pub(super) fn page_of(data: &[u8], write_others: impl FnOnce(&mut JsonWriter)) -> Response {
    let mut body = JsonWriter::with_capacity(data.len() + MAX_CURSOR);
    body.begin_object();
    body.name("data");
    body.raw(data);
    write_others(&mut body);
    body.end_object();
    Response::json_bytes(200, body.take())
}

/// POST, PUT and DELETE: makes the checks that need no database, in their order. DELETE ignores a
/// body. The reply gets the header that names ignored members, even if a later check fails.
pub(super) fn check(
    request: &Request,
    resource: &'static Resource,
    reply: &mut Responder,
) -> Result<CheckedWrite, ApiError> {
    let key = idempotency::parse_key(request)?;
    let (body, object) = match request.method {
        Method::DELETE => (&[][..], JsonObject::new()),
        _ => json_object(request)?,
    };
    reply.add_headers(headers::check_members(Handling::of(request), resource, &object)?);
    let query = Query::parse(request.query.as_deref())?;
    let precondition = headers::precondition(request);
    let change = change::check(&request.method, resource, &query, &object, precondition)?;
    // A query has only one of them.
    let target = query.get("id").or_else(|| query.get("update_by")).unwrap_or_default();
    Ok(CheckedWrite {
        changes: vec![change],
        paths: vec![request.path.clone()],
        is_batch: false,
        invalid: None,
        idempotency_key: key.map(|key| idempotency::key_of(key, request, target, body)),
    })
}

/// Returns the body, and the object that it is.
///
/// # Errors
///
/// `unsupported_media_type`, `payload_too_large` or `invalid_json`, in this order.
pub(super) fn json_object(request: &Request) -> Result<(&[u8], JsonObject), ApiError> {
    if let Some(fault) = media_type_fault(request) {
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, fault));
    }
    let Body::Whole(body) = &request.body else {
        return Err(ErrorCode::PayloadTooLarge.into());
    };
    Ok((body, parse_object(body).map_err(|error| invalid_json(&error.to_string()))?))
}

/// `invalid_json`; the message names line and column.
pub(super) fn invalid_json(fault: &str) -> ApiError {
    let message = format!("The body is not one JSON object in UTF-8: {fault}.");
    ApiError::new(ErrorCode::InvalidJson, message)
}

/// Why the headers do not say that the body is plain JSON.
fn media_type_fault(request: &Request) -> Option<String> {
    let mut values = request.headers("content-type");
    let Some(sent) = values.next() else {
        return Some("\"Content-Type\" is missing. Send \"application/json\".".to_owned());
    };
    if values.next().is_some() {
        return Some("\"Content-Type\" was given more than once. Send it once.".to_owned());
    }
    let media_type = sent.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let sent = shorten(sent);
        return Some(format!("\"Content-Type\" was {sent:?}. Send \"application/json\"."));
    }
    let encoding = shorten(request.header("content-encoding")?);
    Some(format!("\"Content-Encoding\" was {encoding:?}. Send the body without it."))
}
