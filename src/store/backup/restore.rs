//! Restore of a backup: of everything into an empty data directory, or of one tenant while the
//! others are served (contract section 10).
//!
//! Files are copied, migrated and verified in a directory of their own. Then one step brings them
//! to life: for everything, the registry's name; for one tenant, a transaction of its file or of
//! the registry. A restore that fails or is killed before that step has changed nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, params};
use serde::Serialize;

use super::{
    BackupKind, LeftOutTenant, MANIFEST, Manifest, SavedTenant, Staging, check, count, digest,
    file_error, list, refused, sync,
};
use crate::clock::{Moment, Timestamp};
use crate::files;
use crate::model::TenantId;
use crate::store::data_dir::{
    DataDir, RESTORING, registry_database, require_owner, tenant_database, tenants_dir,
};
use crate::store::database::{self, Database, Role, replace_content, wait_for};
use crate::store::error::{Result, StoreCode, StoreError};
use crate::store::records;
use crate::store::registry::{Registry, TenantRow};

/// A request to restore.
#[derive(Clone, Copy, Debug)]
pub struct Restore<'a> {
    /// It is created if it does not exist.
    pub data_dir: &'a Path,
    /// A backup, or a directory of backups.
    pub source: &'a Path,
    /// The name of one tenant; `None` for everything.
    pub tenant: Option<&'a str>,
    /// The name of that tenant here, if it is not its name in the backup.
    pub new_name: Option<&'a str>,
    /// Whether the records of a tenant that exists may be replaced.
    pub force: bool,
    /// Keys that have expired by then are not active.
    pub now: Moment,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The backup.
    pub directory: PathBuf,
    /// When the backup was made.
    pub created_at: Timestamp,
    pub tenants: Vec<RestoredTenant>,
    /// For a restore of everything: the tenants that the backup lacks.
    pub left_out: Vec<LeftOutTenant>,
    /// For a restore of everything: the number of keys that are active. A key that was revoked
    /// after the backup is active again.
    pub active_keys: Option<i64>,
    /// For a restore of everything: the tenants of which there is a newer backup.
    pub newer: BTreeSet<String>,
    /// A backup that fits, too, but is dated after now.
    pub ahead: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoredTenant {
    /// Its id here.
    pub id: TenantId,
    /// Its name here.
    pub name: String,
    /// Whether it existed. Its keys, password and state are then unchanged.
    pub existed: bool,
    /// The number of keys that came with it.
    pub keys: usize,
    /// Resource → number of its records.
    pub records: BTreeMap<String, i64>,
}

/// Restores everything or one tenant, completely or not at all.
pub fn restore(request: &Restore<'_>) -> Result<Restored> {
    require_owner(request.data_dir)?;
    let source = Source::find(request.source, request.tenant, request.now)?;
    let mut restored = Restored {
        directory: source.directory.clone(),
        created_at: source.manifest.created_at,
        tenants: Vec::new(),
        left_out: Vec::new(),
        active_keys: None,
        newer: source.newer.clone(),
        ahead: source.ahead.clone(),
    };
    let done = match request.tenant {
        None => restore_everything(request, &source, &mut restored),
        Some(name) => restore_tenant(request, &source, name, &mut restored),
    };
    done.map_err(|mut error| {
        if let (StoreCode::Refused, Some(older)) = (&error.code, &source.older) {
            error.message.push_str(&format!("; the backup before it is {}", older.display()));
        }
        error
    })?;
    Ok(restored)
}

