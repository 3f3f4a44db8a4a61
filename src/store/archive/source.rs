//! The backup to restore: which backup it is, and copies of its files, verified. A backup that a
//! stranger has prepared is refused (contract section 10). A checksum does not show who made a
//! backup, so everything is checked that the program relies on elsewhere.
//!
//! The databases are checked on private copies. Nothing that a schema brings along is evaluated: a
//! view, a trigger or another table is refused or dropped first. The search tables are not read,
//! and made anew from the records: a crafted index can overflow a buffer of SQLite.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::ptr;

use rusqlite::Connection;

use super::manifest::{
    self, BackupKind, LeftOutTenant, Manifest, SavedTenant, digest, open_regular,
};
use super::{ArchiveError, backup, check, file_error, refused};
use crate::files;
use crate::model::ALL;
use crate::store::data_dir::{TENANT, registry_database, tenants_dir};
use crate::store::database::{self, Database, Schema, replica};
use crate::store::records::{fill_search_tables, renew_search_tables};

/// The backup that is restored.
pub(super) struct Source {
    pub(super) directory: PathBuf,
    pub(super) manifest: Manifest,
}

impl Source {
    /// `dir` is a backup, or a directory of backups: then the newest backup is taken that holds
    /// `tenant`, or all tenants. A backup of no tenants is not taken. It was made after the data
    /// directory was lost.
    pub(super) fn find(dir: &Path, tenant: Option<&str>) -> Result<Source, ArchiveError> {
        // Even a link of this name shows that `dir` is no directory of backups.
        if fs::symlink_metadata(dir.join(manifest::NAME)).is_ok() {
            let manifest = Manifest::read(dir)?;
            return Ok(Source { directory: dir.to_owned(), manifest });
        }
        let fits = |manifest: &Manifest| match tenant {
            Some(name) => manifest.tenant(name).is_some(),
            None => manifest.kind == BackupKind::All && !manifest.tenants.is_empty(),
        };
        let mut backups = backup::list(dir)?;
        if let Some(newest) = backups.iter().position(|(_, manifest)| fits(manifest)) {
            let (directory, manifest) = backups.swap_remove(newest);
            return Ok(Source { directory, manifest });
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
        let directory = tenants_dir(&self.directory);
        files::refuse_link(&directory).map_err(|error| refused(&directory, &error.to_string()))?;
        let registry = registry_database(staging);
        let connection = self.copy(&registry, staging)?;
        let tenants = check::tenants(&connection)?;
        let ids = tenants.iter().map(|tenant| (tenant.id, tenant.name.as_str()));
        if !ids.eq(self.manifest.tenant_ids()) {
            let path = self.directory.join(registry.name_in(staging));
            return Err(refused(&path, "it does not have the tenants of the manifest"));
        }
        connection.execute("DELETE FROM sessions", [])?;
        Ok(connection)
    }

    /// Copies a database to `copy` in the directory `staging`, and migrates it if it is older.
    /// Returns it open, without the tables of a replicator.
    pub(super) fn copy(&self, copy: &Database, staging: &Path) -> Result<Connection, ArchiveError> {
        let name = copy.name_in(staging);
        let (from, to, schema) = (self.directory.join(&name), copy.path(), copy.schema);
        let refuse = |cause: &str| refused(&from, cause);
        let unusable = |error: &dyn Display| refuse(&format!("it cannot be used: {error}"));
        let saved = self.manifest.file(&name).ok_or_else(|| refuse("it is not in the manifest"))?;
        let source =
            open_regular(&from).map_err(|error| refuse(&format!("it cannot be read: {error}")))?;
        let target = files::create_private(to).map_err(file_error(to))?;
        // One byte more is read, to find out whether the file is longer.
        let source = source.take(saved.bytes.saturating_add(1));
        let found = digest(source, target).map_err(file_error(to))?;
        if found != (saved.bytes, saved.sha256.clone()) {
            return Err(refuse("its length or SHA-256 is not that of the manifest"));
        }
        let refuse_first = |problems: Vec<String>| match problems.first() {
            Some(what) => Err(refuse(&format!("it is not as tenantdesk makes it: {what}"))),
            None => Ok(()),
        };
        refuse_first(prepare_to_migrate(to, schema).map_err(|error| unusable(&error))?)?;
        copy.migrate().map_err(|error| unusable(&error))?;
        let connection = open_staged(to)?;
        refuse_first(check::problems(&connection, schema))?;
        replica::forget(&connection)?;
        if ptr::eq(schema, &TENANT) {
            fill_search_tables(&connection)?;
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

/// Empties the search tables, so that nothing reads them. Returns what makes a migration of the file
/// unsafe. A step runs in a schema that is not known to be the program's. So the database may not be
/// damaged, and may have no view and no trigger, which the step would run.
fn prepare_to_migrate(path: &Path, schema: &Schema) -> rusqlite::Result<Vec<String>> {
    let connection = open_staged(path)?;
    if ptr::eq(schema, &TENANT) {
        let problems = renew_search_tables(&connection, schema.sql)?;
        if !problems.is_empty() {
            return Ok(problems);
        }
    }
    if database::version(&connection)? >= schema.version() {
        return Ok(Vec::new());
    }
    let own = ALL.map(|resource| format!("'{}_search'", resource.plural)).join(", ");
    let unknown = format!(
        "SELECT 'it has ' || name FROM pragma_table_list WHERE schema = 'main'
           AND (type = 'view' OR type = 'virtual' AND name NOT IN ({own}))
         UNION ALL SELECT 'it has ' || name FROM sqlite_schema WHERE type = 'trigger'"
    );
    let problems = check::texts(&connection, &unknown)?;
    if problems.is_empty() { check::integrity_problems(&connection, schema) } else { Ok(problems) }
}
