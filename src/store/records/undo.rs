//! Takes changes of the change log back (contract section 10, `undo`).
//!
//! A record goes back to its state before its first selected entry. An entry has the former values
//! of the fields that it changed. So the entries from the newest back to that one, each taken back
//! in turn, lead to that state. Example: the city was A, a selected entry changed it to B, and a
//! later one to C. The later entry gives B back, and the first one A.
//!
//! A resource refers only to resources before it in [`ALL`], so two passes bring back as many
//! records as possible. The first pass changes records and creates deleted ones again, customers
//! first. The second pass deletes created records, hardware first. If others refer to a created
//! record by then, it stays.
//!
//! A million records would not fit into memory. A temporary table lists the records that are
//! concerned, and the caller gets each record that stays when it is found.

use std::collections::BTreeMap;

use rusqlite::params;
use serde::Serialize;
use uuid::Uuid;

use super::read::{Record, read_value};
use super::write::{Draft, Target, Writing};
use crate::clock::Timestamp;
use crate::model::{ALL, CREATED_AT, KeyId, RecordId, Resource};
use crate::store::error::{ChangeError, DatabaseError, Rejection, StoreError, explain, who_refer};

/// Selects the entries that meet all of these conditions.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The first and the last second, in the form of `at` (`Undo::bounds`).
    pub since: Option<String>,
    pub until: Option<String>,
    pub key: Option<KeyId>,
    pub request: Option<Uuid>,
}

/// The condition of a [`Selection`]. The first four parameters are its [`Undo::bounds`], its key and
/// its request. A client chooses the id of its request. So the entries with an id are those of the
/// key, or of the commands, that used the id first.
const IS_SELECTED: &str = "(seq BETWEEN ?1 AND ?2
    AND (?3 IS NULL OR by_key IS ?3)
    AND (?4 IS NULL OR request_id IS ?4 AND (by_key, by_prefix) IS
      (SELECT by_key, by_prefix FROM changes WHERE request_id IS ?4 ORDER BY seq LIMIT 1)))";

/// Numbers of records by the plural of their resource.
type Counts = BTreeMap<String, u64>;

/// What an undo has done.
#[derive(Debug, Default, Serialize)]
pub struct Undone {
    /// The run, if it has changed a record.
    pub run: Option<Uuid>,
    pub deleted: Counts,
    pub changed: Counts,
    pub created: Counts,
    #[serde(skip)]
    pub left: Counts,
}

/// Why an undo failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    #[error("no entry of the change log is selected")]
    NothingSelected,
    #[error(
        "selected entries may be missing, because old entries are removed; the change log is \
         complete only from {0} on; nothing was changed"
    )]
    Incomplete(Timestamp),
    /// Only deletions are taken.
    #[error(
        "{}; nothing was changed",
        if *.0 == StoreError::DiskFull { "the disk has too little free space" }
        else { "the tenant's file has reached its size limit" }
    )]
    NoSpace(StoreError),
    #[error("the tenant's file cannot be used: {}; nothing was changed", explain(.0))]
    Database(#[from] DatabaseError),
}

/// Why a record stays as it is: the predicate of a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// Somebody, such as `key 1 "office"`, has changed it.
    #[error("was changed later by {0}")]
    ChangedLater(String),
    #[error("would refer to {0} {1}, which does not exist")]
    MissingReference(&'static str, i64),
    #[error("must stay, because {0} to it")]
    Needed(String),
    #[error("must stay at the customer of its employee")]
    OwnedByEmployee,
    #[error("cannot be changed")]
    Rejected,
}

/// Takes a record that stays as it is.
pub type Leave<'a> = dyn FnMut(&Resource, RecordId, &Reason) + 'a;

/// An undo inside its transaction.
pub struct Undo<'a> {
    pub writing: &'a Writing<'a>,
    pub selection: &'a Selection,
    pub leave: &'a mut Leave<'a>,
}

