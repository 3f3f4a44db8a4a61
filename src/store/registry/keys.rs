//! API keys: created, found, listed, changed, replaced, revoked and deleted.

use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

use jiff::Span;
use rusqlite::{OptionalExtension as _, Row, Transaction, params};

use super::{Administration, EventKind, Inactive, Registry, suspension, trial_over};
use crate::clock::{Moment, Timestamp};
use crate::model::{KeyId, Scopes, TenantId};
use crate::secret::{self, PREFIX_LENGTH};
use crate::store::error::{Result, StoreCode, StoreError};
use crate::store::records::KeyLabel;

/// The limit for the characters of a key's name.
const MAX_NAME_LENGTH: usize = 100;

/// The highest rate limit that a key can have, in requests a minute.
pub const MAX_RATE_LIMIT: u32 = 100_000;

/// The most keys of a tenant, revoked and expired ones included (contract section 9). Without a
/// limit, a tenant's rate limit would be what it likes, and so would the size of the panel's page.
pub const MAX_KEYS: u32 = 200;

/// How long before its end a key's end is announced (contract section 14).
const NOTICE: Duration = Duration::from_hours(14 * 24);

/// Whether a key is accepted, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    Active,
    /// The key may be expired, too.
    Revoked,
    /// The end of the key has come.
    Expired,
}

impl KeyState {
    /// The spelling of `key list --json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            KeyState::Active => "active",
            KeyState::Revoked => "revoked",
            KeyState::Expired => "expired",
        }
    }
}

/// One key without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Never used again after the key is deleted.
    pub id: KeyId,
    pub tenant_id: TenantId,
    /// Follows [`check_key_name`].
    pub name: String,
    /// The first 8 characters.
    pub prefix: String,
    pub scopes: Scopes,
    pub created_at: Timestamp,
    /// Rounded down to the minute, but not before `created_at`; `None` before the first use.
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// The second from which on the key is expired; `None` for a key without an end.
    pub expires_at: Option<Timestamp>,
    /// The key's own number of requests a minute; `None` for the server's.
    pub rate_limit: Option<NonZeroU32>,
}

impl KeyRow {
    pub fn state(&self, now: Moment) -> KeyState {
        if self.revoked_at.is_some() {
            KeyState::Revoked
        } else if self.expires_at.is_some_and(|end| end <= now.timestamp()) {
            KeyState::Expired
        } else {
            KeyState::Active
        }
    }

    /// The key if it is active, else [`StoreCode::KeyEnded`].
    pub fn require_active(self, now: Moment) -> Result<KeyRow> {
        match self.state(now) {
            KeyState::Active => Ok(self),
            state => Err(StoreError::new(
                StoreCode::KeyEnded(state.as_str()),
                format!(
                    "the key {} is {} and cannot be changed or replaced; create a new key",
                    self.id,
                    state.as_str()
                ),
            )),
        }
    }

    /// The end of the key if it has come or is at most 14 days away.
    pub fn near_end(&self, now: Moment) -> Option<Timestamp> {
        self.expires_at.filter(|end| end.before(NOTICE) <= now.timestamp())
    }

    pub fn label(&self) -> KeyLabel {
        KeyLabel { id: self.id, name: self.name.clone(), prefix: self.prefix.clone() }
    }

    /// Reads [`KEY_COLUMNS`], in their order.
    pub(in crate::store) fn read(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
        Ok(KeyRow {
            id: KeyId(row.get(0)?),
            tenant_id: TenantId(row.get(1)?),
            name: row.get(2)?,
            prefix: row.get(3)?,
            scopes: Scopes::from(row.get_ref(4)?.as_str()?),
            created_at: row.get(5)?,
            last_used_at: row.get(6)?,
            revoked_at: row.get(7)?,
            expires_at: row.get(8)?,
            rate_limit: row.get(9)?,
        })
    }
}

const KEY_COLUMNS: &str = "
    keys.id, keys.tenant_id, keys.name, keys.prefix, keys.scopes, keys.created_at,
    keys.last_used_at, keys.revoked_at, keys.expires_at, keys.rate_limit";

/// A key as a request presents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub key: KeyRow,
    pub tenant_name: String,
    /// Why the tenant is inactive, if it is.
    pub inactive: Option<Inactive>,
}

#[derive(Clone, Copy, Debug)]
pub struct NewKey<'a> {
    /// Follows [`check_key_name`].
    pub name: &'a str,
    /// At least one scope.
    pub scopes: Scopes,
    /// In the future; `None` for a key without an end.
    pub expires_at: Option<Timestamp>,
    /// Requests a minute, at most [`MAX_RATE_LIMIT`]; `None` for the server's limit.
    pub rate_limit: Option<NonZeroU32>,
}