fn restore_everything(
    request: &Restore<'_>,
    source: &Source,
    restored: &mut Restored,
) -> Result<()> {
    let data_dir = request.data_dir;
    let _locked = DataDir::open_empty(data_dir)?.ok_or_else(|| {
        let directory = data_dir.display();
        let (why, stop) = match DataDir::is_served(data_dir) {
            true => (", and a server uses it", "stop the server and "),
            false => ("", ""),
        };
        let advice = "move the directory away, or restore one tenant by its name";
        StoreError::other(format!("{directory} is not empty{why}; {stop}{advice}"))
    })?;
    let staging = Staging::create(data_dir.join(RESTORING))?;
    let registry = source.copy_registry(&staging.path)?;
    for tenant in &source.manifest.left_out {
        registry.execute("DELETE FROM tenants WHERE id = ?", [tenant.id.0])?;
    }
    restored.left_out.clone_from(&source.manifest.left_out);
    restored.active_keys = Some(active_keys(&registry, request.now)?);
    let mut statement = registry.prepare("SELECT 1 FROM keys WHERE tenant_id = ?")?;
    for SavedTenant { id, name, .. } in &source.manifest.tenants {
        let staged = tenant_database(&staging.path, *id);
        let connection = source.copy(&staged, &staging.path)?;
        records::renew_lineage(&connection, None)?;
        let keys = statement.query_map([id.0], |_| Ok(()))?.count();
        let (id, name, records) = (*id, name.clone(), count(&connection)?);
        restored.tenants.push(RestoredTenant { id, name, existed: false, keys, records });
        close_and_sync(connection, &staged)?;
    }
    drop(statement);
    close_and_sync(registry, &registry_database(&staging.path))?;
    place_everything(data_dir, &staging.path, &source.manifest.tenants)
}

fn active_keys(registry: &Connection, now: Moment) -> rusqlite::Result<i64> {
    let sql = "SELECT count(*) FROM keys
        WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)";
    registry.query_row(sql, [now.timestamp()], |row| row.get(0))
}

fn close_and_sync(connection: Connection, staged: &Database) -> Result<()> {
    connection.close().map_err(|(_, error)| error)?;
    sync(staged.path())
}

/// Renames the files to where they belong, the registry last: without it there is no data.
fn place_everything(data_dir: &Path, staging: &Path, tenants: &[SavedTenant]) -> Result<()> {
    let place = || -> io::Result<()> {
        for SavedTenant { id, .. } in tenants {
            let (from, to) = (tenant_database(staging, *id), tenant_database(data_dir, *id));
            fs::rename(from.path(), to.path())?;
        }
        files::sync(&tenants_dir(data_dir))?;
        rename_synced(&registry_database(staging), &registry_database(data_dir))
    };
    place().map_err(|error| {
        let _ = registry_database(data_dir).remove();
        tenants.iter().for_each(|saved| _ = tenant_database(data_dir, saved.id).remove());
        file_error(data_dir)(error)
    })
}

fn rename_synced(from: &Database, to: &Database) -> io::Result<()> {
    fs::rename(from.path(), to.path())?;
    files::sync_parent(to.path())
}

fn restore_tenant(
    request: &Restore<'_>,
    source: &Source,
    saved_name: &str,
    restored: &mut Restored,
) -> Result<()> {
    let saved = source.saved_tenant(saved_name)?;
    let name = request.new_name.unwrap_or(saved_name);
    DataDir::create(request.data_dir)?;
    let registry = Registry::open(request.data_dir)?;
    let existing = registry.find_tenant(name)?;
    if existing.is_some() && !request.force {
        return Err(StoreError::other(format!(
            "the tenant {name} would be overwritten; say --force if that is meant"
        )));
    }
    let staging = Staging::create(request.data_dir.join(RESTORING))?;
    let saved_registry = registry_database(&staging.path);
    let copied = source.copy_registry(&staging.path)?;
    let sql = "SELECT created_at FROM tenants WHERE id = ?";
    let saved_at: Timestamp = copied.query_row(sql, [saved.id.0], |row| row.get(0))?;
    close_and_sync(copied, &saved_registry)?;
    let staged = tenant_database(&staging.path, saved.id);
    let connection = source.copy(&staged, &staging.path)?;
    let is_saved = |tenant: &TenantRow| (tenant.id, tenant.created_at) == (saved.id, saved_at);
    if !existing.as_ref().is_some_and(is_saved) {
        // Here, the numbers of its keys are those of other keys.
        connection.execute("UPDATE changes SET by_key = NULL WHERE by_key IS NOT NULL", [])?;
    }
    let (existed, records) = (existing.is_some(), count(&connection)?);
    let (id, keys) = match existing {
        Some(TenantRow { id, .. }) => {
            let live = tenant_database(request.data_dir, id);
            replace_tenant(connection, &staged, &live)?;
            (id, 0)
        }
        None => {
            records::renew_lineage(&connection, None)?;
            close_and_sync(connection, &staged)?;
            registry.attach(&saved_registry)?;
            let (tenant, keys) = add_tenant_from_backup(&registry, saved.id, name, &staged)?;
            (tenant.id, keys)
        }
    };
    restored.tenants.push(RestoredTenant { id, name: name.to_owned(), existed, keys, records });
    Ok(())
}

