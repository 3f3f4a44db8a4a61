//! The data directory: its paths, its owner, its locks, and the recovery of its WALs (contract
//! section 11).
//!
//! | function | caller |
//! |---|---|
//! | [`DataDir::create`] | `serve`, `tenant create` and the restore of one tenant, before the next calls |
//! | [`DataDir::open`] | every command except `serve` and the restore of everything |
//! | [`DataDir::lock_to_serve`], then [`DataDir::open_to_serve`] | `serve` |
//! | [`DataDir::open_empty`] | the restore of everything |
//!
//! Two directories are locked, with `flock`. The kernel releases the locks of a killed process.
//!
//! | directory | shared lock | exclusive lock |
//! |---|---|---|
//! | `data` | each process, as long as it has a database open | a process that recovers the WALs, creates the registry, or restores everything |
//! | `data/tenants` | nobody | the one server; a process that restores everything |
//!
//! The lock of `data` answers one question: does another process have a database open? If not, the
//! WALs may hold frames of a process that ended at a failed sync, and they are recovered before
//! anything is written (database/wal.rs). Example:
//!
//! 1. The server runs and holds `data` shared. `import` starts and does not get `data` exclusively.
//!    So the server has recovered the WALs already, and the import takes the shared lock and goes
//!    on.
//! 2. The server is killed, and `import` still runs. A new server does not get `data` exclusively,
//!    and waits for the import to end. Then it recovers the WALs and takes the shared lock.
//!
//! Without the wait, the new server would rewrite a WAL to which the import writes. Without the
//! lock of `data/tenants`, a second server would wait for the first one instead of ending with an
//! error.
//!
//! Each of them, except [`DataDir::lock_to_serve`], needs the user who owns the files
//! ([`require_owner`]).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::geteuid;

use super::database::{Database, Schema};
use super::error::{Result, StoreCode, StoreError};
use crate::files;
use crate::model::TenantId;

/// The registry's name in the data directory.
pub const REGISTRY_FILE: &str = "registry.db";

/// CONTRIBUTING.md says how to change a schema.
pub(crate) static REGISTRY: Schema =
    Schema { sql: include_str!("registry/schema.sql"), first: 5, steps: &[] };

pub(crate) static TENANT: Schema = Schema {
    sql: include_str!("../../schema.sql"),
    first: 6,
    steps: &[include_str!("migrations/tenant_7.sql")],
};

pub(crate) fn registry_database(data_dir: &Path) -> Database {
    Database::new(data_dir.join(REGISTRY_FILE), &REGISTRY)
}

/// The directory in the data directory in which a restore prepares its files.
pub(crate) const RESTORING: &str = ".restore";

/// The directory of the tenants' files.
pub fn tenants_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("tenants")
}

pub(crate) fn tenant_database(data_dir: &Path, id: TenantId) -> Database {
    Database::new(tenants_dir(data_dir).join(format!("{id}.db")), &TENANT)
}

/// The ids of the tenants' files, whether or not the registry knows them.
pub(crate) fn tenant_file_ids(data_dir: &Path) -> Result<BTreeSet<TenantId>> {
    let id = |entry: io::Result<DirEntry>| -> io::Result<Option<TenantId>> {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".db"));
        Ok(stem.and_then(|stem| stem.parse().ok()).filter(|id| *id > 0).map(TenantId))
    };
    let directory = tenants_dir(data_dir);
    let ids = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => Err(error),
        Ok(entries) => entries.map(id).filter_map(Result::transpose).collect(),
    };
    ids.map_err(|error| StoreError::unusable(&directory, error))
}

/// Whether there is the database, or a file that SQLite keeps beside one.
pub(crate) fn has_files(database: &Database) -> bool {
    // If a name cannot be looked up, the file may exist. So nothing is created in its place.
    database.files().any(|name| name.try_exists().unwrap_or(true))
}

/// Whether a file belongs to the file system or to another program: a hidden file, such as a
/// `.gitignore`, or the `lost+found` of a disk.
pub(crate) fn is_foreign(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".") || name == "lost+found"
}

