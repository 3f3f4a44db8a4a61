//! Backups: consistent copies while a server runs (contract section 10).
//!
//! A backup is a directory with copies of the databases and a manifest, `manifest.json`, which has
//! its tenants, and the length and SHA-256 of its files. It is made under a temporary name, checked
//! and synced, and then renamed. A directory with the name of a backup is therefore complete.
//!
//! | file | its concern |
//! |---|---|
//! | `restore` | brings back everything, or one tenant |
//! | `check` | faults of databases |

pub mod check;
pub mod restore;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{self, Path, PathBuf};

use rusqlite::Connection;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::data_dir::{is_foreign, registry_database, tenant_database, tenants_dir};
use super::database::{Database, Role, copy_pages, is_write_error};
use super::error::{Result, StoreCode, StoreError};
use super::records::Reading;
use super::registry::{Registry, TenantRow};
use crate::clock::{Moment, Timestamp};
use crate::files;
use crate::model::{ALL, Resource, TenantId};

/// The directory in which a backup is made, and from which an older one is removed.
const PARTIAL: &str = ".partial";

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    pub directory: PathBuf,
    pub manifest: Manifest,
    /// The older backups that were removed.
    pub removed: Vec<PathBuf>,
}

/// Makes a backup of all tenants, or of one, in a new directory in `dir`. Then removes older
/// backups of the same kind, so that the newest `keep` remain. Nothing is removed if the new backup
/// lacks a tenant or has none: an older one may hold it. It has none after the data directory was
/// lost, because the server then starts with an empty one.
///
/// A tenant that cannot be read is no error in a backup of all: [`Manifest::left_out`] lists it.
pub fn create(
    registry: &Registry,
    dir: &Path,
    tenant: Option<&TenantRow>,
    keep: Option<usize>,
    now: Moment,
) -> Result<Backup> {
    require_outside(dir, registry.data_dir())?;
    files::create_private_directories(dir).map_err(file_error(dir))?;
    let staging = Staging::create(dir.join(PARTIAL))?;
    let manifest = write_backup(registry, &staging.path, tenant, now)?;
    let directory = free_name(dir, now).map_err(file_error(dir))?;
    staging.publish(&directory)?;
    let is_complete = manifest.left_out.is_empty() && !manifest.tenants.is_empty();
    let removed = match keep.filter(|_| is_complete) {
        Some(keep) => remove_older(dir, &directory, &manifest, keep, now).map_err(|cause| {
            StoreError::other(format!(
                "the backup {} is made, but older ones could not be removed: {cause}",
                directory.display()
            ))
        })?,
        None => Vec::new(),
    };
    Ok(Backup { directory, manifest, removed })
}

/// A backup in the data directory would be lost with it.
fn require_outside(dir: &Path, data_dir: &Path) -> Result<()> {
    let real = |path: &Path| path::absolute(path)?.canonicalize();
    let data_dir = real(data_dir).map_err(file_error(data_dir))?;
    // The directory and its parents may not exist yet.
    match dir.ancestors().chain([Path::new(".")]).find_map(|path| real(path).ok()) {
        Some(existing) if existing.starts_with(&data_dir) => {
            let (dir, data_dir) = (dir.display(), data_dir.display());
            let advice = "name a directory outside it, on another disk if possible";
            Err(StoreError::other(format!("{dir} is in the data directory {data_dir}; {advice}")))
        }
        _ => Ok(()),
    }
}

/// An unused name: `2026-11-20T19-30-00Z`, and `2026-11-20T19-30-00Z-2` for the second backup of
/// the same second.
fn free_name(dir: &Path, now: Moment) -> io::Result<PathBuf> {
    let time = now.wall.strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
    let mut name = dir.join(&time);
    let mut number = 1;
    while name.try_exists()? {
        number += 1;
        name = dir.join(format!("{time}-{number}"));
    }
    Ok(name)
}

