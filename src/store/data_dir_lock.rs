//! Who serves a data directory: one process at a time.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The right to serve a data directory, as long as it is kept. It ends with the process, however that ends.
#[derive(Debug)]
pub struct DataDirLock {
    _lock: File,
}

/// Why a data directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DataDirLockError {
    #[error("another tenantdesk serves the data directory {} already", .0.display())]
    Held(PathBuf),
    #[error("{} cannot be locked: {cause}", .path.display())]
    Unusable { path: PathBuf, cause: io::Error },
}

/// The file that is locked. Only its holder may remove it.
pub fn lock_file(data_dir: &Path) -> PathBuf {
    data_dir.join("serve.lock")
}

impl DataDirLock {
    /// Takes the right, or says who is in the way.
    pub fn acquire(data_dir: &Path) -> Result<DataDirLock, DataDirLockError> {
        let path = lock_file(data_dir);
        let unusable = |cause| DataDirLockError::Unusable { path: path.clone(), cause };
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(unusable)?;
        match lock.try_lock() {
            // A file that its last holder has removed since locks nobody out.
            Ok(()) if !is_same_file(&lock, &path).map_err(unusable)? => DataDirLock::acquire(data_dir),
            Ok(()) => Ok(DataDirLock { _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(DataDirLockError::Held(data_dir.to_owned())),
            Err(TryLockError::Error(cause)) => Err(unusable(cause)),
        }
    }
}

fn is_same_file(open: &File, path: &Path) -> io::Result<bool> {
    let identity = |file: Metadata| (file.dev(), file.ino());
    match fs::metadata(path) {
        Ok(found) => Ok(identity(found) == identity(open.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_serves_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataDirLock::acquire(folder.path()).unwrap();
        assert!(matches!(DataDirLock::acquire(folder.path()), Err(DataDirLockError::Held(_))));
        drop(first);
        assert!(DataDirLock::acquire(folder.path()).is_ok());
    }
}
