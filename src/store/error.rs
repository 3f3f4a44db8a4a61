//! Why the store did not do what it was asked.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use super::registry::Inactive;
use crate::words::without_error_numbers;

/// Why a database cannot be opened. The texts are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// `serve` and `restore` migrate it; every other command refuses it (contract section 11).
    #[error(
        "{} was written by an older version of tenantdesk (schema {found}, this binary needs \
         {known}); start the service once, which migrates it; if the service has started already, \
         its log says why the migration failed", .path.display()
    )]
    Older { path: PathBuf, found: u32, known: u32 },
    #[error(
        "{} was written by a version of tenantdesk before 1.0.0 (schema {found}); let tenantdesk \
         1.0.0 serve the data directory once, or restore the backup with 1.0.0; then this version \
         can use the data", .path.display()
    )]
    TooOld { path: PathBuf, found: u32 },
    #[error(
        "{} was written by a newer version of tenantdesk (schema {found}, this binary knows \
         {known}); use that version", .path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("{} is damaged or no database: {cause}", .path.display())]
    Damaged { path: PathBuf, cause: String },
    #[error("{} belongs to {owner}; run: {cure}", .path.display())]
    OtherOwner { path: PathBuf, owner: String, cure: String },
    /// Permissions, locks, a full disk, a failed migration. `kind` is what a request is told.
    #[error("{} cannot be used: {cause}", .path.display())]
    Unusable { path: PathBuf, cause: String, kind: StoreError },
}

impl OpenError {
    /// What a request that needs the file is told.
    pub(super) fn kind(&self) -> StoreError {
        match self {
            OpenError::Unusable { kind, .. } => *kind,
            _ => StoreError::Unavailable,
        }
    }

    pub(crate) fn unusable(path: &Path, cause: impl ToString) -> OpenError {
        let cause = without_error_numbers(&cause.to_string());
        OpenError::Unusable { path: path.to_owned(), cause, kind: StoreError::Unavailable }
    }
}

/// A statement failed. The text is SQLite's own. Modules outside `store/` pass the error on and do
/// not look into it.
pub type DatabaseError = rusqlite::Error;

/// Says why a statement failed, in words for the operator if the operator can remove the cause.
pub fn explain(error: &DatabaseError) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full; free some space".to_owned(),
        Some(ErrorCode::SystemIoFailure) => "the disk refuses to read or write".to_owned(),
        Some(ErrorCode::ReadOnly) => "the file is read-only".to_owned(),
        Some(ErrorCode::DatabaseBusy) => "another process has locked the file".to_owned(),
        _ => error.to_string(),
    }
}

/// Why a request's read or mutation was not done. The cause is in the log already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The tenant's file is missing, damaged, of another schema or read-only: the operator must
    /// repair it.
    Unavailable,
    /// An import or another program has locked the tenant's file, or reads from it for so long that
    /// its WAL cannot be emptied.
    Busy,
    /// Too many mutations of the tenant wait.
    QueueFull,
    /// The mutation ran into its time limit.
    Interrupted,
    /// The tenant's file has reached its size limit.
    SizeLimit,
    /// The disk is full, or nearly so.
    DiskFull,
    /// The operator has suspended the tenant since the request came.
    Inactive(Inactive),
    /// The read ran into its deadline.
    TimedOut,
    /// The program failed, not the file.
    Internal,
}

impl StoreError {
    /// The kind of a failed statement of a mutation.
    pub(super) fn of(error: &DatabaseError) -> StoreError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
            Some(ErrorCode::DiskFull) => StoreError::DiskFull,
            Some(ErrorCode::OperationInterrupted) => StoreError::Interrupted,
            _ => StoreError::Unavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_explained_without_numbers() {
        let file = rusqlite::Connection::open_in_memory().unwrap();
        let fill =
            "PRAGMA max_page_count = 2; CREATE TABLE t AS SELECT zeroblob(1000000) AS filler";
        let error = file.execute_batch(fill).unwrap_err();
        assert_eq!(explain(&error), "the disk is full; free some space");
    }
}
