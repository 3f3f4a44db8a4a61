//! The records that the columns of a file refer to: by id, number, e-mail address or name.

use std::collections::HashMap;

use super::columns::ReferenceColumn;
use super::merge::is_same_text;
use crate::clock::Timestamp;
use crate::model::validation::normalize;
use crate::model::{Field, Json, RecordId, Resource, Value};
use crate::store::{Reading, StoreError, fold};

/// What a cell says about the referred record.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// The column or member.
    pub column: String,
    /// The field of the referred record, or its name.
    pub field: Option<&'static Field>,
    pub value: Value,
}

impl Term {
    fn text(&self) -> &str {
        if let Value::Text(text) = &self.value { text } else { "" }
    }
}

#[derive(Debug)]
pub(super) struct ReferenceFinder<'a> {
    reading: &'a Reading<'a>,
    /// The records of a resource by their names.
    names: HashMap<&'static str, ByName>,
}

/// The ids by the folded name, each with the customer of an employee.
type ByName = HashMap<String, Vec<(RecordId, Option<Value>)>>;

pub(super) const CUSTOMER_ID: &str = "customer_id";

impl<'a> ReferenceFinder<'a> {
    pub(super) fn new(reading: &'a Reading<'a>) -> ReferenceFinder<'a> {
        ReferenceFinder { reading, names: HashMap::new() }
    }

    /// The records for which all terms hold, at most ten.
    pub(super) fn find(
        &mut self,
        target: &'static Resource,
        terms: &[Term],
        customer: Option<&Value>,
    ) -> Result<Vec<RecordId>, StoreError> {
        let narrowing = target.field(CUSTOMER_ID).zip(customer);
        let exact = terms.iter().filter_map(|term| Some((term.field?, &term.value)));
        let exact: Vec<_> = exact.chain(narrowing).collect();
        let names = terms.iter().filter(|term| term.field.is_none());
        let names: Vec<String> = names.map(|term| folded(term.text())).collect();
        let is_by_name_alone = terms.iter().all(|term| term.field.is_none());
        let (Some(name), true) = (names.first(), is_by_name_alone) else {
            let mut found = self.reading.find_all(target, &exact)?;
            if !names.is_empty() {
                let mut named = Vec::new();
                for id in found {
                    let record = self.reading.record(target, id)?;
                    let name = record.map(|record| folded(&name_of(target, &record.values)));
                    named.extend(name.filter(|name| names.iter().all(|n| n == name)).map(|_| id));
                }
                found = named;
            }
            return Ok(found);
        };
        let ids = self.by_name(target)?.get(name).map_or(&[][..], Vec::as_slice);
        let is_narrow =
            |(_, of): &&(RecordId, Option<Value>)| customer.is_none_or(|c| of.as_ref() == Some(c));
        let ids = ids.iter().filter(|one| narrowing.is_none() || is_narrow(one));
        Ok(ids.map(|(id, _)| *id).take(10).collect())
    }

    fn by_name(&mut self, target: &'static Resource) -> Result<&ByName, StoreError> {
        if !self.names.contains_key(target.plural) {
            let mut names = ByName::new();
            self.reading.each(target, |record| {
                let name = name_of(target, &record.values);
                let customer = target.value(&record.values, CUSTOMER_ID).cloned();
                names.entry(folded(&name)).or_default().push((record.id, customer));
                Ok::<(), StoreError>(())
            })?;
            self.names.insert(target.plural, names);
        }
        Ok(self.names.entry(target.plural).or_default())
    }

    /// Whether a readable cell has what the referred record has now, or had since the moment.
    pub(super) fn agrees(
        &self,
        column: &ReferenceColumn,
        id: &Value,
        cell: &Json,
        moment: Timestamp,
    ) -> Result<bool, StoreError> {
        let Value::Integer(id) = id else { return Ok(is_same_text("", cell)) };
        let mut agrees = false;
        self.reading.versions(column.target, RecordId(*id), &mut |version| {
            if let Some(values) = &version.values {
                let text = column.text(values);
                agrees = is_same_text(&text, cell)
                    || column.key.is_none()
                        && cell.as_str().is_some_and(|cell| folded(cell) == folded(&text));
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

    /// The ids with the numbers, for people: `3 (K-3), 17`.
    pub(super) fn list(
        &self,
        target: &'static Resource,
        ids: &[RecordId],
    ) -> Result<String, StoreError> {
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

/// A name without case, in NFC, with single spaces.
fn folded(name: &str) -> String {
    let words: Vec<&str> = name.split_whitespace().collect();
    normalize(&fold(&normalize(&words.join(" "))))
}
