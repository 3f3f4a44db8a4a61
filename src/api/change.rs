//! Changes of records: what POST, PUT and DELETE do once their request is checked.
//!
//! A change runs inside a write transaction, with whatever else that transaction does.

use super::errors;
use super::precondition::{IfMatch, etag};
use super::query::{Query, RequestedId};
use crate::http::{ApiError, Method, Response};
use crate::model::validation::ValueError;
use crate::model::{Field, FieldError, Json, JsonObject, RecordId, Resource, Value};
use crate::store::{ChangeContext, DeleteOutcome, MutationError, Reading, Record, Writing};

/// A change whose values are valid. Its last checks, from `not_found` on (contract section 5), need
/// the transaction.
#[derive(Debug)]
pub enum Change {
    Create {
        resource: &'static Resource,
        /// A value for each field of the resource.
        values: Vec<Value>,
    },
    Update {
        target: Target,
        /// The fields that the body names, in the order of the resource.
        values: Vec<(&'static Field, Value)>,
    },
    Delete {
        target: Target,
    },
}

/// A record that is changed, and the versions that it may have.
#[derive(Debug)]
pub struct Target {
    pub resource: &'static Resource,
    pub id: RequestedId,
    pub if_match: IfMatch,
}

/// What a change did. It is the response to a request of its own.
#[derive(Debug)]
pub struct Applied {
    pub status: u16,
    pub id: RecordId,
    /// The path of a new record.
    pub location: Option<String>,
    /// The version of the record; `None` if it is deleted.
    pub etag: Option<String>,
    /// The record as JSON; empty if it is deleted.
    pub body: Vec<u8>,
}

impl From<Applied> for Response {
    fn from(applied: Applied) -> Response {
        let Applied { status, location, etag, body, .. } = applied;
        let response = if body.is_empty() {
            Response::empty(status)
        } else {
            Response::json_bytes(status, body)
        };
        let headers = [("Location", location), ("ETag", etag)];
        response.with(headers.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }
}

impl Change {
    /// Makes the checks of a request with this method from the query on that need no database, in
    /// their order.
    pub fn check(
        method: &Method,
        resource: &'static Resource,
        query: &Query,
        body: &JsonObject,
        if_match: IfMatch,
    ) -> Result<Change, ApiError> {
        if method == Method::POST {
            query.only([].into_iter())?;
            return Change::create(resource, body);
        }
        let target = Target { resource, id: RequestedId::alone_in(query)?, if_match };
        if method == Method::DELETE {
            Ok(Change::Delete { target })
        } else {
            Change::update(target, body)
        }
    }

    /// Checks the fields of a new record.
    ///
    /// # Errors
    ///
    /// `bad_request` or `validation_failed`.
    fn create(resource: &'static Resource, object: &JsonObject) -> Result<Change, ApiError> {
        let checked = resource.fields.iter().map(|field| match object.get(field.name) {
            Some(input) => field.check(input),
            None if field.required => Err(ValueError::Invalid(field.missing())),
            None => Ok(field.default_value()),
        });
        Ok(Change::Create { resource, values: all_valid(checked)? })
    }

