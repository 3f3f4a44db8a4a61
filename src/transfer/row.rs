//! The validation of one row: the rules of the API, references by what people know, and the merge
//! with what others have changed.

use std::collections::HashMap;

use super::columns::Columns;
use super::merge::{Past, shown};
use super::references::{ReferenceFinder, Term};
use super::{CellFault, Place};
use crate::clock::Timestamp;
use crate::model::validation::is_empty;
use crate::model::{
    CUSTOMER, CUSTOMER_ID, EMPLOYEE, Field, FieldError, ID, Json, JsonObject, RecordId, Resource,
    Rules, UPDATED_AT, Value,
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

const NEW_ROWS: &str = "Put new rows into a file of their own, and import it without --update-by.";

/// Why a part of a row cannot be taken.
#[derive(Debug)]
pub(super) enum Fault {
    Cells(Vec<CellFault>),
    Store(StoreError),
}

impl Fault {
    pub(super) fn cell(column: &str, code: &'static str, message: impl Into<String>) -> Fault {
        Fault::Cells(vec![(column.to_owned(), code, message.into())])
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        match error.into_rejection() {
            Ok(rejection) => rejection.into(),
            Err(error) => Fault::Store(error),
        }
    }
}

impl From<Vec<FieldError>> for Fault {
    fn from(errors: Vec<FieldError>) -> Fault {
        let fault = |error: FieldError| (error.field, error.code.as_str(), error.message);
        Fault::Cells(errors.into_iter().map(fault).collect())
    }
}

impl From<Rejection> for Fault {
    fn from(rejection: Rejection) -> Fault {
        let column = match rejection {
            Rejection::InvalidFields(errors) => return errors.into(),
            Rejection::AmbiguousRecord(_, field, _) => field.name,
            Rejection::NotFound(..) => ID.name,
            // An import has no preconditions and deletes nothing.
            _ => "-",
        };
        Fault::cell(column, rejection.code(), rejection.message())
    }
}

/// Returns the value of a check, or adds its faults to those of the row.
fn keep<T>(
    faults: &mut Vec<CellFault>,
    checked: Result<T, impl Into<Fault>>,
) -> Result<Option<T>, StoreError> {
    match checked.map_err(Into::into) {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Store(error)) => Err(error),
        Err(Fault::Cells(mut found)) => {
            // A cell with a fault is not absent.
            found.retain(|(column, code, _)| {
                *code != "required" || faults.iter().all(|(earlier, ..)| earlier != column)
            });
            faults.append(&mut found);
            Ok(None)
        }
    }
}

#[derive(Debug)]
pub(super) struct RowValidator<'a> {
    pub columns: &'a Columns<'a>,
    pub reading: &'a Reading<'a>,
    pub mode: Mode,
    /// Whether rows with `updated_at` are merged with what others have changed.
    is_merging: bool,
    /// The cells of the row that count as not edited, and have no value of the newest version that
    /// its author may have seen.
    pub earlier: Vec<String>,
    /// How many values of others the row replaces, because it is not merged.
    pub set_back: usize,
    finder: ReferenceFinder<'a>,
    /// The values so far in the column of [`Mode::key`], each with its first row.
    seen: HashMap<Value, Place>,
    /// The records by their former values of that field, once a row of an export has found none.
    former_keys: Option<HashMap<String, Vec<RecordId>>>,
}

