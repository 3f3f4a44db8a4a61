//! A change of a record as data, and how it is made inside a write transaction.
//!
//! A change comes with values that passed the checks of their fields (model/validation.rs). Its last
//! checks need the transaction. For a request, [`Writing::apply`] makes them in this order: the
//! record is found, its version meets the precondition, the references lead to records, the custom
//! fields are not too many, the customer of a device is its employee's. An import (transfer/row.rs)
//! and an undo have no precondition. They call the other checks themselves.

use super::change_log::ChangeContext;
use super::owner::MAX_CHANGED;
use super::read::{Reading, Record};
use super::write::Writing;
use crate::clock::Timestamp;
use crate::model::{Field, FieldCode, FieldError, RecordId, Resource, Value, Version};
use crate::store::error::DatabaseError;
use crate::words::grouped;

/// A change of one record. Its values are valid on their own.
#[derive(Clone, Debug)]
pub struct Change {
    pub resource: &'static Resource,
    pub kind: ChangeKind,
    /// The fields that change, or that a new record does not leave at their defaults.
    pub values: Vec<(&'static Field, Value)>,
    /// The fields that get the id of another record: the record of the change with this number in
    /// the same mutation, counted from 0. Their values above are only placeholders.
    pub results: Vec<(&'static Field, usize)>,
    pub precondition: Precondition,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeKind {
    Create,
    Update(RecordId),
    /// Updates the record that has the change's value in this field. Without such a record, creates
    /// one.
    UpdateBy(&'static Field),
    Delete(RecordId),
}

/// The versions that a record may have to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Any version, and also no record.
    None,
    /// Any version.
    Exists,
    /// The version with one of these entity tags.
    OneOf(Vec<String>),
}

/// Why a change is not made. It is a mistake or a conflict of the client, not a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Rejection {
    InvalidFields(Vec<FieldError>),
    NotFound(&'static Resource, RecordId),
    /// These records have the same value in the field. There may be more.
    AmbiguousRecord(&'static Resource, &'static Field, Vec<RecordId>),
    PreconditionFailed {
        /// The record's version, if there is a record.
        present: Option<Version>,
        /// Whether the client has sent only weak tags, which meet no version.
        has_only_weak_tags: bool,
    },
    /// The field refers to the record of the resource with this id, which does not exist.
    MissingReference(&'static Field, &'static Resource, i64),
    /// A device with an employee cannot get the named customer, as the message says.
    OtherCustomer(String),
    /// The employee would take so many devices to another customer that the request would change
    /// too many records.
    TooManyDevices {
        employee: RecordId,
        devices: i64,
    },
    /// Other records refer to the record of `resource` that is to be deleted.
    HasDependents {
        resource: &'static Resource,
        /// The database's own message.
        details: String,
        /// How many records of which resource refer to it.
        counts: Vec<(&'static Resource, i64)>,
    },
}

/// The most messages about fields in one rejection. Only a body with many custom fields has more.
const MAX_MESSAGES: usize = 20;

impl Rejection {
    /// The code of the contract (section 5).
    pub fn code(&self) -> &'static str {
        match self {
            Rejection::InvalidFields(faults) if has_wrong_type(faults) => "bad_request",
            Rejection::InvalidFields(_) => "validation_failed",
            Rejection::NotFound(..) => "not_found",
            Rejection::AmbiguousRecord(..) => "ambiguous_record",
            Rejection::PreconditionFailed { .. } => "precondition_failed",
            Rejection::MissingReference(_, target, _) => target.missing_code(),
            Rejection::OtherCustomer(_) => "bad_request",
            Rejection::TooManyDevices { .. } | Rejection::HasDependents { .. } => "has_dependents",
        }
    }

    /// The fault and the remedy, for people.
    pub fn message(&self) -> String {
        match self {
            Rejection::InvalidFields(faults) if has_wrong_type(faults) => wrong_types(faults),
            Rejection::InvalidFields(faults) => invalid_values(faults),
            Rejection::NotFound(Resource { name, .. }, RecordId(id)) => {
                format!("There is no {name} with the id {id}. Check the id.")
            }
            Rejection::AmbiguousRecord(resource, field, ids) => {
                let ids: Vec<String> = ids.iter().map(|RecordId(id)| id.to_string()).collect();
                format!(
                    "Several {} have this {}, such as those with the ids {}. Change one of them by \
                     its id.",
                    resource.plural,
                    field.name,
                    ids.join(", ")
                )
            }
            Rejection::PreconditionFailed { present: None, .. } => {
                "\"update_by\" finds no record, so none has a version of \"If-Match\". Nothing was \
                 changed. Send the request without \"If-Match\" to create the record."
                    .to_owned()
            }
            Rejection::PreconditionFailed { has_only_weak_tags: true, .. } => {
                "\"If-Match\" has only weak tags (W/\"…\"), which match no version. Nothing was \
                 changed. A proxy that compresses responses may have weakened them. Read the \
                 record, and send its member \"etag\", which is right."
                    .to_owned()
            }
            Rejection::PreconditionFailed { .. } => {
                "The record has another version than those in \"If-Match\". Nothing was changed. \
                 Read the record, decide again, and send its \"etag\"."
                    .to_owned()
            }
            Rejection::MissingReference(field, target, id) => target.missing_message(field, *id),
            Rejection::OtherCustomer(message) => message.clone(),
            Rejection::TooManyDevices { employee: RecordId(employee), devices } => format!(
                "The {} devices of employee {employee} move along, but a request changes at most {} \
                 records. Move in steps: set \"employee_id\" of the devices to null, move the \
                 employee, and give the devices back. Or ask the operator to move the employee by \
                 \"import --update-by\", which has no such limit.",
                grouped(devices.unsigned_abs()),
                grouped(MAX_CHANGED.unsigned_abs())
            ),
            Rejection::HasDependents { resource, counts, .. } => format!(
                "{} to this {}. Delete or reassign the records that refer to it first.",
                who_refer(counts),
                resource.name
            ),
        }
    }
}

/// A text of the wrong type rejects the whole request as `bad_request`.
fn has_wrong_type(faults: &[FieldError]) -> bool {
    faults.iter().any(|fault| fault.code == FieldCode::WrongType)
}

/// The messages of all fields, those with a wrong type first.
fn wrong_types(faults: &[FieldError]) -> String {
    let mut faults: Vec<&FieldError> = faults.iter().collect();
    faults.sort_by_key(|fault| fault.code != FieldCode::WrongType);
    let mut messages: Vec<String> =
        faults.iter().take(MAX_MESSAGES).map(|fault| fault.message.clone()).collect();
    let hidden = faults.len().saturating_sub(MAX_MESSAGES);
    if hidden > 0 {
        messages.push(format!("{hidden} more values are not valid."));
    }
    messages.join(" ")
}

/// The message of the first field, which a log or a mail may show alone, and the number of the
/// others.
fn invalid_values(faults: &[FieldError]) -> String {
    let first = faults.first().map_or("", |fault| &fault.message);
    match faults.len().saturating_sub(1) {
        0 => first.to_owned(),
        1 => format!("{first} 1 more field is not valid; \"errors\" has both."),
        more => format!("{first} {more} more fields are not valid; \"errors\" has all."),
    }
}

/// `1 employee refers`, `2 employees and 1 hardware record refer`.
pub fn who_refer(counts: &[(&Resource, i64)]) -> String {
    let mut kinds = Vec::new();
    for (Resource { name, plural, .. }, count) in counts {
        kinds.push(match count {
            1 if name == plural => format!("1 {name} record"),
            1 => format!("1 {name}"),
            _ if name == plural => format!("{count} {name} records"),
            _ => format!("{count} {plural}"),
        });
    }
    let verb = if matches!(counts, [(_, 1)]) { "refers" } else { "refer" };
    format!("{} {verb}", kinds.join(" and "))
}

/// Why a change is not made. The caller rolls back.
#[derive(Debug)]
pub enum ChangeError {
    Rejected(Rejection),
    Database(DatabaseError),
}

impl From<Rejection> for ChangeError {
    fn from(rejection: Rejection) -> ChangeError {
        ChangeError::Rejected(rejection)
    }
}

impl From<DatabaseError> for ChangeError {
    fn from(error: DatabaseError) -> ChangeError {
        ChangeError::Database(error)
    }
}

/// A change that was made.
#[derive(Debug)]
pub struct Changed {
    pub resource: &'static Resource,
    pub id: RecordId,
    /// The record after the change. `None` if it was deleted.
    pub record: Option<Record>,
    pub is_new: bool,
}

/// A record as it is to be stored: all its checks have passed.
#[derive(Debug)]
pub struct Draft {
    pub resource: &'static Resource,
    pub target: Target,
    /// All values, in the order of the resource.
    pub values: Vec<Value>,
}

/// The record that a draft is for.
#[derive(Debug)]
pub enum Target {
    /// A new record, with the next id or with this id.
    New(Option<RecordId>),
    /// A deleted record, which gets its id and its `created_at` again.
    Deleted(RecordId, Option<Timestamp>),
    Stored(Record),
}

impl Change {
    /// A change that refers to no other change and is made to any version.
    pub fn new(
        resource: &'static Resource,
        kind: ChangeKind,
        values: Vec<(&'static Field, Value)>,
    ) -> Change {
        Change { resource, kind, values, results: Vec::new(), precondition: Precondition::None }
    }

    /// Replaces the placeholders by the ids of records that the changes before this one made.
    pub(in crate::store) fn fill_results(&mut self, earlier: &[Changed]) {
        for (field, number) in &self.results {
            let Some(changed) = earlier.get(*number) else { continue };
            for (known, value) in &mut self.values {
                if known.name == field.name {
                    *value = Value::Integer(changed.id.0);
                }
            }
        }
    }
}

impl Precondition {
    /// Checks the version of the found record. A weak tag meets no version (RFC 9110 section
    /// 13.1.1).
    fn check(&self, stored: Option<&Record>) -> Result<(), Rejection> {
        let mut has_only_weak_tags = false;
        match (self, stored) {
            (Precondition::None, _) | (Precondition::Exists, Some(_)) => return Ok(()),
            (Precondition::OneOf(tags), Some(record)) if tags.contains(&record.version.etag()) => {
                return Ok(());
            }
            (Precondition::OneOf(tags), _) => {
                has_only_weak_tags = tags.iter().all(|tag| tag.starts_with("W/"));
            }
            (Precondition::Exists, None) => {}
        }
        let present = stored.map(|record| record.version);
        Err(Rejection::PreconditionFailed { present, has_only_weak_tags })
    }
}

impl Draft {
    /// Sets the `changes` in the stored values, or in the defaults of a new record.
    pub fn new(
        resource: &'static Resource,
        target: Target,
        changes: &[(&'static Field, Value)],
    ) -> Result<Draft, Rejection> {
        let mut values: Vec<Value> = match &target {
            Target::Stored(record) => record.values.clone(),
            _ => resource.fields.iter().map(Field::default_value).collect(),
        };
        for (field, change) in changes {
            let Some(value) = resource.value_mut(&mut values, field.name) else { continue };
            let changed = field.changed(value, change.clone());
            match changed.and_then(|new| field.check_visible(value, &new).map(|()| new)) {
                Ok(changed) => *value = changed,
                Err(fault) => return Err(Rejection::InvalidFields(vec![fault])),
            }
        }
        Ok(Draft { resource, target, values })
    }
}

impl Reading<'_> {
    /// The one record that has `value` in `field`.
    pub fn find_one(
        &self,
        resource: &'static Resource,
        field: &'static Field,
        value: &Value,
    ) -> Result<Option<Record>, ChangeError> {
        let ids = self.find_by(resource, field, value)?;
        match ids.as_slice() {
            [] => Ok(None),
            [id] => Ok(self.record(resource, *id)?),
            _ => Err(Rejection::AmbiguousRecord(resource, field, ids).into()),
        }
    }

    /// Checks that the record exists to which `field` refers with `value`.
    pub fn check_reference(&self, field: &'static Field, value: &Value) -> Result<(), ChangeError> {
        if let (Some(target), Value::Integer(id)) = (field.references, value)
            && !self.exists(target, RecordId(*id))?
        {
            return Err(Rejection::MissingReference(field, target, *id).into());
        }
        Ok(())
    }
}

impl Writing<'_> {
    /// Makes the last checks and the change.
    pub fn apply(&self, change: &Change, context: &ChangeContext) -> Result<Changed, ChangeError> {
        let resource = change.resource;
        let stored = match change.kind {
            ChangeKind::Create => None,
            ChangeKind::Update(id) | ChangeKind::Delete(id) => {
                let record = self.record(resource, id)?;
                Some(record.ok_or(Rejection::NotFound(resource, id))?)
            }
            ChangeKind::UpdateBy(key) => {
                let sent = change.values.iter().find(|(field, _)| field.name == key.name);
                let value = sent.map_or(&Value::Null, |(_, value)| value);
                self.find_one(resource, key, value)?
            }
        };
        change.precondition.check(stored.as_ref())?;
        for (field, value) in &change.values {
            self.check_reference(field, value)?;
        }
        let is_new = stored.is_none();
        let target = match (stored, change.kind) {
            (Some(record), ChangeKind::Delete(id)) => {
                self.delete(resource, record, context)?;
                return Ok(Changed { resource, id, record: None, is_new });
            }
            (Some(record), _) => Target::Stored(record),
            (None, _) => Target::New(None),
        };
        let mut draft = Draft::new(resource, target, &change.values)?;
        let names_customer = change.values.iter().any(|(field, _)| field.name == "customer_id");
        self.set_owner(&mut draft, names_customer)?;
        self.check_move(&draft)?;
        let record = self.save(draft, context)?;
        Ok(Changed { resource, id: record.id, record: Some(record), is_new })
    }

    /// Stores a draft. A stored record that has these values already stays as it is.
    pub fn save(&self, draft: Draft, context: &ChangeContext) -> Result<Record, DatabaseError> {
        let Draft { resource, target, values } = draft;
        match target {
            Target::New(id) => self.insert(resource, id, None, values, context),
            Target::Deleted(id, created_at) => {
                self.insert(resource, Some(id), created_at, values, context)
            }
            Target::Stored(record) => self.update(resource, record, values, context),
        }
    }
}
