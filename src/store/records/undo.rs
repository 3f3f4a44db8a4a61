//! Takes changes of the change log back (contract section 10, `undo`).
//!
//! A record goes back to its state before its first selected entry. An entry has the former values
//! of the fields that it changed. So the value of a field at that time stands in the first entry,
//! from there on, that has a former value of the field. Example: the city was A. A selected entry
//! changes it to B, and a further one to C. The first of them has the former value A. If no entry
//! has one, the field still has its value of that time.
//!
//! A resource refers only to resources before it in [`ALL`], so two passes bring back as many
//! records as possible. The first pass changes records and creates deleted ones again, customers
//! first. The second pass deletes created records, hardware first. If others refer to a created
//! record by then, it stays.

use std::collections::{BTreeMap, HashMap};

use rusqlite::types::{FromSql as _, Value as Stored};
use rusqlite::{OptionalExtension as _, Row, params};
use serde::Serialize;
use uuid::Uuid;

use super::change::{ChangeError, Draft, Rejection, Target, who_refer};
use super::change_log::ChangeContext;
use super::read::{damaged_text, read_value};
use super::{Record, Writing};
use crate::clock::Timestamp;
use crate::model::{ALL, CREATED_AT, KeyId, RecordId, Resource, Value};
use crate::store::error::{DatabaseError, StoreError, explain};

/// Selects the entries that meet all of these conditions.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The first and the last second, in the form of `at`.
    pub since: Option<String>,
    pub until: Option<String>,
    pub key: Option<KeyId>,
    pub request: Option<Uuid>,
}

/// The condition of a [`Selection`], with its members as the first four parameters.
const IS_SELECTED: &str = "(at >= coalesce(?1, '') AND at <= coalesce(?2, ':')
    AND (?3 IS NULL OR by_key IS ?3) AND (?4 IS NULL OR request_id IS ?4))";

/// What an undo has done: numbers of records by their resource, and the records that stay.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Undone {
    /// The run, if it has changed a record.
    pub run: Option<Uuid>,
    pub deleted: BTreeMap<String, i64>,
    pub changed: BTreeMap<String, i64>,
    pub created: BTreeMap<String, i64>,
    pub left: Vec<Left>,
}

/// A record that stays as it is.
#[derive(Debug, PartialEq, Serialize)]
pub struct Left {
    pub resource: &'static str,
    /// The singular name of the resource.
    #[serde(skip)]
    pub name: &'static str,
    pub id: RecordId,
    /// The predicate of a sentence about the record.
    pub reason: String,
}

/// Why an undo failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    #[error("no entry of the change log is selected")]
    NothingSelected,
    #[error(
        "the change log is complete only from {0} on, because old entries are removed; nothing was \
         changed"
    )]
    Incomplete(Timestamp),
    #[error("{0}; nothing was changed")]
    NoSpace(StoreError),
    #[error("the tenant's file cannot be used: {}; nothing was changed", explain(.0))]
    Database(#[from] DatabaseError),
}

/// An undo inside its transaction.
#[derive(Debug)]
pub struct Undo<'a> {
    pub writing: &'a Writing<'a>,
    pub selection: &'a Selection,
    pub context: &'a ChangeContext,
}

/// A record with a selected entry.
struct Touched {
    resource: &'static Resource,
    id: RecordId,
    /// The number of its first selected entry.
    first: i64,
    /// Whether this entry has created the record.
    is_created: bool,
}