/// The record that a row stands for. If the row is merged, also what its author has seen, and the
/// cells that were edited. `None` if the record is gone, and no cell was edited.
type RowTarget = Option<(Target, Option<(Past, JsonObject)>)>;

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
            earlier: Vec::new(),
            set_back: 0,
            finder: ReferenceFinder::new(reading, &columns.references),
            seen: HashMap::new(),
            former_keys: None,
        }
    }

    /// Returns the record that the row makes. `None` if the row changes nothing or has faults, which
    /// are added. `cells` has the columns that the file has, without the cells with faults.
    pub(super) fn validate(
        &mut self,
        place: Place,
        cells: &JsonObject,
        faults: &mut Vec<CellFault>,
    ) -> Result<Option<Draft>, StoreError> {
        let resource = self.columns.resource;
        (self.earlier, self.set_back) = (Vec::new(), 0);
        if self.is_new_in_list(cells, faults) {
            let message = format!("\"{}\" is empty. {NEW_ROWS}", ID.name);
            faults.push((ID.name.to_owned(), "required", message));
            return Ok(None);
        }
        let (target, merged) = match keep(faults, self.find_target(place, cells))? {
            Some(Some((target, merged))) => (Some(target), merged),
            Some(None) => return Ok(None),
            None => (None, None),
        };
        let cells = merged.as_ref().map_or(cells, |(_, edited)| edited);
        let rules = match (&target, self.mode) {
            (_, Mode::Add | Mode::KeepIds) => Rules::New,
            // A row without a target may belong to a record that has the absent fields.
            (Some(Target::Stored(_)) | None, Mode::UpdateBy(_)) => Rules::Stored,
            (Some(_), Mode::UpdateBy(key)) => Rules::StoredOrNew(key),
        };
        let mut values: Vec<(&Field, Value)> = Vec::with_capacity(resource.fields.len());
        // The customer of a device narrows its employee.
        let (customer, others): (Vec<_>, Vec<_>) =
            resource.fields.iter().partition(|field| field.name == CUSTOMER_ID);
        for field in customer.into_iter().chain(others) {
            // The fault of a value by which no record could be found is known already.
            if target.is_none() && self.mode.key() == Some(field) {
                continue;
            }
            let checked = match field.references {
                Some(referred) => {
                    let customer = values.iter().find(|(field, _)| field.name == CUSTOMER_ID);
                    let customer = customer.map(|(field, value)| Term::of(field, value));
                    let kept = match &target {
                        Some(Target::Stored(record)) => resource.value(&record.values, field.name),
                        _ => None,
                    };
                    let narrowing = [customer, kept.map(|id| Term::of(&ID, id))];
                    self.finder.check(field, referred, cells, rules, narrowing)
                }
                None => field.check_sent(cells.get(field.name), rules).map_err(Fault::from),
            };
            values.extend(keep(faults, checked)?.flatten().map(|value| (field, value)));
        }
        // Without a target there is a fault already.
        let draft = Draft::new(resource, target.unwrap_or(Target::New(None)), &values);
        let Some(mut draft) = keep(faults, draft)? else { return Ok(None) };
        if let (Some((past, edited)), Target::Stored(record)) = (&merged, &draft.target) {
            let conflicts = past.conflicts(&record.values, &draft.values);
            let named = conflicts.into_iter().map(|fault| self.finder.name_edited(fault, edited));
            faults.extend(named);
        }
        if !faults.is_empty() {
            return Ok(None);
        }
        self.set_back = self.count_set_back(cells, &draft)?;
        // An empty cell names no customer beside an employee.
        let names_customer =
            values.iter().any(|(field, value)| field.name == CUSTOMER_ID && *value != Value::Null);
        let owned = self.set_owner(&mut draft, names_customer);
        Ok(keep(faults, owned)?.map(|()| draft))
    }

    /// Whether the row was added to an exported list. Its other cells are not to blame.
    fn is_new_in_list(&self, cells: &JsonObject, faults: &[CellFault]) -> bool {
        matches!(self.mode, Mode::UpdateBy(key) if *key == ID)
            && cells.get(ID.name).is_none_or(is_empty)
            && faults.iter().all(|(column, ..)| column != ID.name)
    }

    fn count_set_back(&self, cells: &JsonObject, draft: &Draft) -> Result<usize, StoreError> {
        let Target::Stored(record) = &draft.target else { return Ok(0) };
        // Without a readable time, the row has seen nothing.
        let moment = if self.is_merging { None } else { read_moment(cells).ok().flatten() };
        let Some(moment) = moment else { return Ok(0) };
        let past = Past::find(self.reading, draft.resource, record.id, moment)?;
        Ok(past.count_set_back(&record.values, &draft.values))
    }

    /// Gives a device the customer of its employee. The fault names both as people do.
    fn set_owner(&self, draft: &mut Draft, names_customer: bool) -> Result<(), Fault> {
        let Err(error) = self.reading.set_owner(draft, names_customer) else { return Ok(()) };
        let (employee, customer, named) = match error.into_rejection()? {
            Rejection::OtherCustomer { employee, customer, named } => (employee, customer, named),
            rejection => return Err(rejection.into()),
        };
        let label = |resource, id| self.finder.label(resource, &Value::Integer(id));
        let (employee, customer) = (label(&EMPLOYEE, employee)?, label(&CUSTOMER, customer)?);
        let named = self.finder.label(&CUSTOMER, &named)?;
        let message = format!(
            "the employee {employee} works at the customer {customer}, not {named}; leave the \
             customer out, or name another employee"
        );
        Err(Fault::cell(CUSTOMER_ID, "bad_request", message))
    }

    fn find_target(&mut self, place: Place, cells: &JsonObject) -> Result<RowTarget, Fault> {
        let Some(key) = self.mode.key() else { return Ok(Some((Target::New(None), None))) };
        let moment = if self.is_merging { read_moment(cells)? } else { None };
        let value = check_key(key, cells)?;
        let is_kept = matches!(self.mode, Mode::KeepIds);
        if let Some(earlier) = self.seen.get(&value) {
            let code = if is_kept { "duplicate_id" } else { "ambiguous_record" };
            let message = format!("It stands at {earlier}, too. Keep one of them.");
            return Err(Fault::cell(key.name, code, message));
        }
        self.seen.insert(value.clone(), place);
        if let (true, Value::Integer(id)) = (is_kept, &value) {
            return Ok(Some((Target::New(Some(RecordId(*id))), None)));
        }
        let resource = self.columns.resource;
        let found = self.reading.find_one(resource, key, &value)?;
        if let Some(moment) = moment {
            return self.find_seen_record(key, &value, found, moment, cells);
        }
        let target = match (found, value) {
            (Some(record), _) => Target::Stored(record),
            (None, Value::Integer(id)) => {
                return Err(Rejection::NotFound(resource, RecordId(id)).into());
            }
            (None, value) => {
                self.guard(key, &value)?;
                Target::New(None)
            }
        };
        Ok(Some((target, None)))
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
    ) -> Result<RowTarget, Fault> {
        let changed_meanwhile =
            |column: &str, message: String| Err(Fault::cell(column, "changed_meanwhile", message));
        let resource = self.columns.resource;
        let (noun, name) = (resource.name, key.name);
        if let Some(record) = found {
            let mut past = Past::find(self.reading, resource, record.id, moment)?;
            if !past.is_known {
                past.set_present(&record);
                if moment < record.created_at {
                    let created_at = record.created_at;
                    let message =
                        format!("the {noun} was created at {created_at}, after the export");
                    return changed_meanwhile(UPDATED_AT.name, message);
                }
            }
            if *key == ID || past.seen_in(key).any(|seen| seen == value) {
                let edited = self.edited(&past, cells)?;
                return Ok(Some((Target::Stored(record), Some((past, edited)))));
            }
        }
        let mut is_recorded = false;
        for id in self.former_records(key, value)? {
            let past = Past::find(self.reading, resource, id, moment)?;
            is_recorded |= past.is_recorded;
            if past.is_known && (*key == ID || past.seen_in(key).any(|seen| seen == value)) {
                let edited = self.edited(&past, cells)?;
                let Some((column, cell)) = edited.iter().next() else { return Ok(None) };
                let (farewell, cell) = (past.farewell(key), shown(cell));
                let message = format!("{farewell}, and {column} is {cell} in the file");
                return changed_meanwhile(name, message);
            }
        }
        if is_recorded {
            let message = format!("the {noun} has changed, and the change log no longer says how");
            return changed_meanwhile(UPDATED_AT.name, message);
        }
        let cure = if *key == ID { NEW_ROWS } else { "Empty it to create a record." };
        let message = format!(
            "No {noun} had the {name} {} then. A row with \"{}\" is a row of an export. {cure}",
            shown(&serde_json::json!(value)),
            UPDATED_AT.name
        );
        Err(Fault::cell(name, "not_found", message))
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

    /// The cells of a row that differ from what its author has seen.
    fn edited(&mut self, past: &Past, cells: &JsonObject) -> Result<JsonObject, Fault> {
        let (mut edited, earlier) = (JsonObject::new(), &mut self.earlier);
        for field in self.columns.resource.fields {
            if field.references.is_some() {
                edited.extend(self.finder.edited(field, cells, past, earlier)?);
            } else if let Some(cell) =
                cells.get(field.name).and_then(|cell| past.edited(field, cell, earlier))
            {
                edited.insert(field.name.to_owned(), cell);
            }
        }
        Ok(edited)
    }

    /// Refuses a new record if a stored record has nearly the same key: a spreadsheet removes zeros,
    /// and the row would make a double of that record.
    fn guard(&mut self, key: &'static Field, value: &Value) -> Result<(), Fault> {
        let Value::Text(text) = value else { return Ok(()) };
        let similar = self.finder.similar(self.columns.resource, key, text)?;
        let Some(similar) = similar else { return Ok(()) };
        let cause = match similar.trim_start_matches('0') == text.trim_start_matches('0') {
            true => "the spreadsheet may have removed zeros",
            false => "write it in the same way",
        };
        let name = key.name;
        let message = format!("{name} {text:?} matches no record, but {similar:?} exists; {cause}");
        Err(Fault::cell(name, "similar_record", message))
    }
}

