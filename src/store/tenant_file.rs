//! A tenant's file as commands use it, for whole tables at once. A server may use the same file meanwhile.

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

/// A tenant's file, open for one command.
#[derive(Debug)]
pub struct TenantFile {
    connection: Connection,
}

/// The size of the page cache, in KiB. An import writes a dozen indexes at once; with SQLite's default of 2 MiB it would read
/// and write their pages again and again.
const CACHE_KIB: i32 = 64 * 1024;

impl TenantFile {
    /// Opens the file of the tenant `id`.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: the file is missing, damaged, of a newer schema or cannot be used.
    pub fn open(data_dir: &Path, id: i64) -> Result<TenantFile, OpenError> {
        let path = tenants::file(&tenants::folder(data_dir), id);
        let connection = schema::open(&path, &SCHEMA)?;
        connection
            .pragma_update(None, "cache_size", -CACHE_KIB)
            .and_then(|()| connection::use_long_busy_timeout(&connection))
            .map_err(|error| connection::unusable(&path, error))?;
        Ok(TenantFile { connection })
    }

    /// Runs `work` in a read transaction: all that it reads is of one snapshot.
    ///
    /// # Errors
    ///
    /// Those of `work`, and [`DatabaseError`].
    pub fn read<T, E: From<DatabaseError>>(&self, work: impl FnOnce(&Reading<'_>) -> Result<T, E>) -> Result<T, E> {
        let transaction = self.connection.unchecked_transaction().map_err(DatabaseError)?;
        let result = work(&Reading::new(&self.connection));
        transaction.finish().map_err(DatabaseError)?;
        result
    }

    /// Runs `work` in one write transaction, to insert many records. Other writers of the file wait for its end.
    ///
    /// The search table is filled at the end. If it were filled between other statements, SQLite would write a segment of the
    /// index to disk for each record, which takes longer than everything else.
    ///
    /// # Errors
    ///
    /// Those of `work`, and [`DatabaseError`]. The transaction is rolled back.
    pub fn add<T, E: From<DatabaseError>>(
        &mut self,
        resource: &'static Resource,
        work: impl FnOnce(&Adding<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(DatabaseError)?;
        let adding = Adding { writing: Writing::new(&transaction), resource };
        let highest = adding.highest_id()?;
        let result = work(&adding)?;
        adding.index_beyond(highest)?;
        adding.write_journal(highest)?;
        transaction.commit().map_err(DatabaseError)?;
        Ok(result)
    }

    /// Creates an empty set of ids, which may be larger than memory. It is deleted with the connection.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`].
    pub fn id_set(&self) -> Result<IdSet<'_>, DatabaseError> {
        self.connection.execute_batch(
            "CREATE TEMP TABLE IF NOT EXISTS id_set (id INTEGER PRIMARY KEY); DELETE FROM temp.id_set",
        )?;
        Ok(IdSet(&self.connection))
    }
}

/// A set of ids on disk. See [`TenantFile::id_set`].
#[derive(Debug)]
pub struct IdSet<'a>(&'a Connection);

impl IdSet<'_> {
    /// Inserts `id`. Returns whether it is new.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`].
    pub fn insert(&self, id: i64) -> Result<bool, DatabaseError> {
        let mut statement = self.0.prepare_cached("INSERT OR IGNORE INTO temp.id_set (id) VALUES (?)")?;
        Ok(statement.execute([id])? == 1)
    }
}

/// The result of a search by a natural key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// No record.
    None,
    /// One record, with this id.
    One(i64),
    /// More than one record.
    Several,
}

impl Reading<'_> {
    /// Calls `take` with each record, in the order of ids. Returns the number of records.
    ///
    /// # Errors
    ///
    /// Those of `take`, and [`DatabaseError`].
    pub fn each<E: From<DatabaseError>>(
        &self,
        resource: &Resource,
        mut take: impl FnMut(&Record) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut statement = self.connection().prepare_cached(&Statements::of(resource).all).map_err(DatabaseError)?;
        let mut rows = statement.query([]).map_err(DatabaseError)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(DatabaseError)? {
            take(&records::read_record(resource, row).map_err(DatabaseError)?)?;
            count += 1;
        }
        Ok(count)
    }

    /// Returns the number of records.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`].
    pub fn number_of(&self, resource: &Resource) -> Result<i64, DatabaseError> {
        let sql = format!("SELECT count(*) FROM {}", resource.plural);
        Ok(self.connection().query_row(&sql, [], |row| row.get(0))?)
    }

    /// Returns whether the resource has, or ever had, a record.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`].
    pub fn has_ever_held(&self, resource: &Resource) -> Result<bool, DatabaseError> {
        Ok(highest_id(self.connection(), resource)? > 0 || self.number_of(resource)? > 0)
    }

    /// Searches the record whose `field` equals `value`.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`].
    pub fn find_by(&self, resource: &Resource, field: &Field, value: &str) -> Result<Match, DatabaseError> {
        let sql = format!("SELECT id FROM {} WHERE {} = ? LIMIT 2", resource.plural, field.name);
        let mut statement = self.connection().prepare_cached(&sql)?;
        let mut rows = statement.query([value])?;
        let Some(first) = rows.next()? else { return Ok(Match::None) };
        let id = first.get(0)?;
        Ok(if rows.next()?.is_some() { Match::Several } else { Match::One(id) })
    }
}

/// Inserts records of one resource. See [`TenantFile::add`].
#[derive(Debug)]
pub struct Adding<'a> {
    writing: Writing<'a>,
    resource: &'static Resource,
}

impl Adding<'_> {
    /// Reads the file, with the records that were inserted before.
    pub fn reading(&self) -> &Reading<'_> {
        &self.writing
    }

    /// Inserts a record with the id `id`, or with the next id. `now` is RFC 3339.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`]: for example, the id exists already.
    pub fn record(&self, id: Option<i64>, values: Vec<Value>, now: &str) -> Result<(), DatabaseError> {
        self.writing.insert_as(self.resource, id, values, now)?;
        Ok(())
    }

    /// Writes the entries of the records with ids above `id`.
    fn write_journal(&self, id: i64) -> Result<(), DatabaseError> {
        self.writing.journal_imported(self.resource, id)?;
        Ok(self.writing.finish_journal(None)?)
    }

    fn highest_id(&self) -> Result<i64, DatabaseError> {
        Ok(highest_id(self.writing.connection(), self.resource)?)
    }

    /// Inserts the records with ids above `id` into the search table, one by one. For an `INSERT` with a `SELECT`, SQLite would
    /// keep a statement journal in a temporary file.
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

/// Returns the highest id that a record ever had, 0 before the first.
fn highest_id(connection: &Connection, resource: &Resource) -> rusqlite::Result<i64> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?";
    let highest: Option<i64> = connection.query_row(sql, [resource.plural], |row| row.get(0)).optional()?;
    Ok(highest.unwrap_or(0))
}
