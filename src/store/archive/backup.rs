//! Backups: consistent copies while a server runs (contract section 10).
//!
//! A backup is a directory. It is made under a temporary name, checked and synced, and then
//! renamed. A directory with the name of a backup is therefore complete.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::error::{ArchiveError, at};
use super::manifest::{self, BackupKind, LeftOutTenant, Manifest, SavedFile, SavedTenant};
use super::{check, verify};
use crate::clock::Moment;
use crate::files;
use crate::model::{ALL, Resource, TenantId};
use crate::new_directories::NewDirectories;
use crate::store::data_dir::{registry_database, tenant_database, tenants_dir};
use crate::store::database::{CopyError, Role, Schema, copy_to, open_plain};
use crate::store::error::OpenError;
use crate::store::registry::{self, Registry, TenantRow};
use crate::store::{records, tenant};

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
/// lacks a tenant: an older one may hold it.
///
/// # Errors
///
/// After [`ArchiveError::NotRemoved`] the backup is there. A tenant that cannot be read is no error
/// in a backup of all: [`Manifest::left_out`] lists it.
pub fn create(
    registry: &Registry,
    dir: &Path,
    tenant: Option<&TenantRow>,
    keep: Option<usize>,
    now: Moment,
) -> Result<Backup, ArchiveError> {
    let _directories = NewDirectories::create(dir, 0o700).map_err(at(dir))?;
    let _lock = lock(dir)?;
    remove_leftovers(dir).map_err(at(dir))?;
    let name = free_name(dir, now).map_err(at(dir))?;
    let partial = partial(dir, &name);
    let directory = dir.join(name);
    let manifest = fill(registry, &partial, tenant, now, next_sequence(dir))
        .and_then(|manifest| publish(&partial, &directory).map(|()| manifest))
        .inspect_err(|_| {
            // If this fails, the next backup removes it.
            let _ = fs::remove_dir_all(&partial);
        })?;
    let removed = match keep.filter(|_| manifest.left_out.is_empty()) {
        Some(keep) => remove_older(dir, &directory, &manifest, keep).map_err(|cause| {
            ArchiveError::NotRemoved { path: directory.clone(), cause: Box::new(cause) }
        })?,
        None => Vec::new(),
    };
    Ok(Backup { directory, manifest, removed })
}

/// Only one process may make and remove backups in a directory. Where the file system has no
/// locks, the operator has to see to that.
fn lock(dir: &Path) -> Result<File, ArchiveError> {
    let file = File::open(dir).map_err(at(dir))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(ArchiveError::UnderWay(dir.to_owned())),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// The end of the name of a directory that is being filled or removed.
const PARTIAL: &str = ".partial";

fn partial(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}{PARTIAL}"))
}

/// Removes the directories that killed backups have left.
fn remove_leftovers(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(PARTIAL));
        if stem.and_then(number_in).is_some() && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// An unused name: `2026-11-20T19-30-00Z`, and `2026-11-20T19-30-00Z-2` for the second backup of
/// the same second.
fn free_name(dir: &Path, now: Moment) -> io::Result<String> {
    let time = now.wall.strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
    let mut name = time.clone();
    let mut number = 1;
    while dir.join(&name).try_exists()? {
        number += 1;
        name = format!("{time}-{number}");
    }
    Ok(name)
}

/// The number of a backup among those of the same second. `None` for a name that no backup has.
fn number_in(name: &str) -> Option<u32> {
    const MODEL: &str = "0000-00-00T00-00-00Z";
    let (time, number) = name.split_at_checked(MODEL.len())?;
    let is_time = time.bytes().zip(MODEL.bytes()).all(|(byte, model)| match model {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    });
    match (is_time, number) {
        (false, _) => None,
        (true, "") => Some(1),
        (true, number) => number.strip_prefix('-')?.parse().ok(),
    }
}

/// The number of the next backup in `dir`. Directories without a readable manifest are skipped: a
/// backup is made beside them.
fn next_sequence(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let backups = entries.filter(|entry| entry.file_name().to_str().and_then(number_in).is_some());
    let last = backups.filter_map(|entry| Some(Manifest::read(&entry.path()).ok()?.sequence)).max();
    last.unwrap_or(0).saturating_add(1)
}

