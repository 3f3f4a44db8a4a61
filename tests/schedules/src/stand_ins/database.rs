//! Tenants' files in memory.

use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use shuttle::sync::Arc;

use super::r2d2::{Pool, ScheduledThreadPool, SqliteConnectionManager};
use super::rusqlite::{Connection, Error, File, Result, Transaction, file};
use crate::model::TenantId;
use crate::store::error::OpenError;

pub const LOCK_WAIT: Duration = Duration::from_secs(5);

pub struct TenantFile;

pub struct ImportTransaction;

#[derive(Clone)]
pub struct Database(Arc<File>);

pub type FileIdentity = (u64, u64);

pub enum Role {
    Reader,
    Writer,
}

pub fn tenant_database(_data_dir: &Path, id: TenantId) -> Database {
    Database(file(id))
}

impl Database {
    pub fn path(&self) -> &Path {
        Path::new("tenant")
    }

    pub fn identity(&self) -> std::result::Result<FileIdentity, OpenError> {
        Ok((0, 0))
    }

    pub fn open(&self, _: Role) -> std::result::Result<Connection, OpenError> {
        self.connect().map_err(|error| self.error(&error))
    }

    pub fn connect(&self) -> Result<Connection> {
        Connection::open(&self.0)
    }

    pub fn error(&self, error: &Error) -> OpenError {
        OpenError::Unusable { path: self.path().to_owned(), cause: error.to_string() }
    }

    pub fn readers(&self, _: Arc<ScheduledThreadPool>) -> Pool<SqliteConnectionManager> {
        Pool(self.clone(), PhantomData)
    }

    pub fn checkpoint(&self, _: &Connection, _truncate: bool) -> Result<()> {
        Ok(())
    }
}

pub fn make_durable(_: &Path) -> Result<()> {
    Ok(())
}

pub fn commit(transaction: Transaction<'_>) -> Result<()> {
    transaction.commit()
}

/// Savepoints only.
pub fn execute(connection: &Connection, sql: &str) -> Result<()> {
    if sql.starts_with("SAVEPOINT") {
        connection.savepoint();
    }
    Ok(())
}
