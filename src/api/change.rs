//! Changes of records: what POST, PUT and DELETE do once their request is checked.
//!
//! A change runs inside a write transaction, with whatever else that transaction does.

use std::mem;

use serde_json::json;

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
    values: |resource| names(lookup_names(resource).into_iter()),
    schema: |resource| json!({ "type": "string", "enum": lookup_names(resource) }),
    example: || Json::Null,
};

/// The values of `update_by`.
fn lookup_names(resource: &'static Resource) -> Vec<&'static str> {
    resource.lookup_fields().map(|field| field.name).collect()
}

/// A change whose values are valid. Its last checks, from `not_found` on (contract section 5), need
/// the transaction.
#[derive(Debug)]
pub struct Change {
    resource: &'static Resource,
    action: Action,
    /// The fields that the body names, in the order of the resource.
    values: Vec<(&'static Field, Value)>,
    /// The versions that a changed or deleted record may have.
    if_match: IfMatch,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Create,
    /// Updates the record that has the body's value in this field. Without such a record, creates
    /// one.
    UpdateBy(&'static Field),
    Update(RecordId),
    Delete(RecordId),
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
        let (action, values) = if method == Method::POST {
            query.only(&[UPDATE_BY.name])?;
            let key = parse_update_by(resource, query)?;
            (key.map_or(Action::Create, Action::UpdateBy), check_new(resource, body, key)?)
        } else {
            query.only(&["id"])?;
            let id = query.id()?.ok_or(ErrorCode::MissingId)?;
            match *method {
                Method::DELETE => (Action::Delete(id), Vec::new()),
                _ => (Action::Update(id), check_update(resource, body)?),
            }
        };
        Ok(Change { resource, action, values, if_match })
    }

    /// Whether the change only removes.
    pub fn frees_space(&self) -> bool {
        matches!(self.action, Action::Delete(_))
    }

    /// Has `field` refer to the record `id`, if the change sets the field.
    pub fn refer(&mut self, field: &Field, RecordId(id): RecordId) {
        if let Some((_, value)) = self.values.iter_mut().find(|(known, _)| *known == field) {
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
        mut self,
        writing: &Writing<'_>,
        prefix: &str,
        context: &ChangeContext,
    ) -> Result<(RecordId, Answer), MutationError<ApiError>> {
        let resource = self.resource;
        match self.action {
            Action::Create => self.insert(writing, prefix, context),
            Action::UpdateBy(key) => {
                let sent = self.values.iter().find(|(field, _)| *field == key);
                let (_, value) = sent.ok_or_else(ApiError::internal)?;
                match writing.find_by(resource, key, value)?.as_slice() {
                    [] if self.if_match.is_met_by(None)? => self.insert(writing, prefix, context),
                    [] => Err(ApiError::from(ErrorCode::PreconditionFailed).into()),
                    [id] => self.update(writing, *id, context),
                    ids => Err(errors::ambiguous_record(resource, key, ids).into()),
                }
            }
            Action::Update(id) => self.update(writing, id, context),
            Action::Delete(id) => {
                self.check_version(writing, id)?;
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

    /// Makes a record of the values, and of the defaults of the other fields.
    fn insert(
        self,
        writing: &Writing<'_>,
        prefix: &str,
        context: &ChangeContext,
    ) -> Result<(RecordId, Answer), MutationError<ApiError>> {
        let Change { resource, values, .. } = self;
        check_references(writing, &values)?;
        let mut values = values.into_iter().peekable();
        let with_defaults = resource.fields.iter().map(|field| {
            let default = field.default_value();
            match values.next_if(|(named, _)| *named == field) {
                Some((_, value)) => changed(field, &default, value),
                None => Ok(default),
            }
        });
        let values = with_defaults.collect::<Result<_, _>>()?;
        let record = writing.insert(resource, None, values, context)?;
        let location = format!("{prefix}{}?id={}", resource.path, record.id.0);
        Ok((record.id, answer(&record, 201, Some(location), resource)))
    }

    fn update(
        &mut self,
        writing: &Writing<'_>,
        id: RecordId,
        context: &ChangeContext,
    ) -> Result<(RecordId, Answer), MutationError<ApiError>> {
        self.check_version(writing, id)?;
        let Change { resource, values, .. } = self;
        check_references(writing, values)?;
        if let Some((field, value)) = values.last_mut()
            && field.kind == Kind::Custom
        {
            let record = writing.record(resource, id)?;
            let stored = record.and_then(|mut record| record.values.pop());
            let stored = stored.unwrap_or(Value::Null);
            *value = changed(field, &stored, mem::replace(value, Value::Null))?;
        }
        let record = writing.update(resource, id, values, context)?;
        let record = record.ok_or_else(|| errors::not_found(resource, id))?;
        Ok((id, answer(&record, 200, None, resource)))
    }

    /// Checks that the record exists and has a version that the condition names.
    fn check_version(
        &self,
        writing: &Writing<'_>,
        id: RecordId,
    ) -> Result<(), MutationError<ApiError>> {
        let not_found = || errors::not_found(self.resource, id);
        let version = writing.version(self.resource, id)?.ok_or_else(not_found)?;
        if self.if_match.is_met_by(Some(version))? {
            return Ok(());
        }
        // Earlier operations of a batch may have changed the record. They are rolled back, and
        // their versions are used again.
        writing.undo()?;
        let error = ApiError::from(ErrorCode::PreconditionFailed);
        Err(match writing.version(self.resource, id)? {
            Some(present) => error.header("ETag", present.etag()).into(),
            None => error.into(),
        })
    }
}

/// Reads the query parameter `update_by` of a POST.
fn parse_update_by(
    resource: &'static Resource,
    query: &Query,
) -> Result<Option<&'static Field>, ApiError> {
    let Some(name) = query.get(UPDATE_BY.name) else { return Ok(None) };
    let key = resource.lookup_fields().find(|field| field.name == name);
    let expectation = || format!("send one of {}", lookup_names(resource).join(", "));
    let invalid = || errors::invalid_parameter(UPDATE_BY.name, name, &expectation());
    key.ok_or_else(invalid).map(Some)
}

/// Checks the fields of a new record. With the field `key` of `update_by`, a stored record may get
/// the values instead.
fn check_new(
    resource: &'static Resource,
    body: &JsonObject,
    key: Option<&'static Field>,
) -> Result<Vec<(&'static Field, Value)>, ApiError> {
    all_valid(resource.fields.iter().filter_map(|field| {
        let required = field.required || key == Some(field);
        let rules = Field { required, ..*field };
        let checked = match body.get(field.name) {
            Some(input) if key.is_some() => rules.check_update(input),
            Some(input) => rules.check(input),
            None if required => Err(vec![field.missing()]),
            None => return None,
        };
        Some((field, checked))
    }))
}

/// Checks the fields that the body of a PUT names.
fn check_update(
    resource: &'static Resource,
    body: &JsonObject,
) -> Result<Vec<(&'static Field, Value)>, ApiError> {
    let named = |field: &'static Field| Some((field, field.check_update(body.get(field.name)?)));
    let mut checked = resource.fields.iter().filter_map(named).peekable();
    if checked.peek().is_none() {
        return Err(ErrorCode::NoUpdatableFields.into());
    }
    all_valid(checked)
}

/// The answer that is a record.
fn answer(record: &Record, status: u16, location: Option<String>, resource: &Resource) -> Answer {
    Answer { status, location, etag: Some(record.version.etag()), body: record.response(resource) }
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
    checked: impl Iterator<Item = (&'static Field, Result<Value, Vec<FieldError>>)>,
) -> Result<Vec<(&'static Field, Value)>, ApiError> {
    let (mut values, mut faults) = (Vec::new(), Vec::new());
    for (field, result) in checked {
        match result {
            Ok(value) => values.push((field, value)),
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
fn check_references(
    reading: &Reading<'_>,
    values: &[(&'static Field, Value)],
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
