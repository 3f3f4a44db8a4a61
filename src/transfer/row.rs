//! The columns of a CSV file, which are also the members of a line in JSON Lines, and the
//! validation of one row: the rules of the API, and references by id or natural key.

use std::collections::HashSet;
use std::mem;

use super::{Position, RowError};
use crate::http::ErrorCode;
use crate::model::custom::{NAME_RULE, PREFIX, name_in};
use crate::model::field::CUSTOM;
use crate::model::validation::{ValueError, is_empty, is_integer, shorten};
use crate::model::{
    Field, FieldError, ID, Json, JsonObject, Kind, READ_ONLY, RecordId, Resource, Value,
};
use crate::store::{DatabaseError, Reading, Record};
use crate::words;

/// What a row stands for.
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

/// All columns that a file of a resource can have: its fields, what an export writes besides them,
/// and the natural keys of the records that it refers to.
#[derive(Debug)]
pub(super) struct Columns {
    pub resource: &'static Resource,
    pub natural_keys: Vec<NaturalKey>,
}

/// A column that stands for a reference, such as `customer_number` for the field `customer_id`.
#[derive(Debug)]
pub(super) struct NaturalKey {
    pub name: String,
    /// The reference.
    pub field: &'static Field,
    pub target: &'static Resource,
    /// The field of `target` that the column holds.
    pub key: &'static Field,
}

impl Columns {
    pub(super) fn of(resource: &'static Resource) -> Columns {
        let references = resource.fields.iter().filter_map(|field| {
            let target = field.references?;
            Some(target.natural_keys.iter().filter_map(move |key| {
                let key = target.field(key)?;
                let name = natural_key_name(target, key);
                Some(NaturalKey { name, field, target, key })
            }))
        });
        Columns { resource, natural_keys: references.flatten().collect() }
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        let fields = self.resource.fields.iter().map(|field| field.name);
        let natural_keys = self.natural_keys.iter().map(|column| column.name.as_str());
        fields.chain(READ_ONLY).chain(natural_keys)
    }

    /// The errors of the columns `present` in a row: of one that does not exist, and of one that
    /// sets the same field as one before it. A column of a CSV file comes with its index.
    pub(super) fn check<'a>(
        &'a self,
        position: Position,
        present: impl Iterator<Item = (Option<usize>, &'a str)>,
    ) -> Vec<RowError> {
        let (mut errors, mut has_listed) = (Vec::new(), false);
        // The columns so far, each with the field that it sets.
        let mut set: Vec<(String, &str)> = Vec::new();
        for (index, name) in present {
            let column = index.map_or("column".to_owned(), column_label);
            let Some(field) = self.field_of(name) else {
                let is_similar = words::closest(name, self.names()).is_some();
                let message = match has_listed && !is_similar {
                    _ if name.starts_with(PREFIX) => {
                        format!("Unknown {column} {:?}. {NAME_RULE}", shorten(name))
                    }
                    true => format!("Unknown {column} {:?}.", shorten(name)),
                    false => words::unknown(&column, &shorten(name), self.names()),
                };
                has_listed |= !is_similar;
                errors.push(RowError::new(position, name, "unknown_column", message));
                continue;
            };
            let column = format!("{column} \"{name}\"");
            if let Some((first, _)) = set.iter().find(|(_, earlier)| *earlier == field) {
                let first = words::capitalize(first);
                let message = format!("{first} and {column} set the same field. Keep one.");
                errors.push(RowError::new(position, name, "bad_request", message));
            } else {
                set.push((column, field));
            }
        }
        errors
    }

    /// The name of the field that a column sets. `None` if there is no such column.
    fn field_of<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        if name_in(name).is_some() {
            return Some(name);
        }
        let natural_key = self.natural_keys.iter().find(|column| column.name == name);
        let natural_key = natural_key.map(|column| column.field.name);
        natural_key.or_else(|| self.names().find(|known| *known == name))
    }

    /// The type of the values in the column `name`.
    pub(super) fn kind(&self, name: &str) -> Option<Kind> {
        let mut fields = [&ID].into_iter().chain(self.resource.fields);
        fields.find(|field| field.name == name).map(|field| field.kind)
    }
}

/// The label of the column at `index`, as a spreadsheet names it: `column 12 (L)`.
pub(super) fn column_label(index: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = index + 1;
    while rest > 0 {
        letters.extend(('A'..='Z').nth((rest - 1) % 26));
        rest = (rest - 1) / 26;
    }
    format!("column {} ({})", index + 1, letters.iter().rev().collect::<String>())
}

/// `customer_number` contains the name of its resource; `email` needs it as a prefix.
fn natural_key_name(target: &Resource, key: &Field) -> String {
    let prefix = format!("{}_", target.name);
    if key.name.starts_with(&prefix) { key.name.to_owned() } else { prefix + key.name }
}

