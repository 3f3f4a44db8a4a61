//! The operations on records. SQL consists of declared names only; values are always bound.
//!
//! | file | its concern |
//! |---|---|
//! | `list` | pages: SQL, keyset position, JSON |
//! | `search` | search text and trigrams |
//! | `encoding` | records from rows, and as JSON |
//! | `pending_imports` | records that are hidden until their import ends |
//! | `stored_responses` | responses of idempotent requests |
//! | `statements` | SQL that depends on the resource alone |

mod encoding;
mod list;
mod pending_imports;
mod search;
mod statements;
mod stored_responses;

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::ops::Deref;

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension as _, params};

pub(super) use encoding::read_record;
pub use list::Page;
#[cfg(test)]
pub(super) use list::statements;
pub use pending_imports::IdBlock;
pub(super) use pending_imports::is_visible;
pub use search::fold;
pub(super) use statements::Statements;
pub use stored_responses::StoredResponse;

use super::error::DatabaseError;
use crate::model::{Field, Resource, Value};
use encoding::{checked, write_row};
use search::search_text;

/// A connection that reads.
#[derive(Debug)]
pub struct Reading<'a> {
    connection: &'a Connection,
    /// Whether hidden records were found. See [`Reading::hidden_ids`].
    found_hidden: Cell<bool>,
}

/// A connection inside a write transaction. It can read too.
#[derive(Debug)]
pub struct Writing<'a> {
    reading: Reading<'a>,
    /// What is yet to be done to the search tables.
    search: RefCell<Vec<SearchChange>>,
}

/// A search text that is to be added to the search table or removed from it.
#[derive(Debug)]
struct SearchChange {
    sql: &'static str,
    id: i64,
    text: String,
}

impl<'a> Deref for Writing<'a> {
    type Target = Reading<'a>;

    fn deref(&self) -> &Reading<'a> {
        &self.reading
    }
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// At least 1.
    pub id: i64,
    /// The values of the resource's fields, in their order.
    pub values: Vec<Value>,
    /// RFC 3339, UTC, whole seconds.
    pub created_at: String,
    /// RFC 3339, UTC, whole seconds.
    pub updated_at: String,
}

impl<'a> Reading<'a> {
    pub(super) fn new(connection: &'a Connection) -> Reading<'a> {
        Reading { connection, found_hidden: Cell::new(false) }
    }

    pub(super) fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// Whether a list passed over hidden records: an import runs, or was interrupted.
    pub(super) fn has_found_hidden(&self) -> bool {
        self.found_hidden.get()
    }

    /// The record as a JSON object; `None` if there is no such record.
    pub fn json(&self, resource: &Resource, id: i64) -> Result<Option<Vec<u8>>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&Statements::of(resource).one)?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut json = Vec::with_capacity(512);
        write_row(&mut json, resource, row);
        Ok(Some(checked(json)?))
    }

    /// The record; `None` if there is no such record.
    pub fn record(&self, resource: &Resource, id: i64) -> Result<Option<Record>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&Statements::of(resource).one)?;
        Ok(statement.query_row([id], |row| read_record(resource, row)).optional()?)
    }

    /// Whether the resource has a record `id`.
    pub fn exists(&self, resource: &Resource, id: i64) -> Result<bool, DatabaseError> {
        Ok(self.connection.prepare_cached(&Statements::of(resource).exists)?.exists([id])?)
    }
}

