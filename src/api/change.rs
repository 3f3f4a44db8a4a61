//! Changes of records: what POST, PUT and DELETE do once their request is checked.
//!
//! A change runs inside a write transaction, with whatever else that transaction does.

use serde_json::json;

use std::mem;

use super::errors;
use super::list::names;
use super::precondition::IfMatch;
use super::query::{Query, QueryParameter};
use crate::http::{ApiError, ErrorCode, Method};
use crate::model::{
    Field, FieldCode, FieldError, Json, JsonObject, Kind, RecordId, Resource, Value,
};
use crate::store::{Answer, ChangeContext, DeleteOutcome, MutationError, Reading, Record, Writing};

/// The query parameter of POST.
pub static UPDATE_BY: QueryParameter<&'static Resource> = QueryParameter {
    name: "update_by",
    about: "Changes the one record that has the body's value in this field, as PUT does. Without \
            such a record, the record is created. If several records have the value, the response \
            is 409 `ambiguous_record`.",
    values: |resource| names(resource.lookup_fields().map(|field| field.name)),
    schema: |resource| {
        let names: Vec<&str> = resource.lookup_fields().map(|field| field.name).collect();
        json!({ "type": "string", "enum": names })
    },
    example: || Json::Null,
};

/// A change whose values are valid. Its last checks, from `not_found` on (contract section 5), need
/// the transaction.
#[derive(Debug)]
pub enum Change {
    Create {
        resource: &'static Resource,
        /// A value for each field of the resource.
        values: Vec<Value>,
        update_by: Option<UpdateBy>,
    },
    Update {
        target: Target,
        /// The fields that the body names, in the order of the resource.
        values: Vec<(&'static Field, Value)>,
    },
    Delete(Target),
}

/// Has a POST change the record with the value of a field, if there is one.
#[derive(Debug)]
pub struct UpdateBy {
    key: &'static Field,
    /// The fields that the body names.
    named: Vec<&'static Field>,
    if_match: IfMatch,
}

/// A record that is changed, and the versions that it may have.
#[derive(Debug)]
pub struct Target {
    resource: &'static Resource,
    id: RecordId,
    if_match: IfMatch,
}

impl Change {
    /// Makes the checks of a request with this method from the query on that need no database, in
    /// their order. `body` is that of POST and PUT.
    pub fn check(
        method: &Method,
        resource: &'static Resource,
        query: &Query,
        body: &JsonObject,
        if_match: IfMatch,
    ) -> Result<Change, ApiError> {
        if method == Method::POST {
            query.only([UPDATE_BY.name].into_iter())?;
            let update_by = UpdateBy::parse(resource, query, body, if_match)?;
            return Change::create(resource, body, update_by);
        }
        query.only(["id"].into_iter())?;
        let id = query.id()?.ok_or(ErrorCode::MissingId)?;
        let target = Target { resource, id, if_match };
        if method == Method::DELETE {
            Ok(Change::Delete(target))
        } else {
            Change::update(target, body)
        }
    }

    /// Checks the fields of a new record. With `update_by`, they may become those of another one.
    fn create(
        resource: &'static Resource,
        object: &JsonObject,
        update_by: Option<UpdateBy>,
    ) -> Result<Change, ApiError> {
        let key = update_by.as_ref().map(|update_by| update_by.key);
        let checked = resource.fields.iter().map(|field| {
            let required = field.required || key == Some(field);
            let field = Field { required, ..*field };
            match object.get(field.name) {
                Some(input) if key.is_some() => field.check_update(input),
                Some(input) => field.check(input),
                None if required => Err(vec![field.missing()]),
                None => Ok(field.default_value()),
            }
        });
        Ok(Change::Create { resource, values: all_valid(checked)?, update_by })
    }