impl<'a> NewKey<'a> {
    /// A key without an end and with the server's rate limit.
    pub fn new(name: &'a str, scopes: Scopes) -> NewKey<'a> {
        NewKey { name, scopes, expires_at: None, rate_limit: None }
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

/// A key that was replaced, and the key that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The old key with its new end.
    pub old: KeyRow,
    pub new: KeyRow,
    /// The secret of the new key. It is not stored.
    pub key: String,
}

impl Registry {
    /// The principal whose key has this SHA-256. This runs for every request.
    pub fn find_principal(&self, hash: &[u8; 32], now: Moment) -> Result<Option<Principal>> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {KEY_COLUMNS}, tenants.name, tenants.suspended, tenants.moving,
                   tenants.trial_until
                 FROM keys JOIN tenants ON tenants.id = keys.tenant_id WHERE keys.hash = ?1"
            )
        });
        self.read(|connection| {
            let read = |row: &Row<'_>| {
                let trial_until: Option<String> = row.get(13)?;
                Ok(Principal {
                    key: KeyRow::read(row)?,
                    tenant_name: row.get(10)?,
                    inactive: suspension(row.get(11)?, row.get(12)?)
                        .or_else(|| trial_over(trial_until.as_deref(), now)),
                })
            };
            connection.prepare_cached(&SQL)?.query_row([hash], read).optional()
        })
    }

    /// Records that a key was used.
    pub fn record_use(&self, key: &KeyRow, now: Moment) {
        let seconds = now.unix_seconds();
        let minute = Timestamp::from_unix(seconds - seconds.rem_euclid(60));
        self.unwritten.lock().uses.insert(key.id, minute.max(key.created_at));
    }

    /// The tenant's keys, the oldest first, with the last uses that are not written yet.
    pub fn list_keys(&self, tenant_id: TenantId) -> Result<Vec<KeyRow>> {
        // A use that is written meanwhile is still in memory.
        let unwritten = self.unwritten.lock();
        let mut keys: Vec<KeyRow> = self.read(|connection| {
            let sql = format!("SELECT {KEY_COLUMNS} FROM keys WHERE tenant_id = ?1 ORDER BY id");
            connection.prepare_cached(&sql)?.query_map([tenant_id.0], KeyRow::read)?.collect()
        })?;
        for key in &mut keys {
            key.last_used_at = unwritten.uses.get(&key.id).copied().or(key.last_used_at);
        }
        Ok(keys)
    }
}

