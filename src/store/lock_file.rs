//! Files that a process locks to tell others that it is at work. The lock is released when the process ends, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::file_identity::FileIdentity;

/// A locked file or folder. Closing the file would release the lock only when a program that another thread is starting has closed
/// its copy of it, too.
#[derive(Debug)]
pub struct HeldLock(pub File);

impl Drop for HeldLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// An exclusive lock on a file. It is released when this is dropped and when the process ends.
#[derive(Debug)]
pub struct LockFile {
    lock: HeldLock,
}

impl LockFile {
    /// Locks the file at `path` without waiting. The file is created, private to the owner. Returns `None` if it is locked. Only
    /// the holder of the lock may remove the file.
    ///
    /// # Errors
    ///
    /// The file cannot be created, opened or locked.
    pub fn try_acquire(path: &Path) -> io::Result<Option<LockFile>> {
        let file = open(path)?;
        match file.try_lock() {
            // The previous holder removed the file after it was opened here. Its lock excludes nobody.
            Ok(()) if !is_file_at(&file, path)? => LockFile::try_acquire(path),
            Ok(()) => Ok(Some(LockFile { lock: HeldLock(file) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(cause)) => Err(cause),
        }
    }

    /// Returns the locked file, open for writing.
    pub fn file(&self) -> &File {
        &self.lock.0
    }

    /// The same as [`LockFile::try_acquire`], but waits for the lock.
    ///
    /// # Errors
    ///
    /// The file cannot be created, opened or locked.
    pub fn acquire(path: &Path) -> io::Result<LockFile> {
        let file = open(path)?;
        file.lock()?;
        if is_file_at(&file, path)? { Ok(LockFile { lock: HeldLock(file) }) } else { LockFile::acquire(path) }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn is_file_at(open: &File, path: &Path) -> io::Result<bool> {
    match FileIdentity::of_path(path) {
        Ok(found) => Ok(found == FileIdentity::of(&open.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
