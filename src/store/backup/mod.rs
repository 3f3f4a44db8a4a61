//! Backups: consistent copies while a server runs (contract section 10).
//!
//! A backup is a folder. It is created under a temporary name, checked and synced, and then renamed. A folder with the name of a
//! backup is therefore complete.

pub mod manifest;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

pub use manifest::{BackupKind, LeftOutTenant, Manifest, SavedFile, SavedTenant};

use super::connection::{self, OpenError};
use super::error::DatabaseError;
use super::lock_file::HeldLock;
use super::page_copy::{self, CopyError};
use super::records::Reading;
use super::registry::{self, Registry, RegistryError, TenantRow};
use super::schema::{self, Schema};
use super::{check, tenants};
use crate::clock::Moment;
use crate::files;
use crate::model::{ALL, Resource};
use crate::new_folders::NewFolders;

/// Why a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// An operation on a file or folder failed.
    #[error("{}: {cause}", .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error of the file system.
        cause: io::Error,
    },
    /// A database cannot be opened, or its copy cannot be written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The tenant that was asked for cannot be saved.
    #[error("tenant {name}: {cause}; no backup was made")]
    Tenant {
        /// The tenant's name.
        name: String,
        /// The reason, as a text.
        cause: String,
    },
    /// The check of the copied registry found a problem.
    #[error("{database} is damaged: {problem}; no backup was made")]
    Damaged {
        /// The file name of the database.
        database: String,
        /// The first problem.
        problem: String,
    },
    /// Another process creates a backup in the same folder.
    #[error("another backup into {} is under way", .0.display())]
    UnderWay(PathBuf),
    /// The backup was created, but older ones remain.
    #[error("the backup {} is made, but older ones could not be removed: {cause}", .folder.display())]
    NotRemoved {
        /// The new backup.
        folder: PathBuf,
        /// Why the older ones remain.
        cause: Box<BackupError>,
    },
    /// The registry cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A statement on the copy failed.
    #[error("the copy cannot be used: {0}")]
    Database(#[from] DatabaseError),
}

impl From<rusqlite::Error> for BackupError {
    fn from(error: rusqlite::Error) -> BackupError {
        BackupError::Database(error.into())
    }
}

/// A backup that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The folder of the backup.
    pub folder: PathBuf,
    /// The content of its manifest.
    pub manifest: Manifest,
    /// The older backups that were removed.
    pub removed: Vec<PathBuf>,
}

/// Creates a backup of all tenants, or of one, in a new folder in `dir`. Then removes older backups of the same kind, so that the
/// newest `keep` remain. Nothing is removed if the new backup lacks a tenant: an older one may hold it.
///
/// # Errors
///
/// [`BackupError`] if there is no backup. If all tenants are saved, one that cannot be read is not an error;
/// [`Manifest::left_out`] lists it. After [`BackupError::NotRemoved`] the backup exists.
pub fn create(
    registry: &Registry,
    dir: &Path,
    tenant: Option<&TenantRow>,
    keep: Option<usize>,
    now: Moment,
) -> Result<Backup, BackupError> {
    let _folders = NewFolders::create(dir, 0o700).map_err(at(dir))?;
    let _lock = lock(dir)?;
    remove_leftovers(dir).map_err(at(dir))?;
    let name = free_name(dir, now).map_err(at(dir))?;
    let partial = dir.join(format!(".{name}{PARTIAL}"));
    let folder = dir.join(name);
    let manifest = fill(registry, &partial, tenant, now, next_sequence(dir))
        .and_then(|manifest| {
            publish(&partial, &folder).map_err(at(&folder))?;
            Ok(manifest)
        })
        .inspect_err(|_| {
            // An error is ignored: the next backup removes the folder.
            let _ = fs::remove_dir_all(&partial);
        })?;
    let removed = match keep.filter(|_| manifest.left_out.is_empty()) {
        Some(keep) => remove_older(dir, &folder, &manifest, keep)
            .map_err(|cause| BackupError::NotRemoved { folder: folder.clone(), cause: Box::new(cause) })?,
        None => Vec::new(),
    };
    Ok(Backup { folder, manifest, removed })
}

