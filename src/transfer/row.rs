//! The validation of one row: the rules of the API, and references by id or natural key.

use std::collections::HashSet;

use super::RowError;
use super::columns::{FileColumn, Layout, Role};
use super::import::Mode;
use crate::model::validation::{ValueError, is_empty};
use crate::model::{Column, Field, Json, RecordId, Resource, Value};
use crate::store::{DatabaseError, Match, Reading, Record};

/// The maximum id that an import keeps. The upper half of all ids remains for new records.
const MAX_ID: i64 = i64::MAX / 2;

const TWICE: &str = "An earlier row has the same value.";

/// The cells of a row in the order of the layout's columns, with `None` for a column that the file
/// lacks.
pub(super) type Cells = [Option<Json>];

/// A row that has passed validation.
#[derive(Debug)]
pub(super) enum ValidRow {
    /// A new record: the id that it keeps, and a value for each field of the resource.
    New { id: Option<RecordId>, values: Vec<Value> },
    /// A record that exists: the values that it does not have yet.
    Known { id: RecordId, changes: Vec<(&'static Field, Value)> },
}

/// Validates rows.
#[derive(Debug)]
pub(super) struct RowValidator<'a> {
    pub layout: &'a Layout,
    pub reading: &'a Reading<'a>,
    pub mode: Mode,
    /// The values so far in the column of [`Mode::key`].
    pub seen: HashSet<Value>,
}

/// What a row stands for.
enum Target {
    New(Option<RecordId>),
    Known(Record),
}

/// Why a row or a value of it is not taken.
enum Rejection {
    Invalid(RowError),
    Failed(DatabaseError),
}

impl From<RowError> for Rejection {
    fn from(error: RowError) -> Rejection {
        Rejection::Invalid(error)
    }
}

impl From<DatabaseError> for Rejection {
    fn from(error: DatabaseError) -> Rejection {
        Rejection::Failed(error)
    }
}

/// Adds the error of an invalid row or value to `errors`, and returns `None` for it.
fn report<T>(
    result: Result<T, Rejection>,
    errors: &mut Vec<RowError>,
) -> Result<Option<T>, DatabaseError> {
    match result {
        Ok(taken) => Ok(Some(taken)),
        Err(Rejection::Invalid(error)) => {
            errors.push(error);
            Ok(None)
        }
        Err(Rejection::Failed(error)) => Err(error),
    }
}

impl RowValidator<'_> {
    /// Adds all errors of the row to `errors`, and returns `None` if there are any.
    pub(super) fn validate(
        &mut self,
        line: u64,
        cells: &Cells,
        errors: &mut Vec<RowError>,
    ) -> Result<Option<ValidRow>, DatabaseError> {
        let before = errors.len();
        let target = report(self.target(line, cells), errors)?;
        let is_new = match target {
            Some(Target::New(_)) => true,
            Some(Target::Known(_)) => false,
            None => !matches!(self.mode, Mode::UpdateBy(_)),
        };
        let fields = self.layout.resource.fields;
        let mut values = Vec::with_capacity(fields.len());
        for field in fields {
            // The error of a value by which no record could be found is reported already.
            if target.is_none() && self.mode.key() == Some(Column::Field(field)) {
                continue;
            }
            let value = report(self.value(line, field, cells, is_new), errors)?;
            values.extend(value.flatten().map(|value| (field, value)));
        }
        let Some(target) = target.filter(|_| errors.len() == before) else { return Ok(None) };
        Ok(Some(match target {
            Target::New(id) => {
                ValidRow::New { id, values: values.into_iter().map(|(_, value)| value).collect() }
            }
            Target::Known(record) => {
                let stored: Vec<_> = fields.iter().zip(&record.values).collect();
                values.retain(|(field, value)| !stored.contains(&(*field, value)));
                ValidRow::Known { id: record.id, changes: values }
            }
        }))
    }

    fn target(&mut self, line: u64, cells: &Cells) -> Result<Target, Rejection> {
        let Some(column) = self.mode.key() else { return Ok(Target::New(None)) };
        let value = self.key(line, column, cells)?;
        let is_first = self.seen.insert(value.clone());
        let error = |code, message| Err(RowError::new(line, column.name(), code, message).into());
        if let (Mode::KeepIds, Value::Integer(id)) = (self.mode, &value) {
            let kept = Target::New(Some(RecordId(*id)));
            return if is_first { Ok(kept) } else { error("duplicate_id", TWICE) };
        }
        if !is_first {
            return error("ambiguous_record", TWICE);
        }
        let resource = self.layout.resource;
        let found = match self.reading.find_by(resource, column, &value)? {
            Match::One(id) => self.reading.record(resource, id)?,
            Match::Several => return error("ambiguous_record", "Several records have this value."),
            Match::None if column == Column::Id => {
                return error("not_found", "There is no record with this id.");
            }
            Match::None => None,
        };
        Ok(found.map_or(Target::New(None), Target::Known))
    }

