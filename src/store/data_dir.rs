//! The data directory: made where there is none, and removed again where the command that made it fails (contract section 10).

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};

use super::connection::{self, OpenError};
use super::data_dir_lock::{self, DataDirLock, DataDirLockError};
use super::{registry, schema, tenants};
use crate::new_folders::NewFolders;

/// What a command has made of a data directory. Dropped without [`NewDataDir::keep`], it removes all of it, unless somebody
/// uses it meanwhile.
#[derive(Debug)]
pub struct NewDataDir {
    data_dir: PathBuf,
    folders: NewFolders,
    had_lock_file: bool,
    /// A connection to the registry, if it did not exist. It stays open because opening one may fail on a full disk.
    registry: Option<Connection>,
}

impl NewDataDir {
    /// Makes a data directory with an empty registry, both only where they do not exist.
    ///
    /// # Errors
    ///
    /// [`OpenError`] where that is not possible. What was made is removed.
    pub fn create(data_dir: &Path) -> Result<NewDataDir, OpenError> {
        let folders = NewFolders::create(&tenants::folder(data_dir), 0o700);
        let mut made = NewDataDir {
            data_dir: data_dir.to_owned(),
            folders: folders.map_err(|error| unusable(data_dir, &error))?,
            had_lock_file: data_dir_lock::lock_file(data_dir).exists(),
            registry: None,
        };
        create_data_dir(data_dir)?;
        let registry = data_dir.join(registry::FILE);
        if !registry.exists() {
            made.registry = Some(schema::create(&registry, &registry::SCHEMA)?);
        }
        Ok(made)
    }

    /// Whether the registry is new.
    pub fn has_new_registry(&self) -> bool {
        self.registry.is_some()
    }

    /// Everything stays.
    pub fn keep(mut self) {
        self.keep_all();
    }

    fn keep_all(&mut self) {
        self.registry = None;
        self.had_lock_file = true;
        self.folders.keep();
    }

    /// Whether nothing is to be removed. A lock file is new only if this command, or another one meanwhile, made it.
    fn is_untouched(&self) -> bool {
        let lock_is_new = !self.had_lock_file && data_dir_lock::lock_file(&self.data_dir).exists();
        self.registry.is_none() && self.folders.is_empty() && !lock_is_new
    }

    fn remove(&mut self) {
        // Whoever serves the directory needs all of it.
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

/// Removes the registry unless it has a tenant. Another process that waits for the lock finds that its file is gone.
fn remove_empty(mut registry: Connection, path: &Path) -> rusqlite::Result<bool> {
    let transaction = registry.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_empty = !transaction.prepare("SELECT 1 FROM tenants")?.exists([])?;
    if is_empty {
        connection::remove_database(path);
    }
    Ok(is_empty)
}

/// Makes the data directory where there is none.
///
/// A folder that others could read becomes private when we are the first to put something in it; hidden files, such as a
/// `.gitignore`, do not count. One that is in use already keeps the mode that its owner gave it.
pub(super) fn create_data_dir(data_dir: &Path) -> Result<(), OpenError> {
    let is_hidden = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."))
    };
    let make = || {
        create_private_dir(data_dir)?;
        if fs::read_dir(data_dir)?.all(is_hidden) {
            fs::set_permissions(data_dir, Permissions::from_mode(0o700))?;
        }
        create_private_dir(&tenants::folder(data_dir))
    };
    make().map_err(|error| unusable(data_dir, &error))
}

pub(super) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn unusable(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Unusable { path: path.to_owned(), cause: error.to_string() }
}