/// Gives a complete backup its name. If the name cannot be synced, the backup loses it again.
fn publish(partial: &Path, folder: &Path) -> io::Result<()> {
    fs::rename(partial, folder)?;
    files::sync_parent(folder).inspect_err(|_| {
        // If this fails too, a complete backup remains.
        let _ = fs::rename(folder, partial);
    })
}

/// Returns the number of the next backup in `dir`. Folders without a readable manifest are skipped here: a backup is made beside them.
fn next_sequence(dir: &Path) -> u64 {
    let folders = fs::read_dir(dir).into_iter().flatten().flatten();
    let backups = folders.filter(|entry| entry.file_name().to_str().and_then(sequence_number).is_some());
    let last = backups.filter_map(|entry| Some(Manifest::read(&entry.path()).ok()?.sequence)).max();
    last.unwrap_or(0).saturating_add(1)
}

/// The end of the name of a folder that is being filled or removed.
const PARTIAL: &str = ".partial";

/// Only one process may create and remove backups in a folder. If the file system has no locks, the operator must see to that.
fn lock(dir: &Path) -> Result<HeldLock, BackupError> {
    let file = File::open(dir).map_err(at(dir))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(BackupError::UnderWay(dir.to_owned())),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(HeldLock(file)),
    }
}

/// Removes the folders that killed backups have left.
fn remove_leftovers(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(PARTIAL));
        if stem.is_some_and(|stem| sequence_number(stem).is_some()) && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Returns an unused name: `2026-11-20T19-30-00Z`, and `2026-11-20T19-30-00Z-2` for the second backup of the same second.
fn free_name(dir: &Path, now: Moment) -> io::Result<String> {
    let time = now.wall.strftime(TIME_FORMAT).to_string();
    let mut name = time.clone();
    let mut number = 1;
    while dir.join(&name).try_exists()? {
        number += 1;
        name = format!("{time}-{number}");
    }
    Ok(name)
}

const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%SZ";

/// The length of a name without a sequence number.
const TIME_LENGTH: usize = "2026-11-20T19-30-00Z".len();

/// Returns a backup's number among those of the same second, from its name. Returns `None` for any other name.
fn sequence_number(name: &str) -> Option<u32> {
    let (time, number) = name.split_at_checked(TIME_LENGTH)?;
    let is_time = time.bytes().zip("0000-00-00T00-00-00Z".bytes()).all(|(byte, model)| match model {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    });
    match (is_time, number) {
        (false, _) => None,
        (true, "") => Some(1),
        (true, number) => number.strip_prefix('-')?.parse().ok(),
    }
}

/// Creates the backup in the new folder `folder`: copies, checks, manifest.
fn fill(
    registry: &Registry,
    folder: &Path,
    tenant: Option<&TenantRow>,
    now: Moment,
    sequence: u64,
) -> Result<Manifest, BackupError> {
    for private in [folder.to_owned(), tenants::folder(folder)] {
        DirBuilder::new().mode(0o700).create(&private).map_err(at(&private))?;
    }
    let copied = copy_registry(registry, folder)?;
    let mut manifest = Manifest {
        format: manifest::FORMAT,
        tenantdesk: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: now.rfc3339(),
        sequence,
        kind: if tenant.is_some() { BackupKind::Tenant } else { BackupKind::All },
        tenants: Vec::new(),
        left_out: Vec::new(),
        files: Vec::new(),
    };
    save_tenants(registry, &copied, folder, tenant, &mut manifest)?;
    // VACUUM removes the deleted rows from the pages of the file, too.
    copied.execute_batch("DELETE FROM sessions; VACUUM")?;
    if let Some(problem) = check::first_problem(&copied, &registry::SCHEMA) {
        return Err(BackupError::Damaged { database: registry::FILE.to_owned(), problem });
    }
    drop(copied);
    sync(&folder.join(registry::FILE))?;
    manifest.files.insert(0, describe(folder, registry::FILE.to_owned(), &registry::SCHEMA)?);
    write_manifest(folder, &manifest)?;
    for folder in [&tenants::folder(folder), folder] {
        sync(folder)?;
    }
    Ok(manifest)
}