    /// The value of the row in the column that says which record it stands for.
    fn key(&self, line: u64, column: Column, cells: &Cells) -> Result<Value, Rejection> {
        let name = column.name();
        let input = self.layout.find(name).and_then(|index| cells.get(index)?.as_ref());
        let Some(input) = input.filter(|input| !is_empty(input)) else {
            let message = format!("\"{name}\" is empty; every row needs it.");
            return Err(RowError::new(line, name, "required", message).into());
        };
        if let Column::Field(field) = column {
            return match input {
                // Compared as it is, as a filter does.
                Json::String(text) => Ok(Value::Text(text.to_string())),
                other => field.check(other).map_err(|error| row_error(line, field, error).into()),
            };
        }
        let id = if let Json::Number(number) = input { number.as_i64() } else { None };
        id.filter(|id| (1..=MAX_ID).contains(id)).map(Value::Integer).ok_or_else(|| {
            let message = format!("\"{name}\" must be an integer from 1 to {MAX_ID}.");
            RowError::new(line, name, "invalid_int", message).into()
        })
    }

    /// The value of a field, from its own column or from one with a natural key. `None` where the
    /// row leaves the field of a record as it is.
    fn value(
        &self,
        line: u64,
        field: &'static Field,
        cells: &Cells,
        is_new: bool,
    ) -> Result<Option<Value>, Rejection> {
        for (column, cell) in self.layout.columns.iter().zip(cells) {
            match (column.role, cell) {
                (Role::Field(own), Some(input)) if own.name == field.name => {
                    let checked =
                        if is_new { field.check(input) } else { field.check_update(input) };
                    let value = checked.map_err(|error| row_error(line, field, error))?;
                    return self.check_reference(line, field, value).map(Some);
                }
                (Role::NaturalKey { field: sets, target, key }, Some(input))
                    if sets.name == field.name =>
                {
                    return self.find(line, column, field, (target, key), input).map(Some);
                }
                _ => (),
            }
        }
        match is_new {
            true if field.required => {
                Err(row_error(line, field, ValueError::Invalid(field.missing())).into())
            }
            true => Ok(Some(field.default_value())),
            false => Ok(None),
        }
    }

    /// Checks that the referenced record exists, if the field is a reference.
    fn check_reference(&self, line: u64, field: &Field, value: Value) -> Result<Value, Rejection> {
        match self.reading.missing_reference(field, &value)? {
            Some((target, id)) => {
                let message = target.missing_message(field, id);
                Err(RowError::new(line, field.name, missing_code(target), message).into())
            }
            None => Ok(value),
        }
    }

    /// The id of the record with the natural key `input`.
    fn find(
        &self,
        line: u64,
        column: &FileColumn,
        field: &Field,
        (target, key): (&'static Resource, &'static Field),
        input: &Json,
    ) -> Result<Value, Rejection> {
        let (name, noun, key_name) = (&column.name, target.name, key.name);
        let error = |code, message| Err(RowError::new(line, name, code, message).into());
        let text = match input {
            empty if is_empty(empty) && field.required => {
                return error("required", format!("\"{name}\" is empty; name the {noun}."));
            }
            empty if is_empty(empty) => return Ok(Value::Null),
            Json::String(text) => text,
            _ => return error("bad_request", format!("\"{name}\" must be text.")),
        };
        let value = Value::Text(text.to_string());
        match self.reading.find_by(target, Column::Field(key), &value)? {
            Match::One(RecordId(id)) => Ok(Value::Integer(id)),
            Match::None => error(
                missing_code(target),
                format!(
                    "There is no {noun} with the {key_name} {text:?}. Create the {noun} first."
                ),
            ),
            Match::Several => error(
                "ambiguous_reference",
                format!(
                    "Several {noun}s have the {key_name} {text:?}. Name the one by \"{}\".",
                    field.name
                ),
            ),
        }
    }
}

/// The error code of a reference to a missing record of `target`.
fn missing_code(target: &Resource) -> &'static str {
    target.missing_code.unwrap_or("bad_request")
}

fn row_error(line: u64, field: &Field, error: ValueError) -> RowError {
    match error {
        ValueError::Invalid(error) => {
            RowError::new(line, error.field, error.code.as_str(), error.message)
        }
        ValueError::WrongType(message) => RowError::new(line, field.name, "bad_request", message),
    }
}