/// Adds a tenant of the attached registry `saved` with its keys and the file `staged`. A key that
/// another tenant has stays where it is.
fn add_tenant_from_backup(
    registry: &Registry,
    saved: TenantId,
    name: &str,
    staged: &Database,
) -> Result<(TenantRow, usize)> {
    const TENANT: &str = "suspended, trial_until, password_hash, created_at";
    const KEY: &str =
        "name, hash, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_limit";
    let insert = |registry: &Transaction<'_>| {
        let sql = format!(
            "INSERT INTO main.tenants (name, {TENANT})
             SELECT ?2, {TENANT} FROM saved.tenants WHERE id = ?1 RETURNING *"
        );
        registry.query_row(&sql, params![saved.0, name], TenantRow::read)
    };
    let add_keys = |registry: &Transaction<'_>, tenant: &TenantRow| {
        let sql = format!(
            "INSERT INTO main.keys (tenant_id, {KEY})
             SELECT ?2, {KEY} FROM saved.keys
             WHERE tenant_id = ?1 AND hash NOT IN (SELECT hash FROM main.keys) ORDER BY id"
        );
        Ok(registry.execute(&sql, [saved.0, tenant.id.0])?)
    };
    let place = |live: &Database| rename_synced(staged, live).map_err(file_error(live.path()));
    registry.add_tenant(name, insert, place, add_keys)
}

/// Replaces the content of the file `live` in one transaction. A file that is missing or damaged is
/// replaced itself.
fn replace_tenant(connection: Connection, staged: &Database, live: &Database) -> Result<()> {
    // As every command, it leaves the live WAL as it is (database/wal.rs).
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let attached = live.attach_to(&connection, "live");
    match live.open(Role::Bulk) {
        Ok(mut target) => {
            // A busy server releases its lock for moments only.
            target.busy_handler(Some(wait_for::<30_000>))?;
            let replaced = attached.and_then(|()| {
                replace_content(&connection, &mut target, || take_over_counters(&connection))
            });
            match replaced.map_err(|error| live.error(error)) {
                Err(error) if error.code == StoreCode::Damaged => (),
                done => return done,
            }
        }
        Err(error) => match error.code {
            StoreCode::Missing | StoreCode::Damaged | StoreCode::OtherSchema => (),
            _ => return Err(error),
        },
    }
    if take_over_counters(&connection).is_err() {
        // The live file is damaged or of another schema. Its counters may still be readable.
        let _ = raise_id_counters(&connection);
        records::renew_lineage(&connection, None)?;
    }
    close_and_sync(connection, staged)?;
    // SQLite would apply the old WAL to the new file.
    for path in live.files().skip(1) {
        files::ignore_missing(fs::remove_file(&path)).map_err(file_error(&path))?;
    }
    rename_synced(staged, live).map_err(file_error(live.path()))
}

fn take_over_counters(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    raise_id_counters(&transaction)?;
    records::renew_lineage(&transaction, Some("live"))?;
    transaction.commit()
}

fn raise_id_counters(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "UPDATE main.sqlite_sequence AS own SET seq = other.seq
           FROM live.sqlite_sequence AS other WHERE other.name = own.name AND other.seq > own.seq;
         INSERT INTO main.sqlite_sequence (name, seq)
           SELECT name, seq FROM live.sqlite_sequence
           WHERE name NOT IN (SELECT name FROM main.sqlite_sequence)
             AND name IN (SELECT name FROM main.sqlite_schema);",
    )
}

/// The backup that is restored.
pub(super) struct Source {
    pub(super) directory: PathBuf,
    pub(super) manifest: Manifest,
    /// If it has all tenants: those of which the directory of backups has a newer backup.
    pub(super) newer: BTreeSet<String>,
    /// The backup before it that holds the same.
    pub(super) older: Option<PathBuf>,
    /// A backup that holds the same, and is dated after now.
    pub(super) ahead: Option<PathBuf>,
}

