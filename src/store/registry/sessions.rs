//! The panel's sessions. Only the hash of a session's token is stored.

use rusqlite::{OptionalExtension as _, params};

use super::events::{Action, Actor, insert_event};
use super::tenants::TENANT_COLUMNS;
use super::{Registry, RegistryError, TenantRow};
use crate::clock::Moment;

/// How long a session lasts after the sign-in: 8 hours.
pub const SESSION_SECONDS: i64 = 8 * 60 * 60;

impl Registry {
    /// Creates a session of the tenant, records the sign-in and deletes the expired sessions of all
    /// tenants. Returns `false` and creates nothing if the tenant's password changed after `tenant`
    /// was read: the change ended all sessions.
    pub fn create_session(
        &self,
        tenant: &TenantRow,
        hash: &[u8; 32],
        now: Moment,
    ) -> Result<bool, RegistryError> {
        let seconds = now.unix_seconds();
        self.change(|transaction| {
            transaction
                .prepare_cached("DELETE FROM sessions WHERE expires_at <= ?1")?
                .execute([seconds])?;
            let inserted = transaction
                .prepare_cached(
                    "INSERT INTO sessions (tenant_id, hash, expires_at)
                     SELECT id, ?2, ?3 FROM tenants WHERE id = ?1 AND password_hash = ?4",
                )?
                .execute(params![
                    tenant.id,
                    hash,
                    seconds + SESSION_SECONDS,
                    tenant.password_hash
                ])?;
            if inserted == 1 {
                insert_event(transaction, tenant.id, Action::SignedIn, None, Actor::Panel, now)?;
            }
            Ok(inserted == 1)
        })
    }

    /// The tenant of the session with this hash, or `None` if there is no such session or it has
    /// expired.
    pub fn find_session(
        &self,
        hash: &[u8; 32],
        now: Moment,
    ) -> Result<Option<TenantRow>, RegistryError> {
        let seconds = now.unix_seconds();
        self.read(|connection| {
            let sql = format!(
                "SELECT {TENANT_COLUMNS} FROM sessions JOIN tenants ON tenants.id = sessions.tenant_id
                 WHERE sessions.hash = ?1 AND sessions.expires_at > ?2"
            );
            let values = params![hash, seconds];
            connection.prepare_cached(&sql)?.query_row(values, TenantRow::read).optional()
        })
    }

    /// Deletes a session. It is no error if there is none.
    pub fn end_session(&self, hash: &[u8; 32]) -> Result<(), RegistryError> {
        self.change(|transaction| {
            transaction.prepare_cached("DELETE FROM sessions WHERE hash = ?1")?.execute([hash])?;
            Ok(())
        })
    }
}
