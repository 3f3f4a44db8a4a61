//! The records that the columns of a file refer to: by id, number, e-mail address or name.

use std::collections::HashMap;

use serde_json::json;

use super::CellFault;
use super::columns::ReferenceColumn;
use super::merge::{Past, is_same, is_same_text, shown};
use super::row::Fault;
use crate::clock::Timestamp;
use crate::model::validation::{is_empty, normalize, shorten};
use crate::model::{EMPLOYEE, Field, ID, Json, JsonObject, RecordId, Resource, Rules, Value};
use crate::store::{Reading, ReferenceFault, StoreError, find_referred, fold};

/// A cell of a reference: the id, or a column that people can read.
struct ReferenceCell<'r> {
    name: &'r str,
    column: Option<&'r ReferenceColumn>,
    json: &'r Json,
}

/// What a cell says about the referred record.
#[derive(Debug)]
pub(super) struct Term {
    /// The column or member.
    column: String,
    /// The field of the referred record, or its name.
    field: Option<&'static Field>,
    value: Value,
}

#[derive(Debug)]
pub(super) struct ReferenceFinder<'a> {
    reading: &'a Reading<'a>,
    columns: &'a [ReferenceColumn],
    /// The ids of a resource by the folded names of its records.
    names: HashMap<&'static str, HashMap<String, Vec<RecordId>>>,
    /// The values of a key of a resource by their [`essence`].
    keys: HashMap<(&'static str, &'static str), HashMap<String, String>>,
}

/// So many records are named in a fault.
const MAX_NAMED: usize = 10;

impl<'a> ReferenceFinder<'a> {
    pub(super) fn new(reading: &'a Reading<'a>, columns: &'a [ReferenceColumn]) -> Self {
        ReferenceFinder { reading, columns, names: HashMap::new(), keys: HashMap::new() }
    }

    /// The id of the record that the cells of a reference name together. `None` if they are absent.
    /// If several records have all terms, those that also have a term of `narrowing` count.
    pub(super) fn check(
        &mut self,
        field: &'static Field,
        target: &'static Resource,
        cells: &JsonObject,
        rules: Rules,
        narrowing: [Option<Term>; 2],
    ) -> Result<Option<Value>, Fault> {
        let cells = self.cells(field, cells);
        let mut terms = Vec::new();
        for cell in cells.iter().filter(|cell| !is_empty(cell.json)) {
            terms.push(term(field, cell)?);
        }
        if terms.is_empty() {
            return check_empty(field, target, rules, cells.first());
        }
        let named: Vec<&Term> = terms.iter().collect();
        let narrowing = narrowing.each_ref().map(Option::as_ref);
        let (index, code, message) = match find_referred(&named, narrowing, |terms| {
            self.find(target, terms)
        })? {
            Ok(RecordId(id)) => return Ok(Some(Value::Integer(id))),
            Err(ReferenceFault::Missing(index)) => {
                let message = match terms.get(index) {
                    Some(term) => self.describe_missing(target, term)?,
                    None => String::new(),
                };
                (index, target.missing_code(), message)
            }
            Err(ReferenceFault::Contradiction(index)) => {
                let terms = list(terms.get(..=index).unwrap_or(&terms));
                let message =
                    format!("No {} has {terms}. Correct or empty the wrong cells.", target.name);
                (index, "bad_request", message)
            }
            Err(ReferenceFault::Ambiguous(ids)) => {
                let (terms, ids) = (list(&terms), self.numbers(target, &ids)?);
                let plural = target.plural;
                let message =
                    format!("Several {plural} have {terms}: {ids}. Name one by its id or number.");
                (0, "ambiguous_reference", message)
            }
        };
        let column = terms.get(index).map_or(field.name, |term| &term.column);
        Err(Fault::cell(column, code, message))
    }

    /// The cells of a reference in the order of the file.
    fn cells<'c>(&'c self, field: &Field, cells: &'c JsonObject) -> Vec<ReferenceCell<'c>> {
        let mut own = Vec::new();
        for (name, json) in cells {
            let column = self.columns.iter().find(|one| one.field == field && one.name == *name);
            if column.is_some() || name == field.name {
                own.push(ReferenceCell { name, column, json });
            }
        }
        own
    }

    /// Moves the fault of a reference from the id to a column that a person has edited. The cure
    /// names all of them.
    pub(super) fn name_edited(
        &self,
        (id, code, message): CellFault,
        edited: &JsonObject,
    ) -> CellFault {
        let is_filled = |name: &str| edited.get(name).is_some_and(|cell| !is_empty(cell));
        let own = |column: &&ReferenceColumn| column.field.name == id && is_filled(&column.name);
        let names: Vec<_> =
            self.columns.iter().filter(own).map(|column| column.name.clone()).collect();
        let Some(name) = names.last() else { return (id, code, message) };
        let filled = names.join(" and ");
        let cure = format!("to keep the present value, write it into {id}, and empty {filled}");
        (name.clone(), code, format!("{message}; {cure}"))
    }

