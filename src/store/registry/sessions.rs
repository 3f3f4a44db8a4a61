//! The panel's sessions. Only the hash of a session's token is stored.

use rusqlite::{OptionalExtension as _, params};

use super::events::{Action, Actor, insert_event};
use super::{Registry, RegistryError, TENANT_COLUMNS, TenantRow};
use crate::clock::Moment;

/// How long a session lasts from its sign-in: 8 hours.
pub const SESSION_SECONDS: i64 = 8 * 60 * 60;

impl Registry {
    /// Begins a session of the tenant and records the sign-in. Forgets those of all tenants that are over. Whether it did: not
    /// where the tenant has got another password since it was read, for that ended its sessions, this one too.
    pub fn create_session(&self, tenant: &TenantRow, hash: &[u8; 32], now: Moment) -> Result<bool, RegistryError> {
        let seconds = now.unix_seconds();
        self.change(|transaction| {
            transaction.prepare_cached("DELETE FROM sessions WHERE expires_at <= ?1")?.execute([seconds])?;
            let made = transaction
                .prepare_cached(
                    "INSERT INTO sessions (tenant_id, hash, expires_at)
                     SELECT id, ?2, ?3 FROM tenants WHERE id = ?1 AND password_hash = ?4",
                )?
                .execute(params![tenant.id, hash, seconds + SESSION_SECONDS, tenant.password_hash])?;
            if made == 1 {
                insert_event(transaction, tenant.id, Action::SignedIn, None, Actor::Panel, now)?;
            }
            Ok(made == 1)
        })
    }

    /// The tenant whose session this is, while it lasts.
    pub fn find_session(&self, hash: &[u8; 32], now: Moment) -> Result<Option<TenantRow>, RegistryError> {
        self.read(|connection| {
            let sql = format!(
                "SELECT {TENANT_COLUMNS} FROM sessions JOIN tenants ON tenants.id = sessions.tenant_id
                 WHERE sessions.hash = ?1 AND sessions.expires_at > ?2"
            );
            connection.prepare_cached(&sql)?.query_row(params![hash, now.unix_seconds()], TenantRow::read).optional()
        })
    }

    /// Ends one session. One that is over already is no error.
    pub fn end_session(&self, hash: &[u8; 32]) -> Result<(), RegistryError> {
        self.change(|transaction| {
            transaction.prepare_cached("DELETE FROM sessions WHERE hash = ?1")?.execute([hash])?;
            Ok(())
        })
    }
}