    /// Checks the fields that the body of a PUT names.
    fn update(target: Target, object: &JsonObject) -> Result<Change, ApiError> {
        let fields = target.resource.fields.iter();
        let named: Vec<(&'static Field, &Json)> =
            fields.filter_map(|field| object.get(field.name).map(|input| (field, input))).collect();
        if named.is_empty() {
            return Err(ErrorCode::NoUpdatableFields.into());
        }
        let values = all_valid(named.iter().map(|(field, input)| field.check_update(input)))?;
        let values = named.into_iter().map(|(field, _)| field).zip(values).collect();
        Ok(Change::Update { target, values })
    }

    /// Whether the change only removes.
    pub fn frees_space(&self) -> bool {
        matches!(self, Change::Delete(_))
    }

    /// Has `field` refer to the record `id`, if the change sets the field.
    pub fn refer(&mut self, field: &Field, RecordId(id): RecordId) {
        let value = match self {
            Change::Create { resource, values, .. } => {
                let mut fields = resource.fields.iter().zip(values);
                fields.find(|(known, _)| *known == field).map(|(_, value)| value)
            }
            Change::Update { values, .. } => {
                values.iter_mut().find(|(known, _)| *known == field).map(|(_, value)| value)
            }
            Change::Delete(_) => None,
        };
        if let Some(value) = value {
            *value = Value::Integer(id);
        }
    }

    /// Makes the last checks and the change. `prefix` is `/v1` if the request's path begins with
    /// it. Returns the record's id, and the response to a request of its own.
    ///
    /// # Errors
    ///
    /// The reason why the change is rejected. The caller rolls back.
    pub fn apply(
        self,
        writing: &Writing<'_>,
        prefix: &str,
        context: &ChangeContext,
    ) -> Result<(RecordId, Answer), MutationError<ApiError>> {
        match self {
            Change::Create { resource, values, update_by } => {
                if let Some(update_by) = update_by
                    && let Some(change) = update_by.change(writing, resource, &values)?
                {
                    return change.apply(writing, prefix, context);
                }
                check_references(writing, resource.fields.iter().zip(&values))?;
                let new = |(field, value): (&'static Field, Value)| {
                    changed(field, &field.default_value(), value)
                };
                let values = resource.fields.iter().zip(values).map(new);
                let values = values.collect::<Result<_, _>>()?;
                let record = writing.insert(resource, None, values, context)?;
                let location = format!("{prefix}{}?id={}", resource.path, record.id.0);
                Ok((record.id, answer(&record, 201, Some(location), resource)))
            }
            Change::Update { target, mut values } => {
                let Target { resource, id, .. } = target;
                target.check(writing)?;
                check_references(writing, values.iter().map(|(field, value)| (*field, value)))?;
                if let Some((field, value)) = values.last_mut()
                    && field.kind == Kind::Custom
                {
                    let record = writing.record(resource, id)?;
                    let stored = record.and_then(|mut record| record.values.pop());
                    let stored = stored.unwrap_or(Value::Null);
                    *value = changed(field, &stored, mem::replace(value, Value::Null))?;
                }
                let record = writing.update(resource, id, &values, context)?;
                let record = record.ok_or_else(|| errors::not_found(resource, id))?;
                Ok((id, answer(&record, 200, None, resource)))
            }
            Change::Delete(target) => {
                let Target { resource, id, .. } = target;
                target.check(writing)?;
                match writing.delete(resource, id, context)? {
                    DeleteOutcome::Deleted => {}
                    DeleteOutcome::NotFound => return Err(errors::not_found(resource, id).into()),
                    DeleteOutcome::Referenced { details, counts } => {
                        return Err(errors::has_dependents(resource, details, &counts).into());
                    }
                }
                Ok((id, Answer { status: 204, location: None, etag: None, body: Vec::new() }))
            }
        }
    }
}

impl UpdateBy {
    /// Reads the query parameter `update_by` of a POST with this body.
    fn parse(
        resource: &'static Resource,
        query: &Query,
        body: &JsonObject,
        if_match: IfMatch,
    ) -> Result<Option<UpdateBy>, ApiError> {
        let Some(name) = query.get(UPDATE_BY.name) else { return Ok(None) };
        let Some(key) = resource.lookup_fields().find(|field| field.name == name) else {
            let names: Vec<&str> = resource.lookup_fields().map(|field| field.name).collect();
            let expectation = format!("send one of {}", names.join(", "));
            return Err(errors::invalid_parameter(UPDATE_BY.name, name, &expectation));
        };
        let fields = resource.fields.iter();
        let named = fields.filter(|field| body.contains_key(field.name)).collect();
        Ok(Some(UpdateBy { key, named, if_match }))
    }

