//! The registry: which tenants there are, their keys, their panel's sessions, and what was done to the keys.
//!
//! Every change is one transaction of the only writing connection. Every read queries the file, so a change by another process
//! takes effect at the next read.

mod authentication;

mod events;
mod import_tenants;
mod keys;
mod sessions;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use r2d2::ManageConnection as _;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

pub use authentication::Principal;
pub use events::{Action, Actor, EventKey, KeyEvent};
pub use keys::{KeyRow, check_key_name};
pub use sessions::SESSION_SECONDS;

use super::connection::{self, OpenError, Schema};
use super::data_dir::{create_data_dir, create_private_dir};
use super::error::DatabaseError;
use super::tenants;
use crate::clock::Moment;
use crate::cpu_permits;

/// The layout of the registry.
pub static SCHEMA: Schema = Schema { name: "registry", version: 1, sql: include_str!("schema.sql"), migrations: &[] };

/// The registry's name in the data directory.
pub const FILE: &str = "registry.db";

/// The open registry.
pub struct Registry {
    data_dir: PathBuf,
    /// Device and inode: an open connection goes on with a file that was removed.
    identity: (u64, u64),
    opener: SqliteConnectionManager,
    /// Connections that read and have nothing to do. There are as many in all as threads ever read at once, which are few:
    /// a question takes microseconds. A pool would open them on threads of its own, and wait for a file that is not there.
    idle: Mutex<Vec<Connection>>,
    /// Declared after the readers and so closed after them: the last to close clears the write-ahead log away.
    writer: Mutex<Connection>,
    /// Last uses of keys that are not yet written: key id → Unix seconds, a whole minute.
    uses: Mutex<HashMap<i64, i64>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

/// Why the registry did not do it.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("the tenant {0} exists already")]
    TenantExists(String),
    #[error("there is no tenant {0}")]
    NoTenant(String),
    #[error("the tenant has no key {0}")]
    NoKey(i64),
    #[error("{0}")]
    Invalid(&'static str),
    #[error("the registry's file: {0}")]
    Replaced(String),
    #[error("the tenant's file cannot be made or removed: {0}")]
    File(String),
    #[error(transparent)]
    Randomness(#[from] crate::secret::NoRandomness),
    #[error("the registry cannot be used: {0}")]
    Database(#[from] DatabaseError),
}

/// Why a tenant is inactive; a suspension is named before a trial that is over (contract section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inactive {
    Suspended,
    TrialOver,
}

impl From<rusqlite::Error> for RegistryError {
    fn from(error: rusqlite::Error) -> RegistryError {
        RegistryError::Database(error.into())
    }
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    pub id: i64,
    pub name: String,
    pub suspended: bool,
    /// The last day of the trial, `YYYY-MM-DD`, UTC; `None` without a trial.
    pub trial_until: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// PHC text form.
    pub password_hash: String,
}

/// What a tenant's keys may do today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantState {
    Active,
    Suspended,
    TrialOver,
}

impl TenantState {
    /// As `tenant list --json` spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            TenantState::Active => "active",
            TenantState::Suspended => "suspended",
            TenantState::TrialOver => "trial_over",
        }
    }
}

impl TenantRow {
    /// Why the tenant is inactive on the day `today` (`YYYY-MM-DD`, UTC), if it is.
    pub fn inactive(&self, today: &str) -> Option<Inactive> {
        inactive(self.suspended, self.trial_until.as_deref(), today)
    }

    pub fn state(&self, today: &str) -> TenantState {
        match self.inactive(today) {
            None => TenantState::Active,
            Some(Inactive::Suspended) => TenantState::Suspended,
            Some(Inactive::TrialOver) => TenantState::TrialOver,
        }
    }

    /// `SELECT` of [`TENANT_COLUMNS`], in their order.
    fn read(row: &Row<'_>) -> rusqlite::Result<TenantRow> {
        Ok(TenantRow {
            id: row.get(0)?,
            name: row.get(1)?,
            suspended: row.get(2)?,
            trial_until: row.get(3)?,
            created_at: row.get(4)?,
            password_hash: row.get(5)?,
        })
    }
}

const TENANT_COLUMNS: &str =
    "tenants.id, tenants.name, tenants.suspended, tenants.trial_until, tenants.created_at, tenants.password_hash";

/// A suspension is named before a trial that is over. A trial is over at the end of its date; dates of one form compare as
/// text.
fn inactive(suspended: bool, trial_until: Option<&str>, today: &str) -> Option<Inactive> {
    if suspended {
        Some(Inactive::Suspended)
    } else if trial_until.is_some_and(|last_day| last_day < today) {
        Some(Inactive::TrialOver)
    } else {
        None
    }
}

/// A tenant's name: `[a-z0-9][a-z0-9-]{0,62}`.
pub fn check_tenant_name(name: &str) -> Result<(), &'static str> {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = (1..=63).contains(&name.len())
        && name.bytes().all(|byte| letter(byte) || byte == b'-')
        && name.bytes().next().is_some_and(letter);
    if fits {
        Ok(())
    } else {
        Err("a tenant's name has 1 to 63 small letters a-z, digits and hyphens, and does not begin with a hyphen")
    }
}

