//! The validation of one row: the rules of the API, and references by id or natural key.

use std::collections::{HashMap, HashSet};
use std::mem;

use super::columns::{CellFault, Columns, NaturalKey};
use super::{Place, RowError};
use crate::model::validation::is_empty;
use crate::model::{Field, FieldError, ID, Json, JsonObject, RecordId, Resource, Rules, Value};
use crate::store::{ChangeError, DatabaseError, Draft, Reading, Rejection, Target};
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
        let keys = [&ID].into_iter().chain(resource.lookup_fields());
        for field in keys.clone() {
            if field.name == name {
                return Ok(Mode::UpdateBy(field));
            }
        }
        Err(words::unknown("field", name, keys.map(|field| field.name)))
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

#[derive(Debug)]
pub(super) struct RowValidator<'a> {
    pub columns: &'a Columns<'a>,
    pub reading: &'a Reading<'a>,
    pub mode: Mode,
    /// The values so far in the column of [`Mode::key`].
    seen: HashSet<Value>,
    /// The stored values of that field by their [`essence`], once a row has found no record.
    stored_keys: Option<HashMap<String, String>>,
    /// The place of the present row, and its errors so far.
    place: Place,
    errors: Vec<RowError>,
}

impl<'a> RowValidator<'a> {
    pub(super) fn new(columns: &'a Columns<'a>, reading: &'a Reading<'a>, mode: Mode) -> Self {
        let (seen, place, errors) = (HashSet::new(), Place::default(), Vec::new());
        RowValidator { columns, reading, mode, seen, stored_keys: None, place, errors }
    }

    /// Returns the record that the row makes, or all errors of the row. `cells` has the columns
    /// that the file has, without the cells with `faults`.
    pub(super) fn validate(
        &mut self,
        place: Place,
        cells: &JsonObject,
        faults: Vec<CellFault>,
    ) -> Result<Result<Draft, Vec<RowError>>, DatabaseError> {
        self.place = place;
        for (column, code, message) in faults {
            self.add_error(&column, code, message);
        }
        let resource = self.columns.resource;
        let target = self.find_target(cells)?;
        let rules = match (&target, self.mode) {
            (_, Mode::Add | Mode::KeepIds) => Rules::New,
            // A row without a target may belong to a record that has the absent fields.
            (Some(Target::Stored(_)) | None, Mode::UpdateBy(_)) => Rules::Stored,
            (Some(_), Mode::UpdateBy(key)) => Rules::StoredOrNew(key),
        };
        let mut values = Vec::with_capacity(resource.fields.len());
        for field in resource.fields {
            // The error of a value by which no record could be found is reported already.
            if target.is_none() && self.mode.key() == Some(field) {
                continue;
            }
            if let Some(value) = self.check_field(field, cells, rules)? {
                values.push((field, value));
            }
        }
        // Without a target there is an error already.
        let target = target.unwrap_or(Target::New(None));
        match Draft::new(resource, target, &values) {
            Ok(mut draft) if self.errors.is_empty() => {
                // An empty cell names no customer beside an employee.
                let names_customer = values
                    .iter()
                    .any(|(field, value)| field.name == "customer_id" && *value != Value::Null);
                let owned = self.reading.set_owner(&mut draft, names_customer);
                if self.value_of(owned)?.is_some() {
                    return Ok(Ok(draft));
                }
            }
            Ok(_) => {}
            Err(rejection) => self.reject(rejection),
        }
        Ok(Err(mem::take(&mut self.errors)))
    }

    /// Adds an error of the row.
    fn add_error(&mut self, column: &str, code: &'static str, message: impl Into<String>) {
        // A cell with a fault is not absent.
        if code == "required" && self.errors.iter().any(|error| error.field == column) {
            return;
        }
        self.errors.push(RowError::new(self.place, column, code, message.into()));
    }

    /// Adds the errors that a rejection of the row's change means.
    fn reject(&mut self, rejection: Rejection) {
        let (code, message) = (rejection.code(), rejection.message());
        let column = match rejection {
            Rejection::InvalidFields(faults) => {
                for FieldError { field, code, message } in faults {
                    self.add_error(&field, code.as_str(), message);
                }
                return;
            }
            Rejection::MissingReference(field, ..) | Rejection::AmbiguousRecord(_, field, _) => {
                field.name
            }
            Rejection::NotFound(..) => ID.name,
            Rejection::MissingNaturalKey(key, _) | Rejection::AmbiguousReference(key, ..) => {
                &key.name
            }
            Rejection::Contradiction(_) | Rejection::OtherCustomer(_) => "customer_id",
            // An import has no preconditions and deletes nothing.
            _ => "-",
        };
        self.add_error(column, code, message);
    }

    /// Returns the value of a check, or adds the errors of the rejection.
    fn value_of<T>(&mut self, checked: Result<T, ChangeError>) -> Result<Option<T>, DatabaseError> {
        match checked {
            Ok(value) => Ok(Some(value)),
            Err(ChangeError::Database(error)) => Err(error),
            Err(ChangeError::Rejected(rejection)) => {
                self.reject(rejection);
                Ok(None)
            }
        }
    }

