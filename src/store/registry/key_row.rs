//! A key as it is stored, without its secret.

use std::num::NonZeroU32;

use rusqlite::Row;

use super::Expiry;
use crate::clock::{Moment, Timestamp};
use crate::model::{KeyId, Scopes, TenantId};

/// Whether a key is accepted, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key is accepted.
    Active,
    /// The key was revoked. It may be expired, too.
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
    /// The tenant that the key belongs to.
    pub tenant_id: TenantId,
    /// Follows [`super::check_key_name`].
    pub name: String,
    /// The first 8 characters.
    pub prefix: String,
    /// What the key permits.
    pub scopes: Scopes,
    pub created_at: Timestamp,
    /// Rounded down to the minute; `None` before the first use.
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// The end of the key; `None` for a key without an end.
    pub expires_at: Option<Expiry>,
    /// The key's own number of requests a minute; `None` for the server's.
    pub rate_limit: Option<NonZeroU32>,
}

impl KeyRow {
    /// The state at `now`. A key that is revoked and expired counts as revoked.
    pub fn state(&self, now: Moment) -> KeyState {
        if self.revoked_at.is_some() {
            KeyState::Revoked
        } else if self.expires_at.is_some_and(|end| end.is_over(now)) {
            KeyState::Expired
        } else {
            KeyState::Active
        }
    }

    /// Reads [`KEY_COLUMNS`], in their order.
    pub(in crate::store) fn read(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
        Ok(KeyRow {
            id: row.get(0)?,
            tenant_id: row.get(1)?,
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

pub(in crate::store) const KEY_COLUMNS: &str = "id, tenant_id, name, prefix, scopes, created_at, last_used_at, revoked_at, expires_at, rate_limit";