    /// Checks the fields that the body of a PUT names.
    ///
    /// # Errors
    ///
    /// `no_updatable_fields`, `bad_request` or `validation_failed`.
    fn update(target: Target, object: &JsonObject) -> Result<Change, ApiError> {
        let fields = target.resource.fields.iter();
        let named: Vec<(&'static Field, &Json)> =
            fields.filter_map(|field| object.get(field.name).map(|input| (field, input))).collect();
        if named.is_empty() {
            return Err(errors::no_updatable_fields(target.resource));
        }
        let values = all_valid(named.iter().map(|(field, input)| field.check_update(input)))?;
        Ok(Change::Update {
            target,
            values: named.into_iter().map(|(field, _)| field).zip(values).collect(),
        })
    }

    /// Whether the change only removes.
    pub fn frees_space(&self) -> bool {
        matches!(self, Change::Delete { .. })
    }

    /// Has `field` refer to the record `id`, if the change sets the field.
    pub fn refer(&mut self, field: &Field, RecordId(id): RecordId) {
        let value = match self {
            Change::Create { resource, values } => {
                let position = resource.fields.iter().position(|known| known.name == field.name);
                position.and_then(|position| values.get_mut(position))
            }
            Change::Update { values, .. } => values
                .iter_mut()
                .find(|(known, _)| known.name == field.name)
                .map(|(_, value)| value),
            Change::Delete { .. } => None,
        };
        if let Some(value) = value {
            *value = Value::Integer(id);
        }
    }

    /// Makes the last checks and the change. `prefix` is `/v1` if the request's path begins with
    /// it.
    ///
    /// # Errors
    ///
    /// The reason why the change is rejected. The caller rolls back.
    pub fn apply(
        self,
        writing: &Writing<'_>,
        prefix: &str,
        context: &ChangeContext,
    ) -> Result<Applied, MutationError<ApiError>> {
        match self {
            Change::Create { resource, values } => {
                create(writing, resource, values, prefix, context)
            }
            Change::Update { target, values } => update(writing, &target, &values, context),
            Change::Delete { target } => delete(writing, &target, context),
        }
    }
}

fn create(
    writing: &Writing<'_>,
    resource: &'static Resource,
    values: Vec<Value>,
    prefix: &str,
    context: &ChangeContext,
) -> Result<Applied, MutationError<ApiError>> {
    check_references(writing, resource.fields.iter().zip(&values))?;
    let record = writing.insert(resource, None, values, context)?;
    let location = format!("{prefix}{}?id={}", resource.path, record.id);
    Ok(Applied { location: Some(location), ..Applied::of(&record, 201, resource) })
}

fn update(
    writing: &Writing<'_>,
    target: &Target,
    values: &[(&'static Field, Value)],
    context: &ChangeContext,
) -> Result<Applied, MutationError<ApiError>> {
    let id = target.check(writing)?;
    check_references(writing, values.iter().map(|(field, value)| (*field, value)))?;
    match writing.update(target.resource, id, values, context)? {
        Some(record) => Ok(Applied::of(&record, 200, target.resource)),
        None => Err(target.not_found().into()),
    }
}

fn delete(
    writing: &Writing<'_>,
    target: &Target,
    context: &ChangeContext,
) -> Result<Applied, MutationError<ApiError>> {
    let id = target.check(writing)?;
    match writing.delete(target.resource, id, context)? {
        DeleteOutcome::Deleted => {
            Ok(Applied { status: 204, id, location: None, etag: None, body: Vec::new() })
        }
        DeleteOutcome::NotFound => Err(target.not_found().into()),
        DeleteOutcome::Referenced(details) => Err(errors::has_dependents(details).into()),
    }
}

impl Applied {
    /// A record that is there after the change.
    fn of(record: &Record, status: u16, resource: &Resource) -> Applied {
        let (etag, body) = (Some(etag(record.version)), record.json(resource));
        Applied { status, id: record.id, location: None, etag, body }
    }
}

impl Target {
    /// Checks that the record exists and has a version that the condition names. Returns its id.
    fn check(&self, writing: &Writing<'_>) -> Result<RecordId, MutationError<ApiError>> {
        let id = self.id.number().ok_or_else(|| self.not_found())?;
        let version = writing.version(self.resource, id)?.ok_or_else(|| self.not_found())?;
        if self.if_match.is_met_by(version)? {
            return Ok(id);
        }
        // Earlier operations of a batch may have changed the record. They are rolled back, and
        // their versions are used again.
        writing.undo()?;
        let present = writing.version(self.resource, id)?.ok_or_else(|| self.not_found())?;
        Err(errors::precondition_failed(etag(present)).into())
    }

    fn not_found(&self) -> ApiError {
        self.id.not_found(self.resource)
    }
}

/// Returns the values, or one error for all fields. A text of the wrong type makes it
/// `bad_request`, whose message names every field that fails.
fn all_valid(
    checked: impl Iterator<Item = Result<Value, ValueError>>,
) -> Result<Vec<Value>, ApiError> {
    let mut values = Vec::new();
    let mut faults: Vec<FieldError> = Vec::new();
    let mut wrong_types: Vec<String> = Vec::new();
    for result in checked {
        match result {
            Ok(value) => values.push(value),
            Err(ValueError::Invalid(fault)) => faults.push(fault),
            Err(ValueError::WrongType(message)) => wrong_types.push(message),
        }
    }
    if !wrong_types.is_empty() {
        wrong_types.extend(faults.into_iter().map(|fault| fault.message));
        return Err(ApiError::bad_request(wrong_types.join(" ")));
    }
    if faults.is_empty() { Ok(values) } else { Err(errors::validation_failed(&faults)) }
}

/// Checks that every referenced record exists. The file contains only records of the tenant.
fn check_references<'v>(
    reading: &Reading<'_>,
    values: impl Iterator<Item = (&'static Field, &'v Value)>,
) -> Result<(), MutationError<ApiError>> {
    for (field, value) in values {
        if let Some((target, id)) = reading.missing_reference(field, value)? {
            return Err(errors::missing_reference(field, target, id).into());
        }
    }
    Ok(())
}

impl From<ApiError> for MutationError<ApiError> {
    fn from(error: ApiError) -> MutationError<ApiError> {
        MutationError::Rejected(error)
    }
}
