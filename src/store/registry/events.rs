//! Events: sign-ins, failed ones too, and changes of a tenant's keys and password. Of each tenant
//! the last 1,000 sign-ins and the last 1,000 changes are kept (contract section 11). They are
//! counted apart, so that attempts to sign in displace no change.

use std::net::IpAddr;

use rusqlite::{Row, Transaction, params};

use super::{Registry, Result};
use crate::clock::Timestamp;
use crate::model::{KeyId, TenantId};
use crate::store::records::KeyLabel;

/// The number of events of each kind that are kept for each tenant.
const EVENTS_KEPT: usize = 1_000;

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
    pub(super) fn new(
        action: EventKind,
        key: Option<KeyLabel>,
        actor: Admin,
        at: Timestamp,
    ) -> Event {
        let (actor, client) = match actor {
            Admin::Panel(client) => ("panel", Some(client)),
            Admin::CommandLine => ("command line", None),
        };
        Event { at, actor: actor.to_owned(), action: action.as_str().to_owned(), client, key }
    }

    /// Inserts the event if its tenant exists. Then the newest 1,000 events of its kind remain.
    pub(super) fn insert(
        &self,
        transaction: &Transaction<'_>,
        tenant_id: TenantId,
    ) -> rusqlite::Result<()> {
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
    pub(in crate::store) fn read(row: &Row<'_>) -> rusqlite::Result<Event> {
        let client = row.get::<_, Option<String>>(3)?.and_then(|text| text.parse().ok());
        let key = match row.get(4)? {
            Some(id) => Some(KeyLabel { id: KeyId(id), name: row.get(5)?, prefix: row.get(6)? }),
            None => None,
        };
        Ok(Event { at: row.get(0)?, actor: row.get(1)?, action: row.get(2)?, client, key })
    }
}

const EVENT_COLUMNS: &str = "at, actor, action, client, key_id, key_name, prefix";

impl Registry {
    /// At most `limit` of the tenant's last changes of keys and the password, the newest first.
    pub fn admin_changes(&self, tenant_id: TenantId, limit: usize) -> Result<Vec<Event>> {
        self.events(tenant_id, false, limit)
    }

    pub(super) fn events(
        &self,
        tenant_id: TenantId,
        sign_ins: bool,
        limit: usize,
    ) -> Result<Vec<Event>> {
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
}