/// Changes of keys. A key of another tenant is [`StoreCode::NoKey`].
impl Administration<'_> {
    /// Creates a key. Returns its row and its secret, which is not stored.
    pub fn create_key(&self, new: &NewKey<'_>) -> Result<(KeyRow, String)> {
        self.change(|transaction| self.insert_key(transaction, new))
    }

    /// Revokes a key permanently. A key that is revoked already does not change.
    pub fn revoke_key(&self, id: KeyId) -> Result<KeyRow> {
        self.change(|transaction| {
            let mut key = self.find_key(transaction, id)?;
            if key.revoked_at.is_none() {
                key.revoked_at = Some(self.now.timestamp());
                update(transaction, &key)?;
                self.record(transaction, EventKind::KeyRevoked, Some(key.label()))?;
            }
            Ok(key)
        })
    }

    /// Changes the name, the end and the limit of an active key. Each that differs then is an
    /// event. Returns the key and the actions of the events.
    pub fn change_key(
        &self,
        id: KeyId,
        change: impl FnOnce(&mut KeyRow),
    ) -> Result<(KeyRow, Vec<EventKind>)> {
        self.change(|transaction| {
            let before = self.find_key(transaction, id)?.require_active(self.now)?;
            let mut key = before.clone();
            change(&mut key);
            key.name = check_key_name(&key.name).map_err(StoreError::other)?.to_owned();
            self.check_end(key.expires_at)?;
            update(transaction, &key)?;
            let differences = [
                (key.name != before.name).then_some(EventKind::KeyRenamed),
                (key.expires_at != before.expires_at).then_some(EventKind::KeyExpiryChanged),
                (key.rate_limit != before.rate_limit).then_some(EventKind::KeyLimitChanged),
            ];
            let actions: Vec<EventKind> = differences.into_iter().flatten().collect();
            actions
                .iter()
                .try_for_each(|action| self.record(transaction, *action, Some(key.label())))?;
            Ok((key, actions))
        })
    }

    pub fn delete_key(&self, id: KeyId) -> Result<KeyRow> {
        self.change(|transaction| {
            let key = self.find_key(transaction, id)?;
            transaction.prepare_cached("DELETE FROM keys WHERE id = ?1")?.execute([key.id.0])?;
            self.record(transaction, EventKind::KeyDeleted, Some(key.label()))?;
            Ok(key)
        })
    }

    /// Creates a key with the name, scopes, limit and end of the key `id`, which then ends after
    /// `overlap`, or earlier if it would have ended anyway (contract section 14).
    ///
    /// A key that is revoked or expired is [`StoreCode::KeyEnded`].
    pub fn replace_key(&self, id: KeyId, overlap: Span) -> Result<Replacement> {
        let overlap_end =
            self.now.after(overlap).ok_or_else(|| StoreError::other("the overlap is too long"))?;
        self.change(|transaction| {
            let mut old = self.find_key(transaction, id)?.require_active(self.now)?;
            let KeyRow { expires_at, rate_limit, scopes, .. } = old;
            let new = NewKey { name: &old.name, scopes, expires_at, rate_limit };
            let (new, key) = self.insert_key(transaction, &new)?;
            old.expires_at = Some(expires_at.map_or(overlap_end, |end| end.min(overlap_end)));
            update(transaction, &old)?;
            self.record(transaction, EventKind::KeyReplaced, Some(old.label()))?;
            Ok(Replacement { old, new, key })
        })
    }

    fn find_key(&self, transaction: &Transaction<'_>, id: KeyId) -> Result<KeyRow> {
        let sql = format!("SELECT {KEY_COLUMNS} FROM keys WHERE tenant_id = ?1 AND id = ?2");
        let mut find = transaction.prepare_cached(&sql)?;
        let key = find.query_row(params![self.tenant_id.0, id.0], KeyRow::read).optional()?;
        key.ok_or_else(|| StoreError::new(StoreCode::NoKey, format!("the tenant has no key {id}")))
    }

    fn check_end(&self, expires_at: Option<Timestamp>) -> Result<()> {
        match expires_at {
            Some(end) if end <= self.now.timestamp() => {
                Err(StoreError::other("the end of a key must be in the future"))
            }
            _ => Ok(()),
        }
    }

    /// Inserts a key of an active tenant, with a new secret. Returns both.
    pub(super) fn insert_key(
        &self,
        transaction: &Transaction<'_>,
        new: &NewKey<'_>,
    ) -> Result<(KeyRow, String)> {
        let NewKey { name, scopes, expires_at, rate_limit } = *new;
        let name = check_key_name(name).map_err(StoreError::other)?;
        let now = self.now.timestamp();
        if scopes.is_empty() {
            return Err(StoreError::other("a key has at least one scope"));
        }
        self.check_end(expires_at)?;
        let sql = "SELECT count(*) FROM keys WHERE tenant_id = ?1";
        let count: u32 = transaction.query_row(sql, [self.tenant_id.0], |row| row.get(0))?;
        if count >= MAX_KEYS {
            let message =
                format!("the tenant has {MAX_KEYS} keys, which is the limit; delete one first");
            return Err(StoreError::new(StoreCode::TooManyKeys, message));
        }
        let key = secret::generate_key().map_err(StoreError::other)?;
        let prefix: String = key.chars().take(PREFIX_LENGTH).collect();
        let sql = format!(
            "INSERT INTO keys
               (tenant_id, name, hash, prefix, scopes, created_at, expires_at, rate_limit)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING {KEY_COLUMNS}"
        );
        let (hash, scopes) = (secret::hash(&key), scopes.to_string());
        let values =
            params![self.tenant_id.0, name, hash, prefix, scopes, now, expires_at, rate_limit];
        let row = transaction.prepare_cached(&sql)?.query_row(values, KeyRow::read)?;
        self.record(transaction, EventKind::KeyCreated, Some(row.label()))?;
        Ok((row, key))
    }
}

fn update(transaction: &Transaction<'_>, key: &KeyRow) -> rusqlite::Result<()> {
    let KeyRow { id, name, revoked_at, expires_at, rate_limit, .. } = key;
    let sql = "UPDATE keys SET name = ?2, revoked_at = ?3, expires_at = ?4, rate_limit = ?5
               WHERE id = ?1";
    let values = params![id.0, name, revoked_at, expires_at, rate_limit];
    transaction.prepare_cached(sql)?.execute(values).map(drop)
}
