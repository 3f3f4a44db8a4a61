//! The operations on records. SQL consists of declared names only; values are always bound.
//!
//! | file | its concern |
//! |---|---|
//! | `encoding` | the statements of a resource, records from rows, and as JSON |
//! | `change` | a change as data, its last checks, the reasons to reject it |
//! | `owner` | the customer of a device, which follows its employee |
//! | `undo` | the former state of records, and the way back to it |
//! | `write` | insert, update, delete; responses of idempotent requests |
//! | `list` | pages: the statement, keyset position, JSON |
//! | `search` | the search text of a record, the search tables, their segments |
//! | `change_log` | the entry and the version of each change, pages of entries |

mod change;
mod change_log;
mod encoding;
mod list;
mod owner;
mod search;
mod undo;
mod write;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ops::Deref;

use rusqlite::{Connection, OptionalExtension as _};

pub use change::{
    Change, ChangeError, ChangeKind, Changed, Draft, Precondition, Rejection, Target, who_refer,
};
pub use change_log::{Actor, ChangeContext, ChangesPage, ChangesQuery, KeyLabel, Position, Start};
pub(crate) use change_log::{remove_old_entries, renew_lineage};
pub use list::Page;
pub use search::fold;
pub(crate) use search::{fill_search_tables, merge_step, renew_search_tables};
pub use undo::{Selection, Undo, UndoError, Undone};
pub(crate) use write::remove_old_responses;
pub use write::{Answer, IdempotencyKey};

use super::database;
use super::error::DatabaseError;
use crate::clock::Timestamp;
use crate::json_writer::JsonWriter;
use crate::model::{Field, Inclusion, RecordId, Resource, Value, Version};
use encoding::{Statements, including, read_record, write_row};
use search::SearchChange;

/// A page ends after the record with which its JSON text has this many bytes (contract sections 4
/// and 12). Otherwise 200 large records with the records that they include would have 50 MiB.
const MAX_PAGE: usize = 4 << 20;

/// A connection that reads.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    connection: &'a Connection,
}

/// A connection inside a write transaction. It can read, too.
#[derive(Debug)]
pub struct Writing<'a> {
    reading: Reading<'a>,
    /// Pending changes of the search tables. FTS5 writes a segment at each savepoint, so the tables
    /// are brought up to date once a transaction.
    search: RefCell<Vec<SearchChange>>,
    /// The length of its texts.
    pending_bytes: Cell<usize>,
}

impl<'a> Deref for Writing<'a> {
    type Target = Reading<'a>;

    fn deref(&self) -> &Reading<'a> {
        &self.reading
    }
}

/// Ends the transaction of a read, also after a panic. `rusqlite::Transaction` prepares its
/// statements anew each time, which takes 3 % of a GET.
struct EndOfSnapshot<'a>(&'a Connection);

impl Drop for EndOfSnapshot<'_> {
    fn drop(&mut self) {
        // If `BEGIN` failed, there is nothing to end.
        if !self.0.is_autocommit() {
            let _ = database::execute(self.0, "ROLLBACK");
        }
    }
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub id: RecordId,
    /// The values of the resource's fields, in their order.
    pub values: Vec<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub version: Version,
}

impl<'a> Reading<'a> {
    pub(super) fn new(connection: &'a Connection) -> Reading<'a> {
        Reading { connection }
    }

    /// Runs `work` in a transaction, so that all its reads see one moment of the file.
    pub(super) fn in_snapshot<T, E: From<DatabaseError>>(
        connection: &Connection,
        work: impl FnOnce(&Reading<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _end = EndOfSnapshot(connection);
        database::execute(connection, "BEGIN")?;
        work(&Reading::new(connection))
    }

    /// The record as a JSON object with the included records, and its version.
    pub fn json(
        &self,
        resource: &Resource,
        id: RecordId,
        include: &[&Inclusion],
    ) -> Result<Option<(Vec<u8>, Version)>, DatabaseError> {
        let one = Cow::Borrowed(Statements::of(resource).one.as_str());
        let sql = if include.is_empty() { one } else { including(include, &one).into() };
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([id.0])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut json = JsonWriter::with_capacity(512);
        let version = write_row(&mut json, resource, include, row, 0)?;
        Ok(Some((json.take(), version)))
    }

    pub fn record(
        &self,
        resource: &Resource,
        id: RecordId,
    ) -> Result<Option<Record>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&Statements::of(resource).one)?;
        statement.query_row([id.0], |row| read_record(resource, row)).optional()
    }

    /// The record's version; `None` if there is no such record.
    pub fn version(
        &self,
        resource: &Resource,
        id: RecordId,
    ) -> Result<Option<Version>, DatabaseError> {
        let sql = format!("SELECT version FROM {} WHERE id = ?", resource.plural);
        let mut statement = self.connection.prepare_cached(&sql)?;
        statement.query_row([id.0], |row| row.get(0).map(Version)).optional()
    }

    pub fn exists(&self, resource: &Resource, id: RecordId) -> Result<bool, DatabaseError> {
        Ok(self.version(resource, id)?.is_some())
    }

    /// Calls `take` with each record, in the order of ids. Returns the number of records.
    pub fn each<E: From<DatabaseError>>(
        &self,
        resource: &Resource,
        mut take: impl FnMut(&Record) -> Result<(), E>,
    ) -> Result<u64, E> {
        let (table, columns) = (resource.plural, &Statements::of(resource).columns);
        let sql = format!("SELECT {columns} FROM {table} AS r ORDER BY r.id");
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            take(&read_record(resource, row)?)?;
            count += 1;
        }
        Ok(count)
    }

    /// The names of custom fields in use, in alphabetical order.
    pub fn custom_names(&self, resource: &Resource) -> Result<Vec<String>, DatabaseError> {
        let sql = format!(
            "SELECT DISTINCT key FROM {} AS r, json_each(r.custom) WHERE r.custom <> '{{}}'
             ORDER BY key",
            resource.plural
        );
        let mut statement = self.connection.prepare(&sql)?;
        let names = statement.query_map([], |row| row.get(0))?;
        names.collect()
    }

    /// The number of records.
    pub fn count(&self, resource: &Resource) -> Result<i64, DatabaseError> {
        let sql = format!("SELECT count(*) FROM {}", resource.plural);
        self.connection.query_row(&sql, [], |row| row.get(0))
    }

    /// Whether the resource has, or ever had, a record.
    pub fn has_ever_held(&self, resource: &Resource) -> Result<bool, DatabaseError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ? AND seq > 0)";
        self.connection.query_row(sql, [resource.plural], |row| row.get(0))
    }

    /// Finds the records whose `field` equals `value`, as filters compare. Returns at most ten ids.
    pub fn find_by(
        &self,
        resource: &Resource,
        field: &Field,
        value: &Value,
    ) -> Result<Vec<RecordId>, DatabaseError> {
        let (table, name) = (resource.plural, field.name);
        let sql = format!("SELECT id FROM {table} WHERE {name} = ? LIMIT 10");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let ids = statement.query_map([value], |row| row.get(0).map(RecordId))?;
        ids.collect()
    }
}

#[cfg(test)]
mod tests;
