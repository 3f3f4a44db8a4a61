//! Whether one tenant's file can be used. A failure is logged once, not for every request, and once more when it has ended.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::ErrorCode;

use crate::store::error::StoreError;
use crate::store::log_health::LogHealth;

/// The current failures of one tenant's file, in reading (or opening) and in writing.
#[derive(Debug)]
pub struct FileHealth {
    tenant: i64,
    reading: Report,
    writing: Report,
    /// What failed syncs have left undone.
    pub log: LogHealth,
    /// The file has to be opened again.
    must_reopen: AtomicBool,
}

#[derive(Debug, Default)]
struct Report {
    /// Whether `cause` is set. Without a failure the lock is not needed.
    open: AtomicBool,
    cause: Mutex<Option<String>>,
}

impl FileHealth {
    pub fn new(tenant: i64) -> FileHealth {
        FileHealth {
            tenant,
            reading: Report::default(),
            writing: Report::default(),
            log: LogHealth::default(),
            must_reopen: AtomicBool::new(false),
        }
    }

    pub fn cannot_open(&self, cause: &dyn Display) {
        self.reading.report(self.tenant, "the tenant's file cannot be opened", cause);
    }

    pub fn cannot_read(&self, cause: &dyn Display) {
        self.reading.report(self.tenant, "the tenant's file cannot be read", cause);
    }

    pub fn cannot_write(&self, cause: &dyn Display) {
        self.writing.report(self.tenant, "the tenant's file cannot be written to", cause);
    }

    pub fn opened(&self) {
        self.reading.resolve(self.tenant, "the tenant's file is open again");
    }

    pub fn could_read(&self) {
        self.reading.resolve(self.tenant, "the tenant's file can be read again");
    }

    pub fn could_write(&self) {
        self.writing.resolve(self.tenant, "the tenant's file can be written to again");
    }

    /// Returns the error for a read that failed in the database.
    pub fn reading(&self, error: &rusqlite::Error) -> StoreError {
        if !is_the_files(error) {
            return internal(self.tenant, error);
        }
        self.cannot_read(error);
        StoreError::Unavailable
    }

    /// Reports a checkpoint that failed.
    pub fn checkpoint_failed(&self, error: &rusqlite::Error) {
        if self.log.checkpoint_failed(error) {
            self.cannot_write(&format_args!("the write-ahead log cannot be copied into it: {error}"));
        }
    }

    /// The file has to be closed by every connection and opened again.
    pub fn require_reopening(&self) {
        self.must_reopen.store(true, Ordering::Relaxed);
    }

    /// Whether the file has to be opened again. Returns `true` once.
    pub fn take_must_reopen(&self) -> bool {
        self.must_reopen.load(Ordering::Relaxed) && self.must_reopen.swap(false, Ordering::Relaxed)
    }

    /// What a write that failed in the database answers.
    pub fn writing(&self, error: &rusqlite::Error) -> StoreError {
        // SQLite keeps what it could open as it was.
        if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) {
            self.require_reopening();
        }
        if !is_the_files(error) {
            return internal(self.tenant, error);
        }
        self.cannot_write(error);
        StoreError::Unavailable
    }
}

impl Report {
    fn report(&self, tenant: i64, what: &str, cause: &dyn Display) {
        let cause = cause.to_string();
        let mut known = self.cause.lock();
        if known.as_deref() != Some(&cause) {
            tracing::error!(tenant, %cause, "{what}");
            *known = Some(cause);
            self.open.store(true, Ordering::Release);
        }
    }

    fn resolve(&self, tenant: i64, what: &str) {
        if self.open.load(Ordering::Acquire) && self.cause.lock().take().is_some() {
            self.open.store(false, Ordering::Release);
            tracing::info!(tenant, "{what}");
        }
    }
}

/// Whether the file, its disk or a lock on it is the cause, not a mistake of ours. A value that is not of its column's type is damage,
/// because the tables are strict, and so is a schema to which a statement does not fit.
fn is_the_files(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{
        FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, SqlInputError, Utf8Error,
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
        )
    )
}

fn internal(tenant: i64, error: &rusqlite::Error) -> StoreError {
    tracing::error!(tenant, %error, "a statement failed");
    StoreError::Internal
}
