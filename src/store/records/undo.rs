//! Takes changes of the change log back (contract section 10, `undo`).
//!
//! Each field goes back on its own, and each custom field is a field: it gets the value after its
//! last change that is not selected, or, without such a change, the value before its first selected
//! one. An entry has the former values of the fields that it changed. So the entries are taken back
//! in turn, from the newest on. Example: the city was A, a selected entry changed it to B, and
//! another one the phone. The other entry gives the phone back, which stays, and the first one A.
//!
//! A resource refers only to resources before it in [`ALL`], so two passes bring back as many
//! records as possible. The first pass changes records and creates deleted ones again, customers
//! first. The second pass deletes created records, hardware first. If others refer to a created
//! record by then, it stays.
//!
//! A million records would not fit into memory. Temporary tables list the selected entries and the
//! records that are concerned, and the caller gets each record and field that stays when it is
//! found.

use std::collections::BTreeMap;

use rusqlite::{Row, params};
use serde::Serialize;
use uuid::Uuid;

use super::change_log::{AUTHOR, IS_SELECTED, Selection};
use super::write::{Draft, Target, Writing};
use crate::clock::Timestamp;
use crate::model::validation::{CUSTOM_PREFIX, MAX_CUSTOM_FIELDS};
use crate::model::{ALL, CUSTOMER_ID, EMPLOYEE_ID, Field, RecordId, Resource, Value};
use crate::store::error::{Rejection, Result, StoreError, who_refer};

/// Numbers of records or fields by the plural of their resource.
type Counts = BTreeMap<String, u64>;

/// What an undo has done.
#[derive(Debug, Default, Serialize)]
pub struct Undone {
    /// The run, if it has changed a record.
    pub run: Option<Uuid>,
    pub deleted: Counts,
    pub changed: Counts,
    pub created: Counts,
}

/// Why a record or a field stays as it is: the predicate of a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// Somebody, such as `key 1 "office"`, has changed the record.
    #[error("was changed later by {0}")]
    ChangedLater(String),
    #[error("changed later by {0}")]
    FieldChangedLater(String),
    #[error("would refer to {0} {1}, which does not exist")]
    MissingReference(&'static str, i64),
    #[error("must stay, because {0} to it")]
    Needed(String),
    /// A reason for `employee_id` and `customer_id` of a device.
    #[error("because a device belongs to the customer of its employee")]
    OwnedByEmployee,
    #[error("would have more than {MAX_CUSTOM_FIELDS} custom fields")]
    TooManyFields,
}

/// Takes a record, or the field with this name, that stays as it is.
pub type Leave<'a> = dyn FnMut(&Resource, RecordId, Option<&str>, &Reason) + 'a;

/// What stays of a record: fields, or all of it.
type Left = Result<Vec<(Option<String>, Reason)>>;

/// A record by the names of its fields. A custom field has a name such as `custom.room`, and is
/// empty if the record does not have it.
type Fields = BTreeMap<String, History>;

/// A field on its way back from now to the first selected entry of its record.
#[derive(Default)]
struct History {
    /// The value now, or of a deleted record the last one.
    present: Value,
    /// The value before the entries that were taken back.
    state: Value,
    /// The value that the field gets.
    goal: Value,
    /// The value before the first selected change.
    former: Option<Value>,
    /// Who made the last change that is not selected.
    later: Option<String>,
}

enum Author {
    /// Nobody: the values are the present ones, or the last ones of a deleted record.
    Present,
    Selected,
    Other(String),
}

/// An undo inside its transaction.
pub struct Undo<'a> {
    pub writing: &'a Writing<'a>,
    pub selection: &'a Selection,
    pub leave: &'a mut Leave<'a>,
}

