//! Whether one tenant's file can be used. A failure is logged once, not for every request, and once
//! more when it has ended.

use std::fmt::Display;

use parking_lot::Mutex;
use rusqlite::ErrorCode;

use crate::model::TenantId;
use crate::store::error::StoreError;

/// The present failures of one tenant's file, in reading (or opening) and in writing.
#[derive(Debug)]
pub(super) struct Health {
    tenant: TenantId,
    reading: Mutex<Option<String>>,
    writing: Mutex<Option<String>>,
}

impl Health {
    pub(super) fn new(tenant: TenantId) -> Health {
        Health { tenant, reading: Mutex::default(), writing: Mutex::default() }
    }

    pub(super) fn cannot_open(&self, cause: &dyn Display) {
        self.report(&self.reading, "the tenant's file cannot be opened", cause);
    }

    pub(super) fn cannot_read(&self, cause: &dyn Display) {
        self.report(&self.reading, "the tenant's file cannot be read", cause);
    }

    pub(super) fn cannot_write(&self, cause: &dyn Display) {
        self.report(&self.writing, "the tenant's file cannot be written to", cause);
    }

    pub(super) fn opened(&self) {
        self.resolve(&self.reading, "the tenant's file is open again");
    }

    pub(super) fn could_read(&self) {
        self.resolve(&self.reading, "the tenant's file can be read again");
    }

    pub(super) fn could_write(&self) {
        self.resolve(&self.writing, "the tenant's file can be written to again");
    }

    /// The answer to a read that failed in the database.
    pub(super) fn read_failed(&self, error: &rusqlite::Error) -> StoreError {
        if !is_the_files(error) {
            return self.internal(error);
        }
        self.cannot_read(error);
        StoreError::Unavailable
    }

    /// The answer to a write that failed in the database.
    pub(super) fn write_failed(&self, error: &rusqlite::Error) -> StoreError {
        if !is_the_files(error) {
            return self.internal(error);
        }
        self.cannot_write(error);
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::DiskFull,
            _ => StoreError::Unavailable,
        }
    }

    fn internal(&self, error: &rusqlite::Error) -> StoreError {
        tracing::error!(tenant = %self.tenant, %error, "a statement failed");
        StoreError::Internal
    }

    fn report(&self, known: &Mutex<Option<String>>, what: &str, cause: &dyn Display) {
        let cause = cause.to_string();
        let mut known = known.lock();
        if known.as_deref() != Some(&cause) {
            tracing::error!(tenant = %self.tenant, %cause, "{what}");
            *known = Some(cause);
        }
    }

    fn resolve(&self, known: &Mutex<Option<String>>, what: &str) {
        if known.lock().take().is_some() {
            tracing::info!(tenant = %self.tenant, "{what}");
        }
    }
}

/// Whether the file, its disk or a lock on it is the cause, not a mistake of ours. A value that is
/// not of its column's type is damage, because the tables are strict, and so is a schema to which a
/// statement does not fit.
fn is_the_files(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{
        FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, SqlInputError,
        Utf8Error,
    };
    matches!(
        error,
        FromSqlConversionFailure(..)
            | IntegralValueOutOfRange(..)
            | InvalidColumnType(..)
            | SqlInputError { .. }
            | Utf8Error(..)
    ) || matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::DiskFull
                | ErrorCode::CannotOpen
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::NotADatabase
                | ErrorCode::PermissionDenied
                | ErrorCode::OutOfMemory
                | ErrorCode::OperationAborted
        )
    )
}
