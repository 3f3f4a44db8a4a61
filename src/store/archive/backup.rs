//! Backups: consistent copies while a server runs (contract section 10).
//!
//! A backup is a directory. It is made under a temporary name, checked and synced, and then
//! renamed. A directory with the name of a backup is therefore complete.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::manifest::{self, BackupKind, LeftOutTenant, Manifest, SavedFile, SavedTenant};
use super::{ArchiveError, Staging, check, file_error, not_read};
use crate::clock::Moment;
use crate::files;
use crate::model::{ALL, Resource};
use crate::store::data_dir::{is_foreign, registry_database, tenant_database, tenants_dir};
use crate::store::database::{Database, Role, copy_pages, is_write_error, open_plain};
use crate::store::error::DatabaseError;
use crate::store::records::Reading;
use crate::store::registry::{Registry, TenantRow};

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
    files::create_private_directories(dir).map_err(file_error(dir))?;
    let staging = Staging::create(dir.join(PARTIAL))?;
    let manifest = write_backup(registry, &staging.path, tenant, now)?;
    let directory = free_name(dir, now).map_err(file_error(dir))?;
    staging.publish(&directory)?;
    let is_complete = manifest.left_out.is_empty() && !manifest.tenants.is_empty();
    let removed = match keep.filter(|_| is_complete) {
        Some(keep) => remove_older(dir, &directory, &manifest, keep).map_err(|cause| {
            ArchiveError::NotRemoved { path: directory.clone(), cause: Box::new(cause) }
        })?,
        None => Vec::new(),
    };
    Ok(Backup { directory, manifest, removed })
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

/// Makes the backup in the directory `partial`: copies, checks, manifest.
fn write_backup(
    registry: &Registry,
    partial: &Path,
    tenant: Option<&TenantRow>,
    now: Moment,
) -> Result<Manifest, ArchiveError> {
    let copy = registry_database(partial);
    let live = registry_database(registry.data_dir());
    let copied = save_database(&live, &copy, "the registry")?;
    if let Some(tenant) = tenant {
        copied.execute("DELETE FROM tenants WHERE id <> ?", [tenant.id.0])?;
    }
    let mut manifest = Manifest {
        format: manifest::FORMAT,
        tenantdesk: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: now.timestamp(),
        kind: if tenant.is_some() { BackupKind::Tenant } else { BackupKind::All },
        tenants: Vec::new(),
        left_out: Vec::new(),
        files: Vec::new(),
    };
    save_tenants(registry, &copied, partial, &mut manifest)?;
    if let Some(TenantRow { name, .. }) = tenant.filter(|_| manifest.tenants.is_empty()) {
        return Err(unreadable(&format!("tenant {name}"), "it was deleted meanwhile"));
    }
    // A restored tenant that was moving is suspended. VACUUM removes the deleted rows from the pages
    // of the file, too.
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
) -> Result<(), ArchiveError> {
    for TenantRow { id, name, .. } in check::tenants(copied)? {
        let (live, copy) = (tenant_database(registry.data_dir(), id), tenant_database(partial, id));
        match save_database(&live, &copy, &format!("tenant {name}")) {
            Ok(connection) => {
                let records = count(&connection)?;
                drop(connection);
                manifest.files.push(sync_and_describe(partial, &copy)?);
                manifest.tenants.push(SavedTenant { id, name, records });
            }
            Err(ArchiveError::Unreadable { .. }) if registry.tenant(id)?.is_none() => {
                copy.remove();
                copied.execute("DELETE FROM tenants WHERE id = ?", [id.0])?;
            }
            Err(ArchiveError::Unreadable { cause, .. }) if manifest.kind == BackupKind::All => {
                copy.remove();
                manifest.left_out.push(LeftOutTenant { id, name, reason: cause });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies a database and checks the copy as a restore does. Returns the copy, which is not synced.
///
/// # Errors
///
/// [`ArchiveError::Unreadable`] if the fault is in `live`, which messages call `what`.
fn save_database(live: &Database, copy: &Database, what: &str) -> Result<Connection, ArchiveError> {
    let source = live.open(Role::Bulk).map_err(|error| unreadable(what, error))?;
    files::create_private(copy.path()).map_err(file_error(copy.path()))?;
    copy_pages(&source, copy.path()).map_err(|error| match is_write_error(&error) {
        true => copy.unusable(error).into(),
        false => unreadable(what, live.error(&error)),
    })?;
    let copied = open_plain(copy.path())?;
    match check::problems(&copied, copy.schema).first() {
        Some(problem) => Err(unreadable(what, format!("{}: {problem}", live.path().display()))),
        None => Ok(copied),
    }
}

fn unreadable(what: &str, cause: impl ToString) -> ArchiveError {
    ArchiveError::Unreadable { what: what.to_owned(), cause: cause.to_string() }
}

/// Resource → number of its records.
pub(super) fn count(tenant: &Connection) -> Result<BTreeMap<String, i64>, DatabaseError> {
    let tenant = Reading::new(tenant);
    let number = |resource: &Resource| Ok((resource.plural.to_owned(), tenant.count(resource)?));
    ALL.into_iter().map(number).collect()
}

/// Makes a copy durable that nothing has open, and describes it.
fn sync_and_describe(partial: &Path, copy: &Database) -> Result<SavedFile, ArchiveError> {
    sync(copy.path())?;
    let file = File::open(copy.path()).map_err(file_error(copy.path()))?;
    let (bytes, sha256) = manifest::digest(file, io::sink()).map_err(file_error(copy.path()))?;
    let schema = copy.schema.version();
    Ok(SavedFile { path: copy.name_in(partial), schema, bytes, sha256 })
}

fn write_manifest(partial: &Path, manifest: &Manifest) -> Result<(), ArchiveError> {
    let path = partial.join(manifest::NAME);
    let write = || -> io::Result<()> {
        let mut file = files::create_private(&path)?;
        file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write().map_err(file_error(&path))
}

pub(super) fn sync(path: &Path) -> Result<(), ArchiveError> {
    files::sync(path).map_err(file_error(path))
}

/// The backups in `dir`, the newest first.
///
/// # Errors
///
/// If a manifest cannot be read: an older backup could be taken for the newest.
pub fn list(dir: &Path) -> Result<Vec<(PathBuf, Manifest)>, ArchiveError> {
    let mut found = Vec::new();
    for directory in directories(dir).map_err(not_read(dir, dir))? {
        match fs::symlink_metadata(directory.join(manifest::NAME)) {
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

/// Removes the backups of the same kind except the newest `keep`.
fn remove_older(
    dir: &Path,
    newest: &Path,
    made: &Manifest,
    keep: usize,
) -> Result<Vec<PathBuf>, ArchiveError> {
    let is_same_kind = |manifest: &Manifest| {
        manifest.kind == made.kind && manifest.only_tenant() == made.only_tenant()
    };
    let backups = list(dir)?.into_iter();
    let older = backups.filter(|(path, manifest)| path != newest && is_same_kind(manifest));
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
