//! The registry: tenants, their keys, the panel's sessions, and events.
//!
//! Every read queries the file, so a change by another process holds from the next read on. Every
//! change is one transaction.
//!
//! Events are sign-ins, failed ones too, and changes of a tenant's keys and password. Of each
//! tenant the last 1,000 sign-ins and the last 1,000 changes are kept (contract section 11). They
//! are counted apart, so that attempts to sign in displace no change.

mod keys;
mod sessions;
mod tenants;

use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

pub use keys::{
    KeyRow, KeyState, MAX_KEYS, MAX_RATE_LIMIT, NewKey, Principal, Replacement, check_key_name,
};
pub use sessions::SESSION_SECONDS;
pub use tenants::{TenantRow, check_tenant_name};

use super::data_dir::{self, DataDir};
use super::database::{self, Database, FileIdentity, Role};
pub use super::error::Inactive;
use super::error::{Result, StoreCode, StoreError};
use super::records::KeyLabel;
use crate::clock::{Moment, Timestamp};
use crate::model::{KeyId, TenantId};

/// The open registry of a data directory.
#[derive(Debug)]
pub struct Registry {
    data_dir: DataDir,
    database: Database,
    identity: FileIdentity,
    /// A read takes microseconds.
    reader: Mutex<Connection>,
    writer: Mutex<Connection>,
    is_wal_durable: AtomicBool,
    unwritten: Mutex<Unwritten>,
}

fn suspension(suspended: bool, moving: bool) -> Option<Inactive> {
    match (suspended, moving) {
        (false, _) => None,
        (true, false) => Some(Inactive::Suspended),
        (true, true) => Some(Inactive::Moving),
    }
}

/// A trial ends with its last day in UTC. Dates in this format have the order of their texts.
fn trial_over(trial_until: Option<&str>, now: Moment) -> Option<Inactive> {
    trial_until.is_some_and(|last_day| *last_day < *now.date()).then_some(Inactive::TrialOver)
}

/// The number of events of each kind that are kept for each tenant.
pub const EVENTS_KEPT: usize = 1_000;

/// Who took an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admin {
    /// A user of the panel, by the client's address.
    Panel(IpAddr),
    /// A command of the operator.
    CommandLine,
}

/// What an event records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    KeyCreated,
    KeyReplaced,
    KeyRenamed,
    KeyExpiryChanged,
    KeyLimitChanged,
    KeyRevoked,
    KeyDeleted,
    PasswordChanged,
    SignedIn,
    FailedSignIn,
}

impl EventKind {
    /// The spelling in the registry and in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventKind::KeyCreated => "key created",
            EventKind::KeyReplaced => "key replaced",
            EventKind::KeyRenamed => "key renamed",
            EventKind::KeyExpiryChanged => "key expiry changed",
            EventKind::KeyLimitChanged => "key limit changed",
            EventKind::KeyRevoked => "key revoked",
            EventKind::KeyDeleted => "key deleted",
            EventKind::PasswordChanged => "password changed",
            EventKind::SignedIn => "signed in",
            EventKind::FailedSignIn => "failed sign-in",
        }
    }
}

/// Sign-ins and changes are counted apart.
const SIGN_INS: &str = "('signed in', 'failed sign-in')";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Timestamp,
    /// `panel` or `command line`.
    pub actor: String,
    /// The spelling of an [`EventKind`].
    pub action: String,
    /// `None` for a command, and for an event from before addresses were stored.
    pub client: Option<IpAddr>,
    /// The key that the action changed; `None` for a sign-in and a change of the password.
    pub key: Option<KeyLabel>,
}

impl Event {
    /// `key` is the key that the action changed.
    fn new(action: EventKind, key: Option<KeyLabel>, actor: Admin, at: Timestamp) -> Event {
        let (actor, client) = match actor {
            Admin::Panel(client) => ("panel", Some(client)),
            Admin::CommandLine => ("command line", None),
        };
        Event { at, actor: actor.to_owned(), action: action.as_str().to_owned(), client, key }
    }

    /// Inserts the event if its tenant exists. Then the newest 1,000 events of its kind remain.
    fn insert(&self, transaction: &Transaction<'_>, tenant_id: TenantId) -> rusqlite::Result<()> {
        let Event { at, actor, action, client, key } = self;
        let client = client.map(|client| client.to_string());
        let (id, name, prefix) = match key {
            Some(KeyLabel { id, name, prefix }) => (Some(id.0), Some(name), Some(prefix)),
            None => (None, None, None),
        };
        let sql = format!(
            "INSERT INTO key_events (tenant_id, {EVENT_COLUMNS})
             SELECT id, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM tenants WHERE id = ?1"
        );
        let values = params![tenant_id.0, at, actor, action, client, id, name, prefix];
        transaction.prepare_cached(&sql)?.execute(values)?;
        let of_its_kind = format!("tenant_id = ?1 AND (action IN {SIGN_INS}) = (?2 IN {SIGN_INS})");
        let sql = format!(
            "DELETE FROM key_events WHERE {of_its_kind} AND id <=
               (SELECT id FROM key_events WHERE {of_its_kind}
                ORDER BY id DESC LIMIT 1 OFFSET {EVENTS_KEPT})"
        );
        transaction.prepare_cached(&sql)?.execute(params![tenant_id.0, action]).map(drop)
    }

