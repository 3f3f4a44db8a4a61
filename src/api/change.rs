//! The checks of POST, PUT and DELETE that need no database. They make a [`Change`], which the
//! store applies inside a write transaction.

use super::query::{Query, invalid_parameter};
use crate::http::{ApiError, ErrorCode, Method};
use crate::model::{Field, JsonObject, RecordId, Resource, Rules, Value};
use crate::store::{Answer, Change, ChangeKind, Changed, IdempotencyKey, Precondition, Rejection};

/// The query parameter of POST.
const UPDATE_BY: &str = "update_by";

/// Makes the checks of a request with this method from the query on that need no database, in their
/// order. `body` is that of POST and PUT.
pub fn check(
    method: &Method,
    resource: &'static Resource,
    query: &Query,
    body: &JsonObject,
    precondition: Precondition,
) -> Result<Change, ApiError> {
    let kind = if *method == Method::POST {
        query.only(&[UPDATE_BY])?;
        match parse_update_by(resource, query)? {
            Some(key) => ChangeKind::UpdateBy(key),
            None => ChangeKind::Create,
        }
    } else {
        query.only(&["id"])?;
        let id = query.id()?.ok_or(ErrorCode::MissingId)?;
        if *method == Method::DELETE { ChangeKind::Delete(id) } else { ChangeKind::Update(id) }
    };
    let values = match kind {
        ChangeKind::Create => check_values(resource, body, Rules::New)?,
        ChangeKind::UpdateBy(key) => check_values(resource, body, Rules::StoredOrNew(key))?,
        ChangeKind::Update(_) => check_values(resource, body, Rules::Stored)?,
        ChangeKind::Delete(_) => Vec::new(),
    };
    // A new record has no version yet.
    let precondition = if kind == ChangeKind::Create { Precondition::None } else { precondition };
    Ok(Change { precondition, ..Change::new(resource, kind, values) })
}

/// Reads the query parameter `update_by` of a POST.
fn parse_update_by(
    resource: &'static Resource,
    query: &Query,
) -> Result<Option<&'static Field>, ApiError> {
    let Some(name) = query.get(UPDATE_BY) else { return Ok(None) };
    if let Some(key) = resource.lookup_fields().find(|field| field.name == name) {
        return Ok(Some(key));
    }
    let names: Vec<&str> = resource.lookup_fields().map(|field| field.name).collect();
    let expectation = format!("send one of {}", names.join(", "));
    Err(invalid_parameter(UPDATE_BY, name, &expectation))
}

/// Checks the fields that the body names, and that it names those it must.
fn check_values(
    resource: &'static Resource,
    body: &JsonObject,
    rules: Rules,
) -> Result<Vec<(&'static Field, Value)>, ApiError> {
    let mut values = Vec::new();
    let mut faults = Vec::new();
    for field in resource.fields {
        match field.check_sent(body.get(field.name), rules) {
            Ok(Some(value)) => values.push((field, value)),
            Ok(None) => {}
            Err(errors) => faults.extend(errors),
        }
    }
    if !faults.is_empty() {
        return Err(Rejection::InvalidFields(faults).into());
    }
    if rules == Rules::Stored && values.is_empty() {
        return Err(ErrorCode::NoUpdatableFields.into());
    }
    Ok(values)
}

/// A request that passed the checks that need no database.
#[derive(Debug)]
pub struct CheckedWrite {
    /// One change, or those of a batch before its first invalid operation.
    pub changes: Vec<Change>,
    /// The path of each change as the client sent it. It may begin with `/v1`.
    pub paths: Vec<String>,
    pub is_batch: bool,
    /// The error of the first invalid operation.
    pub invalid: Option<ApiError>,
    pub idempotency_key: Option<IdempotencyKey>,
}

/// The response to one change at this path.
pub fn answer(changed: &Changed, path: &str) -> Answer {
    let Changed { resource, id: RecordId(id), record, is_new } = changed;
    let Some(record) = record else {
        return Answer { status: 204, location: None, etag: None, body: Vec::new() };
    };
    Answer {
        status: if *is_new { 201 } else { 200 },
        location: is_new.then(|| format!("{path}?id={id}")),
        etag: Some(record.version.etag()),
        body: record.response(resource),
    }
}