/// Converts a cell to the type of its column. A cell that cannot be converted remains text, and
/// validation rejects it.
pub(super) fn input(kind: Option<Kind>, cell: &str) -> Json {
    match kind {
        Some(Kind::Integer | Kind::Boolean) if is_integer(cell) => {
            serde_json::from_str(cell).unwrap_or_default()
        }
        // Spreadsheets write booleans in capitals.
        Some(Kind::Boolean) if cell.eq_ignore_ascii_case("true") => true.into(),
        Some(Kind::Boolean) if cell.eq_ignore_ascii_case("false") => false.into(),
        _ => cell.into(),
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

/// A row that has passed validation.
#[derive(Debug)]
pub(super) struct ValidRow {
    pub target: RowTarget,
    /// Of a new record all values, of a known one those that it does not have yet.
    pub values: Vec<(&'static Field, Value)>,
}

/// Validates rows.
#[derive(Debug)]
pub(super) struct RowValidator<'a> {
    pub columns: &'a Columns,
    pub reading: &'a Reading<'a>,
    pub mode: Mode,
    /// The values so far in the column of [`Mode::key`].
    seen: HashSet<Value>,
    /// Where the row begins, and its errors so far.
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
        let target = self.target(cells)?;
        let is_new = match target {
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
            if let Some(value) = self.value(field, cells, is_new)? {
                let stored = match &target {
                    Some(RowTarget::Known(record)) => record.values.get(index),
                    _ => None,
                };
                let stored = stored.cloned().unwrap_or_else(|| field.default_value());
                match field.changed(&stored, value) {
                    Ok(value) => values.push((field, value)),
                    Err(FieldError { field, code, message }) => {
                        self.reject::<()>(&field, code.as_str(), message);
                    }
                }
            }
        }
        let Some(target) = target.filter(|_| self.errors.is_empty()) else {
            return Ok(Err(mem::take(&mut self.errors)));
        };
        if let RowTarget::Known(record) = &target {
            let stored: Vec<_> = fields.iter().zip(&record.values).collect();
            values.retain(|(field, value)| !stored.contains(&(*field, value)));
        }
        Ok(Ok(ValidRow { target, values }))
    }

    /// Adds an error of the row.
    fn reject<T>(&mut self, name: &str, code: &'static str, message: String) -> Option<T> {
        self.errors.push(RowError::new(self.position, name, code, message));
        None
    }

    fn reject_value<T>(&mut self, field: &Field, error: ValueError) -> Option<T> {
        match error {
            ValueError::Invalid(errors) => {
                for FieldError { field, code, message } in errors {
                    self.reject::<T>(&field, code.as_str(), message);
                }
                None
            }
            ValueError::WrongType(message) => self.reject(field.name, "bad_request", message),
        }
    }

    /// `None` if the row names no record that it could stand for.
    fn target(&mut self, cells: &JsonObject) -> Result<Option<RowTarget>, DatabaseError> {
        let Some(key) = self.mode.key() else { return Ok(Some(RowTarget::New(None))) };
        let Some(value) = self.key(key, cells) else { return Ok(None) };
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
            [id] => {
                let record = self.reading.record(resource, *id)?;
                return Ok(record.map(RowTarget::Known));
            }
            [] if *key != ID => return Ok(Some(RowTarget::New(None))),
            [] => ("not_found", "There is no record with this id."),
            _ => ("ambiguous_record", "Several records have this value."),
        };
        Ok(self.reject(name, code, message.to_owned()))
    }

    /// The value of the row in the column that says which record it stands for.
    fn key(&mut self, field: &Field, cells: &JsonObject) -> Option<Value> {
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
            return value.map_or_else(|error| self.reject_value(field, error), Some);
        }
        match input.as_number().and_then(serde_json::Number::as_i64) {
            Some(id) if (1..=MAX_ID).contains(&id) => Some(Value::Integer(id)),
            _ => {
                let message = format!("\"{name}\" must be an integer from 1 to {MAX_ID}.");
                self.reject(name, "invalid_int", message)
            }
        }
    }

    /// The value of a field, from its own column or from one with a natural key. `None` if it is
    /// invalid, and where the row leaves the field of a record as it is.
    fn value(
        &mut self,
        field: &'static Field,
        cells: &JsonObject,
        is_new: bool,
    ) -> Result<Option<Value>, DatabaseError> {
        let custom = if field.kind == Kind::Custom { custom_fields(cells) } else { None };
        if let Some(input) = custom.as_ref().or_else(|| cells.get(field.name)) {
            let checked = if is_new { field.check(input) } else { field.check_update(input) };
            return match checked {
                Ok(value) => self.check_reference(field, value),
                Err(error) => Ok(self.reject_value(field, error)),
            };
        }
        for column in self.columns.natural_keys.iter().filter(|column| column.field == field) {
            if let Some(input) = cells.get(&column.name) {
                return self.find(column, input);
            }
        }
        Ok(match is_new {
            true if field.required => {
                self.reject_value(field, ValueError::Invalid(vec![field.missing()]))
            }
            true => Some(field.default_value()),
            false => None,
        })
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
    fn find(&mut self, column: &NaturalKey, input: &Json) -> Result<Option<Value>, DatabaseError> {
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

/// The columns `custom.NAME` as the object `custom`. `None` if there are none.
fn custom_fields(cells: &JsonObject) -> Option<Json> {
    let mut columns =
        cells.iter().filter_map(|(name, cell)| Some((name_in(name)?, cell))).peekable();
    columns.peek()?;
    let mut object = match cells.get(CUSTOM.name) {
        Some(Json::Object(object)) => object.clone(),
        Some(other) if !is_empty(other) => return Some(other.clone()),
        _ => JsonObject::new(),
    };
    object.extend(columns.map(|(name, cell)| (name.to_owned(), cell.clone())));
    Some(Json::Object(object))
}

/// The error code of a reference to a missing record of `target`.
fn missing_code(target: &Resource) -> &'static str {
    ErrorCode::missing_reference(target).describe().code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CUSTOMER, EMPLOYEE, HARDWARE};

    #[test]
    fn references_have_columns_for_natural_keys() {
        let names = |resource| {
            let columns = Columns::of(resource).natural_keys.into_iter();
            columns.map(|column| column.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&CUSTOMER), Vec::<String>::new());
        assert_eq!(names(&EMPLOYEE), ["customer_number", "customer_email"]);
        assert_eq!(names(&HARDWARE), ["employee_number", "employee_email"]);
    }
}