impl<'a> Writing<'a> {
    pub(super) fn new(connection: &'a Connection) -> Writing<'a> {
        Writing { reading: Reading::new(connection), search: RefCell::default() }
    }

    /// The number of pending changes to the search tables, for [`Writing::forget_search`].
    pub(super) fn pending_search(&self) -> usize {
        self.search.borrow().len()
    }

    /// Drops the pending changes beyond the first `pending`: the mutation that they belong to was rolled back.
    pub(super) fn forget_search(&self, pending: usize) {
        self.search.borrow_mut().truncate(pending);
    }

    /// Brings the search tables up to date, for all mutations of the transaction together and in the order of ids. FTS5 writes what
    /// it has gathered at every savepoint and for every id that is not higher than the one before, and merges it later.
    pub(super) fn finish_search(&self) -> rusqlite::Result<()> {
        let mut changes = self.search.take();
        // Stable: a record's own changes stay in their order.
        changes.sort_by_key(|change| change.id);
        for SearchChange { sql, id, text } in changes {
            self.connection().prepare_cached(sql)?.execute(params![id, text])?;
        }
        Ok(())
    }

    /// Adds a record with the next id. `now` is RFC 3339. It is found by search from `finish_search` on.
    pub fn insert(&self, resource: &Resource, values: Vec<Value>, now: &str) -> Result<Record, DatabaseError> {
        Ok(self.insert_as(resource, None, values, now)?)
    }

    /// The same, with the id that the record must have, or the next.
    pub(super) fn insert_as(
        &self,
        resource: &Resource,
        id: Option<i64>,
        values: Vec<Value>,
        now: &str,
    ) -> rusqlite::Result<Record> {
        let search = search_text(resource, &values);
        let record = self.add(resource, id, values, &search, now)?;
        self.index(resource, record.id, search);
        Ok(record)
    }

    fn add(
        &self,
        resource: &Resource,
        id: Option<i64>,
        values: Vec<Value>,
        search: &str,
        now: &str,
    ) -> rusqlite::Result<Record> {
        let mut bound: Vec<&dyn ToSql> = vec![&id];
        bound.extend(values.iter().map(|value| value as &dyn ToSql));
        bound.extend([&now as &dyn ToSql, &now, &search]);
        self.connection().prepare_cached(&Statements::of(resource).insert)?.execute(bound.as_slice())?;
        let id = self.connection().last_insert_rowid();
        Ok(Record { id, values, created_at: now.to_owned(), updated_at: now.to_owned() })
    }

    /// Sets the named fields and `updated_at`; the others stay. `None` where there is no such record.
    pub fn update(
        &self,
        resource: &Resource,
        id: i64,
        changes: &[(&'static Field, Value)],
        now: &str,
    ) -> Result<Option<Record>, DatabaseError> {
        let Some(mut record) = self.record(resource, id)? else { return Ok(None) };
        let mut sql = format!("UPDATE {} SET ", resource.plural);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(changes.len() + 3);
        for (field, value) in changes {
            write!(sql, "{} = ?, ", field.name).map_err(|_| rusqlite::Error::InvalidQuery)?;
            bound.push(value);
            let stored = resource.fields.iter().zip(&mut record.values);
            for (_, stored) in stored.filter(|(declared, _)| declared.name == field.name) {
                *stored = value.clone();
            }
        }
        now.clone_into(&mut record.updated_at);
        let (old, search) = (self.search_text_of(resource, id)?, search_text(resource, &record.values));
        sql.push_str("updated_at = ?, search = ? WHERE id = ?");
        bound.extend([&now as &dyn ToSql, &search, &id]);
        self.connection().prepare_cached(&sql)?.execute(bound.as_slice())?;
        if search != old {
            self.unindex(resource, id, old);
            self.index(resource, id, search);
        }
        Ok(Some(record))
    }

    /// Removes a record.
    pub fn delete(&self, resource: &Resource, id: i64) -> Result<DeleteOutcome, DatabaseError> {
        let Some(search) = self.search_text_of(resource, id).optional()? else { return Ok(DeleteOutcome::NotFound) };
        let sql = format!("DELETE FROM {} WHERE id = ?", resource.plural);
        match self.connection().prepare_cached(&sql)?.execute([id]) {
            Ok(_) => {
                self.unindex(resource, id, search);
                Ok(DeleteOutcome::Deleted)
            }
            Err(error) => match &error {
                rusqlite::Error::SqliteFailure(cause, message)
                    if cause.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
                {
                    Ok(DeleteOutcome::Referenced(message.clone().unwrap_or_else(|| cause.to_string())))
                }
                _ => Err(error.into()),
            },
        }
    }

    /// The search text as it is in the file: another version of the program may have folded it differently.
    fn search_text_of(&self, resource: &Resource, id: i64) -> rusqlite::Result<String> {
        self.connection().prepare_cached(&Statements::of(resource).search)?.query_row([id], |row| row.get(0))
    }

    fn index(&self, resource: &Resource, id: i64, text: String) {
        self.search.borrow_mut().push(SearchChange { sql: &Statements::of(resource).index, id, text });
    }

    fn unindex(&self, resource: &Resource, id: i64, text: String) {
        self.search.borrow_mut().push(SearchChange { sql: &Statements::of(resource).unindex, id, text });
    }
}

/// The outcome of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The record was deleted.
    Deleted,
    /// There is no such record.
    NotFound,
    /// Other records refer to it. The database's own message.
    Referenced(String),
}