fn copy_registry(registry: &Registry, folder: &Path) -> Result<Connection, BackupError> {
    let copy = folder.join(registry::FILE);
    let live = schema::open(&registry.data_dir().join(registry::FILE), &registry::SCHEMA)?;
    page_copy::copy_to(&live, &copy).map_err(OpenError::from)?;
    Ok(connection::open_raw(&copy)?)
}

/// Saves `tenant`, or every tenant of the copied registry, and lists it in the manifest. Other tenants are deleted from the
/// copied registry.
fn save_tenants(
    registry: &Registry,
    copied: &Connection,
    folder: &Path,
    tenant: Option<&TenantRow>,
    manifest: &mut Manifest,
) -> Result<(), BackupError> {
    for (id, name, created_at) in list_tenants(copied)? {
        let is_wanted = tenant.is_none_or(|tenant| tenant.id == id);
        match if is_wanted { save_tenant(registry, folder, id)? } else { TenantCopy::NotNeeded } {
            TenantCopy::Saved(records) => {
                manifest.files.push(describe(folder, format!("tenants/{id}.db"), &tenants::SCHEMA)?);
                manifest.tenants.push(SavedTenant { id, name, created_at: Some(created_at), records });
            }
            TenantCopy::Unreadable(reason) => manifest.left_out.push(LeftOutTenant { id, name, reason }),
            TenantCopy::NotNeeded => {
                copied.execute("DELETE FROM tenants WHERE id = ?", [id])?;
            }
        }
    }
    match tenant {
        Some(tenant) if manifest.tenants.is_empty() => {
            let reason = manifest.left_out.pop().map(|left_out| left_out.reason);
            let cause = reason.unwrap_or_else(|| "it was deleted meanwhile".to_owned());
            Err(BackupError::Tenant { name: tenant.name.clone(), cause })
        }
        _ => Ok(()),
    }
}

/// Returns id, name and time of creation of each tenant.
fn list_tenants(registry: &Connection) -> rusqlite::Result<Vec<(i64, String, String)>> {
    let mut statement = registry.prepare("SELECT id, name, created_at FROM tenants ORDER BY id")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
}

/// The result of copying one tenant's file.
enum TenantCopy {
    /// The copy is intact. Holds the number of records of each resource.
    Saved(BTreeMap<String, i64>),
    /// The file cannot be read. Holds the reason.
    Unreadable(String),
    /// The tenant was not asked for, or was deleted after the registry was copied.
    NotNeeded,
}

/// Copies a tenant's file. A file that cannot be read is not an error: the other tenants are saved without it.
fn save_tenant(registry: &Registry, folder: &Path, id: i64) -> Result<TenantCopy, BackupError> {
    let live = match schema::open(&tenants::file(&tenants::folder(registry.data_dir()), id), &tenants::SCHEMA) {
        Ok(live) => live,
        Err(OpenError::Missing(_)) if registry.tenant(id)?.is_none() => return Ok(TenantCopy::NotNeeded),
        Err(error) => return Ok(TenantCopy::Unreadable(error.to_string())),
    };
    let copy = tenants::file(&tenants::folder(folder), id);
    match page_copy::copy_to(&live, &copy) {
        Ok(()) => (),
        Err(CopyError::Source(error)) => return Ok(TenantCopy::Unreadable(error.to_string())),
        Err(CopyError::Target(error)) => return Err(error.into()),
    }
    match check_and_count(&connection::open_raw(&copy)?) {
        Ok(records) => Ok(TenantCopy::Saved(records)),
        Err(reason) => {
            connection::remove_database(&copy);
            Ok(TenantCopy::Unreadable(reason))
        }
    }
}

/// Returns the number of records of each resource, or the first problem of the copy.
fn check_and_count(copy: &Connection) -> Result<BTreeMap<String, i64>, String> {
    if let Some(problem) = check::first_problem(copy, &tenants::SCHEMA) {
        return Err(format!("it is damaged: {problem}"));
    }
    let reading = Reading::new(copy);
    let count = |resource: &'static Resource| Ok((resource.plural.to_owned(), reading.number_of(resource)?));
    let counts: Result<_, DatabaseError> = ALL.into_iter().map(count).collect();
    counts.map_err(|error| error.to_string())
}

