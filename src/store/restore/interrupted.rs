//! What interrupted commands have left in a data directory: finished or removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::error::{RestoreError, at};
use super::staging::{PREFIX, REPLACED, put_back};
use crate::store::connection::OpenError;
use crate::store::lock_file::HeldLock;
use crate::store::registry::{self, Registry};
use crate::store::tenants;

/// The staging directory of a restore that was interrupted.
struct Interrupted {
    folder: PathBuf,
    /// Locked, so that no other process removes it at the same time.
    _lock: HeldLock,
}

/// Finishes or undoes what interrupted commands have left in a data directory: files of tenants that the registry does not have,
/// and staging directories of restores. What a restore had moved away and not yet replaced is put back. Commands that run at the
/// same time are not affected. Nothing happens where there is no data directory.
///
/// # Errors
///
/// [`RestoreError`].
pub fn finish_interrupted(data_dir: &Path) -> Result<(), RestoreError> {
    let found = find(data_dir).map_err(at(data_dir))?;
    for interrupted in &found {
        interrupted.finish_registry(data_dir)?;
    }
    // The command itself reports a registry that cannot be opened.
    let Ok(registry) = Registry::open(data_dir) else { return Ok(()) };
    registry.finish_interrupted()?;
    found.into_iter().try_for_each(|interrupted| interrupted.finish(data_dir))
}

/// Returns the staging directories that no process uses.
fn find(data_dir: &Path) -> io::Result<Vec<Interrupted>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(data_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && entry.file_type()?.is_dir() {
            let folder = entry.path();
            let lock = File::open(&folder)?;
            if lock.try_lock().is_ok() {
                found.push(Interrupted { folder, _lock: HeldLock(lock) });
            }
        }
    }
    Ok(found)
}

impl Interrupted {
    /// A complete restore moves a damaged registry away and makes a new one. Until tenants are in the new one, nothing is restored:
    /// the damaged one is put back. Afterwards its id counters are taken over, as far as they can be read.
    fn finish_registry(&self, data_dir: &Path) -> Result<(), RestoreError> {
        let replaced = self.folder.join(REPLACED).join(registry::FILE);
        if !replaced.try_exists().map_err(at(&replaced))? {
            return Ok(());
        }
        let is_restored = match Registry::open(data_dir) {
            Ok(registry) => {
                let _ = registry.raise_id_counters(&replaced);
                !registry.list_tenants()?.is_empty()
            }
            Err(OpenError::Missing(_)) => false,
            Err(_) => return Ok(()),
        };
        if is_restored { Ok(()) } else { put_back(&data_dir.join(registry::FILE), &replaced) }
    }

    /// Puts the tenants' files back that were moved away and not replaced. All others are in place, with their old or their new
    /// content: the staging directory is removed.
    fn finish(self, data_dir: &Path) -> Result<(), RestoreError> {
        let folder = self.folder.join(REPLACED);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            entries => Some(entries.map_err(at(&folder))?),
        };
        for entry in entries.into_iter().flatten() {
            let replaced = entry.map_err(at(&folder))?.path();
            let live = tenants::folder(data_dir).join(replaced.file_name().unwrap_or_default());
            let is_database = replaced.extension().is_some_and(|extension| extension == "db");
            if is_database && !replaced.ends_with(registry::FILE) && !live.try_exists().map_err(at(&live))? {
                put_back(&live, &replaced)?;
            }
        }
        fs::remove_dir_all(&self.folder).map_err(at(&self.folder))
    }
}
