//! Imports: many records at once, which all appear at the same moment or never.
//!
//! The records are inserted in portions, each in a transaction of its own, so that other writers of the file wait for one portion at
//! most. Until the last one is stored they are hidden (`records/pending_imports.rs`). An import holds a lock while it runs. Hidden
//! records without a locked import are what an interrupted one has left; the next import removes them, or the server when it finds
//! them in a list.
//!
//! | file | its concern |
//! |---|---|
//! | `checkpoints` | copies the write-ahead log between two portions |
//! | `leftovers` | removal of hidden records |
//! | `portion` | the time that a portion takes, and the pause after it |

mod checkpoints;
mod leftovers;
mod portion;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::connection::{self, OpenError};
use super::error::DatabaseError;
use super::lock_file::LockFile;
use super::records::{self, IdBlock, Reservation, Writing};
use crate::model::{Resource, Value};
use checkpoints::Checkpoints;
pub use leftovers::{RemovalProgress, remove_leftovers};
use portion::Pace;

/// The file that imports into the tenant with the file `database` lock: `1.db.import`. It is removed with the tenant, since its name
/// begins with that of the database.
fn lock_path(database: &Path) -> PathBuf {
    connection::sibling_path(database, ".import")
}

/// The lock of the imports into one tenant. It is released when this is dropped and when the process ends.
#[derive(Debug)]
pub struct ImportLock {
    path: PathBuf,
    _lock: LockFile,
}

impl ImportLock {
    /// Locks the imports into the tenant with the file `database`. Returns `None` if an import runs.
    ///
    /// # Errors
    ///
    /// The lock file cannot be created, opened or locked.
    pub fn try_acquire(database: &Path) -> io::Result<Option<ImportLock>> {
        let path = lock_path(database);
        let lock = LockFile::try_acquire(&path)?;
        Ok(lock.map(|lock| ImportLock { path, _lock: lock }))
    }

    /// The same, but waits until no import runs.
    ///
    /// # Errors
    ///
    /// The lock file cannot be created, opened or locked.
    pub fn acquire(database: &Path) -> io::Result<ImportLock> {
        let path = lock_path(database);
        let lock = LockFile::acquire(&path)?;
        Ok(ImportLock { path, _lock: lock })
    }
}

/// The file is removed while it is locked: one who has opened it then finds that it is gone, and creates another.
impl Drop for ImportLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Why records were not imported.
#[derive(Debug, thiserror::Error)]
pub enum PendingImportError {
    /// The ids of the file are to be kept, and the resource holds records or held some before.
    #[error("the resource has held records")]
    HasHeldRecords,
    /// A record that a new one refers to does not exist any more.
    #[error("a record that a row refers to was deleted meanwhile")]
    ReferenceDeleted,
    /// The file's content was replaced by a restore.
    #[error("the tenant was restored meanwhile")]
    Restored,
    /// There are more records, or other ids, than announced.
    #[error("the rows are not those that were announced")]
    Unexpected,
    /// The connection for checkpoints cannot be opened.
    #[error(transparent)]
    File(#[from] OpenError),
    /// A statement failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<rusqlite::Error> for PendingImportError {
    fn from(error: rusqlite::Error) -> PendingImportError {
        match &error {
            rusqlite::Error::SqliteFailure(cause, _)
                if cause.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
            {
                PendingImportError::ReferenceDeleted
            }
            _ => PendingImportError::Database(DatabaseError(error)),
        }
    }
}

/// The ids of the records of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewIds {
    /// As many as this, beginning with the next id.
    Next(u64),
    /// Those of the file, up to this one. The resource must never have held a record.
    Kept(i64),
}

/// A record to insert.
#[derive(Debug)]
pub struct NewRecord {
    /// The id, if the import keeps ids.
    pub id: Option<i64>,
    /// The values of the resource's fields, in their order.
    pub values: Vec<Value>,
}

impl NewRecord {
    /// About the memory that the record takes, in bytes.
    fn size(&self) -> usize {
        let text = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
        size_of_val(self.values.as_slice()) + self.values.iter().map(text).sum::<usize>()
    }
}

/// An import whose records are hidden until [`PendingImport::finish`].
#[derive(Debug)]
pub struct PendingImport<'a> {
    connection: &'a Connection,
    resource: &'static Resource,
    /// The timestamp of the records.
    now: String,
    reserved: Reservation,
    next_id: i64,
    stored: i64,
    portion: Vec<NewRecord>,
    portion_bytes: usize,
    pace: Pace,
    checkpoints: Checkpoints,
}

