//! The checks of POST, PUT and DELETE that need no database. They make a [`Change`], which the
//! store applies inside a write transaction.

use super::query::{Query, invalid_parameter};
use crate::http::{ApiError, ErrorCode, Method};
use crate::model::{Field, JsonObject, Resource, Rules, Value};
use crate::store::{Answer, Change, ChangeKind, Changed, Precondition, Rejection};

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
    let (kind, rules) = if *method == Method::POST {
        query.only(&[UPDATE_BY])?;
        match parse_update_by(resource, query)? {
            Some(key) => (ChangeKind::UpdateBy(key), Rules::StoredOrNew(key)),
            None => (ChangeKind::Create, Rules::New),
        }
    } else {
        query.only(&["id"])?;
        let id = query.id()?.ok_or(ErrorCode::MissingId)?;
        if *method == Method::DELETE {
            let change = Change::new(resource, ChangeKind::Delete(id), Vec::new());
            return Ok(Change { precondition, ..change });
        }
        (ChangeKind::Update(id), Rules::Stored)
    };
    let change = Change::new(resource, kind, check_values(resource, body, rules)?);
    match kind {
        // No record is there yet, so `If-Match` is ignored.
        ChangeKind::Create => Ok(change),
        _ => Ok(Change { precondition, ..change }),
    }
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

/// The path of a resource as the client sent it.
#[derive(Debug)]
pub struct Endpoint {
    pub resource: &'static Resource,
    /// It may begin with `/v1`.
    pub path: String,
}

impl Endpoint {
    /// The response to a request that made this one change.
    pub fn answer(&self, changed: &Changed) -> Answer {
        let Endpoint { resource, path } = self;
        let (status, location, record) = match changed {
            Changed::Created(record) => {
                let location = format!("{path}?id={}", record.id.0);
                (201, Some(location), record)
            }
            Changed::Updated(record) => (200, None, record),
            Changed::Deleted(_) => {
                return Answer { status: 204, location: None, etag: None, body: Vec::new() };
            }
        };
        let (etag, body) = (Some(record.version.etag()), record.response(resource));
        Answer { status, location, etag, body }
    }
}
