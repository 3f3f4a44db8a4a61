//! Backups: consistent copies while the service runs (contract section 10).
//!
//! A backup is a folder. It is made under another name, checked and synced, and only then gets its own: a folder with a
//! backup's name is whole.

pub mod manifest;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

pub use manifest::{BackupKind, LeftOutTenant, Manifest, SavedFile, SavedTenant};

use super::check;
use super::connection::{self, OpenError};
use super::error::DatabaseError;
use super::page_copy::{self, CopyError};
use super::records::Reading;
use super::registry::{self, Registry, RegistryError, TenantRow};
use super::schema::{self, Schema};
use super::tenants;
use crate::clock::Moment;
use crate::model::ALL;
use crate::new_folders::NewFolders;

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{}: {cause}", .path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("tenant {name}: {cause}; no backup was made")]
    Tenant { name: String, cause: String },
    #[error("{database} is not sound: {problem}; no backup was made")]
    Unsound { database: String, problem: String },
    #[error("another backup into {} is under way", .0.display())]
    UnderWay(PathBuf),
    #[error("the backup {} is made, but older ones could not be removed: {cause}", .folder.display())]
    NotRemoved { folder: PathBuf, cause: Box<BackupError> },
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the copy cannot be used: {0}")]
    Database(#[from] DatabaseError),
}

impl From<rusqlite::Error> for BackupError {
    fn from(error: rusqlite::Error) -> BackupError {
        BackupError::Database(error.into())
    }
}

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    pub folder: PathBuf,
    pub manifest: Manifest,
    /// Older ones that were removed after it.
    pub removed: Vec<PathBuf>,
}

/// Makes a backup of all tenants, or of one, in a new folder in `dir`. Then removes older ones of the same kind beyond the
/// newest `keep`, unless a tenant had to be left out: an older backup may hold it.
///
/// # Errors
///
/// [`BackupError`] where there is no backup. One tenant that cannot be read is an error only where it is the one asked for.
pub fn create(
    registry: &Registry,
    dir: &Path,
    tenant: Option<&TenantRow>,
    keep: Option<usize>,
    now: Moment,
) -> Result<Backup, BackupError> {
    let _folders = NewFolders::make(dir, 0o700).map_err(at(dir))?;
    let _alone = lock(dir)?;
    remove_leftovers(dir).map_err(at(dir))?;
    let name = free_name(dir, now).map_err(at(dir))?;
    let partial = dir.join(format!(".{name}{PARTIAL}"));
    let folder = dir.join(name);
    let outcome = fill(registry, &partial, tenant, now).and_then(|manifest| {
        fs::rename(&partial, &folder).and_then(|()| File::open(dir)?.sync_all()).map_err(at(&folder))?;
        Ok(manifest)
    });
    let manifest = match outcome {
        Ok(manifest) => manifest,
        Err(error) => {
            // The first failure is the one to tell; what is left here goes with the next backup.
            let _ = fs::remove_dir_all(&partial);
            return Err(error);
        }
    };
    let removed = match keep.filter(|_| manifest.left_out.is_empty()) {
        Some(keep) => remove_older(dir, &folder, &manifest, keep)
            .map_err(|cause| BackupError::NotRemoved { folder: folder.clone(), cause: Box::new(cause) })?,
        None => Vec::new(),
    };
    Ok(Backup { folder, manifest, removed })
}

/// The end of the name of a backup that is being made, or removed.
const PARTIAL: &str = ".partial";