/// Gives a complete backup its name. If the name cannot be synced, the backup loses it again.
fn publish(partial: &Path, directory: &Path) -> Result<(), ArchiveError> {
    fs::rename(partial, directory).map_err(at(directory))?;
    files::sync_parent(directory).map_err(|error| {
        // If this fails, too, a complete backup remains.
        let _ = fs::rename(directory, partial);
        at(directory)(error)
    })
}

/// Makes the backup in the new directory `partial`: copies, checks, manifest.
fn fill(
    registry: &Registry,
    partial: &Path,
    tenant: Option<&TenantRow>,
    now: Moment,
    sequence: u64,
) -> Result<Manifest, ArchiveError> {
    for private in [partial.to_owned(), tenants_dir(partial)] {
        DirBuilder::new().mode(0o700).create(&private).map_err(at(&private))?;
    }
    let copied = copy_registry(registry, partial)?;
    let mut manifest = Manifest {
        format: manifest::FORMAT,
        tenantdesk: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: now.timestamp(),
        sequence,
        kind: if tenant.is_some() { BackupKind::Tenant } else { BackupKind::All },
        tenants: Vec::new(),
        left_out: Vec::new(),
        files: Vec::new(),
    };
    save_tenants(registry, &copied, partial, tenant, &mut manifest)?;
    // VACUUM removes the deleted rows from the pages of the file, too.
    copied.execute_batch("DELETE FROM sessions; VACUUM")?;
    if let Some(problem) = check::faults(&copied, &registry::SCHEMA).into_iter().next() {
        let what = format!("{} is damaged", registry::FILE);
        return Err(ArchiveError::Unreadable { what, cause: problem });
    }
    drop(copied);
    sync(&partial.join(registry::FILE))?;
    manifest.files.insert(0, describe(partial, registry::FILE, &registry::SCHEMA)?);
    write_manifest(partial, &manifest)?;
    sync(&tenants_dir(partial))?;
    sync(partial)?;
    Ok(manifest)
}

fn copy_registry(registry: &Registry, partial: &Path) -> Result<Connection, ArchiveError> {
    let live = registry_database(registry.data_dir()).open(Role::Bulk)?;
    let copy = partial.join(registry::FILE);
    copy_to(&live, &copy).map_err(|error| match error {
        CopyError::Source(error) | CopyError::Target(error) => error,
    })?;
    Ok(open_plain(&copy)?)
}

/// Saves `tenant`, or every tenant of the copied registry, and lists it in the manifest. Other
/// tenants are deleted from the copied registry.
fn save_tenants(
    registry: &Registry,
    copied: &Connection,
    partial: &Path,
    tenant: Option<&TenantRow>,
    manifest: &mut Manifest,
) -> Result<(), ArchiveError> {
    for TenantRow { id, name, created_at, .. } in verify::tenants(copied)? {
        let is_wanted = tenant.is_none_or(|tenant| tenant.id == id);
        match if is_wanted { save_tenant(registry, partial, id)? } else { TenantCopy::NotNeeded } {
            TenantCopy::Saved(records) => {
                let saved = SavedTenant { id, name, created_at: Some(created_at), records };
                manifest.files.push(describe(partial, &saved.file(), &tenant::SCHEMA)?);
                manifest.tenants.push(saved);
            }
            TenantCopy::Unreadable(reason) => {
                manifest.left_out.push(LeftOutTenant { id, name, reason });
            }
            TenantCopy::NotNeeded => {
                copied.execute("DELETE FROM tenants WHERE id = ?", [id])?;
            }
        }
    }
    match tenant {
        Some(tenant) if manifest.tenants.is_empty() => {
            let reason = manifest.left_out.pop().map(|left_out| left_out.reason);
            let cause = reason.unwrap_or_else(|| "it was deleted meanwhile".to_owned());
            Err(ArchiveError::Unreadable { what: format!("tenant {}", tenant.name), cause })
        }
        _ => Ok(()),
    }
}

/// The result of copying one tenant's file.
enum TenantCopy {
    /// The copy is intact. Resource → number of its records.
    Saved(BTreeMap<String, i64>),
    /// The file cannot be read, for this reason.
    Unreadable(String),
    /// The tenant was not asked for, or was deleted after the registry was copied.
    NotNeeded,
}

