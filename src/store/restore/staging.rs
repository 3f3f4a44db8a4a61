//! The staging directory of a restore. It lies in the data directory, so a file is moved between them by a rename.

use std::cell::Cell;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::error::{RestoreError, at};
use super::source::compare;
use crate::files;
use crate::store::backup::SavedFile;
use crate::store::backup::manifest::digest;
use crate::store::connection::{self, OpenError};
use crate::store::lock_file::HeldLock;
use crate::store::registry;
use crate::store::schema::{self, Schema};
use crate::store::{check, records, tenants};

/// How the names of staging directories begin.
pub(super) const PREFIX: &str = ".restore-";

/// The folder in a staging directory for the replaced files.
pub(super) const REPLACED: &str = "replaced";

/// Holds the files to restore, and the files that they replace. It is removed when this is dropped.
pub(super) struct StagingDir {
    data_dir: PathBuf,
    folder: PathBuf,
    /// Locked while a process uses the directory.
    _lock: HeldLock,
    is_kept: Cell<bool>,
}

impl StagingDir {
    /// Creates a staging directory.
    pub(super) fn create(data_dir: &Path) -> Result<StagingDir, RestoreError> {
        let folder = data_dir.join(format!("{PREFIX}{}", Uuid::new_v4()));
        let create = |path: &Path| DirBuilder::new().mode(0o700).create(path).map_err(at(path));
        create(&folder)?;
        let lock = File::open(&folder).map_err(|error| {
            let _ = fs::remove_dir(&folder);
            at(&folder)(error)
        })?;
        // If the file system has no locks, other processes cannot lock the directory either and leave it alone.
        let _ = lock.try_lock();
        let staging =
            StagingDir { data_dir: data_dir.to_owned(), folder, _lock: HeldLock(lock), is_kept: Cell::new(false) };
        create(&tenants::folder(&staging.folder))?;
        create(&staging.folder.join(REPLACED))?;
        Ok(staging)
    }

    /// Returns the path of the staged registry.
    pub(super) fn registry(&self) -> PathBuf {
        self.folder.join(registry::FILE)
    }

    /// Returns the path of the staged file of a tenant. `id` is the id in the backup.
    pub(super) fn tenant(&self, id: i64) -> PathBuf {
        tenants::file(&tenants::folder(&self.folder), id)
    }

    /// Returns the path for the previous content of the file `live`.
    pub(super) fn replaced(&self, live: &Path) -> PathBuf {
        self.folder.join(REPLACED).join(live.file_name().unwrap_or_default())
    }

    /// Copies the backup's files, compares them with the manifest again, migrates them to the current schema, checks their foreign
    /// keys and renews the tenants' journals. Replacing pages does not check them.
    pub(super) fn fill(&self, folder: &Path, files: &[(SavedFile, &Schema)]) -> Result<(), RestoreError> {
        for (file, schema) in files {
            let (from, to) = (folder.join(&file.path), self.folder.join(&file.path));
            let target = files::create_private(&to).map_err(at(&to))?;
            let copied = File::open(&from).and_then(|source| digest(source, &target));
            compare(&from, file, copied)?;
            target.sync_all().map_err(at(&to))?;
            let staged = schema::open(&to, schema)?;
            let broken = check::broken_foreign_keys(&staged)?;
            if let Some(what) = broken.into_iter().next() {
                return Err(RestoreError::Damaged { path: from, what: format!("has a broken reference: {what}") });
            }
            if schema.name == tenants::SCHEMA.name {
                records::renew_journal(&staged, None).map_err(|error| connection::open_error(&to, &error))?;
            }
        }
        Ok(())
    }

    /// Moves the registry away if it is damaged. Returns whether it was.
    pub(super) fn set_damaged_registry_aside(&self) -> Result<bool, RestoreError> {
        let live = self.data_dir.join(registry::FILE);
        let is_damaged = match schema::open(&live, &registry::SCHEMA) {
            // Opening does not read every page.
            Ok(connection) => check::first_problem(&connection, &registry::SCHEMA).is_some(),
            Err(error) => matches!(error, OpenError::Damaged { .. }),
        };
        if is_damaged {
            set_aside(&live, &self.replaced(&live))?;
        }
        Ok(is_damaged)
    }

    /// Undoes [`StagingDir::set_damaged_registry_aside`].
    pub(super) fn put_damaged_registry_back(&self) -> Result<(), RestoreError> {
        let live = self.data_dir.join(registry::FILE);
        put_back(&live, &self.replaced(&live))
    }

    /// Keeps the directory when this is dropped, under a name that no other command touches. Returns the folder of the replaced
    /// files.
    pub(super) fn keep(&self) -> PathBuf {
        self.is_kept.set(true);
        let kept = self.data_dir.join(format!("before-restore-{}", Uuid::new_v4()));
        let folder = if fs::rename(&self.folder, &kept).is_ok() { &kept } else { &self.folder };
        folder.join(REPLACED)
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            // An error is ignored: the next restore removes the directory.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Moves a database and SQLite's files for it to `aside`, the database last. Files that do not exist are skipped.
pub(super) fn set_aside(live: &Path, aside: &Path) -> Result<(), RestoreError> {
    let files = tenants::with_companions(live).into_iter().zip(tenants::with_companions(aside));
    files.rev().try_for_each(|(from, to)| move_if_exists(&from, &to))
}

/// Undoes [`set_aside`]: removes the new files and moves the old ones back.
pub(super) fn put_back(live: &Path, aside: &Path) -> Result<(), RestoreError> {
    for (new, old) in tenants::with_companions(live).iter().zip(tenants::with_companions(aside)) {
        files::ignore_missing(fs::remove_file(new)).map_err(at(new))?;
        move_if_exists(&old, new)?;
    }
    files::sync_parent(live).map_err(at(live))
}

fn move_if_exists(from: &Path, to: &Path) -> Result<(), RestoreError> {
    files::ignore_missing(fs::rename(from, to)).map_err(at(from))
}
