//! The validation of one row: the rules of the API, and references by id or natural key.

use std::collections::HashSet;
use std::mem;

use super::columns::{Columns, NaturalKey};
use super::{Position, RowError};
use crate::http::ErrorCode;
use crate::model::validation::is_empty;
use crate::model::{Field, FieldError, ID, Json, JsonObject, RecordId, Resource, Value};
use crate::store::{DatabaseError, Reading, Record};
use crate::words;

/// The record that a row stands for.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// A new record.
    Add,
    /// A new record with the id of the row. The resource must never have held a record.
    KeepIds,
    /// The record with the value of the row in this field, or a new record.
    UpdateBy(&'static Field),
}

impl Mode {
    /// The mode of `--update-by`: `id`, or a field by which the API updates, too.
    pub fn update_by(resource: &'static Resource, name: &str) -> Result<Mode, String> {
        let mut keys = [&ID].into_iter().chain(resource.lookup_fields());
        let known = keys.clone().map(|field| field.name);
        let found = keys.find(|field| field.name == name);
        found.map(Mode::UpdateBy).ok_or_else(|| words::unknown("field", name, known))
    }

    /// The field that every row needs, with a value that no other row has.
    pub(super) fn key(self) -> Option<&'static Field> {
        match self {
            Mode::Add => None,
            Mode::KeepIds => Some(&ID),
            Mode::UpdateBy(field) => Some(field),
        }
    }
}

/// The maximum id that an import keeps. The upper half of all ids remains for new records.
const MAX_ID: i64 = i64::MAX / 2;

/// The record of a row.
#[derive(Debug)]
pub(super) enum RowTarget {
    /// A new record, and the id that it keeps.
    New(Option<RecordId>),
    Known(Record),
}

#[derive(Debug)]
pub(super) struct ValidRow {
    pub target: RowTarget,
    /// All values of a new record. Of a known record, only the values that change.
    pub values: Vec<(&'static Field, Value)>,
}

#[derive(Debug)]
pub(super) struct RowValidator<'a> {
    pub columns: &'a Columns,
    pub reading: &'a Reading<'a>,
    pub mode: Mode,
    /// The values so far in the column of [`Mode::key`].
    seen: HashSet<Value>,
    /// The position of the present row, and its errors so far.
    position: Position,
    errors: Vec<RowError>,
}

impl<'a> RowValidator<'a> {
    pub(super) fn new(columns: &'a Columns, reading: &'a Reading<'a>, mode: Mode) -> Self {
        let (seen, position, errors) = (HashSet::new(), Position::default(), Vec::new());
        RowValidator { columns, reading, mode, seen, position, errors }
    }

    /// Returns the row, or all its errors. `cells` has the columns that the file has.
    pub(super) fn validate(
        &mut self,
        position: Position,
        cells: &JsonObject,
    ) -> Result<Result<ValidRow, Vec<RowError>>, DatabaseError> {
        self.position = position;
        let target = self.find_target(cells)?;
        let stored = match &target {
            Some(RowTarget::Known(record)) => Some(&record.values),
            _ => None,
        };
        // A row without a target may belong to a record that has the absent fields.
        let needs_all = match target {
            Some(RowTarget::New(_)) => true,
            Some(RowTarget::Known(_)) => false,
            None => !matches!(self.mode, Mode::UpdateBy(_)),
        };
        let fields = self.columns.resource.fields;
        let mut values = Vec::with_capacity(fields.len());
        for (index, field) in fields.iter().enumerate() {
            // The error of a value by which no record could be found is reported already.
            if target.is_none() && self.mode.key() == Some(field) {
                continue;
            }
            let Some(value) = self.check_field(field, cells, needs_all)? else { continue };
            let old = stored.and_then(|values| values.get(index));
            match field.changed(&old.cloned().unwrap_or_else(|| field.default_value()), value) {
                Ok(value) if old == Some(&value) => (),
                Ok(value) => values.push((field, value)),
                Err(error) => _ = self.reject_fields::<()>(vec![error]),
            }
        }
        Ok(match target {
            Some(target) if self.errors.is_empty() => Ok(ValidRow { target, values }),
            _ => Err(mem::take(&mut self.errors)),
        })
    }

    /// Adds an error of the row.
    fn reject<T>(&mut self, name: &str, code: &'static str, message: String) -> Option<T> {
        self.errors.push(RowError::new(self.position, name, code, message));
        None
    }

    fn reject_fields<T>(&mut self, errors: Vec<FieldError>) -> Option<T> {
        for FieldError { field, code, message } in errors {
            self.reject::<T>(&field, code.as_str(), message);
        }
        None
    }

