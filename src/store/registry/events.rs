//! Events: changes to a tenant's keys and password, and sign-ins. The last 1,000 of each tenant are
//! kept (contract section 11).
//!
//! A failed sign-in is logged but is not an event: anybody can cause one, and a thousand of them
//! would displace all others.

use rusqlite::{Row, Transaction, params};

use super::key_row::KeyRow;
use super::{Registry, RegistryError};
use crate::clock::{Moment, Timestamp};
use crate::model::{KeyId, TenantId};

/// The number of events that are kept for each tenant.
const EVENTS_KEPT: i64 = 1_000;

/// The interface through which an action was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The HTML panel.
    Panel,
    /// A command of the operator.
    CommandLine,
}

impl Actor {
    /// The stored spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Actor::Panel => "panel",
            Actor::CommandLine => "command line",
        }
    }
}

/// The action that an event records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A key was created.
    Created,
    /// A key was replaced by another one.
    Replaced,
    /// A key's rate limit was changed.
    LimitChanged,
    /// A key was revoked.
    Revoked,
    /// A key was deleted.
    Deleted,
    /// A tenant admin signed in.
    SignedIn,
    /// The panel's password was changed.
    PasswordChanged,
}

impl Action {
    /// The stored spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::Created => "created",
            Action::Replaced => "replaced",
            Action::LimitChanged => "limit changed",
            Action::Revoked => "revoked",
            Action::Deleted => "deleted",
            Action::SignedIn => "signed in",
            Action::PasswordChanged => "password changed",
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    pub at: Timestamp,
    /// The name of an [`Actor`].
    pub actor: String,
    /// The name of an [`Action`].
    pub action: String,
    /// The key that the action changed; `None` for a sign-in and a change of the password.
    pub key: Option<EventKey>,
}

/// The key of an event, as it was then. The key may be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventKey {
    /// The key's id.
    pub id: KeyId,
    /// The key's name.
    pub name: String,
    /// The first 8 characters.
    pub prefix: String,
}

impl KeyEvent {
    /// Reads [`EVENT_COLUMNS`], in their order.
    pub(in crate::store) fn read(row: &Row<'_>) -> rusqlite::Result<KeyEvent> {
        let key = match row.get(3)? {
            Some(id) => Some(EventKey { id, name: row.get(4)?, prefix: row.get(5)? }),
            None => None,
        };
        Ok(KeyEvent { at: row.get(0)?, actor: row.get(1)?, action: row.get(2)?, key })
    }
}

pub(in crate::store) const EVENT_COLUMNS: &str = "at, actor, action, key_id, key_name, prefix";

impl Registry {
    /// At most `limit` of the tenant's last events, the newest first.
    pub fn key_events(
        &self,
        tenant_id: TenantId,
        limit: u32,
    ) -> Result<Vec<KeyEvent>, RegistryError> {
        self.read(|connection| {
            let sql = format!("SELECT {EVENT_COLUMNS} FROM key_events WHERE tenant_id = ?1 ORDER BY id DESC LIMIT ?2");
            connection.prepare_cached(&sql)?.query_map(params![tenant_id, limit], KeyEvent::read)?.collect()
        })
    }
}

/// Inserts an event of the tenant and deletes the events before its last 1,000. `key` is the key
/// that the action changed.
pub(super) fn insert_event(
    transaction: &Transaction<'_>,
    tenant_id: TenantId,
    action: Action,
    key: Option<&KeyRow>,
    actor: Actor,
    now: Moment,
) -> rusqlite::Result<()> {
    let (id, name, prefix) = (key.map(|k| k.id), key.map(|k| &k.name), key.map(|k| &k.prefix));
    let sql = format!(
        "INSERT INTO key_events (tenant_id, {EVENT_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
    );
    let values =
        params![tenant_id, now.timestamp(), actor.as_str(), action.as_str(), id, name, prefix];
    transaction.prepare_cached(&sql)?.execute(values)?;
    transaction
        .prepare_cached(
            "DELETE FROM key_events WHERE tenant_id = ?1 AND id <=
               (SELECT id FROM key_events WHERE tenant_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        )?
        .execute(params![tenant_id, EVENTS_KEPT])
        .map(drop)
}