impl Undo<'_> {
    /// Takes the selected changes back.
    pub fn run(&self) -> Result<Undone, UndoError> {
        self.find_touched()?;
        self.check_complete()?;
        let connection = self.writing.connection();
        let sql = "SELECT last_seq FROM changes_state";
        let last: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        let mut undone = Undone::default();
        let backwards = ALL.into_iter().rev().map(|resource| (resource, true));
        for (resource, is_created) in
            ALL.into_iter().map(|resource| (resource, false)).chain(backwards)
        {
            let sql = "SELECT record_id, first FROM temp.touched
                       WHERE resource = ? AND is_created = ?";
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.query(params![resource.plural, is_created])?;
            while let Some(row) = rows.next()? {
                let (id, first) = (RecordId(row.get(0)?), row.get(1)?);
                let touched = Touched { resource, id, first, is_created };
                if let Some(reason) = self.take_back(&touched, last)? {
                    let Resource { name, plural, .. } = resource;
                    undone.left.push(Left { resource: plural, name, id, reason });
                }
                self.writing.flush_if_large()?;
            }
        }
        // A record counts by its last change: a device may move with its employee and then be
        // deleted.
        let sql = "SELECT action, resource, count(*)
                   FROM (SELECT action, resource, max(seq) FROM changes WHERE seq > ?
                         GROUP BY +resource, +record_id)
                   GROUP BY action, resource";
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([last])?;
        while let Some(row) = rows.next()? {
            let action: String = row.get(0)?;
            let counts = match action.as_str() {
                "deleted" => &mut undone.deleted,
                "updated" => &mut undone.changed,
                _ => &mut undone.created,
            };
            counts.insert(row.get(1)?, row.get(2)?);
        }
        Ok(undone)
    }

    /// Fills a temporary table, because a million records would not fit into memory. The plus signs
    /// let SQLite read the change log in its order, and not record by record.
    fn find_touched(&self) -> Result<(), DatabaseError> {
        let sql = format!(
            "CREATE TEMP TABLE touched AS
             SELECT resource, record_id, min(seq) AS first, action = 'created' AS is_created
             FROM changes WHERE {IS_SELECTED} GROUP BY +resource, +record_id"
        );
        let Selection { since, until, key, request } = self.selection;
        let request = request.as_ref().map(Uuid::as_bytes);
        let selected = params![since, until, key.map(|key| key.0), request];
        self.writing.connection().execute(&sql, selected).map(drop)
    }

    /// Checks that no entry is missing: one since the beginning of the selection, or one of its
    /// request. All entries of a request have the same time.
    fn check_complete(&self) -> Result<(), UndoError> {
        let sql = "SELECT (SELECT at FROM changes ORDER BY seq LIMIT 1),
                     (SELECT max(at) FROM changes_removed),
                     (SELECT at FROM changes WHERE seq = (SELECT min(first) FROM temp.touched))";
        let times = |row: &Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?]);
        let [oldest, removed, selected]: [Option<Timestamp>; 3] =
            self.writing.connection().query_row(sql, [], times)?;
        let shown_since = self.writing.changes_shown_since(self.context.at)?;
        let shown_since = oldest.filter(|at| *at < shown_since).map(|_| shown_since);
        let complete = removed.map(|at| Timestamp::from_unix(at.unix() + 1)).max(shown_since);
        let begin = match (self.selection.request, &self.selection.since) {
            (None, Some(since)) => since.clone(),
            _ => selected.map(|at| at.to_string()).unwrap_or_default(),
        };
        match complete {
            Some(complete) if !begin.is_empty() && begin < complete.to_string() => {
                Err(UndoError::Incomplete(complete))
            }
            _ => selected.map(drop).ok_or(UndoError::NothingSelected),
        }
    }

    /// Takes a record back, or returns why it stays. A record that has its former state already is
    /// not touched.
    fn take_back(&self, touched: &Touched, last: i64) -> Result<Option<String>, DatabaseError> {
        let present = self.writing.record(touched.resource, touched.id)?;
        let (former, created_at) = self.former_state(touched, present.as_ref())?;
        if present.as_ref().map(|record| &record.values) == former.as_ref() {
            return Ok(None);
        }
        let later = self.find_later_change(touched, last)?;
        if later.is_some() {
            return Ok(later);
        }
        match self.give_state(touched, present, former, created_at) {
            Ok(()) => Ok(None),
            Err(ChangeError::Database(error)) => Err(error),
            Err(ChangeError::Rejected(rejection)) => Ok(Some(match rejection {
                Rejection::MissingReference(_, target, id) => {
                    format!("would refer to {} {id}, which does not exist", target.name)
                }
                Rejection::HasDependents { counts, .. } => {
                    format!("must stay, because {} to it", who_refer(&counts))
                }
                _ => "cannot be changed".to_owned(),
            })),
        }
    }

    fn give_state(
        &self,
        touched: &Touched,
        present: Option<Record>,
        former: Option<Vec<Value>>,
        created_at: Option<Timestamp>,
    ) -> Result<(), ChangeError> {
        let Touched { resource, id, .. } = *touched;
        let target = present.map_or(Target::New(Some(id)), Target::Stored);
        let Some(values) = former else {
            let Target::Stored(record) = target else { return Ok(()) };
            return self.writing.delete(resource, record, self.context);
        };
        let mut draft = Draft { resource, target, values };
        self.writing.set_owner(&mut draft, false)?;
        for (field, value) in resource.fields.iter().zip(&draft.values) {
            self.writing.check_reference(field, value)?;
        }
        let Draft { target, values, .. } = draft;
        match target {
            Target::Stored(record) => {
                self.writing.update(resource, record, values, self.context)?
            }
            Target::New(id) => {
                self.writing.insert(resource, id, created_at, values, self.context)?
            }
        };
        Ok(())
    }

    /// The record's values before its first selected entry, and the `created_at` of a record that
    /// was deleted since.
    fn former_state(
        &self,
        touched: &Touched,
        present: Option<&Record>,
    ) -> Result<(Option<Vec<Value>>, Option<Timestamp>), DatabaseError> {
        let Touched { resource, id, first, is_created } = touched;
        if *is_created {
            return Ok((None, None));
        }
        let sql = "SELECT key, value FROM changes INDEXED BY changes_by_record, json_each(before)
                   WHERE resource = ? AND record_id = ? AND seq >= ? ORDER BY seq";
        let mut statement = self.writing.connection().prepare_cached(sql)?;
        let mut rows = statement.query(params![resource.plural, id.0, first])?;
        let mut former: HashMap<String, Stored> = HashMap::new();
        while let Some(row) = rows.next()? {
            former.entry(row.get(0)?).or_insert(row.get(1)?);
        }
        let mut values = match present {
            Some(record) => record.values.clone(),
            None => resource.fields.iter().map(|field| field.default_value()).collect(),
        };
        for (field, value) in resource.fields.iter().zip(&mut values) {
            if let Some(found) = former.get(field.name) {
                *value = read_value(found.into(), field.kind)?;
            }
        }
        let created_at = former.get(CREATED_AT.name).map(|at| Timestamp::column_result(at.into()));
        Ok((Some(values), created_at.transpose().map_err(damaged_text)?))
    }

    /// Who has made the record's last change up to `last` that is not selected, if it is after the
    /// first selected one.
    fn find_later_change(
        &self,
        touched: &Touched,
        last: i64,
    ) -> Result<Option<String>, DatabaseError> {
        let sql = format!(
            "SELECT 'was changed later by ' || iif(by_key IS NULL, 'the command ' || by_name,
                      printf('key %d \"%s\"', by_key, by_name))
             FROM changes INDEXED BY changes_by_record
             WHERE resource = ?5 AND record_id = ?6 AND seq > ?7 AND seq <= ?8 AND NOT {IS_SELECTED}
             ORDER BY seq DESC LIMIT 1"
        );
        let Touched { resource, id, first, .. } = touched;
        let Selection { since, until, key, request } = self.selection;
        let (key, request) = (key.map(|key| key.0), request.as_ref().map(Uuid::as_bytes));
        let bound = params![since, until, key, request, resource.plural, id.0, first, last];
        let mut statement = self.writing.connection().prepare_cached(&sql)?;
        statement.query_row(bound, |row| row.get(0)).optional()
    }
}