fn write_backup(
    registry: &Registry,
    partial: &Path,
    tenant: Option<&TenantRow>,
    now: Moment,
) -> Result<Manifest> {
    let copy = registry_database(partial);
    let live = registry_database(registry.data_dir());
    let copied = save_database(&live, &copy).map_err(|error| no_backup("the registry", error))?;
    if let Some(tenant) = tenant {
        copied.execute("DELETE FROM tenants WHERE id <> ?", [tenant.id.0])?;
    }
    let mut manifest = Manifest {
        format: FORMAT,
        tenantdesk: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: now.timestamp(),
        kind: if tenant.is_some() { BackupKind::Tenant } else { BackupKind::All },
        tenants: Vec::new(),
        left_out: Vec::new(),
        files: Vec::new(),
    };
    save_tenants(registry, &copied, partial, &mut manifest)?;
    if let Some(TenantRow { name, .. }) = tenant.filter(|_| manifest.tenants.is_empty()) {
        return Err(no_backup(&format!("tenant {name}"), "it was deleted meanwhile"));
    }
    // A restored tenant that was moving is suspended. VACUUM removes the deleted rows from the
    // pages of the file, too.
    copied.execute_batch("UPDATE tenants SET moving = 0; DELETE FROM sessions; VACUUM")?;
    drop(copied);
    manifest.files.insert(0, sync_and_describe(partial, &copy)?);
    write_manifest(partial, &manifest)?;
    sync(&tenants_dir(partial))?;
    sync(partial)?;
    Ok(manifest)
}

/// Saves every tenant of the copied registry. In a backup of all, one that cannot be read is left
/// out. One that was deleted meanwhile is no part of the backup.
fn save_tenants(
    registry: &Registry,
    copied: &Connection,
    partial: &Path,
    manifest: &mut Manifest,
) -> Result<()> {
    for TenantRow { id, name, .. } in check::tenants(copied)? {
        let (live, copy) = (tenant_database(registry.data_dir(), id), tenant_database(partial, id));
        match save_database(&live, &copy) {
            Ok(connection) => {
                let records = count(&connection)?;
                drop(connection);
                manifest.files.push(sync_and_describe(partial, &copy)?);
                manifest.tenants.push(SavedTenant { id, name, records });
            }
            Err(error) if error.code == StoreCode::Other => return Err(error),
            Err(_) if registry.tenant(id)?.is_none() => {
                let _ = copy.remove();
                copied.execute("DELETE FROM tenants WHERE id = ?", [id.0])?;
            }
            Err(error) if manifest.kind == BackupKind::All => {
                let _ = copy.remove();
                manifest.left_out.push(LeftOutTenant { id, name, reason: error.message });
            }
            Err(error) => return Err(no_backup(&format!("tenant {name}"), error)),
        }
    }
    Ok(())
}

/// Copies a database and checks the copy as a restore does. Returns the copy open, which is not
/// synced. If the copy cannot be written, the code is [`StoreCode::Other`].
fn save_database(live: &Database, copy: &Database) -> Result<Connection> {
    let copied = copy_database(live, copy)?;
    match check::problems(&copied, copy.schema).first() {
        Some(problem) => {
            let message = format!("{}: {problem}", live.path().display());
            Err(StoreError::new(StoreCode::Damaged, message))
        }
        None => Ok(copied),
    }
}

fn copy_database(live: &Database, copy: &Database) -> Result<Connection> {
    let source = live.open(Role::Bulk)?;
    files::create_private(copy.path()).map_err(file_error(copy.path()))?;
    copy_pages(&source, copy.path()).map_err(|error| {
        if is_write_error(&error) {
            StoreError::other(format!("{}: {error}", copy.path().display()))
        } else {
            live.error(error)
        }
    })
}

fn no_backup(what: &str, cause: impl Display) -> StoreError {
    StoreError::other(format!("{what}: {cause}; no backup was made"))
}

fn count(tenant: &Connection) -> Result<BTreeMap<String, i64>> {
    let tenant = Reading::new(tenant);
    let number = |resource: &Resource| Ok((resource.plural.to_owned(), tenant.count(resource)?));
    ALL.into_iter().map(number).collect()
}

fn sync_and_describe(partial: &Path, copy: &Database) -> Result<SavedFile> {
    sync(copy.path())?;
    let file = File::open(copy.path()).map_err(file_error(copy.path()))?;
    let (bytes, sha256) = digest(file, io::sink()).map_err(file_error(copy.path()))?;
    let schema = copy.schema.version();
    Ok(SavedFile { path: copy.name_in(partial), schema, bytes, sha256 })
}

