//! The panel's sessions. Only the hash of a session's token is stored.

use std::net::IpAddr;

use rusqlite::{OptionalExtension as _, params};

use super::events::{Action, Actor, Event};
use super::tenants::TENANT_COLUMNS;
use super::{Registry, Result, TenantRow};
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
        client: IpAddr,
        now: Moment,
    ) -> Result<bool> {
        // The failed sign-ins before this one come before it.
        self.flush()?;
        let seconds = now.unix_seconds();
        self.change(|transaction| {
            transaction
                .prepare_cached("DELETE FROM sessions WHERE expires_at <= ?1")?
                .execute([seconds])?;
            let sql = "INSERT INTO sessions (tenant_id, hash, expires_at)
                 SELECT id, ?2, ?3 FROM tenants WHERE id = ?1 AND password_hash = ?4";
            let values = params![tenant.id, hash, seconds + SESSION_SECONDS, tenant.password_hash];
            let inserted = transaction.prepare_cached(sql)?.execute(values)? == 1;
            if inserted {
                Event::new(Action::SignedIn, None, Actor::Panel(client), now.timestamp())
                    .insert(transaction, tenant.id)?;
            }
            Ok(inserted)
        })
    }

    /// The tenant of the session with this hash, or `None` if there is no such session or it has
    /// expired.
    pub fn find_session(&self, hash: &[u8; 32], now: Moment) -> Result<Option<TenantRow>> {
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
    pub fn end_session(&self, hash: &[u8; 32]) -> Result<()> {
        self.change(|transaction| {
            transaction.prepare_cached("DELETE FROM sessions WHERE hash = ?1")?.execute([hash])?;
            Ok(())
        })
    }
}