    /// The record that the row stands for. `None` if there is none that it could stand for.
    fn find_target(&mut self, cells: &JsonObject) -> Result<Option<Target>, DatabaseError> {
        let Some(key) = self.mode.key() else { return Ok(Some(Target::New(None))) };
        let Some(value) = self.check_key(key, cells) else { return Ok(None) };
        let is_kept = matches!(self.mode, Mode::KeepIds);
        if !self.seen.insert(value.clone()) {
            let code = if is_kept { "duplicate_id" } else { "ambiguous_record" };
            self.add_error(key.name, code, "An earlier row has the same value.");
            return Ok(None);
        }
        if let (true, Value::Integer(id)) = (is_kept, &value) {
            return Ok(Some(Target::New(Some(RecordId(*id)))));
        }
        let resource = self.columns.resource;
        let found = self.reading.find_one(resource, key, &value);
        match (self.value_of(found)?, value) {
            (Some(Some(record)), _) => Ok(Some(Target::Stored(record))),
            (Some(None), Value::Integer(id)) => {
                self.reject(Rejection::NotFound(resource, RecordId(id)));
                Ok(None)
            }
            (Some(None), Value::Text(text)) => self.guard(key, &text),
            (Some(None), _) => Ok(Some(Target::New(None))),
            (None, _) => Ok(None),
        }
    }

    /// A new record with this key, unless a stored record has nearly the same key: a spreadsheet
    /// removes zeros, and the row would make a double of that record.
    fn guard(&mut self, key: &Field, text: &str) -> Result<Option<Target>, DatabaseError> {
        if self.stored_keys.is_none() {
            self.stored_keys = Some(self.read_keys(key)?);
        }
        let stored = self.stored_keys.as_ref().and_then(|stored| stored.get(&essence(text)));
        let Some(similar) = stored else { return Ok(Some(Target::New(None))) };
        let cause = match similar.trim_start_matches('0') == text.trim_start_matches('0') {
            true => "the spreadsheet may have removed zeros",
            false => "write it in the same way",
        };
        let name = key.name;
        let message = format!("{name} {text:?} matches no record, but {similar:?} exists; {cause}");
        self.add_error(name, "similar_record", message);
        Ok(None)
    }

    fn read_keys(&self, key: &Field) -> Result<HashMap<String, String>, DatabaseError> {
        let mut keys = HashMap::new();
        let resource = self.columns.resource;
        self.reading.each(resource, |record| {
            if let Some(Value::Text(text)) = resource.value(&record.values, key.name) {
                keys.insert(essence(text), text.clone());
            }
            Ok::<(), DatabaseError>(())
        })?;
        Ok(keys)
    }

    /// The value of the row in the column that says which record it stands for.
    fn check_key(&mut self, field: &Field, cells: &JsonObject) -> Option<Value> {
        let name = field.name;
        let Some(input) = cells.get(name).filter(|input| !is_empty(input)) else {
            self.add_error(name, "required", format!("\"{name}\" is empty; every row needs it."));
            return None;
        };
        if *field == ID {
            if let Some(id) = input.as_i64().filter(|id| (1..=MAX_ID).contains(id)) {
                return Some(Value::Integer(id));
            }
            let message = format!("\"{name}\" must be an integer from 1 to {MAX_ID}.");
            self.add_error(name, "invalid_int", message);
            return None;
        }
        if let Json::String(text) = input {
            return Some(Value::of(text.trim()));
        }
        match field.check(input) {
            Ok(value) => Some(value),
            Err(faults) => {
                self.reject(Rejection::InvalidFields(faults));
                None
            }
        }
    }

    /// The value of a field, from its own column or from one with a natural key. `None` if the row
    /// has no value for it, or an invalid one.
    fn check_field(
        &mut self,
        field: &'static Field,
        cells: &JsonObject,
        rules: Rules,
    ) -> Result<Option<Value>, DatabaseError> {
        let columns = self.columns;
        for column in columns.natural_keys.iter().filter(|column| column.field == field) {
            if let Some(input) = cells.get(&column.name) {
                return self.find_reference(column, input);
            }
        }
        let checked = match field.check_sent(cells.get(field.name), rules) {
            Ok(None) => return Ok(None),
            Ok(Some(value)) => self.reading.check_reference(field, &value).map(|()| value),
            Err(faults) => Err(Rejection::InvalidFields(faults).into()),
        };
        self.value_of(checked)
    }

    /// The id of the record with the natural key `input`.
    fn find_reference(
        &mut self,
        column: &NaturalKey,
        input: &Json,
    ) -> Result<Option<Value>, DatabaseError> {
        let NaturalKey { name, field, target, key } = column;
        let (noun, key_name) = (target.name, key.name);
        if is_empty(input) {
            if !field.required {
                return Ok(Some(Value::Null));
            }
            self.add_error(name, "required", format!("\"{name}\" is empty; name the {noun}."));
            return Ok(None);
        }
        let Json::String(text) = input else {
            self.add_error(name, "bad_request", format!("\"{name}\" must be text."));
            return Ok(None);
        };
        let text = text.trim();
        let value = Value::of(text);
        let (code, message) = match self.reading.find_by(target, key, &value)?.as_slice() {
            [RecordId(id)] => return Ok(Some(Value::Integer(*id))),
            [] => (
                target.missing_code(),
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
        self.add_error(name, code, message);
        Ok(None)
    }
}

/// The key without leading zeros, spaces and the case of letters.
fn essence(key: &str) -> String {
    let key: String = key.to_lowercase().split_whitespace().collect();
    key.trim_start_matches('0').to_owned()
}
