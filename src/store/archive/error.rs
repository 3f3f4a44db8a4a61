//! Why a backup or a restore failed. The texts are for the operator.

use std::io;
use std::path::{Path, PathBuf};

use crate::store::error::{DatabaseError, OpenError};
use crate::store::registry::RegistryError;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// An operation on a file or directory failed.
    #[error("{}: {cause}", .path.display())]
    File { path: PathBuf, cause: io::Error },
    /// The registry, or the one tenant that was asked for, cannot be backed up.
    #[error("{what}: {cause}; no backup was made")]
    Unreadable { what: String, cause: String },
    #[error("the backup {} is made, but older ones could not be removed: {cause}", .path.display())]
    NotRemoved { path: PathBuf, cause: Box<ArchiveError> },
    /// Another process prepares its files in this directory.
    #[error("another tenantdesk makes or restores a backup in {}", .0.display())]
    UnderWay(PathBuf),
    /// `wanted` begins with "of".
    #[error("{} holds no backup {wanted}", .path.display())]
    NoBackup { path: PathBuf, wanted: String },
    /// A file of the backup is damaged, or is not as the program makes it.
    #[error("the backup is refused: {} {what}", .path.display())]
    Refused { path: PathBuf, what: String },
    #[error("the tenant {0} would be overwritten; say --force if that is meant")]
    WouldOverwrite(String),
    #[error("{} is not empty; move it away, or restore one tenant by its name", .0.display())]
    NotEmpty(PathBuf),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the copied files cannot be used: {0}")]
    Database(#[from] DatabaseError),
}

impl From<rusqlite::Error> for ArchiveError {
    fn from(error: rusqlite::Error) -> ArchiveError {
        ArchiveError::Database(error.into())
    }
}

/// Adds `path` to an error of the file system.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.to_owned();
    |cause| ArchiveError::File { path, cause }
}
