//! The validation of one row: the rules of the API, references by what people know, and the merge
//! with what others have changed.

use std::collections::{HashMap, HashSet};
use std::mem;

use super::columns::{CellFault, Columns, ReferenceColumn};
use super::merge::{Past, is_same, shown};
use super::references::{CUSTOMER_ID, ReferenceFinder, Term};
use super::{Place, RowError};
use crate::clock::Timestamp;
use crate::model::validation::{is_empty, shorten};
use crate::model::{
    CUSTOMER, EMPLOYEE, Field, FieldError, ID, Json, JsonObject, Kind, RecordId, Resource, Rules,
    UPDATED_AT, Value,
};
use crate::store::{Draft, Reading, Record, Rejection, StoreError, Target};
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
    /// Whether rows with `updated_at` are merged with what others have changed.
    is_merging: bool,
    finder: ReferenceFinder<'a>,
    /// The values so far in the column of [`Mode::key`].
    seen: HashSet<Value>,
    /// The stored values of that field by their [`essence`], once a row has found no record.
    stored_keys: Option<HashMap<String, String>>,
    /// The records by their former values of that field, once a row of an export has found none.
    former_keys: Option<HashMap<String, Vec<RecordId>>>,
    /// The place of the present row, and its errors so far.
    place: Place,
    errors: Vec<RowError>,
}

/// What a row stands for.
enum RowTarget {
    /// A record, and what the author of the row has seen of it.
    Record(Target, Option<Past>),
    /// A record that is gone. The row has no edit.
    Unedited,
    /// No record that could be found. The error is reported.
    Fault,
}

impl<'a> RowValidator<'a> {
    pub(super) fn new(
        columns: &'a Columns<'a>,
        reading: &'a Reading<'a>,
        mode: Mode,
        is_merging: bool,
    ) -> Self {
        RowValidator {
            columns,
            reading,
            mode,
            is_merging,
            finder: ReferenceFinder::new(reading),
            seen: HashSet::new(),
            stored_keys: None,
            former_keys: None,
            place: Place::default(),
            errors: Vec::new(),
        }
    }

    /// Returns the record that the row makes, `None` if it changes nothing, or all errors of the
    /// row. `cells` has the columns that the file has, without the cells with `faults`.
    pub(super) fn validate(
        &mut self,
        place: Place,
        cells: &JsonObject,
        faults: Vec<CellFault>,
    ) -> Result<Result<Option<Draft>, Vec<RowError>>, StoreError> {
        self.place = place;
        for (column, code, message) in faults {
            self.add_error(&column, code, message);
        }
        let resource = self.columns.resource;
        let (target, past) = match self.find_target(cells)? {
            RowTarget::Record(target, past) => (Some(target), past),
            RowTarget::Unedited if self.errors.is_empty() => return Ok(Ok(None)),
            RowTarget::Unedited => return Ok(Err(mem::take(&mut self.errors))),
            RowTarget::Fault => (None, None),
        };
        let rules = match (&target, self.mode) {
            (_, Mode::Add | Mode::KeepIds) => Rules::New,
            // A row without a target may belong to a record that has the absent fields.
            (Some(Target::Stored(_)) | None, Mode::UpdateBy(_)) => Rules::Stored,
            (Some(_), Mode::UpdateBy(key)) => Rules::StoredOrNew(key),
        };
        let stored = match &target {
            Some(Target::Stored(record)) => Some(record),
            _ => None,
        };
        let mut values = Vec::with_capacity(resource.fields.len());
        // The customer of a device narrows its employee.
        let (customer, others): (Vec<_>, Vec<_>) =
            resource.fields.iter().partition(|field| field.name == CUSTOMER_ID);
        for field in customer.into_iter().chain(others) {
            // The error of a value by which no record could be found is reported already.
            if target.is_none() && self.mode.key() == Some(field) {
                continue;
            }
            let value = match field.references {
                Some(target) => {
                    let row = ReferenceRow { cells, rules, past: past.as_ref(), stored };
                    self.check_reference(field, target, &row, &values)?
                }
                None => self.check_field(field, cells, rules, past.as_ref()),
            };
            values.extend(value.map(|value| (field, value)));
        }
        if let (Some(past), Some(record)) = (&past, stored) {
            self.add_conflicts(past, record, &values);
        }
        // Without a target there is an error already.
        self.finish(target.unwrap_or(Target::New(None)), &values)
    }

