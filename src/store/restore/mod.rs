//! Restore of a backup: of all tenants, or of one tenant while the others are served (contract section 10).
//!
//! The backup is verified before anything changes, and copied to a staging directory before anything is replaced. An intact
//! tenant's file gets its new content in one transaction: a reader sees the old records or the new ones, and the connections of
//! a server stay open. No id is used twice, because the id counters are raised while the file is locked. Only a missing or
//! damaged file is replaced by a rename.

mod error;
mod interrupted;
mod replace;
mod source;
mod staging;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use error::RestoreError;
use error::at;
pub use interrupted::finish_interrupted;
use replace::Replacements;
use staging::StagingDir;

use super::backup::{BackupKind, LeftOutTenant, SavedTenant};
use super::data_dir::NewDataDir;
use super::data_dir_lock::DataDirLock;
use super::registry::{self, Registry, TenantImport, TenantRow};
use super::{connection, tenants};

/// What to restore.
#[derive(Clone, Copy, Debug)]
pub struct Restore<'a> {
    /// The data directory to restore into. It is created if it does not exist.
    pub data_dir: &'a Path,
    /// A backup, or a folder of backups.
    pub source: &'a Path,
    /// The name of one tenant; `None` for all tenants of the backup.
    pub tenant: Option<&'a str>,
    /// The name of that tenant in the data directory, if it is not the name in the backup.
    pub new_name: Option<&'a str>,
    /// Whether existing tenants and files may be replaced.
    pub force: bool,
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The backup.
    pub folder: PathBuf,
    /// When the backup was created, RFC 3339.
    pub created_at: String,
    /// The restored tenants.
    pub tenants: Vec<RestoredTenant>,
    /// For a restore of all tenants: those that the backup lacks. They are unchanged.
    pub left_out: Vec<LeftOutTenant>,
    /// The files that were replaced by a rename, or are new.
    pub renamed: Vec<PathBuf>,
    /// Whether a replicated file was replaced by a rename: Litestream still reads the previous file and must be restarted.
    pub litestream_restart_needed: bool,
}

/// One restored tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredTenant {
    /// Its id in the data directory. It may differ from the id in the backup.
    pub id: i64,
    /// Its name in the data directory.
    pub name: String,
    /// Whether it existed. Its keys, password and state are then unchanged.
    pub existed: bool,
    /// The number of its keys that came with it. A key that a tenant of the data directory has stays with that tenant.
    pub keys: usize,
    /// Resource → number of its records.
    pub records: BTreeMap<String, i64>,
}

/// Restores a backup completely or not at all.
///
/// # Errors
///
/// [`RestoreError`]. Only [`RestoreError::Stuck`] leaves changes; it says where the previous files are.
pub fn restore(request: &Restore<'_>) -> Result<Restored, RestoreError> {
    let (folder, manifest) = source::locate(request.source, request.tenant)?;
    let selected = source::select(&folder, &manifest, request.tenant)?;
    let files = source::verify(&folder, &manifest, &selected)?;
    finish_interrupted(request.data_dir)?;
    let new_data_dir = NewDataDir::create(request.data_dir)?;
    let is_complete = manifest.kind == BackupKind::All && request.tenant.is_none();
    // Held until the end, so that no server starts meanwhile.
    let _lock = is_complete.then(|| DataDirLock::acquire(request.data_dir)).transpose().map_err(RestoreError::InUse)?;
    let staging = StagingDir::create(request.data_dir)?;
    staging.fill(&folder, &files)?;
    let replaces_registry = is_complete && request.force && staging.set_damaged_registry_aside()?;
    let applied = match apply(request, &staging, &selected, replaces_registry) {
        Ok(applied) => applied,
        Err(error) => {
            if replaces_registry {
                staging.put_damaged_registry_back()?;
            }
            if matches!(error, RestoreError::Stuck { .. }) {
                // The next command removes the new files that are left. It needs the registry to know that they are nobody's.
                new_data_dir.keep();
            }
            return Err(error);
        }
    };
    let has_new_registry = replaces_registry || new_data_dir.has_new_registry();
    let litestream_restart_needed =
        applied.hides_files_from_litestream(request.data_dir, is_complete, has_new_registry);
    new_data_dir.keep();
    let left_out = if request.tenant.is_none() { manifest.left_out } else { Vec::new() };
    let Applied { tenants, mut renamed, .. } = applied;
    renamed.extend(has_new_registry.then(|| request.data_dir.join(registry::FILE)));
    Ok(Restored { folder, created_at: manifest.created_at, tenants, left_out, renamed, litestream_restart_needed })
}

/// What [`apply`] has changed.
struct Applied {
    tenants: Vec<RestoredTenant>,
    /// The paths that name another file than before.
    renamed: Vec<PathBuf>,
    /// The highest id that a tenant ever had before the restore.
    last_id: i64,
}

impl Applied {
    /// Returns whether Litestream replicates a file whose path names another file now. It finds a file with a new name itself,
    /// and so do the files of tenants with new ids.
    fn hides_files_from_litestream(&self, data_dir: &Path, is_complete: bool, has_new_registry: bool) -> bool {
        let registry_file = data_dir.join(registry::FILE);
        let known = self.tenants.iter().filter(|tenant| is_complete || tenant.id <= self.last_id);
        let mut reused: Vec<PathBuf> =
            known.map(|tenant| live_file(data_dir, tenant.id)).filter(|file| self.renamed.contains(file)).collect();
        reused.extend(has_new_registry.then(|| registry_file.clone()));
        !reused.is_empty() && (is_replicated(&registry_file) || reused.iter().any(|file| is_replicated(file)))
    }
}