impl Undo<'_> {
    /// Takes the selected changes back.
    pub fn run(mut self) -> Result<Undone> {
        self.select()?;
        self.check_complete()?;
        let sql = "SELECT last_seq FROM changes_state";
        let last = self.writing.connection().query_row(sql, [], |row| row.get(0))?;
        for resource in ALL {
            self.undo_all(resource, false)?;
        }
        for resource in ALL.into_iter().rev() {
            self.undo_all(resource, true)?;
        }
        self.count(last)
    }

    /// Lists the selected entries, and the records with such an entry: the numbers of the first
    /// one, of the last entry, and of the last entry that is not selected. SQLite reads the entries
    /// of each record along an index, and sorts nothing.
    fn select(&self) -> Result<()> {
        let entries = format!(
            "INSERT INTO temp.selected SELECT seq FROM changes WHERE {IS_SELECTED} ORDER BY seq"
        );
        let records = "CREATE TEMP TABLE concerned AS
             SELECT resource, record_id AS id, min(seq) FILTER (WHERE seq IN temp.selected) AS first,
               max(seq) AS last, max(seq) FILTER (WHERE seq NOT IN temp.selected) AS other
             FROM changes WHERE seq >= (SELECT min(seq) FROM temp.selected)
             GROUP BY resource, record_id HAVING first IS NOT NULL";
        let connection = self.writing.connection();
        connection.execute("CREATE TEMP TABLE selected (seq INTEGER PRIMARY KEY)", [])?;
        connection.execute(&entries, self.writing.selected(self.selection)?)?;
        connection.execute(records, [])?;
        Ok(())
    }

    /// Checks that no entry is missing: one since the beginning of the selection, or one of its
    /// request. All entries of a command have the same time.
    fn check_complete(&self) -> Result<()> {
        let since = self.selection.since.as_ref().filter(|_| self.selection.request.is_none());
        let sql = "SELECT selected IS NULL, iif(coalesce(?1, selected, '') <= gone, gone, NULL)
                   FROM (SELECT
                     (SELECT at FROM changes
                      WHERE seq = (SELECT min(seq) FROM temp.selected)) AS selected,
                     (SELECT max(at) FROM changes_removed) AS gone)";
        let mut statement = self.writing.connection().prepare(sql)?;
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (has_none, gone): (bool, Option<Timestamp>) = statement.query_row([since], read)?;
        match gone {
            Some(gone) => Err(StoreError::other(format!(
                "selected entries may be missing, because old entries are removed; the change log \
                 is complete only from {} on; nothing was changed",
                Timestamp::from_unix(gone.unix() + 1)
            ))),
            None if has_none => Err(StoreError::other("no entry of the change log is selected")),
            None => Ok(()),
        }
    }

    /// Takes back the records of a resource whose first selected entry has created them, or all
    /// others.
    fn undo_all(&mut self, resource: &'static Resource, is_created: bool) -> Result<()> {
        // Somebody else keeps a created record by any later entry, and another one by its deletion.
        let sql = format!(
            "SELECT id, first, last, (SELECT before ->> 'created_at' FROM changes WHERE seq = last),
               (SELECT {AUTHOR} FROM changes WHERE seq = other AND other > first
                  AND (?2 OR other = last AND action = 'deleted'))
             FROM temp.concerned WHERE resource = ?1
               AND ((SELECT action FROM changes WHERE seq = first) = 'created') = ?2"
        );
        let mut statement = self.writing.connection().prepare(&sql)?;
        let mut rows = statement.query(params![resource.plural, is_created])?;
        while let Some(row) = rows.next()? {
            let id = RecordId(row.get(0)?);
            let outcome = match (self.writing.record(resource, id)?, row.get(4)?) {
                (None, _) if is_created => continue,
                (_, Some(by)) => Ok(vec![(None, Reason::ChangedLater(by))]),
                (Some(record), None) if is_created => {
                    self.writing.delete(resource, record).map(|()| Vec::new())
                }
                (present, None) => {
                    let deleted = Target::Deleted(id, row.get(3)?);
                    self.take_back(resource, row, present.map_or(deleted, Target::Stored))
                }
            };
            let left = match outcome {
                Ok(left) => left,
                Err(error) => vec![(None, error.into_rejection()?.into())],
            };
            for (field, reason) in left {
                (self.leave)(resource, id, field.as_deref(), &reason);
            }
        }
        Ok(())
    }

    /// Takes the entries of a record back, from the last to the first one.
    fn take_back(&self, resource: &'static Resource, row: &Row<'_>, target: Target) -> Left {
        let (id, first, last): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (mut fields, mut author) = (Fields::new(), Author::Present);
        if let Target::Stored(record) = &target {
            for (field, value) in resource.fields.iter().zip(&record.values) {
                take_back(&mut fields, field, value.clone(), &author);
            }
        }
        let is_selected = "seq IN temp.selected";
        self.writing.entries(resource, RecordId(id), first..=last, is_selected, &mut |entry| {
            // A deletion changes no value. If the record came back with another value, the undo
            // that created the record again has changed it.
            if entry.created_at.is_none() {
                author = match entry.is_selected {
                    true => Author::Selected,
                    false => Author::Other(entry.author),
                };
            }
            for (field, value) in entry.before.into_iter().flatten() {
                take_back(&mut fields, field, value, &author);
            }
            true
        })?;
        self.save(resource, target, &fields)
    }

    /// Gives a record the goals of its fields. If only one of the employee and the customer of a
    /// device may go back, both stay.
    fn save(&self, resource: &'static Resource, target: Target, fields: &Fields) -> Left {
        let values = resource.fields.iter().map(Field::default_value).collect();
        let (mut draft, mut left) = (Draft { resource, target, values }, Vec::new());
        for (name, field) in fields {
            if let Some(by) = field.kept_by() {
                left.push((Some(name.clone()), Reason::FieldChangedLater(by.clone())));
            }
            let (name, value) = match (name.strip_prefix(CUSTOM_PREFIX), field.goal.clone()) {
                (Some(name), Value::Text(text)) => {
                    ("custom", Value::Custom([(name.to_owned(), text)].into()))
                }
                (_, goal) => (name.as_str(), goal),
            };
            if let Some(field) = resource.field(name)
                && let Some(stored) = resource.value_mut(&mut draft.values, name)
            {
                let changed = field.changed(stored, value);
                *stored = changed.map_err(|fault| Rejection::InvalidFields(vec![fault]))?;
            }
        }
        self.writing.set_owner(&mut draft, false)?;
        if let (Some(employee), Some(customer)) = (fields.get(EMPLOYEE_ID), fields.get(CUSTOMER_ID))
        {
            let has_other_owner =
                resource.value(&draft.values, CUSTOMER_ID) != Some(&customer.goal);
            // A former employee may have moved meanwhile. The device follows, unless somebody else
            // gave it its customer later.
            let is_given = !customer.goes_back() && customer.later.is_some();
            if employee.goes_back() && customer.kept_by().is_some()
                || customer.goes_back() && employee.kept_by().is_some()
                || has_other_owner && (!employee.goes_back() || is_given)
            {
                for (name, field) in [(EMPLOYEE_ID, employee), (CUSTOMER_ID, customer)] {
                    if field.goes_back() {
                        left.push((Some(name.to_owned()), Reason::OwnedByEmployee));
                    }
                    if let Some(value) = resource.value_mut(&mut draft.values, name) {
                        *value = field.present.clone();
                    }
                }
                self.writing.set_owner(&mut draft, false)?;
            }
        }
        if !draft.is_as_stored() {
            for (field, value) in resource.fields.iter().zip(&draft.values) {
                self.writing.check_reference(field, value)?;
            }
            self.writing.save(draft)?;
        }
        Ok(left)
    }

    /// Counts the records that the undo has changed. A record counts by its last change: a device
    /// may move with its employee and then be deleted.
    fn count(&self, last: i64) -> Result<Undone> {
        let sql = "SELECT resource, action FROM changes AS own WHERE seq > ? AND NOT EXISTS
                     (SELECT 1 FROM changes WHERE resource = own.resource
                        AND record_id = own.record_id AND seq > own.seq)";
        let mut statement = self.writing.connection().prepare(sql)?;
        let (mut rows, mut undone) = (statement.query([last])?, Undone::default());
        while let Some(row) = rows.next()? {
            let counts = match row.get_ref(1)?.as_str()? {
                "deleted" => &mut undone.deleted,
                "created" => &mut undone.created,
                _ => &mut undone.changed,
            };
            *counts.entry(row.get(0)?).or_default() += 1;
        }
        Ok(undone)
    }
}