fn describe(folder: &Path, path: String, schema: &Schema) -> Result<SavedFile, BackupError> {
    manifest::describe(folder, &path, schema.version).map_err(at(&folder.join(path)))
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<(), BackupError> {
    let path = folder.join(manifest::NAME);
    let write = || -> io::Result<()> {
        let mut file = files::create_private(&path)?;
        file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write().map_err(at(&path))
}

fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(at(path))
}

/// Returns the backups in `dir` with their manifests, the newest first. Their order is that of their sequence numbers, because the
/// clock may have been set back between two of them. Backups of an earlier version come last, by their time.
///
/// # Errors
///
/// [`BackupError::File`] if a folder with the name of a backup has no readable manifest. Otherwise an older backup could be taken
/// for the newest.
pub fn list(dir: &Path) -> Result<Vec<(PathBuf, Manifest)>, BackupError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let Some(number) = entry.file_name().to_str().and_then(sequence_number) else { continue };
        let folder = entry.path();
        if entry.file_type().map_err(at(&folder))?.is_dir() {
            let manifest = Manifest::read(&folder).map_err(at(&folder.join(manifest::NAME)))?;
            found.push((number, folder, manifest));
        }
    }
    found.sort_by(|(a_number, _, a), (b_number, _, b)| {
        (b.sequence, &b.created_at, b_number).cmp(&(a.sequence, &a.created_at, a_number))
    });
    Ok(found.into_iter().map(|(_, folder, manifest)| (folder, manifest)).collect())
}

/// Removes the backups of the same kind except the newest `keep`. Each is renamed first, so that no reader finds an incomplete
/// backup.
fn remove_older(dir: &Path, newest: &Path, created: &Manifest, keep: usize) -> Result<Vec<PathBuf>, BackupError> {
    let is_same_kind = |manifest: &Manifest| match (manifest.kind, created.kind) {
        (BackupKind::All, BackupKind::All) => true,
        (BackupKind::Tenant, BackupKind::Tenant) => {
            manifest.tenants.iter().zip(&created.tenants).all(|(tenant, other)| tenant.is_same(other))
        }
        _ => false,
    };
    let mut removed = Vec::new();
    let older = list(dir)?.into_iter().filter(|(folder, manifest)| folder != newest && is_same_kind(manifest));
    for (folder, _) in older.skip(keep.saturating_sub(1)) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let partial = dir.join(format!(".{name}{PARTIAL}"));
        // The new name is durable before anything in the folder is removed.
        let renamed = fs::rename(&folder, &partial).and_then(|()| files::sync_parent(&partial));
        renamed.and_then(|()| fs::remove_dir_all(&partial)).map_err(at(&folder))?;
        removed.push(folder);
    }
    Ok(removed)
}

/// Returns a function that adds `path` to an error of the file system.
fn at(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    |cause| BackupError::File { path, cause }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn the_newest_are_kept_and_no_name_is_used_twice_while_the_clock_is_set() {
        let home = tempfile::tempdir().unwrap();
        let (registry, dir) = (Registry::create(&home.path().join("data")).unwrap(), home.path().join("backups"));
        let clock = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap());
        let mut made: Vec<PathBuf> = Vec::new();
        for hours in [0, 1, -1, 24, -24, 0, 10 * 365 * 24, -10 * 365 * 24, -10 * 365 * 24, 10 * 365 * 24] {
            clock.step(SignedDuration::from_hours(hours));
            made.push(create(&registry, &dir, None, Some(2), clock.now()).unwrap().folder);
            let listed: Vec<PathBuf> = list(&dir).unwrap().into_iter().map(|(folder, _)| folder).collect();
            let newest: Vec<PathBuf> = made.iter().rev().take(2).cloned().collect();
            assert_eq!(listed, newest, "after a step of {hours} hours");
        }
    }

    #[test]
    fn a_backup_is_named_by_its_time() {
        assert_eq!(sequence_number("2026-11-20T19-30-00Z"), Some(1));
        assert_eq!(sequence_number("2026-11-20T19-30-00Z-12"), Some(12));
        for other in
            ["", "2026-11-20", "2026-11-20T19:30:00Z", "2026-11-20T19-30-00Z-", "2026-11-20T19-30-00Z-x", "äöü"]
        {
            assert_eq!(sequence_number(other), None, "{other}");
        }
    }
}