    /// The records for which all terms hold, at most [`MAX_NAMED`].
    fn find(
        &mut self,
        target: &'static Resource,
        terms: &[&Term],
    ) -> Result<Vec<RecordId>, StoreError> {
        let exact = terms.iter().filter_map(|term| Some((term.field?, &term.value)));
        let exact: Vec<_> = exact.collect();
        let reading = self.reading;
        let Some(name) = terms.iter().find(|term| term.field.is_none()) else {
            return reading.find_all(target, &exact);
        };
        let Value::Text(name) = &name.value else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for id in self.by_name(target)?.get(&folded(name)).into_iter().flatten() {
            let value = Value::Integer(id.0);
            let with_id = [&exact[..], &[(&ID, &value)]].concat();
            if exact.is_empty() || !reading.find_all(target, &with_id)?.is_empty() {
                found.push(*id);
            }
            if found.len() == MAX_NAMED {
                break;
            }
        }
        Ok(found)
    }

    fn by_name(
        &mut self,
        target: &'static Resource,
    ) -> Result<&HashMap<String, Vec<RecordId>>, StoreError> {
        if !self.names.contains_key(target.plural) {
            let mut names: HashMap<String, Vec<RecordId>> = HashMap::new();
            self.reading.each(target, |record| {
                let name = folded(&name_of(target, &record.values));
                names.entry(name).or_default().push(record.id);
                Ok::<(), StoreError>(())
            })?;
            self.names.insert(target.plural, names);
        }
        Ok(self.names.entry(target.plural).or_default())
    }

    /// A stored value of a key that is nearly `text`: a spreadsheet removes leading zeros.
    pub(super) fn similar(
        &mut self,
        target: &'static Resource,
        key: &'static Field,
        text: &str,
    ) -> Result<Option<&String>, StoreError> {
        let index = (target.plural, key.name);
        if !self.keys.contains_key(&index) {
            let mut keys = HashMap::new();
            self.reading.each(target, |record| {
                if let Some(Value::Text(text)) = target.value(&record.values, key.name) {
                    keys.insert(essence(text), text.clone());
                }
                Ok::<(), StoreError>(())
            })?;
            self.keys.insert(index, keys);
        }
        Ok(self.keys.entry(index).or_default().get(&essence(text)))
    }

    fn describe_missing(
        &mut self,
        target: &'static Resource,
        term: &Term,
    ) -> Result<String, StoreError> {
        let (noun, value) = (target.name, shown(&json!(term.value)));
        let key = match term.field {
            Some(field) if *field == ID => {
                let column = &term.column;
                let message =
                    format!("\"{column}\" was {value}, but there is no {noun} with this id.");
                return Ok(message);
            }
            Some(field) => field.name,
            None => "name",
        };
        let mut message = format!("There is no {noun} with the {key} {value}");
        if let (Some(field), Value::Text(text)) = (term.field, &term.value)
            && let Some(similar) = self.similar(target, field, text)?
        {
            message += &format!(", but {:?} exists", shorten(similar));
        }
        if term.field.is_none()
            && *target == EMPLOYEE
            && let Value::Text(text) = &term.value
            && let Some((family, given)) = text.split_once(", ")
        {
            let name = format!("{given} {family}");
            return Ok(format!("{message}. Write the given name first: {:?}.", shorten(&name)));
        }
        Ok(format!("{message}. Correct the {key}, or create the {noun} first."))
    }

    /// The cells of a reference, unless all are unedited: the id is as then, and the readable cells
    /// agree with the record that it named.
    pub(super) fn edited(
        &self,
        field: &Field,
        cells: &JsonObject,
        past: &Past,
        earlier: &mut Vec<String>,
    ) -> Result<JsonObject, Fault> {
        let cells = self.cells(field, cells);
        for (version, id) in past.seen_in(field).enumerate() {
            let mut edited = Vec::new();
            for cell in &cells {
                if !self.agrees(field, id, cell, past.moment)? {
                    edited.push(cell);
                }
            }
            if edited.is_empty() {
                earlier.extend((version > 0).then(|| field.name.to_owned()));
                return Ok(JsonObject::new());
            }
            let keeps_id = cells.iter().any(|cell| {
                cell.column.is_none() && !is_empty(cell.json) && is_same(field, id, cell.json)
            });
            if keeps_id && let Some(cell) = edited.iter().find(|cell| is_empty(cell.json)) {
                let message = format!(
                    "\"{}\" is empty, but \"{1}\" is not. To remove the reference, empty \"{1}\", too.",
                    cell.name, field.name
                );
                return Err(Fault::cell(cell.name, "bad_request", message));
            }
        }
        Ok(cells.iter().map(|cell| (cell.name.to_owned(), cell.json.clone())).collect())
    }

