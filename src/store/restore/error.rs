//! Why a restore failed.

use std::io;
use std::path::{Path, PathBuf};

use crate::store::backup::{BackupError, LeftOutTenant};
use crate::store::connection::OpenError;
use crate::store::data_dir_lock::DataDirLockError;
use crate::store::error::DatabaseError;
use crate::store::registry::RegistryError;

/// Why a restore failed. Nothing was changed, except in the case of [`RestoreError::Stuck`].
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The folder holds no backup that fits.
    #[error("{} holds no backup {wanted}", .dir.display())]
    NoBackup {
        /// The folder.
        dir: PathBuf,
        /// The kind of backup, as a text.
        wanted: String,
    },
    /// The backup does not hold the tenant.
    #[error("the backup {} does not hold the tenant {tenant}", .folder.display())]
    NotInBackup {
        /// The backup.
        folder: PathBuf,
        /// The tenant's name.
        tenant: String,
    },
    /// The tenant's file could not be read when the backup was created.
    #[error("the tenant {} was left out of the backup {}: {}", .tenant.name, .folder.display(), .tenant.reason)]
    LeftOut {
        /// The backup.
        folder: PathBuf,
        /// The tenant and the reason.
        tenant: LeftOutTenant,
    },
    /// A file of the backup is not as its manifest describes it.
    #[error("the backup is damaged: {} {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The difference, as a text.
        what: String,
    },
    /// A file of the backup has a schema that this program does not know.
    #[error("the backup was made by a newer version of tenantdesk (schema {found} in {}, this binary knows {known}); use that version", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema version of the file.
        found: u32,
        /// The newest schema version that this program knows.
        known: u32,
    },
    /// Tenants or files would be overwritten, and the restore was not forced.
    #[error("{} would be overwritten; say --force if that is meant", .0.join(", "))]
    WouldOverwrite(Vec<String>),
    /// Two tenants of the backup are the same tenant of the data directory: one by its id, the other by its name.
    #[error("the backup's tenants {} and {} would both become the tenant {name}; restore each by its name, with --as", .saved[0], .saved[1])]
    Ambiguous {
        /// The names in the backup.
        saved: [String; 2],
        /// The name in the data directory.
        name: String,
    },
    /// A complete restore needs a data directory that no server uses.
    #[error("{0}; stop it first, or restore one tenant")]
    InUse(DataDirLockError),
    /// The restore failed, and every change was undone.
    #[error("{cause}; everything is as it was before")]
    Undone {
        /// The first error.
        cause: Box<RestoreError>,
    },
    /// The restore failed, and a change could not be undone.
    #[error("{cause}; and what was there could not be brought back ({undoing}): it lies in {}", .kept.display())]
    Stuck {
        /// The first error.
        cause: Box<RestoreError>,
        /// The error of the undo step.
        undoing: Box<RestoreError>,
        /// The folder with the files as they were before.
        kept: PathBuf,
    },
    /// An operation on a file or folder failed.
    #[error("{}: {cause}", .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error of the file system.
        cause: io::Error,
    },
    /// The backups cannot be listed.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// A database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The registry cannot be read or changed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A tenant's file cannot be read or replaced.
    #[error("the tenant's file cannot be used: {0}")]
    Database(#[from] DatabaseError),
}

impl From<rusqlite::Error> for RestoreError {
    fn from(error: rusqlite::Error) -> RestoreError {
        RestoreError::Database(error.into())
    }
}

/// Returns a function that adds `path` to an error of the file system.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = path.to_owned();
    |cause| RestoreError::File { path, cause }
}
