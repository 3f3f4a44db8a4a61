//! Finds the key that a request presents.

use std::num::NonZeroU32;

use rusqlite::{OptionalExtension as _, Row};

use super::tenants::inactive;
use super::{Expiry, Inactive, Registry, RegistryError};
use crate::clock::Moment;
use crate::model::{KeyId, Scopes, TenantId};

/// A key as a request presents it, with the state of its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The key's id.
    pub key_id: KeyId,
    /// The id of the key's tenant.
    pub tenant_id: TenantId,
    /// The name of the key's tenant.
    pub tenant_name: String,
    /// The key's name.
    pub key_name: String,
    /// The key's first 8 characters.
    pub prefix: String,
    /// What the key permits.
    pub scopes: Scopes,
    /// Whether the key is revoked.
    pub revoked: bool,
    /// The end of the key; `None` for a key without an end.
    pub expires_at: Option<Expiry>,
    /// The key's own number of requests a minute; `None` for the server's.
    pub rate_limit: Option<NonZeroU32>,
    /// Whether the tenant is suspended.
    pub suspended: bool,
    /// The last day of the tenant's trial, `YYYY-MM-DD`, UTC; `None` without a trial.
    pub trial_until: Option<String>,
}

impl Principal {
    /// Why the tenant is inactive at `now`, or `None` if it is active.
    pub fn inactive(&self, now: Moment) -> Option<Inactive> {
        // The date is formatted only for a tenant with a trial: this runs for every request.
        let today = if self.trial_until.is_some() { now.date() } else { String::new() };
        inactive(self.suspended, self.trial_until.as_deref(), &today)
    }

    /// Reads the columns of [`Registry::find_principal`], in their order.
    fn read(row: &Row<'_>) -> rusqlite::Result<Principal> {
        Ok(Principal {
            key_id: row.get(0)?,
            tenant_id: row.get(1)?,
            tenant_name: row.get(2)?,
            prefix: row.get(3)?,
            scopes: Scopes::from(row.get_ref(4)?.as_str()?),
            revoked: row.get(5)?,
            suspended: row.get(6)?,
            trial_until: row.get(7)?,
            key_name: row.get(8)?,
            expires_at: row.get(9)?,
            rate_limit: row.get(10)?,
        })
    }
}

impl Registry {
    /// The principal whose key has this SHA-256, or `None` if there is no such key. This runs for
    /// every request.
    pub fn find_principal(&self, hash: &[u8; 32]) -> Result<Option<Principal>, RegistryError> {
        self.read(|connection| {
            let sql =
                "SELECT keys.id, keys.tenant_id, tenants.name, keys.prefix, keys.scopes, keys.revoked_at IS NOT NULL,
                         tenants.suspended, tenants.trial_until, keys.name, keys.expires_at, keys.rate_limit
                       FROM keys JOIN tenants ON tenants.id = keys.tenant_id WHERE keys.hash = ?1";
            connection.prepare_cached(sql)?.query_row([hash], Principal::read).optional()
        })
    }
}
