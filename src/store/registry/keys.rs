//! API keys: created, listed, limited, revoked and deleted, and the time of their last use.

use std::num::NonZeroU32;

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::events::{Action, Actor, insert_event};
use super::key_row::{KEY_COLUMNS, KeyRow};
use super::{Expiry, Registry, RegistryError};
use crate::clock::{Moment, Timestamp};
use crate::model::{KeyId, Scopes, TenantId};
use crate::secret::{self, PREFIX_LENGTH};

/// The limit for the characters of a key's name.
const MAX_NAME_LENGTH: usize = 100;

/// The highest rate limit that a key can have, in requests a minute.
pub const MAX_RATE_LIMIT: u32 = 100_000;

/// What a new key is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewKey<'a> {
    /// Follows [`check_key_name`].
    pub name: &'a str,
    /// What the key permits: at least one scope.
    pub scopes: Scopes,
    /// The end of the key, in the future; `None` for a key without an end.
    pub expires_at: Option<Expiry>,
    /// Requests a minute, at most [`MAX_RATE_LIMIT`]; `None` for the server's limit.
    pub rate_limit: Option<NonZeroU32>,
}

impl<'a> NewKey<'a> {
    /// A key without an end and with the server's rate limit.
    pub fn new(name: &'a str, scopes: Scopes) -> NewKey<'a> {
        NewKey { name, scopes, expires_at: None, rate_limit: None }
    }

    /// The key with its name as it is stored, or the rule that it breaks.
    pub(super) fn checked(self, now: Moment) -> Result<NewKey<'a>, &'static str> {
        let key = NewKey { name: check_key_name(self.name)?, ..self };
        check(&key, now)?;
        Ok(key)
    }
}

/// Trims a key's name and checks it: 1 to 100 characters, no control characters. Returns the name
/// as it is stored.
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
    /// Creates a key. Returns its row and its secret, which is not stored.
    pub fn create_key(
        &self,
        tenant_id: TenantId,
        new: NewKey<'_>,
        actor: Actor,
        now: Moment,
    ) -> Result<(KeyRow, String), RegistryError> {
        let new = new.checked(now).map_err(RegistryError::Invalid)?;
        self.change(|transaction| {
            if !transaction
                .prepare_cached("SELECT 1 FROM tenants WHERE id = ?1")?
                .exists([tenant_id])?
            {
                return Err(RegistryError::NoTenant(tenant_id.to_string()));
            }
            let (row, key) = insert(transaction, tenant_id, &new, now)?;
            insert_event(transaction, tenant_id, Action::Created, Some(&row), actor, now)?;
            Ok((row, key))
        })
    }

    /// The tenant's key of this id, or `None`.
    pub fn key(&self, tenant_id: TenantId, key_id: KeyId) -> Result<Option<KeyRow>, RegistryError> {
        self.read(|connection| find(connection, tenant_id, key_id))
    }

    /// The tenant's keys, the oldest first, with the last uses that are not written yet.
    pub fn list_keys(&self, tenant_id: TenantId) -> Result<Vec<KeyRow>, RegistryError> {
        let mut keys: Vec<KeyRow> = self.read(|connection| {
            let sql = format!("SELECT {KEY_COLUMNS} FROM keys WHERE tenant_id = ?1 ORDER BY id");
            connection.prepare_cached(&sql)?.query_map([tenant_id], KeyRow::read)?.collect()
        })?;
        let uses = self.uses.lock();
        for key in &mut keys {
            if let Some(seconds) = uses.get(&key.id) {
                key.last_used_at = Some(*seconds);
            }
        }
        Ok(keys)
    }

    /// Revokes a key of this tenant permanently. A key that is revoked already does not change.
    pub fn revoke_key(
        &self,
        tenant_id: TenantId,
        key_id: KeyId,
        actor: Actor,
        now: Moment,
    ) -> Result<KeyRow, RegistryError> {
        self.change_key(tenant_id, key_id, |transaction, key| {
            if key.revoked_at.is_some() {
                return Ok(key);
            }
            let revoked_at = now.timestamp();
            transaction
                .prepare_cached("UPDATE keys SET revoked_at = ?2 WHERE id = ?1")?
                .execute(params![key_id, revoked_at])?;
            insert_event(transaction, tenant_id, Action::Revoked, Some(&key), actor, now)?;
            Ok(KeyRow { revoked_at: Some(revoked_at), ..key })
        })
    }

    /// Sets the number of requests a minute of a key of this tenant, or returns it to the server's
    /// limit.
    pub fn set_rate_limit(
        &self,
        tenant_id: TenantId,
        key_id: KeyId,
        rate_limit: Option<NonZeroU32>,
        actor: Actor,
        now: Moment,
    ) -> Result<KeyRow, RegistryError> {
        check_rate_limit(rate_limit).map_err(RegistryError::Invalid)?;
        self.change_key(tenant_id, key_id, |transaction, key| {
            if key.rate_limit != rate_limit {
                let sql = "UPDATE keys SET rate_limit = ?2 WHERE id = ?1";
                transaction.prepare_cached(sql)?.execute(params![key_id, rate_limit])?;
                insert_event(transaction, tenant_id, Action::LimitChanged, Some(&key), actor, now)?;
            }
            Ok(KeyRow { rate_limit, ..key })
        })
    }