    fn finish(
        &mut self,
        target: Target,
        values: &[(&'static Field, Value)],
    ) -> Result<Result<Option<Draft>, Vec<RowError>>, StoreError> {
        match Draft::new(self.columns.resource, target, values) {
            Ok(mut draft) if self.errors.is_empty() => {
                // An empty cell names no customer beside an employee.
                let named = values
                    .iter()
                    .find(|(field, value)| field.name == CUSTOMER_ID && *value != Value::Null);
                match self.reading.set_owner(&mut draft, named.is_some()) {
                    Ok(()) => return Ok(Ok(Some(draft))),
                    Err(error) => match error.into_rejection()? {
                        Rejection::OtherCustomer(_) => self.add_other_customer(&draft)?,
                        rejection => self.reject(rejection),
                    },
                }
            }
            Ok(_) => {}
            Err(rejection) => self.reject(rejection),
        }
        Ok(Err(mem::take(&mut self.errors)))
    }

    /// Adds the error of a device whose employee works at another customer than the file says.
    fn add_other_customer(&mut self, draft: &Draft) -> Result<(), StoreError> {
        let value = |name| draft.resource.value(&draft.values, name).unwrap_or(&Value::Null);
        let (employee, named) = (value("employee_id"), value(CUSTOMER_ID));
        let works_at = match employee {
            Value::Integer(id) => self.reading.record(&EMPLOYEE, RecordId(*id))?,
            _ => None,
        };
        let works_at =
            works_at.as_ref().and_then(|record| EMPLOYEE.value(&record.values, CUSTOMER_ID));
        let works_at = self.finder.label(&CUSTOMER, works_at.unwrap_or(&Value::Null))?;
        let employee = self.finder.label(&EMPLOYEE, employee)?;
        let named = self.finder.label(&CUSTOMER, named)?;
        let message = format!(
            "the employee {employee} works at the customer {works_at}, not {named}; leave the \
             customer out, or name another employee"
        );
        self.add_error(CUSTOMER_ID, "bad_request", message);
        Ok(())
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
            // An import has no preconditions and deletes nothing.
            _ => "-",
        };
        self.add_error(column, code, message);
    }

    /// Returns the value of a check, or adds the errors of the rejection.
    fn value_of<T>(&mut self, checked: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match checked {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                self.reject(error.into_rejection()?);
                Ok(None)
            }
        }
    }

    fn find_target(&mut self, cells: &JsonObject) -> Result<RowTarget, StoreError> {
        let Some(key) = self.mode.key() else {
            return Ok(RowTarget::Record(Target::New(None), None));
        };
        let moment = self.read_moment(cells);
        let Some(value) = self.check_key(key, cells) else { return Ok(RowTarget::Fault) };
        let is_kept = matches!(self.mode, Mode::KeepIds);
        if !self.seen.insert(value.clone()) {
            let code = if is_kept { "duplicate_id" } else { "ambiguous_record" };
            self.add_error(key.name, code, "An earlier row has the same value.");
            return Ok(RowTarget::Fault);
        }
        if let (true, Value::Integer(id)) = (is_kept, &value) {
            return Ok(RowTarget::Record(Target::New(Some(RecordId(*id))), None));
        }
        let resource = self.columns.resource;
        let found = self.reading.find_one(resource, key, &value);
        let Some(found) = self.value_of(found)? else { return Ok(RowTarget::Fault) };
        if let Some(moment) = moment {
            return self.find_seen_record(key, &value, found, moment, cells);
        }
        let target = match (found, value) {
            (Some(record), _) => Some(Target::Stored(record)),
            (None, Value::Integer(id)) => {
                self.reject(Rejection::NotFound(resource, RecordId(id)));
                None
            }
            (None, Value::Text(text)) => self.guard(key, &text)?,
            (None, _) => Some(Target::New(None)),
        };
        Ok(target.map_or(RowTarget::Fault, |target| RowTarget::Record(target, None)))
    }