/// Two that make and remove backups in one folder would be in each other's way. Where the file system knows no locks we trust
/// the operator.
fn lock(dir: &Path) -> Result<File, BackupError> {
    let file = File::open(dir).map_err(at(dir))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(BackupError::UnderWay(dir.to_owned())),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// What a backup that was killed has left behind.
fn remove_leftovers(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let ours = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(PARTIAL)).is_some_and(is_name);
        if ours && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// `2026-11-20T19-30-00Z`, and `-2` and so on behind it where one was made in the same second.
fn free_name(dir: &Path, now: Moment) -> io::Result<String> {
    let time = now.wall.strftime(TIME).to_string();
    let mut name = time.clone();
    let mut count = 1;
    while dir.join(&name).try_exists()? {
        count += 1;
        name = format!("{time}-{count}");
    }
    Ok(name)
}

const TIME: &str = "%Y-%m-%dT%H-%M-%SZ";

/// The length of a name without a count.
const TIME_LENGTH: usize = "2026-11-20T19-30-00Z".len();

fn is_name(name: &str) -> bool {
    order_in_second(name).is_some()
}

/// A backup's place among those of its second; nothing where this is no backup's name.
fn order_in_second(name: &str) -> Option<u32> {
    let (time, count) = name.split_at_checked(TIME_LENGTH)?;
    let shape = time.bytes().zip("0000-00-00T00-00-00Z".bytes()).all(|(byte, model)| match model {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    });
    match (shape, count) {
        (false, _) => None,
        (true, "") => Some(1),
        (true, count) => count.strip_prefix('-')?.parse().ok(),
    }
}

/// Everything of a backup: copies, checks, manifest.
fn fill(registry: &Registry, folder: &Path, tenant: Option<&TenantRow>, now: Moment) -> Result<Manifest, BackupError> {
    for private in [folder.to_owned(), tenants::folder(folder)] {
        DirBuilder::new().mode(0o700).create(&private).map_err(at(&private))?;
    }
    let copied = copy_registry(registry, folder)?;
    let mut manifest = Manifest {
        format: manifest::FORMAT,
        tenantdesk: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: now.rfc3339(),
        kind: if tenant.is_some() { BackupKind::Tenant } else { BackupKind::All },
        tenants: Vec::new(),
        left_out: Vec::new(),
        files: Vec::new(),
    };
    save_tenants(registry, &copied, folder, tenant, &mut manifest)?;
    // What is deleted must not be found in the file either.
    copied.execute_batch("DELETE FROM sessions; VACUUM")?;
    if let Some(problem) = problem_of(&copied) {
        return Err(BackupError::Unsound { database: registry::FILE.to_owned(), problem });
    }
    drop(copied);
    sync(&folder.join(registry::FILE))?;
    manifest.files.insert(0, described(folder, registry::FILE.to_owned(), &registry::SCHEMA)?);
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

/// Saves the tenant, or every tenant of the registry that was `copied`, and enters it into the manifest.
fn save_tenants(
    registry: &Registry,
    copied: &Connection,
    folder: &Path,
    tenant: Option<&TenantRow>,
    manifest: &mut Manifest,
) -> Result<(), BackupError> {
    for (id, name) in tenants_in(copied)? {
        let wanted = tenant.is_none_or(|tenant| tenant.id == id);
        match if wanted { save_tenant(registry, folder, id)? } else { Outcome::Gone } {
            Outcome::Saved(records) => {
                manifest.files.push(described(folder, format!("tenants/{id}.db"), &tenants::SCHEMA)?);
                manifest.tenants.push(SavedTenant { id, name, records });
            }
            Outcome::Unreadable(reason) => manifest.left_out.push(LeftOutTenant { id, name, reason }),
            // Not asked for, or deleted since the registry was copied.
            Outcome::Gone => drop(copied.execute("DELETE FROM tenants WHERE id = ?", [id])?),
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

fn tenants_in(registry: &Connection) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut statement = registry.prepare("SELECT id, name FROM tenants ORDER BY id")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// What became of one tenant.
enum Outcome {
    /// With the number of records of each resource.
    Saved(BTreeMap<String, i64>),
    /// Its file cannot be read, and why.
    Unreadable(String),
    /// It does not exist any more.
    Gone,
}

/// Copies a tenant's file. A file that cannot be read is no error: the others are saved without it.
fn save_tenant(registry: &Registry, folder: &Path, id: i64) -> Result<Outcome, BackupError> {
    let live = match schema::open(&tenants::file(&tenants::folder(registry.data_dir()), id), &tenants::SCHEMA) {
        Ok(live) => live,
        Err(OpenError::Missing(_)) if registry.tenant(id)?.is_none() => return Ok(Outcome::Gone),
        Err(error) => return Ok(Outcome::Unreadable(error.to_string())),
    };
    let copy = tenants::file(&tenants::folder(folder), id);
    match page_copy::copy_to(&live, &copy) {
        Ok(()) => (),
        Err(CopyError::Source(error)) => return Ok(Outcome::Unreadable(error.to_string())),
        Err(CopyError::Target(error)) => return Err(error.into()),
    }
    match count_sound(&connection::open_raw(&copy)?) {
        Ok(records) => Ok(Outcome::Saved(records)),
        Err(reason) => {
            connection::remove_database(&copy);
            Ok(Outcome::Unreadable(reason))
        }
    }
}

/// The number of records of each resource, or what is wrong with the copy.
fn count_sound(copy: &Connection) -> Result<BTreeMap<String, i64>, String> {
    match problem_of(copy) {
        Some(problem) => Err(format!("it is damaged: {problem}")),
        None => count(copy).map_err(|error| error.to_string()),
    }
}

/// Resource → number of its records.
pub(super) fn count(connection: &Connection) -> Result<BTreeMap<String, i64>, super::error::DatabaseError> {
    let reading = Reading::new(connection);
    ALL.into_iter().map(|resource| Ok((resource.plural.to_owned(), reading.number_of(resource)?))).collect()
}

/// The first thing that is wrong inside a database.
fn problem_of(database: &Connection) -> Option<String> {
    check::find_problems(database).into_iter().next()
}

fn described(folder: &Path, path: String, schema: &Schema) -> Result<SavedFile, BackupError> {
    manifest::describe(folder, &path, schema.version).map_err(at(&folder.join(path)))
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<(), BackupError> {
    let path = folder.join(manifest::NAME);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write().map_err(at(&path))
}

fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(at(path))
}

/// The backups in `dir`, the newest first. A folder with a backup's name but without a manifest is an error: who asks for
/// the newest must not get an older one in its place.
pub fn list(dir: &Path) -> Result<Vec<(PathBuf, Manifest)>, BackupError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let Some(order) = entry.file_name().to_str().and_then(order_in_second) else { continue };
        let folder = entry.path();
        if entry.file_type().map_err(at(&folder))?.is_dir() {
            let manifest = Manifest::read(&folder).map_err(at(&folder.join(manifest::NAME)))?;
            found.push((order, folder, manifest));
        }
    }
    found.sort_by(|(a_order, _, a), (b_order, _, b)| (&b.created_at, b_order).cmp(&(&a.created_at, a_order)));
    Ok(found.into_iter().map(|(_, folder, manifest)| (folder, manifest)).collect())
}

/// Removes the backups of the same kind beyond the newest `keep`. Each gets another name first, so that none is ever found
/// half removed.
fn remove_older(dir: &Path, newest: &Path, made: &Manifest, keep: usize) -> Result<Vec<PathBuf>, BackupError> {
    let whose = |manifest: &Manifest| -> Vec<(i64, String)> {
        match manifest.kind {
            BackupKind::All => Vec::new(),
            BackupKind::Tenant => manifest.tenants.iter().map(|tenant| (tenant.id, tenant.name.clone())).collect(),
        }
    };
    let same = |manifest: &Manifest| manifest.kind == made.kind && whose(manifest) == whose(made);
    let mut removed = Vec::new();
    // The one just made stays, also where the clock was set back since the others.
    let older = list(dir)?.into_iter().filter(|(folder, manifest)| folder != newest && same(manifest));
    for (folder, _) in older.skip(keep.saturating_sub(1)) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let going = dir.join(format!(".{name}{PARTIAL}"));
        fs::rename(&folder, &going).and_then(|()| fs::remove_dir_all(&going)).map_err(at(&folder))?;
        removed.push(folder);
    }
    Ok(removed)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    |cause| BackupError::File { path, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_named_by_its_time() {
        assert_eq!(order_in_second("2026-11-20T19-30-00Z"), Some(1));
        assert_eq!(order_in_second("2026-11-20T19-30-00Z-12"), Some(12));
        for other in
            ["", "2026-11-20", "2026-11-20T19:30:00Z", "2026-11-20T19-30-00Z-", "2026-11-20T19-30-00Z-x", "äöü"]
        {
            assert_eq!(order_in_second(other), None, "{other}");
        }
    }
}
