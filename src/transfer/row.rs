//! The check of one row: as the API checks a body, and references besides.

use super::RowFault;
use super::columns::{Layout, Role, Slot};
use crate::model::field::{Fault, Input};
use crate::model::{Field, Resource, Value};
use crate::store::tenant_file::{IdSet, Match};
use crate::store::{DatabaseError, Reading};

/// The highest id that a file can bring: half of what there is, so that new records go on having ids.
const HIGHEST_ID: i64 = i64::MAX / 2;

/// A row that can be stored.
#[derive(Debug)]
pub struct Sound {
    pub id: Option<i64>,
    pub values: Vec<Value>,
}

/// What rows are checked against.
#[derive(Debug)]
pub struct Checker<'a> {
    pub layout: &'a Layout,
    pub reading: &'a Reading<'a>,
    /// Rows bring their ids.
    pub keep_ids: bool,
    /// The ids that came already, where that is to be looked at.
    pub ids: Option<&'a IdSet<'a>>,
}

impl Checker<'_> {
    /// `cells` are in the order of the layout's slots, `None` where the file has no such column. Nothing comes back where
    /// faults were added.
    pub fn check(
        &self,
        line: u64,
        cells: &[Option<Input<'_>>],
        faults: &mut Vec<RowFault>,
    ) -> Result<Option<Sound>, DatabaseError> {
        let before = faults.len();
        let id = match self.keep_ids {
            true => self.id(line, cells, faults)?,
            false => None,
        };
        let mut values = Vec::with_capacity(self.layout.resource.fields.len());
        for field in self.layout.resource.fields {
            match self.value(line, field, cells)? {
                Ok(value) => values.push(value),
                Err(fault) => faults.push(fault),
            }
        }
        Ok((faults.len() == before).then_some(Sound { id, values }))
    }

    fn id(
        &self,
        line: u64,
        cells: &[Option<Input<'_>>],
        faults: &mut Vec<RowFault>,
    ) -> Result<Option<i64>, DatabaseError> {
        let given = self.layout.find("id").and_then(|at| cells.get(at)?.as_ref());
        let number = match given {
            Some(Input::Number(number)) => number.parse().ok().filter(|id| (1..=HIGHEST_ID).contains(id)),
            _ => None,
        };
        let Some(id) = number else {
            let empty = given.is_none_or(Input::is_empty);
            let code = if empty { "required" } else { "invalid_int" };
            let message = format!("With --keep-ids every row has an id, an integer from 1 to {HIGHEST_ID}.");
            faults.push(RowFault::new(line, "id", code, message));
            return Ok(None);
        };
        if let Some(ids) = self.ids
            && !ids.insert(id)?
        {
            faults.push(RowFault::new(line, "id", "duplicate_id", format!("The id {id} came already in this file.")));
        }
        Ok(Some(id))
    }

    /// The field's value from its own column, or from one that stands in for it.
    fn value(
        &self,
        line: u64,
        field: &'static Field,
        cells: &[Option<Input<'_>>],
    ) -> Result<Result<Value, RowFault>, DatabaseError> {
        for (slot, cell) in self.layout.slots.iter().zip(cells) {
            match (slot.role, cell) {
                (Role::Field(own), Some(input)) if own.name == field.name => {
                    return match field.check(input) {
                        Ok(value) => self.existing(line, field, value),
                        Err(fault) => Ok(Err(refused(line, field, fault))),
                    };
                }
                (Role::StandIn { of, target, key }, Some(input)) if of.name == field.name => {
                    return self.find(line, slot, field, (target, key), input);
                }
                _ => (),
            }
        }
        Ok(match field.required {
            true => Err(refused(line, field, Fault::Invalid(field.missing()))),
            false => Ok(field.default_value()),
        })
    }

    /// A reference points to a record that is there.
    fn existing(&self, line: u64, field: &Field, value: Value) -> Result<Result<Value, RowFault>, DatabaseError> {
        if let (Some(target), Value::Integer(id)) = (Resource::referenced(field), &value)
            && !self.reading.has(target, *id)?
        {
            let message = target.missing_message(field, *id);
            return Ok(Err(RowFault::new(line, field.name, missing_code(target), message)));
        }
        Ok(Ok(value))
    }

    /// The id of the record that a natural key means.
    fn find(
        &self,
        line: u64,
        slot: &Slot,
        field: &Field,
        (target, key): (&'static Resource, &'static Field),
        input: &Input<'_>,
    ) -> Result<Result<Value, RowFault>, DatabaseError> {
        let fault = |code, message| Ok(Err(RowFault::new(line, &slot.name, code, message)));
        let text = match input {
            empty if empty.is_empty() && field.required => {
                return fault("required", format!("\"{}\" is empty; name the {}.", slot.name, target.name));
            }
            empty if empty.is_empty() => return Ok(Ok(Value::Null)),
            Input::Text(text) => text,
            _ => return fault("bad_request", format!("\"{}\" must be text.", slot.name)),
        };
        let (noun, key_name) = (target.name, key.name);
        match self.reading.find_by(target, key, text)? {
            Match::One(id) => Ok(Ok(Value::Integer(id))),
            Match::None => fault(
                missing_code(target),
                format!("There is no {noun} with the {key_name} {text:?}. Create the {noun} first."),
            ),
            Match::Several => fault(
                "ambiguous_reference",
                format!("Several {noun}s have the {key_name} {text:?}. Name the one by \"{}\".", field.name),
            ),
        }
    }
}

/// The code of a reference to a record that does not exist.
fn missing_code(target: &Resource) -> &'static str {
    target.missing_code.unwrap_or("bad_request")
}

fn refused(line: u64, field: &Field, fault: Fault) -> RowFault {
    match fault {
        Fault::Invalid(error) => RowFault::new(line, error.field, error.code.as_str(), error.message),
        Fault::WrongType(message) => RowFault::new(line, field.name, "bad_request", message),
    }
}