/// Takes a change of a field back. `before` is the value before the change.
fn take_back(fields: &mut Fields, field: &Field, before: Value, author: &Author) {
    let Value::Custom(mut custom) = before else {
        return fields.entry(field.name.to_owned()).or_default().take_back(before, author);
    };
    for name in custom.keys() {
        fields.entry(format!("{CUSTOM_PREFIX}{name}")).or_default();
    }
    for (name, field) in fields {
        if let Some(name) = name.strip_prefix(CUSTOM_PREFIX) {
            field.take_back(custom.remove(name).map_or(Value::Null, Value::Text), author);
        }
    }
}

impl History {
    fn take_back(&mut self, before: Value, author: &Author) {
        if self.state == before {
            return;
        }
        match author {
            Author::Present => (self.present, self.goal) = (before.clone(), before.clone()),
            Author::Other(by) => drop(self.later.get_or_insert_with(|| by.clone())),
            Author::Selected => {
                if self.later.is_none() {
                    self.goal = before.clone();
                }
                self.former = Some(before.clone());
            }
        }
        self.state = before;
    }

    fn goes_back(&self) -> bool {
        self.goal != self.present
    }

    /// Who keeps the field as it is.
    fn kept_by(&self) -> Option<&String> {
        let is_other = self.former.as_ref().is_some_and(|former| *former != self.goal);
        self.later.as_ref().filter(|_| is_other && !self.goes_back())
    }
}

impl From<Rejection> for Reason {
    fn from(rejection: Rejection) -> Reason {
        match rejection {
            Rejection::MissingReference(_, target, id) => Reason::MissingReference(target.name, id),
            Rejection::HasDependents { counts, .. } => Reason::Needed(who_refer(&counts)),
            // A former value is valid on its own.
            _ => Reason::TooManyFields,
        }
    }
}
