//! Keys: made, listed, revoked, deleted, and when each was last used.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::events::{Action, Actor, insert_event};
use super::{Registry, RegistryError};
use crate::clock::{self, Moment};
use crate::model::Scopes;
use crate::secret::{self, PREFIX_LENGTH};

/// The most characters of a key's name.
const LONGEST_NAME: usize = 100;

/// One key, without the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    pub id: i64,
    pub tenant_id: i64,
    pub name: String,
    /// The first 8 characters.
    pub prefix: String,
    pub scopes: Scopes,
    /// RFC 3339, as the others.
    pub created_at: String,
    /// To the minute.
    pub last_used_at: Option<String>,
    pub revoked_at: Option<String>,
}

impl KeyRow {
    /// `active` or `revoked`.
    pub const fn state(&self) -> &'static str {
        if self.revoked_at.is_some() { "revoked" } else { "active" }
    }

    /// `SELECT` of [`KEY_COLUMNS`], in their order.
    fn read(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
        Ok(KeyRow {
            id: row.get(0)?,
            tenant_id: row.get(1)?,
            name: row.get(2)?,
            prefix: row.get(3)?,
            scopes: Scopes::from(row.get_ref(4)?.as_str()?),
            created_at: row.get(5)?,
            last_used_at: row.get(6)?,
            revoked_at: row.get(7)?,
        })
    }
}

const KEY_COLUMNS: &str = "id, tenant_id, name, prefix, scopes, created_at, last_used_at, revoked_at";

/// A key's name as it is kept: 1 to 100 characters after trimming, no control characters.
pub fn check_key_name(name: &str) -> Result<&str, &'static str> {
    let trimmed = name.trim();
    if trimmed.is_empty() {
        Err("a key's name must not be empty")
    } else if trimmed.chars().count() > LONGEST_NAME {
        Err("a key's name has at most 100 characters")
    } else if trimmed.chars().any(char::is_control) {
        Err("a key's name has no control characters")
    } else {
        Ok(trimmed)
    }
}

impl Registry {
    /// A new key, and the key itself, which is nowhere else. Its name follows [`check_key_name`]; it has a scope at least.
    pub fn create_key(
        &self,
        tenant_id: i64,
        name: &str,
        scopes: Scopes,
        actor: Actor,
        now: Moment,
    ) -> Result<(KeyRow, String), RegistryError> {
        let name = check_key_name(name).map_err(RegistryError::Invalid)?;
        if scopes.is_empty() {
            return Err(RegistryError::Invalid("a key has at least one scope"));
        }
        let key = secret::generate_key()?;
        let prefix: String = key.chars().take(PREFIX_LENGTH).collect();
        let created_at = now.rfc3339();
        let row = self.change(|transaction| {
            if !transaction.prepare_cached("SELECT 1 FROM tenants WHERE id = ?1")?.exists([tenant_id])? {
                return Err(RegistryError::NoTenant(tenant_id.to_string()));
            }
            let sql = format!(
                "INSERT INTO keys (tenant_id, name, hash, prefix, scopes, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) RETURNING {KEY_COLUMNS}"
            );
            let values = params![tenant_id, name, secret::hash(&key), prefix, scopes.to_string(), created_at];
            let row = transaction.prepare_cached(&sql)?.query_row(values, KeyRow::read)?;
            insert_event(transaction, tenant_id, Action::Created, Some(&row), actor, now)?;
            Ok(row)
        })?;
        Ok((row, key))
    }

    /// The tenant's keys, the oldest first. Last uses that are not yet written are in it.
    pub fn list_keys(&self, tenant_id: i64) -> Result<Vec<KeyRow>, RegistryError> {
        let mut keys: Vec<KeyRow> = self.read(|connection| {
            let sql = format!("SELECT {KEY_COLUMNS} FROM keys WHERE tenant_id = ?1 ORDER BY id");
            connection.prepare_cached(&sql)?.query_map([tenant_id], KeyRow::read)?.collect()
        })?;
        let uses = self.uses.lock();
        for key in &mut keys {
            let unwritten = uses.get(&key.id).map(|seconds| clock::rfc3339(*seconds));
            key.last_used_at = key.last_used_at.take().max(unwritten);
        }
        Ok(keys)
    }

    /// Revokes a key of this tenant for good. To revoke it again changes nothing.
    pub fn revoke_key(&self, tenant_id: i64, key_id: i64, actor: Actor, now: Moment) -> Result<KeyRow, RegistryError> {
        self.change(|transaction| {
            let key = find_key(transaction, tenant_id, key_id)?.ok_or(RegistryError::NoKey(key_id))?;
            if key.revoked_at.is_some() {
                return Ok(key);
            }
            let revoked_at = now.rfc3339();
            transaction
                .prepare_cached("UPDATE keys SET revoked_at = ?2 WHERE id = ?1")?
                .execute(params![key_id, revoked_at])?;
            insert_event(transaction, tenant_id, Action::Revoked, Some(&key), actor, now)?;
            Ok(KeyRow { revoked_at: Some(revoked_at), ..key })
        })
    }

    /// Removes a key of this tenant.
    pub fn delete_key(&self, tenant_id: i64, key_id: i64, actor: Actor, now: Moment) -> Result<KeyRow, RegistryError> {
        let key = self.change(|transaction| {
            let key = find_key(transaction, tenant_id, key_id)?.ok_or(RegistryError::NoKey(key_id))?;
            transaction.prepare_cached("DELETE FROM keys WHERE id = ?1")?.execute([key_id])?;
            insert_event(transaction, tenant_id, Action::Deleted, Some(&key), actor, now)?;
            Ok(key)
        })?;
        self.uses.lock().remove(&key_id);
        Ok(key)
    }

    /// Remembers in memory that a key was used; [`Registry::flush_uses`] writes it.
    pub fn record_use(&self, key_id: i64, now: Moment) {
        let seconds = now.unix_seconds();
        self.uses.lock().insert(key_id, seconds - seconds.rem_euclid(60));
    }

    /// Writes the last uses that were noted since: once a minute, and at the end. Those that cannot be written are kept for
    /// the next time.
    pub fn flush_uses(&self) -> Result<(), RegistryError> {
        let uses = std::mem::take(&mut *self.uses.lock());
        if uses.is_empty() {
            return Ok(());
        }
        let written = self.change(|transaction| {
            let mut update = transaction.prepare_cached(
                "UPDATE keys SET last_used_at = ?2 WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)",
            )?;
            for (key, seconds) in &uses {
                update.execute(params![key, clock::rfc3339(*seconds)])?;
            }
            Ok(())
        });
        if written.is_err() {
            let mut newer = self.uses.lock();
            for (key, seconds) in uses {
                newer.entry(key).or_insert(seconds);
            }
        }
        written
    }
}

fn find_key(connection: &Connection, tenant_id: i64, key_id: i64) -> rusqlite::Result<Option<KeyRow>> {
    let sql = format!("SELECT {KEY_COLUMNS} FROM keys WHERE tenant_id = ?1 AND id = ?2");
    connection.prepare_cached(&sql)?.query_row([tenant_id, key_id], KeyRow::read).optional()
}
