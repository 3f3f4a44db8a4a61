//! Creation of the data directory, which is undone if the command fails (contract section 10).

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};

use super::connection::{self, OpenError, unusable};
use super::data_dir_lock::{self, DataDirLock, DataDirLockError};
use super::private_folders::create_data_dir;
use super::{registry, tenants};
use crate::new_folders::NewFolders;

/// The parts of a data directory that a command has created. They are removed when this is dropped before [`NewDataDir::keep`],
/// unless another process uses the directory.
#[derive(Debug)]
pub struct NewDataDir {
    data_dir: PathBuf,
    folders: NewFolders,
    had_lock_file: bool,
    /// A connection to the registry, if it is new. It stays open, because opening one can fail on a full disk.
    registry: Option<Connection>,
}

impl NewDataDir {
    /// Creates a data directory and an empty registry, each if it does not exist or was never finished.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. Everything that was created is removed.
    pub fn create(data_dir: &Path) -> Result<NewDataDir, OpenError> {
        let folders = NewFolders::create(&tenants::folder(data_dir), 0o700);
        let mut created = NewDataDir {
            data_dir: data_dir.to_owned(),
            folders: folders.map_err(|error| unusable(data_dir, error))?,
            had_lock_file: data_dir_lock::lock_file(data_dir).exists(),
            registry: None,
        };
        create_data_dir(data_dir)?;
        if !data_dir.join(registry::FILE).exists() || registry::is_unfinished(data_dir) {
            created.registry = Some(registry::create_file(data_dir)?);
        }
        Ok(created)
    }

    /// Returns whether the registry is new.
    pub fn has_new_registry(&self) -> bool {
        self.registry.is_some()
    }

    /// Keeps everything.
    pub fn keep(mut self) {
        self.keep_all();
    }

    fn keep_all(&mut self) {
        self.registry = None;
        self.had_lock_file = true;
        self.folders.keep();
    }

    /// Returns whether there is nothing to remove. The lock file is new if this command, or another one meanwhile, created it.
    fn is_untouched(&self) -> bool {
        let lock_is_new = !self.had_lock_file && data_dir_lock::lock_file(&self.data_dir).exists();
        self.registry.is_none() && self.folders.is_empty() && !lock_is_new
    }

    fn remove(&mut self) {
        // A server that holds the lock needs the whole directory.
        let lock = DataDirLock::acquire(&self.data_dir);
        if matches!(lock, Err(DataDirLockError::Held(_))) {
            return self.keep_all();
        }
        let registry = self.registry.take().map(|registry| remove_empty(registry, &self.data_dir.join(registry::FILE)));
        if matches!(registry, Some(Ok(false) | Err(_))) {
            return self.keep_all();
        }
        if !self.had_lock_file {
            let _ = fs::remove_file(data_dir_lock::lock_file(&self.data_dir));
        }
    }
}

impl Drop for NewDataDir {
    fn drop(&mut self) {
        if !self.is_untouched() {
            self.remove();
        }
    }
}

/// Removes the registry if it has no tenant, and returns whether it did. Another process that waits for the write lock then
/// finds that its file is missing.
fn remove_empty(mut registry: Connection, path: &Path) -> rusqlite::Result<bool> {
    let transaction = registry.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_empty = !transaction.prepare("SELECT 1 FROM tenants")?.exists([])?;
    if is_empty {
        connection::remove_database(path);
    }
    Ok(is_empty)
}