    /// The moment in the column `updated_at` of a row that is merged.
    fn read_moment(&mut self, cells: &JsonObject) -> Option<Timestamp> {
        let cell = cells.get(UPDATED_AT.name).filter(|cell| !is_empty(cell))?;
        if !self.is_merging {
            return None;
        }
        let text = cell.as_str().unwrap_or_default().trim();
        // A cell with a date has no time zone, and at midnight no time.
        let forms = [text.to_owned(), format!("{text}Z"), format!("{text}T00:00:00Z")];
        let moment = forms.iter().find_map(|text| text.parse().ok());
        if moment.is_none() {
            let message = format!(
                "\"{}\" was {}; leave it as the export has it, such as 2026-11-29T14:03:25Z, or \
                 empty it",
                UPDATED_AT.name,
                shown(cell)
            );
            self.add_error(UPDATED_AT.name, "invalid_date", message);
        }
        moment
    }

    /// The record that the author of a row has seen at `moment`. `found` has the row's value in
    /// `key` now.
    fn find_seen_record(
        &mut self,
        key: &'static Field,
        value: &Value,
        found: Option<Record>,
        moment: Timestamp,
        cells: &JsonObject,
    ) -> Result<RowTarget, StoreError> {
        let resource = self.columns.resource;
        if let Some(record) = found {
            let mut past = Past::find(self.reading, resource, record.id, moment)?;
            if !past.is_known {
                past.set_present(&record);
                if moment < record.created_at {
                    let message = format!(
                        "the {} was created at {}, after the export",
                        resource.name, record.created_at
                    );
                    self.add_error(UPDATED_AT.name, "changed_meanwhile", message);
                    return Ok(RowTarget::Fault);
                }
            }
            if *key == ID || past.seen_in(key).any(|seen| seen == value) {
                return Ok(RowTarget::Record(Target::Stored(record), Some(past)));
            }
        }
        let mut is_recorded = false;
        for id in self.former_records(key, value)? {
            let past = Past::find(self.reading, resource, id, moment)?;
            is_recorded |= past.is_recorded;
            if past.is_known && (*key == ID || past.seen_in(key).any(|seen| seen == value)) {
                let Some(edited) = self.first_edit(&past, cells)? else {
                    return Ok(RowTarget::Unedited);
                };
                let cell = cells.get(&edited).map_or(String::new(), shown);
                let message = format!("{}, and {edited} is {cell} in the file", past.farewell(key));
                self.add_error(key.name, "changed_meanwhile", message);
                return Ok(RowTarget::Fault);
            }
        }
        let (noun, name) = (resource.name, key.name);
        if is_recorded {
            let message = format!("the {noun} has changed, and the change log no longer says how");
            self.add_error(UPDATED_AT.name, "changed_meanwhile", message);
        } else {
            let message = format!(
                "No {noun} had the {name} {} then. A row with \"{}\" is a row of an export; empty \
                 it to create a record.",
                shown(&serde_json::json!(value)),
                UPDATED_AT.name
            );
            self.add_error(name, "not_found", message);
        }
        Ok(RowTarget::Fault)
    }