/// Copies a tenant's file. One that cannot be read is no error: the others are saved without it.
fn save_tenant(
    registry: &Registry,
    partial: &Path,
    id: TenantId,
) -> Result<TenantCopy, ArchiveError> {
    let live = match tenant_database(registry.data_dir(), id).open(Role::Bulk) {
        Ok(live) => live,
        Err(OpenError::Missing(_)) if registry.tenant(id)?.is_none() => {
            return Ok(TenantCopy::NotNeeded);
        }
        Err(error) => return Ok(TenantCopy::Unreadable(error.to_string())),
    };
    let copy = tenant_database(partial, id);
    match copy_to(&live, copy.path()) {
        Ok(()) => (),
        Err(CopyError::Source(error)) => return Ok(TenantCopy::Unreadable(error.to_string())),
        Err(CopyError::Target(error)) => return Err(error.into()),
    }
    match check_and_count(&open_plain(copy.path())?) {
        Ok(records) => Ok(TenantCopy::Saved(records)),
        Err(reason) => {
            copy.remove();
            Ok(TenantCopy::Unreadable(reason))
        }
    }
}

/// The number of records of each resource, or the first fault of the copy.
fn check_and_count(copy: &Connection) -> Result<BTreeMap<String, i64>, String> {
    if let Some(fault) = check::faults(copy, &tenant::SCHEMA).into_iter().next() {
        return Err(format!("it is damaged: {fault}"));
    }
    count(copy).map_err(|error| error.to_string())
}

/// Resource → number of its records.
pub(super) fn count(tenant: &Connection) -> rusqlite::Result<BTreeMap<String, i64>> {
    let number =
        |resource: &Resource| Ok((resource.plural.to_owned(), records::count(tenant, resource)?));
    ALL.into_iter().map(number).collect()
}

fn describe(partial: &Path, path: &str, schema: &Schema) -> Result<SavedFile, ArchiveError> {
    manifest::describe(partial, path, schema.version).map_err(at(&partial.join(path)))
}

fn write_manifest(partial: &Path, manifest: &Manifest) -> Result<(), ArchiveError> {
    let path = partial.join(manifest::NAME);
    let write = || -> io::Result<()> {
        let mut file = files::create_private(&path)?;
        file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write().map_err(at(&path))
}

pub(super) fn sync(path: &Path) -> Result<(), ArchiveError> {
    files::sync(path).map_err(at(path))
}

/// The backups in `dir`, the newest first. Their order is that of their sequence numbers, because
/// the clock may have been set back between two of them. Backups of 0.1.0 come last, by their time.
///
/// # Errors
///
/// [`ArchiveError::File`] if a directory with the name of a backup has no readable manifest.
/// Otherwise an older backup could be taken for the newest.
pub fn list(dir: &Path) -> Result<Vec<(PathBuf, Manifest)>, ArchiveError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let Some(number) = entry.file_name().to_str().and_then(number_in) else { continue };
        let directory = entry.path();
        if entry.file_type().map_err(at(&directory))?.is_dir() {
            let path = directory.join(manifest::NAME);
            let manifest = Manifest::read(&directory).map_err(at(&path))?;
            found.push((number, directory, manifest));
        }
    }
    found.sort_by_key(|(number, _, manifest)| (manifest.sequence, manifest.created_at, *number));
    let newest_first = found.into_iter().rev();
    Ok(newest_first.map(|(_, directory, manifest)| (directory, manifest)).collect())
}

/// Removes the backups of the same kind except the newest `keep`. Each is renamed first, so that no
/// reader finds an incomplete backup.
fn remove_older(
    dir: &Path,
    newest: &Path,
    made: &Manifest,
    keep: usize,
) -> Result<Vec<PathBuf>, ArchiveError> {
    let is_of_a_tenant = |manifest: &Manifest| manifest.kind == BackupKind::Tenant;
    let is_same_kind = |manifest: &Manifest| {
        manifest.kind == made.kind
            && (!is_of_a_tenant(made)
                || manifest
                    .tenants
                    .iter()
                    .zip(&made.tenants)
                    .all(|(one, other)| one.is_same(other)))
    };
    let backups = list(dir)?.into_iter();
    let older = backups.filter(|(path, manifest)| path != newest && is_same_kind(manifest));
    let mut removed = Vec::new();
    for (directory, _) in older.skip(keep.saturating_sub(1)) {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let partial = partial(dir, &name);
        // The new name is durable before anything in the directory is removed.
        fs::rename(&directory, &partial)
            .and_then(|()| files::sync_parent(&partial))
            .and_then(|()| fs::remove_dir_all(&partial))
            .map_err(at(&directory))?;
        removed.push(directory);
    }
    Ok(removed)
}