impl<'a> PendingImport<'a> {
    /// Reserves ids. Nothing else may be pending for the resource. `now` is RFC 3339.
    ///
    /// # Errors
    ///
    /// [`PendingImportError`].
    pub(super) fn begin(
        connection: &'a Connection,
        path: &Path,
        resource: &'static Resource,
        ids: NewIds,
        now: &str,
    ) -> Result<PendingImport<'a>, PendingImportError> {
        let checkpoints = Checkpoints::open(path)?;
        let reserved = write(connection, |writing| reserve(writing, resource, ids))?;
        Ok(PendingImport {
            connection,
            resource,
            now: now.to_owned(),
            reserved,
            next_id: reserved.ids.first,
            stored: 0,
            portion: Vec::new(),
            portion_bytes: 0,
            pace: Pace::new(),
            checkpoints,
        })
    }

    /// Takes a record, and inserts a portion when there are enough.
    ///
    /// # Errors
    ///
    /// [`PendingImportError`].
    pub fn add(&mut self, record: NewRecord) -> Result<(), PendingImportError> {
        self.portion_bytes += record.size();
        self.portion.push(record);
        if self.pace.is_full(self.portion.len(), self.portion_bytes) { self.insert_portion() } else { Ok(()) }
    }

    /// Makes all records visible.
    ///
    /// # Errors
    ///
    /// [`PendingImportError`]. The records remain hidden.
    pub fn finish(mut self) -> Result<(), PendingImportError> {
        self.insert_portion()?;
        write(self.connection, |writing| {
            let is_known = writing.show_hidden(self.resource, self.reserved, self.stored)?;
            if is_known { Ok(()) } else { Err(PendingImportError::Restored) }
        })?;
        // The import is done. The next changes of the tenant remove the rest.
        let _ = self.remove_surplus_entries();
        Ok(())
    }

    /// Removes entries of the journal that are too many, in portions.
    fn remove_surplus_entries(&mut self) -> Result<(), PendingImportError> {
        loop {
            self.pace.pause();
            let removed = write(self.connection, |writing| Ok(writing.remove_surplus(REMOVED_ENTRIES)?))?;
            self.pace.rest();
            self.checkpoints.copy_log()?;
            if removed < REMOVED_ENTRIES {
                return Ok(());
            }
        }
    }

    fn insert_portion(&mut self) -> Result<(), PendingImportError> {
        let mut records = std::mem::take(&mut self.portion);
        self.portion_bytes = 0;
        // The search table is filled in the order of ids, see `Writing::finish_search`.
        records.sort_by_key(|record| record.id);
        let count = records.len();
        self.pace.pause();
        self.checkpoints.complete(self.connection)?;
        let transaction = begin(self.connection)?;
        self.pace.begin();
        self.insert(&Writing::new(&transaction), records)?;
        connection::commit(transaction)?;
        self.pace.end(count);
        self.checkpoints.copy_log()?;
        Ok(self.merge_segments()?)
    }

    /// Inserts records with the ids from `next_id` on, or with their own.
    fn insert(&mut self, writing: &Writing<'_>, records: Vec<NewRecord>) -> Result<(), PendingImportError> {
        let count = i64::try_from(records.len()).unwrap_or(i64::MAX);
        if !writing.count_hidden(self.resource, self.reserved, self.stored, count)? {
            return Err(PendingImportError::Restored);
        }
        let Reservation { ids: IdBlock { first, last }, first_seq } = self.reserved;
        for (NewRecord { id, values }, seq) in records.into_iter().zip(first_seq + self.stored..) {
            let id = id.unwrap_or(self.next_id);
            if !(first..=last).contains(&id) {
                return Err(PendingImportError::Unexpected);
            }
            writing.insert_hidden(self.resource, (id, seq), values, &self.now)?;
            self.next_id += 1;
        }
        self.stored += count;
        Ok(writing.finish_search()?)
    }

    /// Merges segments of the search table until none are left to merge, in bounded steps, each in a transaction of its own. Between
    /// the portions, since a merge of their large segments that is not finished keeps the server from merging its small ones.
    fn merge_segments(&mut self) -> rusqlite::Result<()> {
        loop {
            self.pace.pause();
            let transaction = begin(self.connection)?;
            let has_merged = records::merge_segments_of(&transaction, self.resource, MERGED_PAGES)?;
            connection::commit(transaction)?;
            self.pace.rest();
            if !has_merged {
                return Ok(());
            }
            self.checkpoints.copy_log()?;
        }
    }
}

/// The pages that one step of merging writes: about a tenth of a second.
const MERGED_PAGES: i64 = 1_000;

/// The entries of the journal that one transaction removes: about a tenth of a second.
const REMOVED_ENTRIES: usize = 20_000;

fn begin(connection: &Connection) -> rusqlite::Result<Transaction<'_>> {
    Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
}

fn write<T>(
    connection: &Connection,
    work: impl FnOnce(&Writing<'_>) -> Result<T, PendingImportError>,
) -> Result<T, PendingImportError> {
    let transaction = begin(connection)?;
    let result = work(&Writing::new(&transaction))?;
    connection::commit(transaction)?;
    Ok(result)
}

fn reserve(writing: &Writing<'_>, resource: &'static Resource, ids: NewIds) -> Result<Reservation, PendingImportError> {
    let block = match ids {
        NewIds::Kept(_) if writing.has_ever_held(resource)? => return Err(PendingImportError::HasHeldRecords),
        NewIds::Kept(highest) => IdBlock { first: 1, last: highest },
        NewIds::Next(count) => {
            let highest = writing.highest_id(resource)?;
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            IdBlock { first: highest.saturating_add(1), last: highest.saturating_add(count) }
        }
    };
    Ok(writing.reserve(resource, block)?)
}