    /// The records that had this value in `key` before a change, or have this id.
    fn former_records(
        &mut self,
        key: &'static Field,
        value: &Value,
    ) -> Result<Vec<RecordId>, StoreError> {
        let text = match value {
            Value::Integer(id) => return Ok(vec![RecordId(*id)]),
            Value::Text(text) => text,
            _ => return Ok(Vec::new()),
        };
        if self.former_keys.is_none() {
            let mut former: HashMap<String, Vec<RecordId>> = HashMap::new();
            self.reading.former_keys(self.columns.resource, key, &mut |text, id| {
                let ids = former.entry(text).or_default();
                if !ids.contains(&id) {
                    ids.push(id);
                }
            })?;
            self.former_keys = Some(former);
        }
        Ok(self.former_keys.as_ref().and_then(|keys| keys.get(text)).cloned().unwrap_or_default())
    }

    /// The first column of a row that was edited.
    fn first_edit(
        &mut self,
        past: &Past,
        cells: &JsonObject,
    ) -> Result<Option<String>, StoreError> {
        for field in self.columns.resource.fields {
            let cell = cells.get(field.name);
            let is_edited = match (field.references, cell) {
                (Some(_), _) => {
                    let cells = self.reference_cells(field, cells);
                    !cells.is_empty() && !self.is_unedited(field, &cells, past)?
                }
                (None, Some(cell)) if field.kind == Kind::Custom => {
                    past.edited_members(field, cell).is_some()
                }
                (None, Some(cell)) => !past.has(field, cell),
                (None, None) => false,
            };
            if is_edited {
                return Ok(Some(field.name.to_owned()));
            }
        }
        Ok(None)
    }

