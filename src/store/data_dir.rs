//! The data directory: its paths, its locks, and what an earlier process has left in its WALs.
//!
//! Two locks. The one server has locked the directory of the tenants' files. The data directory
//! itself is locked shared by everybody who has a database open, and exclusively by whoever comes
//! first, for as long as it takes to recover the WALs (database/wal.rs): nothing is committed
//! behind frames that may not be on the disk.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::database::{self, Database, Schema};
use super::error::OpenError;
use crate::files;
use crate::model::TenantId;

/// The registry's name in the data directory.
pub const REGISTRY_FILE: &str = "registry.db";

/// `migrations/README.md` says how to change a schema.
pub(crate) static REGISTRY: Schema = Schema {
    sql: include_str!("registry/schema.sql"),
    steps: &[(3, include_str!("migrations/registry/3.sql"))],
    // Version 4 has more actions of events. The copy is all that it needs.
    last_copy: 4,
    retired: &[],
};

pub(crate) static TENANT: Schema = Schema {
    sql: include_str!("../../schema.sql"),
    steps: &[
        (3, include_str!("migrations/tenant/3.sql")),
        (4, include_str!("migrations/tenant/4.sql")),
        (5, include_str!("migrations/tenant/5.sql")),
    ],
    last_copy: 4,
    retired: &["last_word", "base"],
};

/// The registry of a data directory.
pub(crate) fn registry_database(data_dir: &Path) -> Database {
    Database::new(data_dir.join(REGISTRY_FILE), &REGISTRY)
}

/// The directory of the tenants' files.
pub fn tenants_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("tenants")
}

/// A tenant's file.
pub(crate) fn tenant_database(data_dir: &Path, id: TenantId) -> Database {
    Database::new(tenants_dir(data_dir).join(format!("{id}.db")), &TENANT)
}

/// The ids of the tenants' files, whether or not the registry knows them.
pub(crate) fn tenant_file_ids(data_dir: &Path) -> io::Result<BTreeSet<TenantId>> {
    let id = |entry: io::Result<DirEntry>| -> io::Result<Option<TenantId>> {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".db"));
        Ok(stem.and_then(|stem| stem.parse().ok()).filter(|id| *id > 0).map(TenantId))
    };
    match fs::read_dir(tenants_dir(data_dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        entries => entries?.map(id).filter_map(Result::transpose).collect(),
    }
}

/// Whether there are tenants' files, or may be.
fn has_tenant_files(data_dir: &Path) -> bool {
    !tenant_file_ids(data_dir).is_ok_and(|ids| ids.is_empty())
}

/// Whether there is the database, or a file that SQLite keeps beside one.
pub(crate) fn has_files(database: &Database) -> bool {
    // A name that cannot be looked up may be there.
    database.files().any(|name| name.try_exists().unwrap_or(true))
}

/// Whether the directory has no files but hidden ones, such as a `.gitignore`.
pub(crate) fn is_empty(directory: &Path) -> io::Result<bool> {
    let is_hidden = |entry: io::Result<DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."))
    };
    Ok(fs::read_dir(directory)?.all(is_hidden))
}

/// Removes a tenant's file with what SQLite and Litestream keep beside it.
pub(crate) fn remove_tenant_files(database: &Database) -> io::Result<()> {
    for file in database.files() {
        files::ignore_missing(fs::remove_file(file))?;
    }
    files::ignore_missing(fs::remove_dir_all(database.litestream_directory()))?;
    files::sync_parent(database.path())
}

/// A data directory that this process uses, until this is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _in_use: File,
}

impl DataDir {
    /// Opens an existing data directory.
    pub fn open(path: &Path) -> Result<DataDir, OpenError> {
        let registry = registry_database(path);
        if !registry.path().exists() {
            return Err(OpenError::Missing(registry.path().to_owned()));
        }
        DataDir::enter(path, false)
    }

