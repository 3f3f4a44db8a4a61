//! A tenant's file as commands use it, for whole tables at once. A server may use the same file meanwhile.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::connection::{self, OpenError};
use super::error::DatabaseError;
use super::import::{self, ImportLock, NewIds, PendingImport, PendingImportError, RemovalProgress};
use super::records::{self, IdBlock, Reading, Record, Statements};
use super::schema;
use super::tenants::{self, SCHEMA};
use crate::model::{Field, Resource};

/// A tenant's file, open for one command.
#[derive(Debug)]
pub struct TenantFile {
    path: PathBuf,
    connection: Connection,
}

/// The size of the page cache, in KiB. An import writes a dozen indexes at once; with SQLite's default of 2 MiB it would read
/// and write their pages again and again.
const CACHE_KIB: i32 = 96 * 1024;

impl TenantFile {
    /// Opens the file of the tenant `id`.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: the file is missing, damaged, of a newer schema or cannot be used.
    pub fn open(data_dir: &Path, id: i64) -> Result<TenantFile, OpenError> {
        let path = tenants::file(&tenants::folder(data_dir), id);
        let connection = schema::open(&path, &SCHEMA)?;
        connection::set_cache_size(&connection, CACHE_KIB)
            .and_then(|()| connection::disable_automatic_checkpoint(&connection))
            .and_then(|()| connection::use_long_busy_timeout(&connection))
            .map_err(|error| connection::unusable(&path, error))?;
        Ok(TenantFile { path, connection })
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

    /// Waits until no other import into the tenant runs, and locks others out. Calls `wait` first if one runs.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the lock file cannot be used.
    pub fn lock_imports(&self, wait: impl FnOnce()) -> Result<ImportLock, OpenError> {
        let locked = ImportLock::try_acquire(&self.path).and_then(|free| match free {
            Some(lock) => Ok(lock),
            None => {
                wait();
                ImportLock::acquire(&self.path)
            }
        });
        locked.map_err(|error| connection::unusable(&self.path, error))
    }

    /// Removes the hidden records that an import has left.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`].
    pub fn remove_leftovers(&self, lock: &ImportLock, progress: RemovalProgress<'_>) -> Result<(), DatabaseError> {
        import::remove_leftovers(&self.connection, lock, progress)
    }

    /// Begins an import. The records have the timestamp `now`, RFC 3339.
    ///
    /// # Errors
    ///
    /// [`PendingImportError`].
    pub fn begin_import(
        &self,
        _lock: &ImportLock,
        resource: &'static Resource,
        ids: NewIds,
        now: &str,
    ) -> Result<PendingImport<'_>, PendingImportError> {
        PendingImport::begin(&self.connection, &self.path, resource, ids, now)
    }

    /// Reads without a transaction: each statement sees what was committed before it.
    pub fn reading(&self) -> Reading<'_> {
        Reading::new(&self.connection)
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

    /// The highest id, 0 without one.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`].
    pub fn highest(&self) -> Result<i64, DatabaseError> {
        Ok(self.0.query_row("SELECT coalesce(max(id), 0) FROM temp.id_set", [], |row| row.get(0))?)
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
        let visible = self.visible(resource).map_err(DatabaseError)?;
        let columns = &Statements::of(resource).columns;
        let sql = format!("SELECT {columns} FROM {} {visible} ORDER BY id", resource.plural);
        let mut statement = self.connection().prepare_cached(&sql).map_err(DatabaseError)?;
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
        let sql = format!("SELECT count(*) FROM {} {}", resource.plural, self.visible(resource)?);
        Ok(self.connection().query_row(&sql, [], |row| row.get(0))?)
    }

    /// Returns whether the resource has, or ever had, a record.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`].
    pub fn has_ever_held(&self, resource: &Resource) -> Result<bool, DatabaseError> {
        Ok(self.highest_id(resource)? > 0 || self.number_of(resource)? > 0)
    }

    /// Searches the record whose `field` equals `value`.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`].
    pub fn find_by(&self, resource: &Resource, field: &Field, value: &str) -> Result<Match, DatabaseError> {
        let (table, visible) = (resource.plural, records::is_visible(resource.plural, "id"));
        let sql = format!("SELECT id FROM {table} WHERE {} = ? AND {visible} LIMIT 2", field.name);
        let mut statement = self.connection().prepare_cached(&sql)?;
        let mut rows = statement.query([value])?;
        let Some(first) = rows.next()? else { return Ok(Match::None) };
        let id = first.get(0)?;
        Ok(if rows.next()?.is_some() { Match::Several } else { Match::One(id) })
    }

    /// The condition of a statement that leaves out hidden records, empty if there are none. It holds in the same transaction.
    fn visible(&self, resource: &Resource) -> rusqlite::Result<String> {
        let hidden = self.hidden_ids(resource)?;
        Ok(hidden
            .map_or_else(String::new, |IdBlock { first, last }| format!("WHERE +id NOT BETWEEN {first} AND {last}")))
    }
}
