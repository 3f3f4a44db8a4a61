//! A tenant's file in the hands of one command, for whole tables at once. A server may serve the same file meanwhile.

use std::path::Path;

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use super::connection::{self, OpenError};
use super::error::DatabaseError;
use super::records::Statements;
use super::records::{self, Reading, Record, Writing};
use super::schema;
use super::tenants::{self, SCHEMA};
use crate::model::{Field, Resource, Value};

/// A connection of one's own to a tenant's file.
#[derive(Debug)]
pub struct TenantFile {
    connection: Connection,
}

/// Memory of the connection for pages, in KiB. Building a dozen indexes at once with SQLite's 2 MiB would go through the
/// disk again and again.
const CACHE_KIB: i32 = 64 * 1024;

impl TenantFile {
    /// Opens the file of the tenant `id`, which must be there.
    pub fn open(data_dir: &Path, id: i64) -> Result<TenantFile, OpenError> {
        let path = tenants::file(&tenants::folder(data_dir), id);
        let connection = schema::open(&path, &SCHEMA)?;
        connection
            .pragma_update(None, "cache_size", -CACHE_KIB)
            .and_then(|()| connection::use_long_busy_timeout(&connection))
            .map_err(|error| OpenError::Unusable { path, cause: error.to_string() })?;
        Ok(TenantFile { connection })
    }

    /// All that `work` reads is of one moment.
    pub fn read<T, E: From<DatabaseError>>(&self, work: impl FnOnce(&Reading<'_>) -> Result<T, E>) -> Result<T, E> {
        let moment = self.connection.unchecked_transaction().map_err(DatabaseError)?;
        let answer = work(&Reading::new(&self.connection));
        moment.finish().map_err(DatabaseError)?;
        answer
    }

    /// Adds records in one transaction, which waits for the file's other writers and makes them wait: all of `work`, or
    /// nothing.
    ///
    /// The search table is filled at the end: between other statements, SQLite would write a piece of the index to disk for
    /// every single row, which takes longer than all the rest.
    pub fn add<T, E: From<DatabaseError>>(
        &mut self,
        resource: &'static Resource,
        work: impl FnOnce(&Adding<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(DatabaseError)?;
        let adding = Adding { writing: Writing::new(&transaction), resource };
        let highest = adding.highest_id()?;
        let answer = work(&adding)?;
        adding.index_beyond(highest)?;
        transaction.commit().map_err(DatabaseError)?;
        Ok(answer)
    }

    /// A set of ids that may be larger than memory. It is gone with the connection.
    pub fn id_set(&self) -> Result<IdSet<'_>, DatabaseError> {
        self.connection.execute_batch(
            "CREATE TEMP TABLE IF NOT EXISTS id_set (id INTEGER PRIMARY KEY); DELETE FROM temp.id_set",
        )?;
        Ok(IdSet(&self.connection))
    }
}

/// See [`TenantFile::id_set`].
#[derive(Debug)]
pub struct IdSet<'a>(&'a Connection);

impl IdSet<'_> {
    /// Whether `id` was not in it yet.
    pub fn insert(&self, id: i64) -> Result<bool, DatabaseError> {
        let mut statement = self.0.prepare_cached("INSERT OR IGNORE INTO temp.id_set (id) VALUES (?)")?;
        Ok(statement.execute([id])? == 1)
    }
}

/// What is found under a natural key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    None,
    One(i64),
    Several,
}

impl Reading<'_> {
    /// Every record in the order of ids, one after the other. Returns how many there were.
    pub fn each<E: From<DatabaseError>>(
        &self,
        resource: &Resource,
        mut take: impl FnMut(&Record) -> Result<(), E>,
    ) -> Result<u64, E> {
        let sql = format!("SELECT {} FROM {} ORDER BY id", Statements::of(resource).columns, resource.plural);
        let mut statement = self.connection().prepare_cached(&sql).map_err(DatabaseError)?;
        let mut rows = statement.query([]).map_err(DatabaseError)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(DatabaseError)? {
            take(&records::read_record(resource, row).map_err(DatabaseError)?)?;
            count += 1;
        }
        Ok(count)
    }

    /// How many records the resource has.
    pub fn number_of(&self, resource: &Resource) -> Result<i64, DatabaseError> {
        let sql = format!("SELECT count(*) FROM {}", resource.plural);
        Ok(self.connection().query_row(&sql, [], |row| row.get(0))?)
    }

    /// Whether the resource has, or ever had, a record.
    pub fn has_ever_held(&self, resource: &Resource) -> Result<bool, DatabaseError> {
        Ok(highest_id(self.connection(), resource)? > 0 || self.number_of(resource)? > 0)
    }

    /// Whether the resource has a record `id`.
    pub fn has(&self, resource: &Resource, id: i64) -> Result<bool, DatabaseError> {
        self.exists(resource, id)
    }

    /// The record whose `field` is exactly `value`.
    pub fn find_by(&self, resource: &Resource, field: &Field, value: &str) -> Result<Match, DatabaseError> {
        let sql = format!("SELECT id FROM {} WHERE {} = ? LIMIT 2", resource.plural, field.name);
        let mut statement = self.connection().prepare_cached(&sql)?;
        let mut rows = statement.query([value])?;
        let Some(first) = rows.next()? else { return Ok(Match::None) };
        let id = first.get(0)?;
        Ok(if rows.next()?.is_some() { Match::Several } else { Match::One(id) })
    }
}

/// Records of one resource on their way into the file. See [`TenantFile::add`].
#[derive(Debug)]
pub struct Adding<'a> {
    writing: Writing<'a>,
    resource: &'static Resource,
}

impl Adding<'_> {
    /// The file as it is in the middle of this.
    pub fn reading(&self) -> &Reading<'_> {
        &self.writing
    }

    /// Adds a record with this id, or with the next. `now` is RFC 3339.
    pub fn record(&self, id: Option<i64>, values: Vec<Value>, now: &str) -> Result<(), DatabaseError> {
        self.writing.insert_as(self.resource, id, values, now)?;
        Ok(())
    }

    fn highest_id(&self) -> Result<i64, DatabaseError> {
        Ok(highest_id(self.writing.connection(), self.resource)?)
    }

    /// Enters the records with higher ids into the search table. An `INSERT` with a `SELECT` would be undone by itself where it
    /// fails, and for that SQLite would copy what it overwrites to a temporary file.
    fn index_beyond(&self, id: i64) -> Result<(), DatabaseError> {
        let connection = self.writing.connection();
        let sql = format!("SELECT id, search FROM {} WHERE id > ? ORDER BY id", self.resource.plural);
        let mut records = connection.prepare(&sql)?;
        let mut index = connection.prepare(&Statements::of(self.resource).index)?;
        let mut rows = records.query([id])?;
        while let Some(row) = rows.next()? {
            let (id, text) = (row.get_ref(0)?, row.get_ref(1)?);
            index.execute([ToSqlOutput::Borrowed(id), ToSqlOutput::Borrowed(text)])?;
        }
        Ok(())
    }
}

/// The highest id that was ever given, 0 before the first.
fn highest_id(connection: &Connection, resource: &Resource) -> rusqlite::Result<i64> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?";
    let highest: Option<i64> = connection.query_row(sql, [resource.plural], |row| row.get(0)).optional()?;
    Ok(highest.unwrap_or(0))
}
