//! A tenant's file as commands use it, for whole tables at once. A server may use the same file
//! meanwhile.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use crate::clock::Timestamp;
use crate::model::{Resource, TenantId};
use crate::store::data_dir::tenant_database;
use crate::store::database::{self, Database, Role, wait_for};
use crate::store::error::{DatabaseError, OpenError};
use crate::store::records::{self, Reading, Writing};

/// A tenant's file, open for one command.
#[derive(Debug)]
pub struct TenantFile {
    database: Database,
    connection: Connection,
}

impl TenantFile {
    pub fn open(data_dir: &Path, id: TenantId) -> Result<TenantFile, OpenError> {
        let database = tenant_database(data_dir, id);
        let connection = database.open(Role::Bulk)?;
        Ok(TenantFile { database, connection })
    }

    /// Runs `work` in a read transaction: all that it reads is of one snapshot.
    pub fn read<T, E: From<DatabaseError>>(
        &self,
        work: impl FnOnce(&Reading<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let transaction = self.connection.unchecked_transaction().map_err(DatabaseError)?;
        let result = work(&Reading::new(&self.connection));
        transaction.finish().map_err(DatabaseError)?;
        result
    }

    /// Begins the one write transaction of an import into `resource`. Waits for another writer, and
    /// calls `wait` first if that takes long.
    pub fn begin_import(
        &mut self,
        resource: &'static Resource,
        wait: impl FnOnce(),
    ) -> Result<ImportTransaction<'_>, DatabaseError> {
        let transaction = begin(&mut self.connection, wait)?;
        database::make_durable(self.database.path())?;
        records::import_settings(&transaction, resource, true)?;
        Ok(ImportTransaction { transaction, resource })
    }

    pub fn path(&self) -> &Path {
        self.database.path()
    }
}

/// The transaction of an import. Dropping it rolls everything back.
#[derive(Debug)]
pub struct ImportTransaction<'a> {
    transaction: Transaction<'a>,
    resource: &'static Resource,
}

impl ImportTransaction<'_> {
    /// [`Writing::flush`] must be called after the last change.
    pub fn writing(&self) -> Writing<'_> {
        Writing::new(&self.transaction)
    }

    /// Undoes everything and lets other writers go on. What is read from then on is of one snapshot.
    pub fn abandon(&self) -> Result<(), DatabaseError> {
        Ok(self.transaction.execute_batch("ROLLBACK; BEGIN")?)
    }

    pub fn commit(self, now: Timestamp) -> Result<(), DatabaseError> {
        let ImportTransaction { transaction, resource } = self;
        records::import_settings(&transaction, resource, false)?;
        // What is too old, the server removes.
        records::remove_old_entries(&transaction, now, None, i64::MAX)?;
        Ok(database::commit(transaction)?)
    }
}

/// Begins to write. A server leaves the file within two seconds; another import may take an hour.
fn begin(connection: &mut Connection, wait: impl FnOnce()) -> rusqlite::Result<Transaction<'_>> {
    connection.busy_handler(Some(wait_for::<2_000>))?;
    let is_locked = |outcome: &rusqlite::Result<()>| {
        let error = outcome.as_ref().err().and_then(rusqlite::Error::sqlite_error_code);
        error == Some(ErrorCode::DatabaseBusy)
    };
    // Tried first, since a transaction that is begun borrows the connection.
    let begun = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
    if is_locked(&begun) {
        wait();
        connection.busy_handler(Some(wait_for::<3_600_000>))?;
    }
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}
