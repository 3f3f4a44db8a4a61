//! Backups, and the check of databases (contract section 10).
//!
//! | file | its concern |
//! |---|---|
//! | `backup` | consistent copies of the databases, in a new directory |
//! | `manifest` | the description of a backup in the backup |
//! | `restore` | brings back everything, or one tenant |
//! | `source` | the backup to restore: finds it, and copies its files if they can be trusted |
//! | `check` | faults of databases |

pub mod backup;
pub mod check;
pub mod manifest;
pub mod restore;
mod source;

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

pub use backup::Backup;
pub use check::Finding;
pub use manifest::{BackupKind, LeftOutTenant, Manifest, SavedFile, SavedTenant};
pub use restore::{Restore, Restored, RestoredTenant};

use super::data_dir::tenants_dir;
use super::error::{DatabaseError, OpenError};
use super::registry::RegistryError;
use crate::files;
use crate::words::without_error_numbers;

/// Why a backup or a restore failed. The texts are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// An operation on a file or directory failed.
    #[error("{}: {cause}", .path.display())]
    File { path: PathBuf, cause: String },
    /// A directory of backups, or a file in it, cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    NotRead { path: PathBuf, cause: String },
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
    #[error("the backup is refused: {}: {cause}", .path.display())]
    Refused { path: PathBuf, cause: String },
    #[error("the tenant {0} would be overwritten; say --force if that is meant")]
    WouldOverwrite(String),
    #[error("{} is not empty; move it away, or restore one tenant by its name", .0.display())]
    NotEmpty(PathBuf),
    // A cause and not transparent, so that the command line finds it.
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the copied files cannot be used: {0}")]
    Database(#[from] DatabaseError),
}

/// Adds `path` to an error of the file system.
fn file_error(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.to_owned();
    |error| ArchiveError::File { path, cause: without_error_numbers(&error.to_string()) }
}

/// An error that `path`, of which `of` is the backup or the directory of backups, cannot be read.
/// Example: root has copied the backups to another machine, and the service's user restores them.
fn not_read<'a>(path: &'a Path, of: &'a Path) -> impl FnOnce(io::Error) -> ArchiveError + 'a {
    |error| {
        let mut cause = without_error_numbers(&error.to_string());
        if error.kind() == io::ErrorKind::PermissionDenied {
            let user = files::user_name(geteuid().as_raw());
            cause.push_str(&format!("; run: sudo chown -R {user}: {}", of.display()));
        }
        ArchiveError::NotRead { path: path.to_owned(), cause }
    }
}

/// Refuses the file of a backup at `path`.
fn refused(path: &Path, cause: &str) -> ArchiveError {
    ArchiveError::Refused { path: path.to_owned(), cause: without_error_numbers(cause) }
}

/// The directory in which a backup or a restore prepares its files. It has the layout of a data
/// directory, and lies on the same disk as the target, so that a rename puts the files in place.
/// Only one process uses it. It is removed when this is dropped. If the process is killed, the next
/// one empties the directory.
struct Staging {
    path: PathBuf,
    _lock: File,
    is_published: bool,
}

impl Staging {
    fn create(path: PathBuf) -> Result<Staging, ArchiveError> {
        let created = DirBuilder::new().mode(0o700).recursive(true).create(&path);
        let lock = created.and_then(|()| File::open(&path)).map_err(file_error(&path))?;
        // If the file system has no locks, the operator must run one command at a time.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Err(ArchiveError::UnderWay(path));
        }
        let staging = Staging { path, _lock: lock, is_published: false };
        staging.empty().map_err(file_error(&staging.path))?;
        Ok(staging)
    }

    fn empty(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let is_directory = entry.file_type()?.is_dir();
            let remove = if is_directory { fs::remove_dir_all } else { fs::remove_file };
            remove(entry.path())?;
        }
        DirBuilder::new().mode(0o700).create(tenants_dir(&self.path))
    }

    /// Gives the complete directory its name. If the name cannot be synced, the directory is
    /// removed.
    fn publish(mut self, name: &Path) -> Result<(), ArchiveError> {
        fs::rename(&self.path, name).map_err(file_error(name))?;
        name.clone_into(&mut self.path);
        files::sync_parent(name).map_err(file_error(name))?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_published {
            // If this fails, the next process removes it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