    /// Opens it for the server: waits until no command uses it, recovers every WAL, and migrates
    /// what is older. A tenant that cannot be migrated is unavailable.
    pub fn open_to_serve(path: &Path) -> Result<DataDir, OpenError> {
        let data_dir = DataDir::enter(path, true)?;
        migrate(&registry_database(path))?;
        for id in tenant_file_ids(path).map_err(|error| OpenError::unusable(path, error))? {
            if let Err(error) = migrate(&tenant_database(path, id)) {
                tracing::error!(tenant = %id, %error, "the tenant is unavailable");
            }
        }
        Ok(data_dir)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn enter(path: &Path, must_recover: bool) -> Result<DataDir, OpenError> {
        let failed = |error| OpenError::unusable(path, error);
        let directory = File::open(path).map_err(failed)?;
        match directory.try_lock() {
            Ok(()) => recover(path)?,
            Err(TryLockError::WouldBlock) if must_recover => {
                tracing::info!("waiting for the commands that use the data directory to end");
                directory.lock().map_err(failed)?;
                recover(path)?;
            }
            Err(TryLockError::WouldBlock) => (),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        directory.lock_shared().map_err(failed)?;
        Ok(DataDir { path: path.to_owned(), _in_use: directory })
    }
}

fn migrate(database: &Database) -> Result<(), OpenError> {
    let begun = Instant::now();
    let Some(from) = database.migrate()? else { return Ok(()) };
    let (file, took) = (database.path().display(), begun.elapsed());
    tracing::info!(%file, from, ?took, "schema migrated");
    Ok(())
}

/// Recovers the WALs that are not empty. Whoever writes to a tenant that cannot be recovered is
/// refused.
fn recover(data_dir: &Path) -> Result<(), OpenError> {
    database::recover(&registry_database(data_dir))?;
    for id in tenant_file_ids(data_dir).unwrap_or_default() {
        if let Err(error) = database::recover(&tenant_database(data_dir, id)) {
            tracing::error!(tenant = %id, %error, "the tenant's WAL cannot be recovered");
        }
    }
    Ok(())
}

/// Waits until nobody uses the data directory, and keeps everybody out until the file is dropped.
pub(crate) fn lock_alone(data_dir: &Path) -> Result<File, OpenError> {
    let locked = File::open(data_dir).and_then(|directory| directory.lock().map(|()| directory));
    locked.map_err(|error| OpenError::unusable(data_dir, error))
}

/// Takes the lock of the one server, which holds until the file is dropped. Fails with
/// [`OpenError::Unusable`] where another process serves the directory.
pub fn lock_to_serve(data_dir: &Path) -> Result<File, OpenError> {
    let path = tenants_dir(data_dir);
    let directory = File::open(&path).map_err(|error| OpenError::unusable(&path, error))?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => {
            Err(OpenError::unusable(data_dir, "another tenantdesk serves this data directory"))
        }
        Err(TryLockError::Error(error)) => Err(OpenError::unusable(&path, error)),
    }
}

/// A data directory that a command has created or found. Dropping it removes what the command has
/// created, unless it is kept, holds a tenant, or another process uses it (contract section 10: a
/// command that fails leaves no file).
#[derive(Debug)]
pub struct NewDataDir {
    path: PathBuf,
    existed: bool,
    had_registry: bool,
}

impl NewDataDir {
    /// Creates the directory and an empty registry, each if there is none.
    pub fn create(path: &Path) -> Result<NewDataDir, OpenError> {
        let mut created = NewDataDir::create_directories(path)?;
        created.had_registry = created.had_registry || create_registry(path)?;
        Ok(created)
    }

    /// Creates the directory alone. One that is there keeps its mode.
    pub fn create_directories(path: &Path) -> Result<NewDataDir, OpenError> {
        let had_registry = registry_database(path).path().exists();
        let created = NewDataDir { path: path.to_owned(), existed: path.exists(), had_registry };
        files::create_private_directories(&tenants_dir(path))
            .map_err(|error| OpenError::unusable(path, error))?;
        Ok(created)
    }

    pub fn keep(mut self) {
        (self.existed, self.had_registry) = (true, true);
    }
}

/// Creates an empty registry, and returns `true` if there is one already. One process at a time
/// does so, and none beside a restore of everything.
fn create_registry(data_dir: &Path) -> Result<bool, OpenError> {
    let _alone = lock_alone(data_dir)?;
    let registry = registry_database(data_dir);
    if registry.path().exists() {
        return Ok(true);
    }
    if has_tenant_files(data_dir) {
        let what = "it is missing beside tenants' files; restore a backup into an empty directory";
        return Err(registry.unusable(what));
    }
    registry.create().map(|()| false)
}

impl Drop for NewDataDir {
    fn drop(&mut self) {
        // Whoever else uses the directory holds a shared lock.
        if !File::open(&self.path).is_ok_and(|directory| directory.try_lock().is_ok()) {
            return;
        }
        if !self.had_registry && !has_tenant_files(&self.path) {
            registry_database(&self.path).remove();
            let _ = fs::remove_dir(tenants_dir(&self.path));
        }
        if !self.existed {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(tenants_dir(directory.path())).unwrap();
        let first = lock_to_serve(directory.path()).unwrap();
        assert!(lock_to_serve(directory.path()).is_err());
        drop(first);
        assert!(lock_to_serve(directory.path()).is_ok());
    }

    #[test]
    fn what_was_created_goes_unless_it_is_kept_or_used() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        drop(NewDataDir::create(&path).unwrap());
        assert!(!path.exists());
        let created = NewDataDir::create(&path).unwrap();
        let used = DataDir::open(&path).unwrap();
        drop(created);
        assert!(path.join(REGISTRY_FILE).exists(), "another process uses it");
        drop(used);
        NewDataDir::create(&path).unwrap().keep();
        assert!(path.join(REGISTRY_FILE).exists());
    }

    /// A restore of everything holds the lock until the registry is in its place.
    #[test]
    fn no_registry_is_made_beside_a_restore() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        fs::create_dir(&path).unwrap();
        let lock = File::open(&path).unwrap();
        lock.lock().unwrap();
        let other = path.clone();
        let creating = std::thread::spawn(move || drop(NewDataDir::create(&other).unwrap()));
        while !tenants_dir(&path).exists() {
            std::thread::yield_now();
        }
        registry_database(&home.path().join("")).create().unwrap();
        fs::rename(home.path().join(REGISTRY_FILE), path.join(REGISTRY_FILE)).unwrap();
        drop(lock);
        creating.join().unwrap();
        assert!(path.join(REGISTRY_FILE).exists(), "it is not what the other has created");
    }

    #[test]
    fn no_registry_is_made_beside_tenants_files() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("tenants")).unwrap();
        fs::write(home.path().join("tenants/1.db"), b"").unwrap();
        assert!(NewDataDir::create(home.path()).is_err());
        assert!(!home.path().join(REGISTRY_FILE).exists());
    }
}
