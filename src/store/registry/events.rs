//! Key events: what was done to a tenant's keys and who signed in, the last 1,000 of each tenant (contract section 11).
//!
//! A sign-in that fails is no event: anybody can cause one, and a thousand of them would remove the whole history. The log
//! has those.

use rusqlite::{Row, Transaction, params};

use super::keys::KeyRow;
use super::{Registry, RegistryError};
use crate::clock::Moment;

/// How many events of a tenant are kept.
const EVENTS_KEPT: i64 = 1_000;

/// Where an action was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Panel,
    CommandLine,
}

impl Actor {
    pub const fn as_str(self) -> &'static str {
        match self {
            Actor::Panel => "panel",
            Actor::CommandLine => "command line",
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A key was created, revoked or deleted.
    Created,
    Revoked,
    Deleted,
    /// A tenant admin signed in.
    SignedIn,
    /// The panel's password was changed.
    PasswordChanged,
}

impl Action {
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::Created => "created",
            Action::Revoked => "revoked",
            Action::Deleted => "deleted",
            Action::SignedIn => "signed in",
            Action::PasswordChanged => "password changed",
        }
    }
}

/// One event, as the panel's foot shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// RFC 3339.
    pub at: String,
    /// An [`Actor`]'s name.
    pub actor: String,
    /// An [`Action`]'s name.
    pub action: String,
    /// `None` for an action that is not about a key.
    pub key: Option<EventKey>,
}

/// The key of an event. It may be deleted by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventKey {
    pub id: i64,
    pub name: String,
    /// The first 8 characters.
    pub prefix: String,
}

impl KeyEvent {
    /// `SELECT` of [`EVENT_COLUMNS`], in their order.
    fn read(row: &Row<'_>) -> rusqlite::Result<KeyEvent> {
        let key = match row.get(3)? {
            Some(id) => Some(EventKey { id, name: row.get(4)?, prefix: row.get(5)? }),
            None => None,
        };
        Ok(KeyEvent { at: row.get(0)?, actor: row.get(1)?, action: row.get(2)?, key })
    }
}

const EVENT_COLUMNS: &str = "at, actor, action, key_id, key_name, prefix";

impl Registry {
    /// Returns the tenant's last events, the newest first, at most `limit`.
    pub fn key_events(&self, tenant_id: i64, limit: u32) -> Result<Vec<KeyEvent>, RegistryError> {
        self.read(|connection| {
            let sql = format!("SELECT {EVENT_COLUMNS} FROM key_events WHERE tenant_id = ?1 ORDER BY id DESC LIMIT ?2");
            connection.prepare_cached(&sql)?.query_map(params![tenant_id, limit], KeyEvent::read)?.collect()
        })
    }
}

/// Writes an event of the tenant, about `key` if it is about one, and drops what is beyond the tenant's last 1,000.
pub(super) fn insert_event(
    transaction: &Transaction<'_>,
    tenant_id: i64,
    action: Action,
    key: Option<&KeyRow>,
    actor: Actor,
    now: Moment,
) -> rusqlite::Result<()> {
    let (id, name, prefix) = (key.map(|k| k.id), key.map(|k| &k.name), key.map(|k| &k.prefix));
    let sql = format!("INSERT INTO key_events (tenant_id, {EVENT_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)");
    let values = params![tenant_id, now.rfc3339(), actor.as_str(), action.as_str(), id, name, prefix];
    transaction.prepare_cached(&sql)?.execute(values)?;
    transaction
        .prepare_cached(
            "DELETE FROM key_events WHERE tenant_id = ?1 AND id <=
               (SELECT id FROM key_events WHERE tenant_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        )?
        .execute([tenant_id, EVENTS_KEPT])
        .map(drop)
}