/// Returns whether Litestream has left its folder next to a file, or its table in it. A file that cannot be read has none.
fn is_replicated(file: &Path) -> bool {
    let has_table =
        || connection::open_raw(file).and_then(|connection| connection.table_exists(None, "_litestream_seq"));
    tenants::litestream_folder(file).is_dir() || has_table().unwrap_or(false)
}

fn live_file(data_dir: &Path, id: i64) -> PathBuf {
    tenants::file(&tenants::folder(data_dir), id)
}

/// A tenant to restore.
struct Target<'a> {
    saved: &'a SavedTenant,
    /// Its id in the data directory, or the id in the backup if it does not exist.
    id: i64,
    /// Its name in the data directory.
    name: String,
    existed: bool,
}

/// Replaces the files of existing tenants, each in a transaction of its own, then imports the others. Undoes everything after an
/// error.
fn apply(
    request: &Restore<'_>,
    staging: &StagingDir,
    selected: &[SavedTenant],
    replaces_registry: bool,
) -> Result<Applied, RestoreError> {
    let registry = Registry::create(request.data_dir)?;
    let last_id = registry.last_tenant_id()?;
    let targets = find_targets(request, &registry, staging, selected)?;
    check_overwriting(request, &targets, last_id)?;
    let mut replacements = Replacements::new(staging);
    let tenants = match replace_all(request.data_dir, &registry, staging, &targets, &mut replacements) {
        Ok(tenants) => tenants,
        Err(cause) => return Err(replacements.undo(cause)),
    };
    if replaces_registry {
        // An error is ignored: the id counters of a damaged registry are taken over only if they can be read.
        let _ = registry.raise_id_counters(&staging.replaced(&request.data_dir.join(registry::FILE)));
    }
    Ok(Applied { tenants, renamed: replacements.finish(), last_id })
}

/// Finds the selected tenants in the registry. Without the name of one tenant they are found by their ids, because a tenant may
/// have been renamed since the backup; a tenant that the registry does not know by its id is found by its name.
fn find_targets<'a>(
    request: &Restore<'_>,
    registry: &Registry,
    staging: &StagingDir,
    selected: &'a [SavedTenant],
) -> Result<Vec<Target<'a>>, RestoreError> {
    let by_id = match request.tenant {
        Some(_) => Vec::new(),
        None => registry.tenants_also_in(&staging.registry())?,
    };
    let mut targets: Vec<Target<'a>> = Vec::new();
    for saved in selected {
        let name = request.new_name.unwrap_or(&saved.name);
        let existing = match by_id.iter().find(|row| row.id == saved.id) {
            Some(row) => Some(row.clone()),
            None => registry.find_tenant(name)?,
        };
        let target = Target::new(saved, name, existing);
        if let Some(other) = targets.iter().find(|other| other.existed && target.existed && other.id == target.id) {
            let saved = [other.saved.name.clone(), saved.name.clone()];
            return Err(RestoreError::Ambiguous { saved, name: target.name });
        }
        targets.push(target);
    }
    Ok(targets)
}

impl<'a> Target<'a> {
    /// `existing` is the tenant in the data directory; without it, the saved tenant gets `name`.
    fn new(saved: &'a SavedTenant, name: &str, existing: Option<TenantRow>) -> Target<'a> {
        match existing {
            Some(TenantRow { id, name, .. }) => Target { saved, id, name, existed: true },
            None => Target { saved, id: saved.id, name: name.to_owned(), existed: false },
        }
    }
}

/// Fails if something would be overwritten and the restore is not forced.
fn check_overwriting(request: &Restore<'_>, targets: &[Target<'_>], last_id: i64) -> Result<(), RestoreError> {
    let mut overwritten = Vec::new();
    for target in targets {
        let path = live_file(request.data_dir, target.id);
        if target.existed {
            overwritten.push(format!("the tenant {}", target.name));
        } else if target.id > last_id && path.try_exists().map_err(at(&path))? {
            // The registry never used this id, so the file probably belongs to this tenant. A tenant with an id that the registry
            // has used gets a new id instead.
            overwritten.push(path.display().to_string());
        }
    }
    if overwritten.is_empty() || request.force { Ok(()) } else { Err(RestoreError::WouldOverwrite(overwritten)) }
}

fn replace_all(
    data_dir: &Path,
    registry: &Registry,
    staging: &StagingDir,
    targets: &[Target<'_>],
    replacements: &mut Replacements<'_>,
) -> Result<Vec<RestoredTenant>, RestoreError> {
    let restored = |target: &Target<'_>, id, keys| RestoredTenant {
        id,
        name: target.name.clone(),
        existed: target.existed,
        keys,
        records: target.saved.records.clone(),
    };
    let (existing, new): (Vec<&Target<'_>>, Vec<_>) = targets.iter().partition(|target| target.existed);
    let mut tenants = Vec::new();
    for target in existing {
        replacements.replace(&live_file(data_dir, target.id), &staging.tenant(target.saved.id))?;
        tenants.push(restored(target, target.id, 0));
    }
    if new.is_empty() {
        return Ok(tenants);
    }
    let imports: Vec<TenantImport<'_>> =
        new.iter().map(|target| TenantImport { saved_id: target.saved.id, name: &target.name }).collect();
    let place_file = |saved_id, id| -> Result<bool, RestoreError> {
        let path = live_file(data_dir, id);
        if path.try_exists().map_err(at(&path))? && id != saved_id {
            return Ok(false);
        }
        replacements.replace(&path, &staging.tenant(saved_id))?;
        Ok(true)
    };
    let imported = registry.import_tenants(&staging.registry(), &imports, place_file)?;
    tenants.extend(new.iter().zip(&imported).map(|(target, imported)| restored(target, imported.id, imported.keys)));
    Ok(tenants)
}

#[cfg(test)]
mod tests;
