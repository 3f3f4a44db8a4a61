//! API keys: created, listed, revoked and deleted, and the time of their last use.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::events::{Action, Actor, insert_event};
use super::{Registry, RegistryError};
use crate::clock::{self, Moment};
use crate::model::Scopes;
use crate::secret::{self, PREFIX_LENGTH};

/// The limit for the characters of a key's name.
const MAX_NAME_LENGTH: usize = 100;

/// One key without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Never used again after the key is deleted.
    pub id: i64,
    /// The tenant that the key belongs to.
    pub tenant_id: i64,
    /// Follows [`check_key_name`].
    pub name: String,
    /// The first 8 characters.
    pub prefix: String,
    /// What the key permits.
    pub scopes: Scopes,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339, rounded down to the minute; `None` before the first use.
    pub last_used_at: Option<String>,
    /// RFC 3339; `None` for an active key.
    pub revoked_at: Option<String>,
}

impl KeyRow {
    /// Returns `active` or `revoked`.
    pub const fn state(&self) -> &'static str {
        if self.revoked_at.is_some() { "revoked" } else { "active" }
    }

    /// Reads [`KEY_COLUMNS`], in their order.
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

/// Trims a key's name and checks it: 1 to 100 characters, no control characters. Returns the name as it is stored.
///
/// # Errors
///
/// The rule, as a text for the user.
pub fn check_key_name(name: &str) -> Result<&str, &'static str> {
    let trimmed = name.trim();
    if trimmed.is_empty() {
        Err("a key's name must not be empty")
    } else if trimmed.chars().count() > MAX_NAME_LENGTH {
        Err("a key's name has at most 100 characters")
    } else if trimmed.chars().any(char::is_control) {
        Err("a key's name has no control characters")
    } else {
        Ok(trimmed)
    }
}

impl Registry {
    /// Creates a key. Returns its row and its secret, which is not stored. `name` follows [`check_key_name`]; `scopes` has at
    /// least one scope.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Invalid`] for the name or the scopes, [`RegistryError::NoTenant`] if there is no tenant of this id.
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

    /// Returns the tenant's keys, the oldest first, with the last uses that are not written yet.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Database`] if the registry cannot be read.
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

    /// Revokes a key of this tenant permanently. A key that is revoked already does not change.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoKey`] if the tenant has no key of this id.
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

    /// Deletes a key of this tenant.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoKey`] if the tenant has no key of this id.
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

    /// Records in memory that a key was used. [`Registry::flush_uses`] writes it.
    pub fn record_use(&self, key_id: i64, now: Moment) {
        let seconds = now.unix_seconds();
        self.uses.lock().insert(key_id, seconds - seconds.rem_euclid(60));
    }

    /// Writes the uses that [`Registry::record_use`] has recorded. The server calls it once a minute and when it stops.
    ///
    /// # Errors
    ///
    /// [`RegistryError`] if the registry cannot be written. The uses are kept for the next call.
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