impl Source {
    /// `dir` is a backup, or a directory of backups: then the newest backup is taken that holds
    /// `tenant`, or all tenants. A backup of no tenants is not taken: it was made after the data
    /// directory was lost. Nor is one that is dated after `now`.
    fn find(dir: &Path, tenant: Option<&str>, now: Moment) -> Result<Source> {
        if dir.join(MANIFEST).exists() {
            let manifest = Manifest::read(dir)?;
            let (directory, newer) = (dir.to_owned(), BTreeSet::new());
            return Ok(Source { directory, manifest, newer, older: None, ahead: None });
        }
        let fits = |manifest: &Manifest| match tenant {
            Some(name) => manifest.tenant(name).is_some(),
            None => manifest.kind == BackupKind::All && !manifest.tenants.is_empty(),
        };
        let (ahead, mut backups): (Vec<_>, Vec<_>) =
            list(dir)?.into_iter().partition(|(_, manifest)| manifest.is_ahead(now));
        let ahead = ahead.into_iter().find(|(_, manifest)| fits(manifest)).map(|(path, _)| path);
        if let Some(newest) = backups.iter().position(|(_, manifest)| fits(manifest)) {
            let newer = backups.iter().take(newest).filter(|_| tenant.is_none());
            let newer = newer.flat_map(|(_, manifest)| &manifest.tenants);
            let newer = newer.map(|tenant| tenant.name.clone()).collect();
            let mut older = backups.iter().skip(newest + 1);
            let older = older.find(|(_, manifest)| fits(manifest)).map(|(path, _)| path.clone());
            let (directory, manifest) = backups.swap_remove(newest);
            return Ok(Source { directory, manifest, newer, older, ahead });
        }
        let wanted = match tenant {
            None => "of all tenants that has a tenant".to_owned(),
            Some(name) => not_among(name, backups.iter().map(|(_, manifest)| manifest)),
        };
        let mut error = no_backup(dir, &wanted);
        if let Some(ahead) = ahead {
            error.message.push_str(&format!(
                "; {} is dated after now, because a clock was wrong, or is: correct the clock, or \
                 restore this backup by its own path",
                ahead.display()
            ));
        }
        Err(error)
    }

    fn saved_tenant(&self, name: &str) -> Result<&SavedTenant> {
        self.manifest.tenant(name).ok_or_else(|| {
            let left_out = self.manifest.left_out.iter().find(|tenant| tenant.name == name);
            let wanted = match left_out {
                Some(LeftOutTenant { reason, .. }) => {
                    format!("of the tenant {name}, which was left out of the backup: {reason}")
                }
                None => not_among(name, [&self.manifest].into_iter()),
            };
            no_backup(&self.directory, &wanted)
        })
    }

    /// Copies the registry, without sessions, to the directory `staging`.
    pub(super) fn copy_registry(&self, staging: &Path) -> Result<Connection> {
        let registry = registry_database(staging);
        let connection = self.copy(&registry, staging)?;
        connection.execute("DELETE FROM sessions", [])?;
        Ok(connection)
    }

    /// Copies a database to `copy` in the directory `staging`, and migrates it if it is older.
    /// Returns it open.
    fn copy(&self, copy: &Database, staging: &Path) -> Result<Connection> {
        let name = copy.name_in(staging);
        let (from, to, schema) = (self.directory.join(&name), copy.path(), copy.schema);
        let saved = self.manifest.file(&name);
        let saved = saved.ok_or_else(|| refused(&from, "it is not in the manifest"))?;
        let source = File::open(&from)
            .map_err(|error| refused(&from, format_args!("it cannot be read: {error}")))?;
        let target = files::create_private(to).map_err(file_error(to))?;
        let found = digest(source, target).map_err(file_error(to))?;
        saved.require(&from, &found)?;
        copy.migrate()
            .map_err(|error| refused(&from, format_args!("it cannot be used: {error}")))?;
        let connection = open_staged(to)?;
        if let Some(problem) = check::problems(&connection, schema).first() {
            let cause = format_args!("it is not as tenantdesk makes it: {problem}");
            return Err(refused(&from, cause));
        }
        Ok(connection)
    }
}

/// `wanted` begins with "of".
fn no_backup(path: &Path, wanted: &str) -> StoreError {
    StoreError::other(format!("{} holds no backup {wanted}", path.display()))
}

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