/// The moment in the column `updated_at`.
fn read_moment(cells: &JsonObject) -> Result<Option<Timestamp>, Fault> {
    let cell = cells.get(UPDATED_AT.name).filter(|cell| !is_empty(cell));
    let Some(cell) = cell else { return Ok(None) };
    let text = cell.as_str().unwrap_or_default().trim();
    // A cell with a date has no time zone, and at midnight no time.
    let forms = [text.to_owned(), format!("{text}Z"), format!("{text}T00:00:00Z")];
    let moment = forms.iter().find_map(|text| text.parse().ok());
    moment.map(Some).ok_or_else(|| {
        let message = format!(
            "\"{}\" was {}; leave it as the export has it, such as 2026-11-29T14:03:25Z, or \
             empty it",
            UPDATED_AT.name,
            shown(cell)
        );
        Fault::cell(UPDATED_AT.name, "invalid_date", message)
    })
}

/// The value of the row in the column that says which record it stands for.
fn check_key(field: &Field, cells: &JsonObject) -> Result<Value, Fault> {
    let name = field.name;
    let Some(input) = cells.get(name).filter(|input| !is_empty(input)) else {
        let message = format!("\"{name}\" is empty; every row needs it.");
        return Err(Fault::cell(name, "required", message));
    };
    if *field == ID {
        let id = input.as_i64().filter(|id| (1..=MAX_ID).contains(id));
        let message = || format!("\"{name}\" must be an integer from 1 to {MAX_ID}.");
        return id.map(Value::Integer).ok_or_else(|| Fault::cell(name, "invalid_int", message()));
    }
    match input {
        Json::String(text) => Ok(Value::of(text.trim())),
        input => Ok(field.check(input)?),
    }
}
