//! A tenant's file as commands use it, for whole tables at once. A server may use the same file
//! meanwhile.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use crate::clock::Timestamp;
use crate::model::{PastMoment, Resource, TenantId, Version};
use crate::store::data_dir::tenant_database;
use crate::store::database::{self, Database, Role, wait_for};
use crate::store::error::{Result, StoreError};
use crate::store::records::{ChangeContext, Reading, Writing};

/// A tenant's file, open for one command.
#[derive(Debug)]
pub struct TenantFile {
    database: Database,
    connection: Connection,
    /// Records are read as they were after this entry.
    last: Option<Version>,
}

/// How long a checkpoint waits for readers.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(1);

impl TenantFile {
    pub fn open(data_dir: &Path, id: TenantId) -> Result<TenantFile> {
        let database = tenant_database(data_dir, id);
        let connection = database.open(Role::Bulk)?;
        Ok(TenantFile { database, connection, last: None })
    }

    /// Runs `work` on one moment of the file.
    pub fn read<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Reading<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        Reading::in_snapshot(&self.connection, |reading| match self.last {
            Some(last) => work(&reading.after(last)),
            None => work(reading),
        })
    }

    /// Lets all later reads show the records as they were. The tenant was created at `created_at`.
    pub fn look_back(&mut self, at: Timestamp, created_at: Timestamp) -> Result<()> {
        let moment = PastMoment { at, last: None };
        self.last = Some(self.read(|reading| reading.last_entry(moment, created_at))?);
        Ok(())
    }

    /// Begins the one write transaction of a command. If the table of `filled` is empty, its
    /// indexes are made at the end. Waits for another writer, and calls `wait` first if that takes
    /// long.
    pub fn begin(
        &mut self,
        filled: Option<&Resource>,
        wait: impl FnOnce(),
    ) -> Result<FileTransaction<'_>> {
        let transaction =
            begin(&mut self.connection, wait).map_err(|error| self.database.error(error))?;
        database::make_durable(self.database.path())?;
        let mut finish = String::new();
        if let Some(resource) = filled {
            let is_empty = format!("SELECT NOT EXISTS (SELECT 1 FROM {})", resource.plural);
            if transaction.query_row(&is_empty, [], |row| row.get(0))? {
                finish = drop_indexes(&transaction, resource)?;
            }
        }
        Ok(FileTransaction { transaction, finish })
    }

    /// Waits until every write transaction that has begun has ended. Calls `wait` first if that
    /// takes long: another command may write for an hour.
    pub fn await_writer(&mut self, wait: impl FnOnce()) -> Result<()> {
        begin(&mut self.connection, wait).map(drop).map_err(|error| self.database.error(error))
    }

    /// Copies the WAL into the file and empties it. After an import the WAL is as long as the file,
    /// also if the import was rolled back. The next change would wait for it, and it counts in the
    /// tenant's size. If this fails, the next writer copies the WAL.
    pub fn checkpoint(&self) {
        let outcome = self.connection.busy_timeout(CHECKPOINT_WAIT);
        let _ = outcome.and_then(|()| self.database.checkpoint(&self.connection, true));
    }
}

/// The transaction of an import or undo. Dropping it rolls everything back.
#[derive(Debug)]
pub struct FileTransaction<'a> {
    transaction: Transaction<'a>,
    /// Creates the indexes that were dropped.
    finish: String,
}

impl FileTransaction<'_> {
    pub fn writing<'b>(&'b self, context: &'b ChangeContext) -> Writing<'b> {
        Writing::new(&self.transaction, context)
    }

    /// Rolls everything back and lets other writers go on. Later reads see one moment of the file.
    pub fn abandon(&self) -> Result<()> {
        Ok(self.transaction.execute_batch("ROLLBACK; BEGIN")?)
    }

    pub fn commit(self) -> Result<()> {
        self.transaction.execute_batch(&self.finish)?;
        Ok(database::commit(self.transaction)?)
    }
}

/// Begins to write. A server leaves the file within two seconds; another import may take an hour.
fn begin(connection: &mut Connection, wait: impl FnOnce()) -> rusqlite::Result<Transaction<'_>> {
    connection.busy_handler(Some(wait_for::<2_000>))?;
    // Tried first, since a transaction that is begun borrows the connection.
    if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")
        && error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
    {
        wait();
    }
    // Another import may have begun since.
    connection.busy_handler(Some(wait_for::<3_600_000>))?;
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// Drops the indexes of an empty table and returns the statements that create them again. An index
/// that is built from all rows is written once; one that is kept up row by row is written many
/// times.
fn drop_indexes(transaction: &Transaction<'_>, resource: &Resource) -> rusqlite::Result<String> {
    let indexes = "FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL";
    let statements = |what| {
        let sql = format!("SELECT coalesce(group_concat({what}, ';'), '') {indexes}");
        transaction.query_row(&sql, [resource.plural], |row| row.get::<_, String>(0))
    };
    let (drop, create) = (statements("'DROP INDEX ' || name")?, statements("sql")?);
    transaction.execute_batch(&drop)?;
    Ok(create)
}
