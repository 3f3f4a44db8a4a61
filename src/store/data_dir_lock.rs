//! The lock of a data directory: at most one process serves it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::file_identity::FileIdentity;

/// The exclusive lock of a data directory. It is released when this is dropped and when the process ends.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
}

/// Why a data directory cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum DataDirLockError {
    /// Another process holds the lock.
    #[error("another tenantdesk serves the data directory {} already", .0.display())]
    Held(PathBuf),
    /// The lock file cannot be created, opened or locked.
    #[error("{} cannot be locked: {cause}", .path.display())]
    Unusable {
        /// The lock file.
        path: PathBuf,
        /// The error of the file system.
        cause: io::Error,
    },
}

/// Returns the path of the lock file. Only the holder of the lock may remove the file.
pub fn lock_file(data_dir: &Path) -> PathBuf {
    data_dir.join("serve.lock")
}

impl DataDirLock {
    /// Acquires the lock without waiting.
    ///
    /// # Errors
    ///
    /// [`DataDirLockError::Held`] if another process holds the lock.
    pub fn acquire(data_dir: &Path) -> Result<DataDirLock, DataDirLockError> {
        let path = lock_file(data_dir);
        let unusable = |cause| DataDirLockError::Unusable { path: path.clone(), cause };
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(unusable)?;
        match file.try_lock() {
            // The previous holder removed the file after it was opened here. Its lock excludes nobody.
            Ok(()) if !is_file_at(&file, &path).map_err(unusable)? => DataDirLock::acquire(data_dir),
            Ok(()) => Ok(DataDirLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(DataDirLockError::Held(data_dir.to_owned())),
            Err(TryLockError::Error(cause)) => Err(unusable(cause)),
        }
    }
}

fn is_file_at(open: &File, path: &Path) -> io::Result<bool> {
    match FileIdentity::of_path(path) {
        Ok(found) => Ok(found == FileIdentity::of(&open.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataDirLock::acquire(folder.path()).unwrap();
        assert!(matches!(DataDirLock::acquire(folder.path()), Err(DataDirLockError::Held(_))));
        drop(first);
        assert!(DataDirLock::acquire(folder.path()).is_ok());
    }
}