fn write_manifest(partial: &Path, manifest: &Manifest) -> Result<()> {
    let path = partial.join(MANIFEST);
    let write = || -> io::Result<()> {
        let mut file = files::create_private(&path)?;
        file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write().map_err(file_error(&path))
}

fn sync(path: &Path) -> Result<()> {
    files::sync(path).map_err(file_error(path))
}

/// The backups in `dir`, the newest first.
///
/// # Errors
///
/// If a manifest cannot be read: an older backup could be taken for the newest.
pub fn list(dir: &Path) -> Result<Vec<(PathBuf, Manifest)>> {
    let mut found = Vec::new();
    for directory in directories(dir).map_err(not_read(dir, dir))? {
        match fs::symlink_metadata(directory.join(MANIFEST)) {
            // A directory without a manifest is no backup.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(not_read(&directory, dir)(error)),
            Ok(_) => {}
        }
        let manifest = Manifest::read(&directory)?;
        found.push((directory, manifest));
    }
    found.sort_by_cached_key(|(directory, manifest)| {
        Reverse((manifest.created_at, directory.clone()))
    });
    Ok(found)
}

/// The directories in `dir` that may be backups. Symbolic links are not followed, and a hidden
/// backup is not complete.
fn directories(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !is_foreign(&entry.file_name()) && entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn remove_older(
    dir: &Path,
    newest: &Path,
    made: &Manifest,
    keep: usize,
    now: Moment,
) -> Result<Vec<PathBuf>> {
    let counts = |manifest: &Manifest| {
        manifest.kind == made.kind
            && manifest.only_tenant() == made.only_tenant()
            && !manifest.is_ahead(now)
    };
    let backups = list(dir)?.into_iter();
    let older = backups.filter(|(path, manifest)| path != newest && counts(manifest));
    let remove = |(directory, _): (PathBuf, Manifest)| {
        // Under its name a backup is complete, so it loses that first.
        let staging = Staging::create(dir.join(PARTIAL))?;
        fs::rename(&directory, staging.path.join("removed"))
            .and_then(|()| files::sync(&staging.path))
            .and_then(|()| files::sync(dir))
            .map_err(file_error(&directory))?;
        Ok(directory)
    };
    older.skip(keep.saturating_sub(1)).map(remove).collect()
}

/// The format that this program writes, and the newest that it reads.
const FORMAT: u32 = 1;

const MANIFEST: &str = "manifest.json";

/// How much later than the clock a backup may be dated, in seconds.
const MAX_AHEAD: i64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupKind {
    All,
    Tenant,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The version of the program that made the backup.
    pub tenantdesk: String,
    pub created_at: Timestamp,
    pub kind: BackupKind,
    /// The tenants whose files the backup holds.
    pub tenants: Vec<SavedTenant>,
    /// Tenants whose files could not be read. The backup's registry has their rows and keys.
    #[serde(default)]
    pub left_out: Vec<LeftOutTenant>,
    /// The files of the backup, except the manifest.
    pub files: Vec<SavedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTenant {
    pub id: TenantId,
    pub name: String,
    /// Resource → number of its records.
    pub records: BTreeMap<String, i64>,
}

/// A tenant that a backup of all tenants lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutTenant {
    pub id: TenantId,
    pub name: String,
    /// Why its file could not be read.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    /// `registry.db` or `tenants/1.db`.
    pub path: String,
    /// Its schema version.
    pub schema: u32,
    /// Its length.
    pub bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Reads the manifest of the backup in `directory`.
    pub fn read(directory: &Path) -> Result<Manifest> {
        let path = directory.join(MANIFEST);
        let text = fs::read(&path).map_err(not_read(&path, directory))?;
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&text) else {
            let cause = "it is damaged; use another backup, and move this one away";
            return Err(refused(&path, cause));
        };
        if manifest.format > FORMAT {
            let cause = "it was written by a newer version of tenantdesk; use that version";
            return Err(refused(&path, cause));
        }
        Ok(manifest)
    }

    /// Fails if a file of the backup in `directory` is not as it was made.
    pub fn verify(&self, directory: &Path) -> Result<()> {
        for saved in &self.files {
            let path = directory.join(&saved.path);
            let file = File::open(&path).map_err(not_read(&path, directory))?;
            let found = digest(file, io::sink()).map_err(not_read(&path, directory))?;
            saved.require(&path, &found)?;
        }
        Ok(())
    }

    /// Whether the clock at `now` cannot have dated the backup. A clock was wrong, so nobody knows
    /// whether the backup is older or newer than others.
    pub fn is_ahead(&self, now: Moment) -> bool {
        self.created_at.unix() > now.unix_seconds().saturating_add(MAX_AHEAD)
    }

    fn only_tenant(&self) -> Option<TenantId> {
        let tenant = self.tenants.first().filter(|_| self.kind == BackupKind::Tenant);
        tenant.map(|tenant| tenant.id)
    }

    pub fn tenant(&self, name: &str) -> Option<&SavedTenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    pub fn file(&self, path: &str) -> Option<&SavedFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl SavedFile {
    fn require(&self, path: &Path, found: &(u64, String)) -> Result<()> {
        if (found.0, &found.1) == (self.bytes, &self.sha256) {
            return Ok(());
        }
        Err(refused(path, "its length or SHA-256 is not that of the manifest"))
    }
}

/// Copies `source` to `target`. Returns the length and the SHA-256 in hexadecimal.
fn digest(mut source: impl Read, mut target: impl Write) -> io::Result<(u64, String)> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = source.read(&mut buffer)?;
        let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else { break };
        hash.update(part);
        target.write_all(part)?;
        bytes += part.len() as u64;
    }
    let sum = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, sum))
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    |error| StoreError::other(format!("{}: {error}", path.display()))
}