impl Undo<'_> {
    /// Takes the selected changes back.
    pub fn run(mut self) -> Result<Undone, UndoError> {
        self.find_records()?;
        self.check_complete()?;
        let sql = "SELECT last_seq FROM changes_state";
        let last = self.writing.connection().query_row(sql, [], |row| row.get(0))?;
        let mut undone = Undone::default();
        for resource in ALL {
            self.take_back_each(resource, false, &mut undone)?;
        }
        for resource in ALL.into_iter().rev() {
            self.take_back_each(resource, true, &mut undone)?;
        }
        self.count(last, &mut undone)?;
        Ok(undone)
    }

    /// The numbers of the first and the last entry between `since` and `until`, by the rule in
    /// change_log.rs: the first one comes after all entries that belong to the second before
    /// `since`.
    fn bounds(&self) -> Result<(i64, i64), DatabaseError> {
        let Selection { since, until, .. } = self.selection;
        let sql = "SELECT
            1 + coalesce((SELECT seq FROM changes WHERE at < ?1 ORDER BY seq DESC LIMIT 1), 0),
            iif(?2 IS NULL, (SELECT last_seq FROM changes_state), coalesce(
              (SELECT seq FROM changes WHERE at <= ?2 ORDER BY seq DESC LIMIT 1), 0))";
        let mut statement = self.writing.connection().prepare(sql)?;
        statement.query_row([since, until], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Lists the records with a selected entry, the number of this entry, and the number of the
    /// last entry that is not selected. SQLite reads the entries of each record along an index, and
    /// sorts nothing.
    fn find_records(&self) -> Result<(), DatabaseError> {
        let sql = format!(
            "CREATE TEMP TABLE concerned AS
             SELECT resource, record_id AS id, min(seq) FILTER (WHERE {IS_SELECTED}) AS first,
               max(seq) FILTER (WHERE NOT {IS_SELECTED}) AS other
             FROM changes
             WHERE seq >= (SELECT seq FROM changes WHERE {IS_SELECTED} ORDER BY seq LIMIT 1)
             GROUP BY resource, record_id HAVING first IS NOT NULL"
        );
        let (first, last) = self.bounds()?;
        let Selection { key, request, .. } = self.selection;
        let request = request.as_ref().map(Uuid::as_bytes);
        let selected = params![first, last, key.map(|key| key.0), request];
        self.writing.connection().execute(&sql, selected).map(drop)
    }

    /// Checks that no entry is missing: one since the beginning of the selection, or one of its
    /// request. All entries of a command have the same time.
    fn check_complete(&self) -> Result<(), UndoError> {
        let since = self.selection.since.as_ref().filter(|_| self.selection.request.is_none());
        let sql = "SELECT selected IS NULL, iif(coalesce(?1, selected, '') <= gone, gone, NULL)
                   FROM (SELECT
                     (SELECT at FROM changes
                      WHERE seq = (SELECT min(first) FROM temp.concerned)) AS selected,
                     (SELECT max(at) FROM changes_removed) AS gone)";
        let mut statement = self.writing.connection().prepare(sql)?;
        let row = statement.query_row([since], |row| Ok((row.get(0)?, row.get(1)?)))?;
        match row {
            (_, Some(gone)) => {
                let gone: Timestamp = gone;
                Err(UndoError::Incomplete(Timestamp::from_unix(gone.unix() + 1)))
            }
            (true, None) => Err(UndoError::NothingSelected),
            (false, None) => Ok(()),
        }
    }

    /// Takes back the records of a resource whose first selected entry has created them, or all
    /// others.
    fn take_back_each(
        &mut self,
        resource: &'static Resource,
        is_created: bool,
        undone: &mut Undone,
    ) -> Result<(), UndoError> {
        let sql = "SELECT id, first,
                     (SELECT iif(by_prefix IS NULL,
                        'the command ' || by_name,
                        printf('key %s\"%s\"', coalesce(by_key || ' ', ''), by_name))
                      FROM changes WHERE seq = other AND other > first)
                   FROM temp.concerned WHERE resource = ?
                     AND ((SELECT action FROM changes WHERE seq = first) = 'created') = ?";
        let mut statement = self.writing.connection().prepare(sql)?;
        let mut rows = statement.query(params![resource.plural, is_created])?;
        while let Some(row) = rows.next()? {
            let id = RecordId(row.get(0)?);
            let first = if is_created { None } else { Some(row.get(1)?) };
            let later: Option<String> = row.get(2)?;
            let later = later.map(Reason::ChangedLater);
            let reason = match self.take_back(resource, id, first, later) {
                Ok(reason) => reason,
                Err(ChangeError::Database(error)) => return Err(error.into()),
                Err(ChangeError::Rejected(rejection)) => Some(rejection.into()),
            };
            if let Some(reason) = reason {
                *undone.left.entry(resource.plural.to_owned()).or_default() += 1;
                (self.leave)(resource, id, &reason);
            }
        }
        Ok(())
    }

    /// Gives a record its state before the entry `first`, or deletes a created record. Returns why
    /// it stays: `later` if somebody changed it later. A record that has this state already is not
    /// touched.
    fn take_back(
        &self,
        resource: &'static Resource,
        id: RecordId,
        first: Option<i64>,
        later: Option<Reason>,
    ) -> Result<Option<Reason>, ChangeError> {
        let present = self.writing.record(resource, id)?;
        let Some(first) = first else {
            return match present {
                None => Ok(None),
                Some(_) if later.is_some() => Ok(later),
                Some(record) => self.writing.delete(resource, record).map(|()| None),
            };
        };
        let mut draft = self.former_state(resource, id, first, present)?;
        if draft.is_as_stored() {
            return Ok(None);
        }
        if later.is_some() {
            return Ok(later);
        }
        self.writing.set_owner(&mut draft, false)?;
        if draft.is_as_stored() {
            return Ok(Some(Reason::OwnedByEmployee));
        }
        for (field, value) in resource.fields.iter().zip(&draft.values) {
            self.writing.check_reference(field, value)?;
        }
        self.writing.save(draft)?;
        Ok(None)
    }

    fn former_state(
        &self,
        resource: &'static Resource,
        id: RecordId,
        first: i64,
        present: Option<Record>,
    ) -> Result<Draft, ChangeError> {
        let target = present.map_or(Target::Deleted(id, None), Target::Stored);
        let mut draft = Draft::new(resource, target, &[])?;
        let sql = "SELECT key, value FROM changes INDEXED BY changes_by_record, json_each(before)
                   WHERE resource = ? AND record_id = ? AND seq >= ? ORDER BY seq DESC";
        let mut statement = self.writing.connection().prepare_cached(sql)?;
        let mut rows = statement.query(params![resource.plural, id.0, first])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            if let Target::Deleted(_, created_at) = &mut draft.target
                && name == CREATED_AT.name
            {
                *created_at = row.get(1)?;
            } else if let Some(field) = resource.field(&name)
                && let Some(value) = resource.value_mut(&mut draft.values, &name)
            {
                *value = field.trimmed(read_value(row.get_ref(1)?, field.kind)?);
            }
        }
        Ok(draft)
    }

    /// Counts the records whose entries follow the entry `last`. A record counts by its last
    /// change: a device may move with its employee and then be deleted.
    fn count(&self, last: i64, undone: &mut Undone) -> Result<(), DatabaseError> {
        let sql = "SELECT count(*) FILTER (WHERE action = 'deleted'),
                     count(*) FILTER (WHERE action = 'updated'),
                     count(*) FILTER (WHERE action = 'created')
                   FROM changes AS own WHERE resource = ? AND seq > ? AND NOT EXISTS
                     (SELECT 1 FROM changes WHERE resource = own.resource
                        AND record_id = own.record_id AND seq > own.seq)";
        let mut statement = self.writing.connection().prepare(sql)?;
        for Resource { plural, .. } in ALL {
            let mut rows = statement.query(params![plural, last])?;
            let Some(row) = rows.next()? else { continue };
            let counts = [&mut undone.deleted, &mut undone.changed, &mut undone.created];
            for (column, counts) in counts.into_iter().enumerate() {
                let count: i64 = row.get(column)?;
                if count > 0 {
                    counts.insert((*plural).to_owned(), count.unsigned_abs());
                }
            }
        }
        Ok(())
    }
}

impl From<Rejection> for Reason {
    fn from(rejection: Rejection) -> Reason {
        match rejection {
            Rejection::MissingReference(_, target, id) => Reason::MissingReference(target.name, id),
            Rejection::HasDependents { counts, .. } => Reason::Needed(who_refer(&counts)),
            _ => Reason::Rejected,
        }
    }
}
