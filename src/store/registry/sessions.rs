//! The panel's sessions. Only the hash of a session's token is stored.

use rusqlite::{OptionalExtension as _, Row, params};

use super::events::{Action, Actor, insert_event};
use super::tenants::TENANT_COLUMNS;
use super::{Registry, RegistryError, TenantRow};
use crate::clock::Moment;

/// How long a session lasts after the sign-in: 8 hours.
pub const SESSION_SECONDS: i64 = 8 * 60 * 60;

impl Registry {
    /// Creates a session of the tenant, records the sign-in and deletes the expired sessions of all tenants. Returns `false`
    /// and creates nothing if the tenant's password changed after `tenant` was read: the change ended all sessions.
    ///
    /// # Errors
    ///
    /// [`RegistryError`] if the registry cannot be written.
    pub fn create_session(&self, tenant: &TenantRow, hash: &[u8; 32], now: Moment) -> Result<bool, RegistryError> {
        let seconds = now.unix_seconds();
        self.change(|transaction| {
            transaction.prepare_cached("DELETE FROM sessions WHERE expires_at <= ?1")?.execute([seconds])?;
            let inserted = transaction
                .prepare_cached(
                    "INSERT INTO sessions (tenant_id, hash, expires_at)
                     SELECT id, ?2, ?3 FROM tenants WHERE id = ?1 AND password_hash = ?4",
                )?
                .execute(params![tenant.id, hash, seconds + SESSION_SECONDS, tenant.password_hash])?;
            if inserted == 1 {
                insert_event(transaction, tenant.id, Action::SignedIn, None, Actor::Panel, now)?;
            }
            Ok(inserted == 1)
        })
    }

    /// Returns the tenant of the session with this hash, or `None` if there is no such session or it has expired. A session that
    /// ends later than one that begins now was created before the clock was set back: it is shortened.
    ///
    /// # Errors
    ///
    /// [`RegistryError`] if the registry cannot be read, or not be written where the session is shortened.
    pub fn find_session(&self, hash: &[u8; 32], now: Moment) -> Result<Option<TenantRow>, RegistryError> {
        let seconds = now.unix_seconds();
        let found = self.read(|connection| {
            let sql = format!(
                "SELECT {TENANT_COLUMNS}, sessions.expires_at FROM sessions JOIN tenants ON tenants.id = sessions.tenant_id
                 WHERE sessions.hash = ?1 AND sessions.expires_at > ?2"
            );
            let read = |row: &Row<'_>| Ok((TenantRow::read(row)?, row.get::<_, i64>(6)?));
            connection.prepare_cached(&sql)?.query_row(params![hash, seconds], read).optional()
        })?;
        let Some((tenant, expires_at)) = found else { return Ok(None) };
        let latest = seconds + SESSION_SECONDS;
        if expires_at > latest {
            // A page is read, also without the copy.
            self.change(|transaction| {
                let sql = "UPDATE sessions SET expires_at = ?2 WHERE hash = ?1";
                Ok(transaction.prepare_cached(sql)?.execute(params![hash, latest])?)
            })?;
        }
        Ok(Some(tenant))
    }

    /// Deletes a session. It is no error if there is none.
    ///
    /// # Errors
    ///
    /// [`RegistryError`] if the registry cannot be written.
    pub fn end_session(&self, hash: &[u8; 32]) -> Result<(), RegistryError> {
        self.change(|transaction| {
            transaction.prepare_cached("DELETE FROM sessions WHERE hash = ?1")?.execute([hash])?;
            Ok(())
        })
    }
}
