//! The source of a restore: finds the backup, selects its tenants and verifies its files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{RestoreError, at};
use crate::store::backup::manifest::{self, digest};
use crate::store::backup::{self, BackupKind, Manifest, SavedFile, SavedTenant};
use crate::store::schema::Schema;
use crate::store::{registry, tenants};

/// Finds the backup to restore. `dir` is a backup or a folder of backups; of those, the newest is taken that holds `tenant`, or
/// that holds all tenants if `tenant` is `None`.
pub(super) fn locate(dir: &Path, tenant: Option<&str>) -> Result<(PathBuf, Manifest), RestoreError> {
    let path = dir.join(manifest::NAME);
    if path.try_exists().map_err(at(&path))? {
        return Ok((dir.to_owned(), Manifest::read(dir).map_err(at(&path))?));
    }
    let fits = |manifest: &Manifest| match tenant {
        Some(name) => manifest.tenant(name).is_some(),
        None => manifest.kind == BackupKind::All,
    };
    backup::list(dir)?.into_iter().find(|(_, manifest)| fits(manifest)).ok_or_else(|| RestoreError::NoBackup {
        dir: dir.to_owned(),
        wanted: tenant.map_or_else(|| "of all tenants".to_owned(), |name| format!("of the tenant {name}")),
    })
}

/// Returns the tenants to restore: the one of this name, or all of the backup.
pub(super) fn select(
    folder: &Path,
    manifest: &Manifest,
    tenant: Option<&str>,
) -> Result<Vec<SavedTenant>, RestoreError> {
    let Some(name) = tenant else { return Ok(manifest.tenants.clone()) };
    let found = manifest.tenant(name).ok_or_else(|| missing_tenant(folder, manifest, name))?;
    Ok(vec![found.clone()])
}

fn missing_tenant(folder: &Path, manifest: &Manifest, tenant: &str) -> RestoreError {
    let folder = folder.to_owned();
    match manifest.left_out(tenant) {
        Some(tenant) => RestoreError::LeftOut { folder, tenant: tenant.clone() },
        None => RestoreError::NotInBackup { folder, tenant: tenant.to_owned() },
    }
}

/// Checks the registry's and the selected tenants' files against the manifest. Returns each with its current schema.
pub(super) fn verify(
    folder: &Path,
    manifest: &Manifest,
    selected: &[SavedTenant],
) -> Result<Vec<(SavedFile, &'static Schema)>, RestoreError> {
    let names = selected.iter().map(|tenant| (format!("tenants/{}.db", tenant.id), &tenants::SCHEMA));
    let mut files = Vec::new();
    for (name, schema) in [(registry::FILE.to_owned(), &registry::SCHEMA)].into_iter().chain(names) {
        let path = folder.join(&name);
        let Some(file) = manifest.file(&name) else {
            return Err(RestoreError::Damaged { path, what: "is not in the manifest".to_owned() });
        };
        if file.schema > schema.version {
            return Err(RestoreError::Newer { path, found: file.schema, known: schema.version });
        }
        let found = File::open(&path).and_then(|content| digest(content, io::sink()));
        compare(&path, file, found)?;
        files.push((file.clone(), schema));
    }
    Ok(files)
}

/// Compares the length and the SHA-256 of a file with the manifest.
pub(super) fn compare(path: &Path, file: &SavedFile, found: io::Result<(u64, String)>) -> Result<(), RestoreError> {
    let what = match found {
        Ok((bytes, sha256)) if bytes == file.bytes && sha256 == file.sha256 => return Ok(()),
        Ok((bytes, _)) if bytes != file.bytes => format!("has {bytes} bytes, the manifest says {}", file.bytes),
        Ok(_) => "is not what the manifest's SHA-256 says".to_owned(),
        Err(error) => format!("cannot be read ({error})"),
    };
    Err(RestoreError::Damaged { path: path.to_owned(), what })
}
