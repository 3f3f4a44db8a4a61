//! The directory in which a restore prepares its files. It lies in the data directory, so that a
//! file gets its place by a rename.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::error::{ArchiveError, at};
use super::manifest::{Manifest, SavedTenant};
use super::verify::{self, Fault, refused};
use crate::store::data_dir::{registry_database, tenants_dir};
use crate::store::database::{Database, Schema};
use crate::store::{registry, tenant};

const NAME: &str = ".restore";

/// Only one restore uses it. It is removed when this is dropped; what a killed restore has left is
/// removed by the next one.
pub(super) struct Staging<'a> {
    path: PathBuf,
    _lock: File,
    source: &'a Source,
}

/// The backup that is restored.
pub(super) struct Source {
    pub(super) directory: PathBuf,
    pub(super) manifest: Manifest,
}

impl<'a> Staging<'a> {
    pub(super) fn create(data_dir: &Path, source: &'a Source) -> Result<Self, ArchiveError> {
        let path = data_dir.join(NAME);
        let lock = Staging::lock(&path).map_err(at(&path))?;
        let under_way = || ArchiveError::UnderWay(data_dir.to_owned());
        let staging = Staging { _lock: lock.ok_or_else(under_way)?, path, source };
        staging.empty().map_err(at(&staging.path))?;
        Ok(staging)
    }

    /// Creates and locks the directory; `None` if another process has it.
    fn lock(path: &Path) -> io::Result<Option<File>> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => (),
        }
        let directory = File::open(path)?;
        match directory.try_lock() {
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => Ok(None),
            Ok(()) => Ok(Some(directory)),
        }
    }

    fn empty(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        DirBuilder::new().mode(0o700).create(tenants_dir(&self.path))
    }

    /// Copies the backup's registry, and verifies it.
    pub(super) fn add_registry(&self) -> Result<Connection, ArchiveError> {
        let check = |registry: &_| verify::check_registry(registry, &self.source.manifest);
        let connection = self.add(registry::FILE, &registry::SCHEMA, check)?;
        connection.execute("DELETE FROM sessions", [])?;
        Ok(connection)
    }

    /// Copies a tenant's file of the backup, and verifies it.
    pub(super) fn add_tenant(&self, saved: &SavedTenant) -> Result<Connection, ArchiveError> {
        self.add(&saved.file(), &tenant::SCHEMA, verify::check_tenant)
    }

    fn add(
        &self,
        file: &str,
        schema: &'static Schema,
        check: impl FnOnce(&Connection) -> Result<(), Fault>,
    ) -> Result<Connection, ArchiveError> {
        let (from, to) = (self.source.directory.join(file), self.path.join(file));
        let saved = self.source.manifest.file(file);
        let saved = saved.ok_or_else(|| refused(&from, "is not in the manifest"))?;
        let (found, known) = (saved.schema, schema.version);
        if found > known {
            let what = format!(
                "was made by a newer version of tenantdesk (schema {found}, this binary knows \
                 {known}); use that version"
            );
            return Err(refused(&from, &what));
        }
        verify::copy(&from, saved, &to)?;
        verify::prepare(&Database::new(to, schema), schema, found)
            .and_then(|connection| check(&connection).map(|()| connection))
            .map_err(|Fault(what)| refused(&from, &what))
    }

    pub(super) fn registry(&self) -> Database {
        registry_database(&self.path)
    }

    pub(super) fn tenant(&self, saved: &SavedTenant) -> Database {
        Database::new(self.path.join(saved.file()), &tenant::SCHEMA)
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        // If this fails, the next restore removes it.
        let _ = fs::remove_dir_all(&self.path);
    }
}