/// Whether the directory has nothing but foreign files, and the empty directory of tenants' files
/// that a failed command may leave.
fn has_no_data(data_dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(data_dir)? {
        let entry = entry?;
        let is_for_tenants = entry.path() == tenants_dir(data_dir) && entry.file_type()?.is_dir();
        if !(is_foreign(&entry.file_name())
            || is_for_tenants && fs::read_dir(entry.path())?.next().is_none())
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Fails if another user owns the registry. Example: root runs `tenantdesk tenant create`, and the
/// service runs as `tenantdesk`. The service could not open the new tenant's file. Returns whether
/// there is a registry.
///
/// If there is none, the owner of the directory decides. A directory of root is accepted then: a
/// container's volume often belongs to root, and lets the service in by its group.
pub(crate) fn require_owner(data_dir: &Path) -> Result<bool> {
    let registry = registry_database(data_dir).path().to_owned();
    // If the directory cannot be looked up, the caller cannot open it either, and reports why.
    let Ok(of_directory) = fs::metadata(data_dir).map(|found| found.uid()) else {
        return Ok(false);
    };
    let found = fs::symlink_metadata(&registry);
    let is_missing = found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    // Without an owner there is no registry, or a directory that this user may not search.
    let owner = found.map_or(of_directory, |found| found.uid());
    let user = geteuid().as_raw();
    if owner == user || is_missing && of_directory == 0 {
        return Ok(!is_missing);
    }
    let (owner, directory) = (files::user_name(owner), data_dir.display());
    let message = if of_directory == user {
        let (registry, user) = (registry.display(), files::user_name(user));
        format!("{registry} belongs to {owner}; run: sudo chown -R {user}: {directory}")
    } else {
        format!("{directory} belongs to {owner}; run: sudo -u {owner} tenantdesk …")
    };
    Err(StoreError::new(StoreCode::OtherOwner, message))
}

fn require_registry(data_dir: &Path) -> Result<()> {
    if require_owner(data_dir)? {
        return Ok(());
    }
    // Also if the registry has appeared since: nobody has compared its owner.
    let registry = registry_database(data_dir);
    let has_tenants = tenant_file_ids(data_dir).is_ok_and(|ids| !ids.is_empty());
    Err(if has_tenants { missing_beside_tenants(&registry) } else { registry.missing() })
}

/// The tenants' files may be the only copy of their records.
fn missing_beside_tenants(registry: &Database) -> StoreError {
    registry.unusable(
        "it is missing beside tenants' files; keep these, and follow \"The registry was removed\" \
         of recovery.md",
    )
}

fn create_directories(data_dir: &Path) -> Result<()> {
    let tenants = tenants_dir(data_dir);
    files::create_private_directories(&tenants)
        .map_err(|error| StoreError::unusable(&tenants, error))
}

/// A data directory that this process has locked, until this is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    locks: Vec<File>,
}

impl DataDir {
    /// Creates the directory and an empty registry, each if there is none. An existing directory
    /// keeps its mode. The lock keeps out a second process that creates a registry, and a restore
    /// of everything.
    pub fn create(path: &Path) -> Result<()> {
        let registry = registry_database(path);
        require_owner(path)?;
        if has_files(&registry) {
            return create_directories(path);
        }
        create_directories(path)?;
        let _alone = lock_alone(path)?;
        // Another process may have created the registry before this process got the lock.
        if has_files(&registry) {
            return require_owner(path).map(drop);
        }
        if !tenant_file_ids(path).is_ok_and(|ids| ids.is_empty()) {
            return Err(missing_beside_tenants(&registry));
        }
        if path.join(RESTORING).exists() {
            let what = "a restore did not end; empty the directory, and repeat the restore";
            return Err(StoreError::unusable(path, what));
        }
        registry.create()?;
        tracing::info!(path = %path.display(), "new, empty data directory");
        Ok(())
    }

    /// Opens an existing data directory for a command. A server may run meanwhile.
    pub fn open(path: &Path) -> Result<DataDir> {
        require_registry(path)?;
        registry_database(path).require_file()?;
        DataDir::recover_and_lock_shared(path, false)
    }

    /// Opens the data directory for the server, which has called [`DataDir::lock_to_serve`]. Waits
    /// until no command uses the directory, recovers every WAL, and migrates every file.
    pub fn open_to_serve(path: &Path) -> Result<DataDir> {
        require_registry(path)?;
        let data_dir = DataDir::recover_and_lock_shared(path, true)?;
        registry_database(path).migrate()?;
        migrate_tenants(path)?;
        Ok(data_dir)
    }

    /// Takes the lock of the one server. Opens no database. Fails if another server runs.
    pub fn lock_to_serve(path: &Path) -> Result<DataDir> {
        let tenants = tenants_dir(path);
        let failed = |error| StoreError::unusable(&tenants, error);
        let lock = File::open(&tenants).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(DataDir { path: path.to_owned(), locks: vec![lock] }),
            Err(TryLockError::WouldBlock) => {
                Err(StoreError::unusable(path, "another tenantdesk serves this data directory"))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Creates the directory without a registry, for a restore of everything. Holds both locks, so
    /// that no server and no command uses the directory meanwhile. Returns `None` if the directory
    /// is not empty.
    pub(crate) fn open_empty(path: &Path) -> Result<Option<DataDir>> {
        let failed = |error| StoreError::unusable(path, error);
        if path.try_exists().map_err(failed)? && !has_no_data(path).map_err(failed)? {
            return Ok(None);
        }
        create_directories(path)?;
        let mut data_dir = DataDir::lock_to_serve(path)?;
        data_dir.locks.push(lock_alone(path)?);
        // Another command may have created the registry before both were locked.
        Ok(Some(data_dir).filter(|_| !has_files(&registry_database(path))))
    }

    /// Whether a server runs.
    pub(crate) fn is_served(path: &Path) -> bool {
        let tenants = File::open(tenants_dir(path));
        tenants.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the shared lock of `data`. If no other process uses the directory, recovers the WALs
    /// first. Otherwise the other process has recovered the WALs, or does so now. A command then
    /// waits only until that recovery ends. A server (`must_recover`) waits until the other process
    /// ends.
    ///
    /// `flock` gives up the exclusive lock before it takes the shared lock. Another process may
    /// then recover the WALs a second time, which changes nothing.
    fn recover_and_lock_shared(path: &Path, must_recover: bool) -> Result<DataDir> {
        let failed = |error| StoreError::unusable(path, error);
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
        Ok(DataDir { path: path.to_owned(), locks: vec![directory] })
    }
}

/// Migrates the tenants' files of older versions. A tenant whose file cannot be migrated stays
/// unavailable.
fn migrate_tenants(data_dir: &Path) -> Result<()> {
    let mut older = Vec::new();
    for id in tenant_file_ids(data_dir)? {
        let database = tenant_database(data_dir, id);
        if !database.has_current_schema() {
            older.push((id, database));
        }
    }
    for (number, (id, database)) in (1..).zip(&older) {
        let (progress, begun) = (format!("{number} of {}", older.len()), Instant::now());
        tracing::info!(tenant = %id, progress, "migrating");
        match database.migrate() {
            Ok(from) => {
                let took = begun.elapsed();
                tracing::info!(tenant = %id, progress, from, ?took, "schema migrated");
            }
            Err(error) => {
                tracing::error!(tenant = %id, progress, %error, "the tenant is unavailable");
            }
        }
    }
    Ok(())
}

/// Recovers the WALs that are not empty. If a tenant's WAL cannot be recovered, the other tenants
/// are served. The first write to that tenant tries again. If this fails, too, the write gets 503.
fn recover(data_dir: &Path) -> Result<()> {
    registry_database(data_dir).recover()?;
    for id in tenant_file_ids(data_dir)? {
        if let Err(error) = tenant_database(data_dir, id).recover() {
            tracing::error!(tenant = %id, %error, "the tenant's WAL cannot be recovered");
        }
    }
    Ok(())
}

/// Waits until no process uses the data directory, and keeps all others out until the file is
/// dropped.
fn lock_alone(data_dir: &Path) -> Result<File> {
    let locked = File::open(data_dir).and_then(|directory| directory.lock().map(|()| directory));
    locked.map_err(|error| StoreError::unusable(data_dir, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A restore of everything holds the lock until the registry is in its place.
    #[test]
    fn no_registry_is_made_beside_a_restore() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        let restoring = DataDir::open_empty(&path).unwrap().unwrap();
        let other = path.clone();
        let creating = std::thread::spawn(move || DataDir::create(&other));
        registry_database(home.path()).create().unwrap();
        fs::rename(home.path().join(REGISTRY_FILE), path.join(REGISTRY_FILE)).unwrap();
        let placed = fs::metadata(path.join(REGISTRY_FILE)).unwrap().ino();
        drop(restoring);
        creating.join().unwrap().unwrap();
        assert_eq!(fs::metadata(path.join(REGISTRY_FILE)).unwrap().ino(), placed);
        assert!(DataDir::open_empty(&path).unwrap().is_none());
    }

    #[test]
    fn no_registry_is_made_beside_tenants_files() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("tenants")).unwrap();
        assert!(has_no_data(home.path()).unwrap());
        fs::write(home.path().join("tenants/1.db"), b"").unwrap();
        assert!(!has_no_data(home.path()).unwrap());
        assert!(DataDir::create(home.path()).is_err());
        assert!(!home.path().join(REGISTRY_FILE).exists());
    }
}