    /// The change of the record that has the value of the key; `None` if there is no such record.
    /// `values` has a value for each field of the resource.
    fn change(
        self,
        writing: &Writing<'_>,
        resource: &'static Resource,
        values: &[Value],
    ) -> Result<Option<Change>, MutationError<ApiError>> {
        let UpdateBy { key, named, if_match } = self;
        let fields = resource.fields.iter().zip(values);
        let value = fields.clone().find(|(field, _)| *field == key).map(|(_, value)| value);
        let found = writing.find_by(resource, key, value.unwrap_or(&Value::Null))?;
        match found.as_slice() {
            [] if !if_match.is_met_by(None)? => {
                Err(ApiError::from(ErrorCode::PreconditionFailed).into())
            }
            [] => Ok(None),
            [id] => {
                let target = Target { resource, id: *id, if_match };
                let values = fields.filter(|(field, _)| named.contains(field));
                let values = values.map(|(field, value)| (field, value.clone())).collect();
                Ok(Some(Change::Update { target, values }))
            }
            ids => Err(errors::ambiguous_record(resource, key, ids).into()),
        }
    }
}

/// The answer that is a record.
fn answer(record: &Record, status: u16, location: Option<String>, resource: &Resource) -> Answer {
    Answer { status, location, etag: Some(record.version.etag()), body: record.response(resource) }
}

impl Target {
    /// Checks that the record exists and has a version that the condition names.
    fn check(&self, writing: &Writing<'_>) -> Result<(), MutationError<ApiError>> {
        let Target { resource, id, if_match } = self;
        let not_found = || errors::not_found(resource, *id);
        let version = writing.version(resource, *id)?.ok_or_else(not_found)?;
        if if_match.is_met_by(Some(version))? {
            return Ok(());
        }
        // Earlier operations of a batch may have changed the record. They are rolled back, and
        // their versions are used again.
        writing.undo()?;
        let error = ApiError::from(ErrorCode::PreconditionFailed);
        Err(match writing.version(resource, *id)? {
            Some(present) => error.header("ETag", present.etag()).into(),
            None => error.into(),
        })
    }
}

/// The value of a field after a change, or `validation_failed`.
fn changed(field: &Field, stored: &Value, change: Value) -> Result<Value, ApiError> {
    field.changed(stored, change).map_err(|fault| errors::validation_failed(&[fault]))
}

/// The most messages about fields in one `bad_request`. Only a body with many custom fields has
/// more.
const MAX_MESSAGES: usize = 20;

/// Returns the values, or one error for all fields. A text of the wrong type makes it
/// `bad_request`, whose message names every field that fails.
fn all_valid(
    checked: impl Iterator<Item = Result<Value, Vec<FieldError>>>,
) -> Result<Vec<Value>, ApiError> {
    let (mut values, mut faults) = (Vec::new(), Vec::new());
    for result in checked {
        match result {
            Ok(value) => values.push(value),
            Err(errors) => faults.extend(errors),
        }
    }
    if faults.is_empty() {
        return Ok(values);
    }
    let (wrong_types, invalid): (Vec<FieldError>, Vec<FieldError>) =
        faults.into_iter().partition(|fault| fault.code == FieldCode::WrongType);
    if wrong_types.is_empty() {
        return Err(errors::validation_failed(&invalid));
    }
    let faults = wrong_types.into_iter().chain(invalid);
    let mut messages: Vec<String> = faults.map(|fault| fault.message).collect();
    let hidden = messages.len().saturating_sub(MAX_MESSAGES);
    messages.truncate(MAX_MESSAGES);
    if hidden > 0 {
        messages.push(format!("{hidden} more values are not valid."));
    }
    Err(ApiError::bad_request(messages.join(" ")))
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
