//! The directory in which a backup or a restore prepares its files. It lies where the files belong,
//! so that they get their place by a rename.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::error::{ArchiveError, at};
use crate::files;
use crate::store::data_dir::tenants_dir;

/// A private directory with the layout of a data directory. Only one process uses it. It is removed
/// when this is dropped; what a killed process has left is removed by the next one.
pub(super) struct Staging {
    path: PathBuf,
    _lock: File,
    is_published: bool,
}

impl Staging {
    pub(super) fn create(path: PathBuf) -> Result<Staging, ArchiveError> {
        let open = || -> io::Result<File> {
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            File::open(&path)
        };
        let lock = open().map_err(at(&path))?;
        // Where the file system has no locks, the operator has to see to it.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Err(ArchiveError::UnderWay(path));
        }
        let staging = Staging { path, _lock: lock, is_published: false };
        staging.empty().map_err(at(&staging.path))?;
        Ok(staging)
    }

    fn empty(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        DirBuilder::new().mode(0o700).create(tenants_dir(&self.path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the complete directory its name. If the name cannot be synced, the directory is
    /// removed.
    pub(super) fn publish(mut self, name: &Path) -> Result<(), ArchiveError> {
        fs::rename(&self.path, name).map_err(at(name))?;
        name.clone_into(&mut self.path);
        files::sync_parent(name).map_err(at(name))?;
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