    /// Whether a cell has the id, or what the record with the id has now or had since the moment.
    fn agrees(
        &self,
        field: &Field,
        id: &Value,
        cell: &ReferenceCell<'_>,
        moment: Timestamp,
    ) -> Result<bool, StoreError> {
        let Some(column) = cell.column else { return Ok(is_same(field, id, cell.json)) };
        let Value::Integer(id) = id else { return Ok(is_empty(cell.json)) };
        let mut agrees = false;
        self.reading.versions(column.target, RecordId(*id), &mut |version| {
            if let Some(values) = &version.values {
                let text = column.text(values);
                agrees = is_same_text(&text, cell.json)
                    || column.key.is_none()
                        && cell.json.as_str().is_some_and(|cell| folded(cell) == folded(&text));
            }
            !agrees && version.since > moment
        })?;
        Ok(agrees)
    }

    /// A record for people: its number, else its name, else its id.
    pub(super) fn label(
        &self,
        target: &'static Resource,
        id: &Value,
    ) -> Result<String, StoreError> {
        let Value::Integer(id) = id else { return Ok("nobody".to_owned()) };
        let Some(record) = self.reading.record(target, RecordId(*id))? else {
            return Ok(id.to_string());
        };
        Ok(match (number_of(target, &record.values), name_of(target, &record.values)) {
            (Some(number), _) => number.to_owned(),
            (_, name) if !name.is_empty() => format!("{name:?}"),
            _ => id.to_string(),
        })
    }

    /// The ids with their numbers, for people: `3 (K-3), 17`.
    fn numbers(&self, target: &'static Resource, ids: &[RecordId]) -> Result<String, StoreError> {
        let mut list = Vec::new();
        for id in ids {
            let record = self.reading.record(target, *id)?;
            let number = record.as_ref().and_then(|record| number_of(target, &record.values));
            list.push(match number {
                Some(number) => format!("{} ({number})", id.0),
                None => id.0.to_string(),
            });
        }
        Ok(list.join(", "))
    }
}

/// The number that people give a record, if it has one.
fn number_of<'v>(resource: &Resource, values: &'v [Value]) -> Option<&'v str> {
    match resource.value(values, resource.natural_keys.first()?)? {
        Value::Text(number) => Some(number),
        _ => None,
    }
}

/// The name of a record: of an employee the given and the family name.
pub(super) fn name_of(resource: &Resource, values: &[Value]) -> String {
    let mut name = String::new();
    for part in ["name", "first_name", "last_name"] {
        if let Some(Value::Text(text)) = resource.value(values, part) {
            name = if name.is_empty() { text.clone() } else { format!("{name} {text}") };
        }
    }
    name
}

/// The key without leading zeros, spaces and the case of letters.
fn essence(key: &str) -> String {
    let key: String = key.to_lowercase().split_whitespace().collect();
    key.trim_start_matches('0').to_owned()
}

/// A name without case, in NFC, with single spaces.
fn folded(name: &str) -> String {
    let words: Vec<&str> = name.split_whitespace().collect();
    normalize(&fold(&normalize(&words.join(" "))))
}

impl Term {
    pub(super) fn of(field: &'static Field, value: &Value) -> Term {
        Term { column: field.name.to_owned(), field: Some(field), value: value.clone() }
    }
}

fn term(field: &Field, cell: &ReferenceCell<'_>) -> Result<Term, Fault> {
    let column = cell.name.to_owned();
    let Some(known) = cell.column else {
        return Ok(Term { column, field: Some(&ID), value: field.check(cell.json)? });
    };
    let Json::String(text) = cell.json else {
        return Err(Fault::cell(&column, "bad_request", format!("\"{column}\" must be text.")));
    };
    Ok(Term { column, field: known.key, value: Value::of(text.trim()) })
}

/// The terms for people: `customer_number "K-1" and customer_name "Beta"`.
fn list(terms: &[Term]) -> String {
    let terms = terms.iter().map(|term| format!("{} {}", term.column, shown(&json!(term.value))));
    terms.collect::<Vec<_>>().join(" and ")
}

/// The value of a reference whose cells are empty or absent.
fn check_empty(
    field: &Field,
    target: &Resource,
    rules: Rules,
    first: Option<&ReferenceCell<'_>>,
) -> Result<Option<Value>, Fault> {
    match first {
        Some(_) if !field.required => Ok(Some(Value::Null)),
        Some(ReferenceCell { name, column: Some(_), .. }) => {
            let message = format!("\"{name}\" is empty; name the {}.", target.name);
            Err(Fault::cell(name, "required", message))
        }
        first => Ok(field.check_sent(first.map(|cell| cell.json), rules)?),
    }
}