    /// Adds the errors of cells that were edited, while others have changed the same field.
    fn add_conflicts(&mut self, past: &Past, record: &Record, values: &[(&'static Field, Value)]) {
        if !past.is_known {
            if let Some((field, _)) = values.first() {
                let message = format!(
                    "{} was edited, but the change log no longer has the record as it was at {}; \
                     export again, or use --overwrite",
                    field.name, past.moment
                );
                self.add_error(UPDATED_AT.name, "changed_meanwhile", message);
            }
            return;
        }
        for (field, value) in values {
            let Some(now) = self.columns.resource.value(&record.values, field.name) else {
                continue;
            };
            for (column, message) in past.conflicts(field, value, now) {
                self.add_error(&column, "changed_meanwhile", message);
            }
        }
    }

    /// A new record with this key, unless a stored record has nearly the same key: a spreadsheet
    /// removes zeros, and the row would make a double of that record.
    fn guard(&mut self, key: &Field, text: &str) -> Result<Option<Target>, StoreError> {
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

    fn read_keys(&self, key: &Field) -> Result<HashMap<String, String>, StoreError> {
        let mut keys = HashMap::new();
        let resource = self.columns.resource;
        self.reading.each(resource, |record| {
            if let Some(Value::Text(text)) = resource.value(&record.values, key.name) {
                keys.insert(essence(text), text.clone());
            }
            Ok::<(), StoreError>(())
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

    /// The value of a field. `None` if the row has no value for it, an unedited or an invalid one.
    fn check_field(
        &mut self,
        field: &'static Field,
        cells: &JsonObject,
        rules: Rules,
        past: Option<&Past>,
    ) -> Option<Value> {
        let edited;
        let mut cell = cells.get(field.name);
        if let (Some(past), Some(sent)) = (past, cell) {
            if field.kind == Kind::Custom {
                edited = past.edited_members(field, sent);
                cell = edited.as_ref();
            } else if past.has(field, sent) {
                return None;
            }
        }
        match field.check_sent(cell, rules) {
            Ok(value) => value,
            Err(faults) => {
                self.reject(Rejection::InvalidFields(faults));
                None
            }
        }
    }

    /// The cells of a reference in the order of the file: its id, and what people know.
    fn reference_cells<'c>(
        &self,
        field: &Field,
        cells: &'c JsonObject,
    ) -> Vec<(&'c String, &'c Json)> {
        let is_own =
            |name: &str| name == field.name || self.reference_column(field, name).is_some();
        cells.iter().filter(|(name, _)| is_own(name)).collect()
    }

    fn reference_column(&self, field: &Field, name: &str) -> Option<&'a ReferenceColumn> {
        self.columns.references.iter().find(|one| one.field == field && one.name == name)
    }

    /// The id of the record that the cells of a reference name together.
    fn check_reference(
        &mut self,
        field: &'static Field,
        target: &'static Resource,
        row: &ReferenceRow<'_>,
        values: &[(&'static Field, Value)],
    ) -> Result<Option<Value>, StoreError> {
        let cells = self.reference_cells(field, row.cells);
        if let Some(past) = row.past
            && !cells.is_empty()
        {
            if self.is_unedited(field, &cells, past)? {
                return Ok(None);
            }
            if let Some(column) = self.emptied_beside_id(field, &cells, past)? {
                let message = format!(
                    "\"{column}\" is empty, but \"{0}\" is not. To remove the {1}, empty \"{0}\", \
                     too.",
                    field.name, target.name
                );
                self.add_error(&column, "bad_request", message);
                return Ok(None);
            }
        }
        let filled: Vec<_> = cells.iter().filter(|(_, cell)| !is_empty(cell)).collect();
        if filled.is_empty() {
            return Ok(self.check_empty_reference(field, target, &cells, row.rules));
        }
        let mut terms: Vec<Term> = Vec::new();
        let mut found = Vec::new();
        for (name, cell) in filled {
            let Some(term) = self.term(field, name, cell) else { return Ok(None) };
            found = self.finder.find(target, std::slice::from_ref(&term), None)?;
            if found.is_empty() {
                let message = missing(target, &term);
                self.add_error(name, target.missing_code(), message);
                return Ok(None);
            }
            terms.push(term);
            if terms.len() > 1 {
                found = self.finder.find(target, &terms, None)?;
            }
            if found.is_empty() {
                let message =
                    format!("No {} has {}. Correct one of the cells.", target.name, list(&terms));
                self.add_error(name, "bad_request", message);
                return Ok(None);
            }
        }
        self.narrow(field, target, &terms, &mut found, row.stored, values)?;
        if let [RecordId(id)] = *found {
            return Ok(Some(Value::Integer(id)));
        }
        self.add_ambiguous(field, target, &terms, &found)?;
        Ok(None)
    }

    fn add_ambiguous(
        &mut self,
        field: &Field,
        target: &'static Resource,
        terms: &[Term],
        found: &[RecordId],
    ) -> Result<(), StoreError> {
        let message = format!(
            "Several {} have {}: {}. Name one by its id or number.",
            target.plural,
            list(terms),
            self.finder.list(target, found)?
        );
        let column = terms.first().map_or(field.name, |term| &term.column);
        self.add_error(column, "ambiguous_reference", message);
        Ok(())
    }

    /// Of several records, the one to which the stored record refers, or those of the row's customer.
    fn narrow(
        &mut self,
        field: &Field,
        target: &'static Resource,
        terms: &[Term],
        found: &mut Vec<RecordId>,
        stored: Option<&Record>,
        values: &[(&'static Field, Value)],
    ) -> Result<(), StoreError> {
        let customer = values.iter().find(|(field, _)| field.name == CUSTOMER_ID);
        if let (Some((_, customer)), true) = (customer, found.len() > 1)
            && target.field(CUSTOMER_ID).is_some()
        {
            let narrowed = self.finder.find(target, terms, Some(customer))?;
            if !narrowed.is_empty() {
                *found = narrowed;
            }
        }
        let kept =
            stored.and_then(|record| self.columns.resource.value(&record.values, field.name));
        if let (Some(Value::Integer(kept)), true) = (kept, found.len() > 1)
            && found.contains(&RecordId(*kept))
        {
            *found = vec![RecordId(*kept)];
        }
        Ok(())
    }

    fn check_empty_reference(
        &mut self,
        field: &'static Field,
        target: &Resource,
        cells: &[(&String, &Json)],
        rules: Rules,
    ) -> Option<Value> {
        let Some((name, cell)) = cells.first() else {
            return match field.check_sent(None, rules) {
                Ok(value) => value,
                Err(faults) => {
                    self.reject(Rejection::InvalidFields(faults));
                    None
                }
            };
        };
        if !field.required {
            return Some(Value::Null);
        }
        if *name == field.name {
            if let Err(faults) = field.check_sent(Some(cell), rules) {
                self.reject(Rejection::InvalidFields(faults));
            }
        } else {
            let message = format!("\"{name}\" is empty; name the {}.", target.name);
            self.add_error(name, "required", message);
        }
        None
    }

    fn term(&mut self, field: &'static Field, name: &str, cell: &Json) -> Option<Term> {
        let Some(column) = self.reference_column(field, name) else {
            return match field.check(cell) {
                Ok(id) => Some(Term { column: name.to_owned(), field: Some(&ID), value: id }),
                Err(faults) => {
                    self.reject(Rejection::InvalidFields(faults));
                    None
                }
            };
        };
        let Json::String(text) = cell else {
            self.add_error(name, "bad_request", format!("\"{name}\" must be text."));
            return None;
        };
        Some(Term { column: name.to_owned(), field: column.key, value: Value::of(text.trim()) })
    }

    /// Whether no cell of a reference was edited: the id is as then, and the readable cells agree
    /// with the record that it named.
    fn is_unedited(
        &self,
        field: &Field,
        cells: &[(&String, &Json)],
        past: &Past,
    ) -> Result<bool, StoreError> {
        'versions: for id in past.seen_in(field) {
            for (name, cell) in cells {
                let agrees = match self.reference_column(field, name) {
                    Some(column) => self.finder.agrees(column, id, cell, past.moment)?,
                    None => is_same(field, id, cell),
                };
                if !agrees {
                    continue 'versions;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// A readable column that was emptied, while the id beside it is as then.
    fn emptied_beside_id(
        &self,
        field: &Field,
        cells: &[(&String, &Json)],
        past: &Past,
    ) -> Result<Option<String>, StoreError> {
        let id = cells.iter().find(|(name, cell)| *name == field.name && !is_empty(cell));
        let Some((_, id)) = id.filter(|(_, cell)| past.has(field, cell)) else { return Ok(None) };
        let Some(id) = past.seen_in(field).find(|seen| is_same(field, seen, id)) else {
            return Ok(None);
        };
        for (name, cell) in cells.iter().filter(|(_, cell)| is_empty(cell)) {
            if let Some(column) = self.reference_column(field, name)
                && !self.finder.agrees(column, id, cell, past.moment)?
            {
                return Ok(Some((*name).clone()));
            }
        }
        Ok(None)
    }
}

/// What the check of a reference needs of its row.
struct ReferenceRow<'r> {
    cells: &'r JsonObject,
    rules: Rules,
    past: Option<&'r Past>,
    stored: Option<&'r Record>,
}

fn missing(target: &Resource, term: &Term) -> String {
    let noun = target.name;
    if term.field == Some(&ID) {
        let id = serde_json::json!(term.value);
        return format!("\"{}\" was {id}, but there is no {noun} with this id.", term.column);
    }
    let key = term.field.map_or("name", |field| field.name);
    let Value::Text(text) = &term.value else { return format!("There is no {noun}.") };
    format!("There is no {noun} with the {key} {:?}. Create the {noun} first.", shorten(text))
}

/// The terms for people: `customer_number "K-1" and customer_name "Beta"`.
fn list(terms: &[Term]) -> String {
    let terms = terms
        .iter()
        .map(|term| format!("{} {}", term.column, shown(&serde_json::json!(term.value))));
    terms.collect::<Vec<_>>().join(" and ")
}

/// The key without leading zeros, spaces and the case of letters.
fn essence(key: &str) -> String {
    let key: String = key.to_lowercase().split_whitespace().collect();
    key.trim_start_matches('0').to_owned()
}
