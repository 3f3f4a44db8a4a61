//! The backup to restore: which backup it is, and copies of its files, verified.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::manifest::{self, BackupKind, LeftOutTenant, Manifest, SavedTenant, digest};
use super::{ArchiveError, backup, check, file_error, refused};
use crate::files;
use crate::store::data_dir::registry_database;
use crate::store::database::{self, Database};

/// The backup that is restored.
pub(super) struct Source {
    pub(super) directory: PathBuf,
    pub(super) manifest: Manifest,
    /// If it has all tenants: those of which the directory of backups has a newer backup.
    pub(super) newer: BTreeSet<String>,
    /// The backup before it that holds the same.
    pub(super) older: Option<PathBuf>,
}

impl Source {
    /// `dir` is a backup, or a directory of backups: then the newest backup is taken that holds
    /// `tenant`, or all tenants. A backup of no tenants is not taken. It was made after the data
    /// directory was lost.
    pub(super) fn find(dir: &Path, tenant: Option<&str>) -> Result<Source, ArchiveError> {
        if dir.join(manifest::NAME).exists() {
            let manifest = Manifest::read(dir)?;
            let (directory, newer) = (dir.to_owned(), BTreeSet::new());
            return Ok(Source { directory, manifest, newer, older: None });
        }
        let fits = |manifest: &Manifest| match tenant {
            Some(name) => manifest.tenant(name).is_some(),
            None => manifest.kind == BackupKind::All && !manifest.tenants.is_empty(),
        };
        let mut backups = backup::list(dir)?;
        if let Some(newest) = backups.iter().position(|(_, manifest)| fits(manifest)) {
            let newer = backups.iter().take(newest).filter(|_| tenant.is_none());
            let newer = newer.flat_map(|(_, manifest)| &manifest.tenants);
            let newer = newer.map(|tenant| tenant.name.clone()).collect();
            let mut older = backups.iter().skip(newest + 1);
            let older = older.find(|(_, manifest)| fits(manifest)).map(|(path, _)| path.clone());
            let (directory, manifest) = backups.swap_remove(newest);
            return Ok(Source { directory, manifest, newer, older });
        }
        let wanted = match tenant {
            None => "of all tenants that has a tenant".to_owned(),
            Some(name) => not_among(name, backups.iter().map(|(_, manifest)| manifest)),
        };
        Err(ArchiveError::NoBackup { path: dir.to_owned(), wanted })
    }

    pub(super) fn saved_tenant(&self, name: &str) -> Result<&SavedTenant, ArchiveError> {
        self.manifest.tenant(name).ok_or_else(|| {
            let left_out = self.manifest.left_out.iter().find(|tenant| tenant.name == name);
            let wanted = match left_out {
                Some(LeftOutTenant { reason, .. }) => {
                    format!("of the tenant {name}, which was left out of the backup: {reason}")
                }
                None => not_among(name, [&self.manifest].into_iter()),
            };
            ArchiveError::NoBackup { path: self.directory.clone(), wanted }
        })
    }

    /// Copies the registry, without sessions, to the directory `staging`.
    pub(super) fn copy_registry(&self, staging: &Path) -> Result<Connection, ArchiveError> {
        let registry = registry_database(staging);
        let connection = self.copy(&registry, staging)?;
        connection.execute("DELETE FROM sessions", [])?;
        Ok(connection)
    }

    /// Copies a database to `copy` in the directory `staging`, and migrates it if it is older.
    /// Returns it open.
    pub(super) fn copy(&self, copy: &Database, staging: &Path) -> Result<Connection, ArchiveError> {
        let name = copy.name_in(staging);
        let (from, to, schema) = (self.directory.join(&name), copy.path(), copy.schema);
        let refuse = |cause: &str| refused(&from, cause);
        let saved = self.manifest.file(&name).ok_or_else(|| refuse("it is not in the manifest"))?;
        let source =
            File::open(&from).map_err(|error| refuse(&format!("it cannot be read: {error}")))?;
        let target = files::create_private(to).map_err(file_error(to))?;
        let found = digest(source, target).map_err(file_error(to))?;
        saved.require(&from, &found)?;
        copy.migrate().map_err(|error| refuse(&format!("it cannot be used: {error}")))?;
        let connection = open_staged(to)?;
        if let Some(problem) = check::problems(&connection, schema).first() {
            return Err(refuse(&format!("it is not as tenantdesk makes it: {problem}")));
        }
        Ok(connection)
    }
}

/// Says which tenant was not found, and which tenants the backups have.
fn not_among<'a>(name: &str, backups: impl Iterator<Item = &'a Manifest>) -> String {
    let names: BTreeSet<&str> =
        backups.flat_map(|backup| &backup.tenants).map(|tenant| tenant.name.as_str()).collect();
    if names.is_empty() {
        return format!("of the tenant {name}, and none of another tenant");
    }
    let names: Vec<&str> = names.into_iter().collect();
    format!("of the tenant {name}; it has: {}", names.join(", "))
}

fn open_staged(path: &Path) -> rusqlite::Result<Connection> {
    let connection = database::open_plain(path)?;
    // It is synced once, when it is complete. One file is renamed, so it has no WAL.
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE")?;
    Ok(connection)
}