    /// Reads [`EVENT_COLUMNS`], in their order.
    fn read(row: &Row<'_>) -> rusqlite::Result<Event> {
        let client = row.get::<_, Option<String>>(3)?.and_then(|text| text.parse().ok());
        let key = match row.get(4)? {
            Some(id) => Some(KeyLabel { id: KeyId(id), name: row.get(5)?, prefix: row.get(6)? }),
            None => None,
        };
        Ok(Event { at: row.get(0)?, actor: row.get(1)?, action: row.get(2)?, client, key })
    }
}

const EVENT_COLUMNS: &str = "at, actor, action, client, key_id, key_name, prefix";

/// Changes by one actor of the keys and the password of one tenant. Each change commits with its
/// event.
#[derive(Clone, Copy, Debug)]
pub struct Administration<'a> {
    registry: &'a Registry,
    tenant_id: TenantId,
    actor: Admin,
    session: Option<&'a [u8; 32]>,
    now: Moment,
}

impl<'a> Administration<'a> {
    /// Changes nothing once the session with this hash has ended. Example: the operator sets a new
    /// password while a form of somebody else in the panel waits.
    pub fn in_session(self, hash: &'a [u8; 32]) -> Administration<'a> {
        Administration { session: Some(hash), ..self }
    }

    /// Runs `work` in a write transaction. A moving tenant takes no change of the panel: it would
    /// be lost.
    fn change<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        self.registry.change(|transaction| {
            if let Some(hash) = self.session {
                let sql = "SELECT 1 FROM sessions WHERE hash = ?1";
                if !transaction.prepare_cached(sql)?.exists([hash])? {
                    return Err(StoreError::new(StoreCode::SessionEnded, "the session has ended"));
                }
            }
            let is_panel = matches!(self.actor, Admin::Panel(_));
            match find_suspension(transaction, self.tenant_id)? {
                Some(Inactive::Moving) if is_panel => Err(Inactive::Moving.into()),
                _ => work(transaction),
            }
        })
    }

    /// Adds the event of an action. `key` is the key that it changed.
    fn record(
        &self,
        transaction: &Transaction<'_>,
        action: EventKind,
        key: Option<KeyLabel>,
    ) -> rusqlite::Result<()> {
        let event = Event::new(action, key, self.actor, self.now.timestamp());
        event.insert(transaction, self.tenant_id)
    }
}

/// Uses of keys and failed sign-ins in memory. They are written together, so that no request waits
/// for the disk.
#[derive(Debug, Default)]
struct Unwritten {
    /// Each rounded down to the minute, so that a busy key is written once a minute.
    uses: HashMap<KeyId, Timestamp>,
    /// The oldest first. Each has hashed a password, so a minute has some thousand at most.
    failed_sign_ins: Vec<(TenantId, Event)>,
}

impl Registry {
    /// Opens the registry for a command.
    pub fn open(data_dir: &Path) -> Result<Registry> {
        Registry::open_in(DataDir::open(data_dir)?)
    }

    pub fn open_in(data_dir: DataDir) -> Result<Registry> {
        let database = data_dir::registry_database(data_dir.path());
        Ok(Registry {
            data_dir,
            identity: database.identity()?,
            reader: Mutex::new(database.open(Role::Reader)?),
            writer: Mutex::new(database.open(Role::Writer)?),
            database,
            is_wal_durable: AtomicBool::new(false),
            unwritten: Mutex::default(),
        })
    }

    pub fn data_dir(&self) -> &Path {
        self.data_dir.path()
    }

    /// Fails if the registry is no longer the file in the data directory, or cannot be read. Reads
    /// the tenants and looks up a key, as requests do.
    pub fn ready(&self, now: Moment) -> Result<()> {
        let sql = "SELECT hash FROM keys ORDER BY id LIMIT 1";
        let read = || -> Result<()> {
            self.list_tenants()?;
            let hash: Option<[u8; 32]> =
                self.read(|reader| reader.query_row(sql, [], |row| row.get(0)).optional())?;
            hash.map(|hash| self.find_principal(&hash, now)).transpose()?;
            Ok(())
        };
        self.check_identity()?;
        read()
    }