/// An error that `path`, of which `of` is the backup or the directory of backups, cannot be read.
/// Example: root has copied the backups to another machine, and the service's user restores them.
fn not_read(path: &Path, of: &Path) -> impl FnOnce(io::Error) -> StoreError {
    |error| {
        let mut message = format!("cannot read {}: {error}", path.display());
        if error.kind() == io::ErrorKind::PermissionDenied {
            let user = files::user_name(geteuid().as_raw());
            message.push_str(&format!("; run: sudo chown -R {user}: {}", of.display()));
        }
        StoreError::other(message)
    }
}

fn refused(path: &Path, cause: impl Display) -> StoreError {
    let message = format!("the backup is refused: {}: {cause}", path.display());
    StoreError::new(StoreCode::Refused, message)
}

/// The directory in which a command prepares or examines its files. It has the layout of a data
/// directory, and lies on the same disk as the target, so that a rename puts the files in place.
/// Only one process uses it. It is removed when this is dropped. If the process is killed, the next
/// one empties the directory.
struct Staging {
    path: PathBuf,
    _lock: File,
    is_published: bool,
}

impl Staging {
    fn create(path: PathBuf) -> Result<Staging> {
        let created = DirBuilder::new().mode(0o700).recursive(true).create(&path);
        let lock = created.and_then(|()| File::open(&path)).map_err(file_error(&path))?;
        // If the file system has no locks, the operator must run one command at a time.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            let path = path.display();
            return Err(StoreError::other(format!("another tenantdesk uses {path}; try again")));
        }
        let staging = Staging { path, _lock: lock, is_published: false };
        staging.empty().map_err(file_error(&staging.path))?;
        Ok(staging)
    }

    fn empty(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let is_directory = entry.file_type()?.is_dir();
            let remove = if is_directory { fs::remove_dir_all } else { fs::remove_file };
            remove(entry.path())?;
        }
        DirBuilder::new().mode(0o700).create(tenants_dir(&self.path))
    }

    /// Gives the complete directory its name. If the name cannot be synced, the directory is
    /// removed.
    fn publish(mut self, name: &Path) -> Result<()> {
        fs::rename(&self.path, name).map_err(file_error(name))?;
        name.clone_into(&mut self.path);
        files::sync_parent(name).map_err(file_error(name))?;
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

#[cfg(test)]
mod tests;
