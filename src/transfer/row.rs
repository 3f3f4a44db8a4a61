//! The validation of one row: the rules of the API, and references by id or natural key.

use super::RowError;
use super::columns::{FileColumn, Layout, Role};
use crate::model::validation::{ValueError, is_empty};
use crate::model::{Field, Json, RecordId, Resource, Value};
use crate::store::{DatabaseError, IdSet, Match, Reading};

/// The maximum id in a file. The upper half of all ids remains for new records.
const MAX_ID: i64 = i64::MAX / 2;

/// A row that has passed validation.
#[derive(Debug)]
pub(super) struct ValidRow {
    /// The id, if the import keeps ids.
    pub id: Option<RecordId>,
    /// The values in the order of the resource's fields.
    pub values: Vec<Value>,
}

/// Validates rows.
#[derive(Debug)]
pub(super) struct RowValidator<'a> {
    pub layout: &'a Layout,
    pub reading: &'a Reading<'a>,
    /// Whether the import keeps the ids of the file.
    pub keep_ids: bool,
    /// The ids of the rows so far, if duplicates are to be found.
    pub ids: Option<&'a IdSet<'a>>,
}

impl RowValidator<'_> {
    /// Validates a row. `cells` has the order of the layout's columns, with `None` for a column
    /// that the file lacks. Appends all errors of the row to `errors`, and returns `None` if there
    /// are any.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`] if a reference cannot be looked up.
    pub(super) fn validate(
        &self,
        line: u64,
        cells: &[Option<Json>],
        errors: &mut Vec<RowError>,
    ) -> Result<Option<ValidRow>, DatabaseError> {
        let before = errors.len();
        let id = if self.keep_ids { self.id(line, cells, errors)? } else { None };
        let mut values = Vec::with_capacity(self.layout.resource.fields.len());
        for field in self.layout.resource.fields {
            match self.value(line, field, cells)? {
                Ok(value) => values.push(value),
                Err(error) => errors.push(error),
            }
        }
        Ok((errors.len() == before).then_some(ValidRow { id, values }))
    }

    /// The id of the row.
    fn id(
        &self,
        line: u64,
        cells: &[Option<Json>],
        errors: &mut Vec<RowError>,
    ) -> Result<Option<RecordId>, DatabaseError> {
        let input = self.layout.find("id").and_then(|index| cells.get(index)?.as_ref());
        let number = match input {
            Some(Json::Number(number)) => {
                number.as_str().parse().ok().filter(|id| (1..=MAX_ID).contains(id)).map(RecordId)
            }
            _ => None,
        };
        let Some(id) = number else {
            let empty = input.is_none_or(is_empty);
            let code = if empty { "required" } else { "invalid_int" };
            let message =
                format!("With --keep-ids every row has an id, an integer from 1 to {MAX_ID}.");
            errors.push(RowError::new(line, "id", code, message));
            return Ok(None);
        };
        if let Some(ids) = self.ids
            && !ids.insert(id)?
        {
            errors.push(RowError::new(
                line,
                "id",
                "duplicate_id",
                format!("The id {id} came already in this file."),
            ));
        }
        Ok(Some(id))
    }

    /// The value of a field, from its own column or from one with a natural key.
    fn value(
        &self,
        line: u64,
        field: &'static Field,
        cells: &[Option<Json>],
    ) -> Result<Result<Value, RowError>, DatabaseError> {
        for (column, cell) in self.layout.columns.iter().zip(cells) {
            match (column.role, cell) {
                (Role::Field(own), Some(input)) if own.name == field.name => {
                    return match field.check(input) {
                        Ok(value) => self.check_reference(line, field, value),
                        Err(error) => Ok(Err(row_error(line, field, error))),
                    };
                }
                (Role::NaturalKey { field: sets, target, key }, Some(input))
                    if sets.name == field.name =>
                {
                    return self.find(line, column, field, (target, key), input);
                }
                _ => (),
            }
        }
        if field.required {
            return Ok(Err(row_error(line, field, ValueError::Invalid(field.missing()))));
        }
        Ok(Ok(field.default_value()))
    }

    /// Checks that the referenced record exists, if the field is a reference.
    fn check_reference(
        &self,
        line: u64,
        field: &Field,
        value: Value,
    ) -> Result<Result<Value, RowError>, DatabaseError> {
        Ok(match self.reading.missing_reference(field, &value)? {
            Some((target, id)) => {
                let message = target.missing_message(field, id);
                Err(RowError::new(line, field.name, missing_code(target), message))
            }
            None => Ok(value),
        })
    }

    /// The id of the record with the natural key `input`.
    fn find(
        &self,
        line: u64,
        column: &FileColumn,
        field: &Field,
        (target, key): (&'static Resource, &'static Field),
        input: &Json,
    ) -> Result<Result<Value, RowError>, DatabaseError> {
        let error = |code, message| Ok(Err(RowError::new(line, &column.name, code, message)));
        let text = match input {
            empty if is_empty(empty) && field.required => {
                return error(
                    "required",
                    format!("\"{}\" is empty; name the {}.", column.name, target.name),
                );
            }
            empty if is_empty(empty) => return Ok(Ok(Value::Null)),
            Json::String(text) => text,
            _ => return error("bad_request", format!("\"{}\" must be text.", column.name)),
        };
        let (noun, key_name) = (target.name, key.name);
        match self.reading.find_by(target, key, &Value::Text(text.to_string()))? {
            Match::One(RecordId(id)) => Ok(Ok(Value::Integer(id))),
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