    /// `None` if the row names no record that it could stand for.
    fn find_target(&mut self, cells: &JsonObject) -> Result<Option<RowTarget>, DatabaseError> {
        const NOT_FOUND: (&str, &str) = ("not_found", "There is no record with this id.");
        let Some(key) = self.mode.key() else { return Ok(Some(RowTarget::New(None))) };
        let Some(value) = self.check_key(key, cells) else { return Ok(None) };
        let (resource, name) = (self.columns.resource, key.name);
        let is_kept = matches!(self.mode, Mode::KeepIds);
        if !self.seen.insert(value.clone()) {
            let code = if is_kept { "duplicate_id" } else { "ambiguous_record" };
            return Ok(self.reject(name, code, "An earlier row has the same value.".to_owned()));
        }
        if let (true, Value::Integer(id)) = (is_kept, &value) {
            return Ok(Some(RowTarget::New(Some(RecordId(*id)))));
        }
        let (code, message) = match self.reading.find_by(resource, key, &value)?.as_slice() {
            [id] => match self.reading.record(resource, *id)? {
                Some(record) => return Ok(Some(RowTarget::Known(record))),
                None => NOT_FOUND,
            },
            [] if *key != ID => return Ok(Some(RowTarget::New(None))),
            [] => NOT_FOUND,
            _ => ("ambiguous_record", "Several records have this value."),
        };
        Ok(self.reject(name, code, message.to_owned()))
    }

    /// The value of the row in the column that says which record it stands for.
    fn check_key(&mut self, field: &Field, cells: &JsonObject) -> Option<Value> {
        let name = field.name;
        let Some(input) = cells.get(name).filter(|input| !is_empty(input)) else {
            let message = format!("\"{name}\" is empty; every row needs it.");
            return self.reject(name, "required", message);
        };
        if *field != ID {
            // Text is compared as it is, as a filter does.
            let value = match input {
                Json::String(text) => Ok(Value::Text(text.clone())),
                other => field.check(other),
            };
            return value.map_or_else(|errors| self.reject_fields(errors), Some);
        }
        match input.as_number().and_then(serde_json::Number::as_i64) {
            Some(id) if (1..=MAX_ID).contains(&id) => Some(Value::Integer(id)),
            _ => {
                let message = format!("\"{name}\" must be an integer from 1 to {MAX_ID}.");
                self.reject(name, "invalid_int", message)
            }
        }
    }

    /// The value of a field, from its own column or from one with a natural key. `None` if the
    /// value is invalid, or if the row does not have the field and `needs_all` is not set.
    fn check_field(
        &mut self,
        field: &'static Field,
        cells: &JsonObject,
        needs_all: bool,
    ) -> Result<Option<Value>, DatabaseError> {
        if let Some(input) = cells.get(field.name) {
            // `--update-by` checks a new record as an update, too. Otherwise a file with an empty
            // status would succeed the first time, when it creates the record, and then fail.
            let checked = match self.mode {
                Mode::UpdateBy(_) => field.check_update(input),
                Mode::Add | Mode::KeepIds => field.check(input),
            };
            return match checked {
                Ok(value) => self.check_reference(field, value),
                Err(errors) => Ok(self.reject_fields(errors)),
            };
        }
        for column in self.columns.natural_keys.iter().filter(|column| column.field == field) {
            if let Some(input) = cells.get(&column.name) {
                return self.find_reference(column, input);
            }
        }
        if needs_all && field.required {
            return Ok(self.reject_fields(vec![field.missing()]));
        }
        Ok(needs_all.then(|| field.default_value()))
    }

    /// Checks that the referenced record exists, if the field is a reference.
    fn check_reference(
        &mut self,
        field: &Field,
        value: Value,
    ) -> Result<Option<Value>, DatabaseError> {
        Ok(match self.reading.missing_reference(field, &value)? {
            Some((target, id)) => {
                let message = target.missing_message(field, id);
                self.reject(field.name, missing_code(target), message)
            }
            None => Some(value),
        })
    }

    /// The id of the record with the natural key `input`.
    fn find_reference(
        &mut self,
        column: &NaturalKey,
        input: &Json,
    ) -> Result<Option<Value>, DatabaseError> {
        let NaturalKey { name, field, target, key } = column;
        let (noun, key_name) = (target.name, key.name);
        let text = match input {
            empty if is_empty(empty) && !field.required => return Ok(Some(Value::Null)),
            empty if is_empty(empty) => {
                let message = format!("\"{name}\" is empty; name the {noun}.");
                return Ok(self.reject(name, "required", message));
            }
            Json::String(text) => text,
            _ => return Ok(self.reject(name, "bad_request", format!("\"{name}\" must be text."))),
        };
        let value = Value::Text(text.clone());
        let (code, message) = match self.reading.find_by(target, key, &value)?.as_slice() {
            [RecordId(id)] => return Ok(Some(Value::Integer(*id))),
            [] => (
                missing_code(target),
                format!(
                    "There is no {noun} with the {key_name} {text:?}. Create the {noun} first."
                ),
            ),
            _ => (
                "ambiguous_reference",
                format!(
                    "Several {noun}s have the {key_name} {text:?}. Name the one by \"{}\".",
                    field.name
                ),
            ),
        };
        Ok(self.reject(name, code, message))
    }
}

/// The error code of a reference to a missing record of `target`.
fn missing_code(target: &Resource) -> &'static str {
    ErrorCode::missing_reference(target).describe().code
}