impl Registry {
    /// The registry of a data directory that is there; [`OpenError::Missing`] where there is none.
    pub fn open(data_dir: &Path) -> Result<Registry, OpenError> {
        let path = data_dir.join(FILE);
        let writer = connection::open(&path, &SCHEMA)?;
        Registry::with(data_dir, &path, writer)
    }

    /// The registry of a data directory that is made where there is none, private to the owner.
    pub fn create(data_dir: &Path) -> Result<Registry, OpenError> {
        let path = data_dir.join(FILE);
        create_data_dir(data_dir)?;
        let writer = connection::create(&path, &SCHEMA)?;
        Registry::with(data_dir, &path, writer)
    }

    fn with(data_dir: &Path, path: &Path, writer: Connection) -> Result<Registry, OpenError> {
        let identity = identity(path).map_err(|error| unusable(path, &error))?;
        Ok(Registry {
            data_dir: data_dir.to_owned(),
            identity,
            opener: connection::reader_manager(path),
            idle: Mutex::default(),
            writer: Mutex::new(writer),
            uses: Mutex::default(),
        })
    }

    /// The data directory that this is the registry of.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Whether the registry answers, and is still the file in the data directory; else what is wrong.
    pub fn ready(&self) -> Result<(), String> {
        self.check_identity().map_err(|error| error.to_string())?;
        self.read(|connection| connection.prepare_cached("SELECT count(*) FROM tenants")?.query_row([], |_| Ok(())))
            .map_err(|error| error.to_string())
    }

    /// A change to a file that was removed or replaced would be lost.
    fn check_identity(&self) -> Result<(), RegistryError> {
        match identity(&self.data_dir.join(FILE)) {
            Ok(found) if found == self.identity => Ok(()),
            Ok(_) => Err(RegistryError::Replaced("it was replaced".to_owned())),
            Err(error) => Err(RegistryError::Replaced(error.to_string())),
        }
    }

    /// A new tenant with its empty file. `name` follows [`check_tenant_name`], `trial_until` is a date.
    pub fn create_tenant(
        &self,
        name: &str,
        trial_until: Option<&str>,
        password_hash: &str,
        now: Moment,
    ) -> Result<TenantRow, RegistryError> {
        check_tenant_name(name).map_err(RegistryError::Invalid)?;
        let created_at = now.rfc3339();
        let mut made = None;
        let outcome = self.change(|transaction| {
            if exists(transaction, name)? {
                return Err(RegistryError::TenantExists(name.to_owned()));
            }
            let mut insert = transaction.prepare_cached(
                "INSERT INTO tenants (name, trial_until, password_hash, created_at) VALUES (?1, ?2, ?3, ?4)",
            )?;
            loop {
                insert.execute(params![name, trial_until, password_hash, created_at])?;
                let id = transaction.last_insert_rowid();
                if self.make_tenant_file(id)? {
                    made = Some(id);
                    return Ok(id);
                }
                // A file of that id lies there already, perhaps with another tenant's records. It stays as it is.
                transaction.execute("DELETE FROM tenants WHERE id = ?1", [id])?;
            }
        });
        let id = outcome.inspect_err(|_| self.remove_file_without_tenant(made))?;
        Ok(TenantRow {
            id,
            name: name.to_owned(),
            suspended: false,
            trial_until: trial_until.map(str::to_owned),
            created_at,
            password_hash: password_hash.to_owned(),
        })
    }

    /// Whether it was made: not where a file of this id, or what SQLite keeps beside one, lies there.
    fn make_tenant_file(&self, id: i64) -> Result<bool, RegistryError> {
        let failed = |error: &dyn std::fmt::Display| RegistryError::File(error.to_string());
        let folder = tenants::folder(&self.data_dir);
        create_private_dir(&folder).map_err(|error| failed(&error))?;
        let path = tenants::file(&folder, id);
        for name in tenants::with_companions(&path) {
            if name.try_exists().map_err(|error| failed(&error))? {
                return Ok(false);
            }
        }
        connection::create(&path, &tenants::SCHEMA).map(|_| true).map_err(|error| failed(&error))
    }

    /// After a failed commit: the file must not stay where its row did not. What cannot be removed stays.
    fn remove_file_without_tenant(&self, id: Option<i64>) {
        if let Some(id) = id
            && matches!(self.tenant(id), Ok(None))
        {
            let _ = tenants::remove_file(&self.data_dir, id);
        }
    }

    /// The tenant of this name.
    pub fn find_tenant(&self, name: &str) -> Result<Option<TenantRow>, RegistryError> {
        self.read(|connection| {
            let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants WHERE name = ?1");
            connection.prepare_cached(&sql)?.query_row([name], TenantRow::read).optional()
        })
    }

    /// The tenant of this id.
    pub fn tenant(&self, id: i64) -> Result<Option<TenantRow>, RegistryError> {
        self.read(|connection| {
            let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants WHERE id = ?1");
            connection.prepare_cached(&sql)?.query_row([id], TenantRow::read).optional()
        })
    }