    /// Deletes a key of this tenant.
    pub fn delete_key(
        &self,
        tenant_id: TenantId,
        key_id: KeyId,
        actor: Actor,
        now: Moment,
    ) -> Result<KeyRow, RegistryError> {
        let key = self.change_key(tenant_id, key_id, |transaction, key| {
            delete(transaction, key_id)?;
            insert_event(transaction, tenant_id, Action::Deleted, Some(&key), actor, now)?;
            Ok(key)
        })?;
        self.uses.lock().remove(&key_id);
        Ok(key)
    }

    /// Runs `work` with a key of this tenant in a write transaction.
    pub(super) fn change_key<T>(
        &self,
        tenant_id: TenantId,
        key_id: KeyId,
        work: impl FnOnce(&Transaction<'_>, KeyRow) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        self.change(|transaction| {
            let key = find(transaction, tenant_id, key_id)?.ok_or(RegistryError::NoKey(key_id))?;
            work(transaction, key)
        })
    }

    /// Records in memory that a key was used. [`Registry::flush_uses`] writes it.
    pub fn record_use(&self, key_id: KeyId, now: Moment) {
        let seconds = now.unix_seconds();
        let minute = Timestamp::from_unix(seconds - seconds.rem_euclid(60));
        self.uses.lock().insert(key_id, minute);
    }

    /// Writes the uses that [`Registry::record_use`] has recorded. The server calls it once a
    /// minute and when it stops. After an error they are kept for the next call.
    pub fn flush_uses(&self) -> Result<(), RegistryError> {
        let uses = std::mem::take(&mut *self.uses.lock());
        if uses.is_empty() {
            return Ok(());
        }
        let written = self.change(|transaction| {
            let mut update = transaction.prepare_cached(
                "UPDATE keys SET last_used_at = ?2 WHERE id = ?1 AND last_used_at IS NOT ?2",
            )?;
            for (key, minute) in &uses {
                update.execute(params![key, minute])?;
            }
            Ok::<_, RegistryError>(())
        });
        if written.is_err() {
            let mut newer = self.uses.lock();
            for (key, minute) in uses {
                newer.entry(key).or_insert(minute);
            }
        }
        written
    }
}

/// Checks the rules of a new key, except that of its name.
fn check(new: &NewKey<'_>, now: Moment) -> Result<(), &'static str> {
    if new.scopes.is_empty() {
        return Err("a key has at least one scope");
    }
    if new.expires_at.is_some_and(|end| end.is_over(now)) {
        return Err("the end of a key must be in the future");
    }
    check_rate_limit(new.rate_limit)
}

fn check_rate_limit(rate_limit: Option<NonZeroU32>) -> Result<(), &'static str> {
    match rate_limit {
        Some(limit) if limit.get() > MAX_RATE_LIMIT => Err("a key's rate limit is at most 100000"),
        _ => Ok(()),
    }
}

/// Inserts a key with a new secret. Returns both.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    tenant_id: TenantId,
    new: &NewKey<'_>,
    now: Moment,
) -> Result<(KeyRow, String), RegistryError> {
    let key = secret::generate_key()?;
    let prefix: String = key.chars().take(PREFIX_LENGTH).collect();
    let NewKey { name, scopes, expires_at, rate_limit } = *new;
    let sql = format!(
        "INSERT INTO keys (tenant_id, name, hash, prefix, scopes, created_at, expires_at, rate_limit)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING {KEY_COLUMNS}"
    );
    let (scopes, created_at) = (scopes.to_string(), now.timestamp());
    let values = params![
        tenant_id,
        name,
        secret::hash(&key),
        prefix,
        scopes,
        created_at,
        expires_at,
        rate_limit
    ];
    let row = transaction.prepare_cached(&sql)?.query_row(values, KeyRow::read)?;
    Ok((row, key))
}

pub(super) fn delete(transaction: &Transaction<'_>, key_id: KeyId) -> rusqlite::Result<()> {
    transaction.prepare_cached("DELETE FROM keys WHERE id = ?1")?.execute([key_id]).map(drop)
}

fn find(
    connection: &Connection,
    tenant_id: TenantId,
    key_id: KeyId,
) -> rusqlite::Result<Option<KeyRow>> {
    let sql = format!("SELECT {KEY_COLUMNS} FROM keys WHERE tenant_id = ?1 AND id = ?2");
    connection.prepare_cached(&sql)?.query_row(params![tenant_id, key_id], KeyRow::read).optional()
}
