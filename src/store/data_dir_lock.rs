//! The lock of a data directory: at most one process serves it.

use std::io;
use std::path::{Path, PathBuf};

use super::lock_file::LockFile;

/// The exclusive lock of a data directory. It is released when this is dropped and when the process ends.
#[derive(Debug)]
pub struct DataDirLock {
    _lock: LockFile,
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
        match LockFile::try_acquire(&path) {
            Ok(Some(lock)) => Ok(DataDirLock { _lock: lock }),
            Ok(None) => Err(DataDirLockError::Held(data_dir.to_owned())),
            Err(cause) => Err(DataDirLockError::Unusable { path, cause }),
        }
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