    /// The highest id that a tenant ever had, 0 where there was none.
    pub(super) fn last_tenant_id(&self) -> Result<i64, RegistryError> {
        self.read(|connection| {
            let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'tenants'";
            connection.query_row(sql, [], |row| row.get(0))
        })
    }

    /// Every tenant with the number of its keys, revoked ones too, in the order of their names.
    pub fn list_tenants(&self) -> Result<Vec<(TenantRow, i64)>, RegistryError> {
        self.read(|connection| {
            let sql = format!(
                "SELECT {TENANT_COLUMNS}, (SELECT count(*) FROM keys WHERE tenant_id = tenants.id) FROM tenants ORDER BY name"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map([], |row| Ok((TenantRow::read(row)?, row.get(6)?)))?;
            rows.collect()
        })
    }

    /// Suspends the tenant: its keys are refused from the next request on.
    pub fn suspend(&self, name: &str) -> Result<TenantRow, RegistryError> {
        self.change_tenant(name, "suspended = 1", &[])
    }

    /// Lifts a suspension and ends a trial for good.
    pub fn activate(&self, name: &str) -> Result<TenantRow, RegistryError> {
        self.change_tenant(name, "suspended = 0, trial_until = NULL", &[])
    }

    /// Sets the last day of the tenant's trial, `YYYY-MM-DD`. Lifts nothing.
    pub fn set_trial(&self, name: &str, until: &str) -> Result<TenantRow, RegistryError> {
        self.change_tenant(name, "trial_until = ?2", &[&until])
    }

    /// Sets the panel's password, ends all sessions of the tenant and records the change.
    pub fn set_password(
        &self,
        tenant_id: i64,
        password_hash: &str,
        actor: Actor,
        now: Moment,
    ) -> Result<(), RegistryError> {
        self.change(|transaction| {
            let sql = "UPDATE tenants SET password_hash = ?2 WHERE id = ?1";
            if transaction.execute(sql, params![tenant_id, password_hash])? == 0 {
                return Err(RegistryError::NoTenant(tenant_id.to_string()));
            }
            transaction.execute("DELETE FROM sessions WHERE tenant_id = ?1", [tenant_id])?;
            Ok(events::insert_event(transaction, tenant_id, Action::PasswordChanged, None, actor, now)?)
        })
    }

    /// Deletes the tenant, its keys, sessions and events, then its file.
    pub fn delete_tenant(&self, name: &str) -> Result<TenantRow, RegistryError> {
        let deleted = self.change(|transaction| {
            let sql = format!("DELETE FROM tenants WHERE name = ?1 RETURNING {TENANT_COLUMNS}");
            let deleted = transaction.prepare_cached(&sql)?.query_row([name], TenantRow::read).optional()?;
            deleted.ok_or_else(|| RegistryError::NoTenant(name.to_owned()))
        })?;
        tenants::remove_file(&self.data_dir, deleted.id).map_err(|error| RegistryError::File(error.to_string()))?;
        Ok(deleted)
    }

    /// `assignments` are ours; their values begin at `?2`.
    fn change_tenant(
        &self,
        name: &str,
        assignments: &str,
        values: &[&dyn rusqlite::ToSql],
    ) -> Result<TenantRow, RegistryError> {
        self.change(|transaction| {
            let sql = format!("UPDATE tenants SET {assignments} WHERE name = ?1 RETURNING {TENANT_COLUMNS}");
            let mut bound: Vec<&dyn rusqlite::ToSql> = vec![&name];
            bound.extend(values);
            let changed = transaction.prepare_cached(&sql)?.query_row(&*bound, TenantRow::read).optional()?;
            changed.ok_or_else(|| RegistryError::NoTenant(name.to_owned()))
        })
    }

    fn read<T>(&self, question: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, RegistryError> {
        let idle = self.idle.lock().pop();
        let open = || cpu_permits::release_while_blocking(|| self.opener.connect());
        let reader = idle.map_or_else(open, Ok)?;
        let answer = question(&reader)?;
        // Not after a failure: the next question begins with a new connection.
        self.idle.lock().push(reader);
        Ok(answer)
    }

    /// One transaction. A failure, and a panic, undo all of it.
    fn change<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, RegistryError>) -> Result<T, RegistryError> {
        let mut connection = cpu_permits::lock(&self.writer);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.check_identity()?;
        let done = work(&transaction)?;
        cpu_permits::release_while_blocking(|| transaction.commit())?;
        Ok(done)
    }

    /// The ids of all tenants, once no other process is in the middle of making one.
    pub(super) fn tenant_ids_locked(&self) -> Result<Vec<i64>, RegistryError> {
        self.change(|transaction| {
            let mut statement = transaction.prepare_cached("SELECT id FROM tenants ORDER BY id")?;
            let ids = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            Ok(ids)
        })
    }
}

fn exists(connection: &Connection, tenant: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM tenants WHERE name = ?1")?.exists([tenant])
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

fn unusable(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Unusable { path: path.to_owned(), cause: error.to_string() }
}

#[cfg(test)]
mod tests;