    /// A change to a file that was removed or replaced would be lost.
    fn check_identity(&self) -> Result<()> {
        let is_same = self.database.identity().is_ok_and(|found| found == self.identity);
        let replaced = || StoreError::other("the registry's file was removed or replaced");
        is_same.then_some(()).ok_or_else(replaced)
    }

    fn read<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        query(&self.reader.lock()).map_err(|error| self.database.error(error))
    }

    /// Runs `work` in a write transaction. An error of `work` and a panic roll it back.
    fn change<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut writer = self.writer.lock();
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.check_identity()?;
        if !self.is_wal_durable.load(Ordering::Relaxed) {
            database::make_durable(self.database.path())?;
            self.is_wal_durable.store(true, Ordering::Relaxed);
        }
        let result = work(&transaction)?;
        database::commit(transaction)?;
        Ok(result)
    }

    /// Changes of this tenant's keys and password by `actor`, at the time `now`.
    pub fn administer(&self, tenant_id: TenantId, actor: Admin, now: Moment) -> Administration<'_> {
        Administration { registry: self, tenant_id, actor, session: None, now }
    }

    /// Whether the operator has suspended the tenant. The writer of a tenant asks inside its write
    /// transaction, so no change follows a suspension (contract section 9).
    pub(in crate::store) fn find_suspension(&self, id: TenantId) -> Result<Option<Inactive>> {
        find_suspension(&self.reader.lock(), id)
    }

    /// Writes what is in memory. A last use leaves the memory once it is written, so every reader
    /// finds it in one of both.
    pub fn flush(&self) -> Result<()> {
        let unwritten = self.unwritten.lock();
        if unwritten.uses.is_empty() && unwritten.failed_sign_ins.is_empty() {
            return Ok(());
        }
        let uses = unwritten.uses.clone();
        drop(unwritten);
        let pairs = uses.iter().map(|(key, minute)| (key.to_string(), minute.to_string()));
        let json = pairs.collect::<serde_json::Value>().to_string();
        self.change(|transaction| {
            let sql = "UPDATE keys SET last_used_at = used.value FROM json_each(?1) AS used
                 WHERE keys.id = CAST(used.key AS INTEGER) AND last_used_at IS NOT used.value";
            transaction.prepare_cached(sql)?.execute([json])?;
            Ok(self.write_failed_sign_ins(transaction)?)
        })?;
        self.unwritten.lock().uses.retain(|key, minute| uses.get(key) != Some(minute));
        Ok(())
    }

    /// If the transaction fails, the failed sign-ins are in the log alone.
    fn write_failed_sign_ins(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let failed = std::mem::take(&mut self.unwritten.lock().failed_sign_ins);
        failed.iter().try_for_each(|(tenant, event)| event.insert(transaction, *tenant))
    }

    /// At most `limit` of the tenant's last changes of keys and the password, the newest first.
    pub fn admin_changes(&self, tenant_id: TenantId, limit: usize) -> Result<Vec<Event>> {
        self.events(tenant_id, false, limit)
    }

    fn events(&self, tenant_id: TenantId, sign_ins: bool, limit: usize) -> Result<Vec<Event>> {
        self.read(|connection| {
            let sql = format!(
                "SELECT {EVENT_COLUMNS} FROM key_events
                 WHERE tenant_id = ?1 AND (action IN {SIGN_INS}) = ?2
                 ORDER BY id DESC LIMIT {limit}"
            );
            let mut select = connection.prepare_cached(&sql)?;
            select.query_map(params![tenant_id.0, sign_ins], Event::read)?.collect()
        })
    }

    /// Attaches a backup's registry to the writer, for a restore, as `saved`.
    pub(in crate::store) fn attach(&self, saved: &Database) -> Result<()> {
        Ok(saved.attach_to(&self.writer.lock(), "saved")?)
    }

    /// Keeps some space, so that a leaked key can be revoked on a full disk. The server alone calls
    /// it, when it starts.
    pub fn reserve_space(&self) {
        self.database.reserve_wal();
    }

    /// Copies the WAL into the file. The server alone calls it: once a minute, and with `truncate`
    /// when it stops.
    pub fn checkpoint(&self, truncate: bool) {
        if let Err(error) = self.database.checkpoint(&self.writer.lock(), truncate) {
            tracing::warn!(%error, "the registry's WAL cannot be copied into its file");
        }
    }
}

fn no_tenant(name: impl Display) -> StoreError {
    StoreError::other(format!("there is no tenant {name}"))
}

fn find_suspension(connection: &Connection, id: TenantId) -> Result<Option<Inactive>> {
    let sql = "SELECT suspended, moving FROM tenants WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    let row = rows.next()?.ok_or_else(|| no_tenant(id))?;
    Ok(suspension(row.get(0)?, row.get(1)?))
}

#[cfg(test)]
mod tests;
