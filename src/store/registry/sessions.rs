//! Sign-ins and sessions of the panel. Only the hash of a session's token is stored.

use std::net::IpAddr;

use rusqlite::{OptionalExtension as _, params};

use super::tenants::TenantRow;
use super::{Admin, Administration, Event, EventKind, Registry, no_tenant};
use crate::clock::Moment;
use crate::model::TenantId;
use crate::store::error::Result;

/// How long a session lasts after the sign-in: 8 hours.
pub const SESSION_SECONDS: i64 = 8 * 60 * 60;

impl Registry {
    /// Records a failed sign-in in memory. [`Registry::flush`] and the next sign-in write it: a
    /// response that waits for the disk would tell that the tenant exists.
    pub fn record_failed_sign_in(&self, tenant_id: TenantId, client: IpAddr, now: Moment) {
        let event =
            Event::new(EventKind::FailedSignIn, None, Admin::Panel(client), now.timestamp());
        self.unwritten.lock().failed_sign_ins.push((tenant_id, event));
    }

    /// At most `limit` of the tenant's last sign-ins, failed ones too, the newest first.
    pub fn sign_ins(&self, tenant_id: TenantId, limit: usize) -> Result<Vec<Event>> {
        // A sign-in writes the failed ones before it, so those in memory are the newest.
        let unwritten = self.unwritten.lock();
        let own = unwritten.failed_sign_ins.iter().rev().filter(|(id, _)| *id == tenant_id);
        let stored = self.events(tenant_id, true, limit)?;
        Ok(own.map(|(_, event)| event.clone()).chain(stored).take(limit).collect())
    }

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
        let seconds = now.unix_seconds();
        self.change(|transaction| {
            // The failed sign-ins before this one come before it.
            self.write_failed_sign_ins(transaction)?;
            transaction.execute("DELETE FROM sessions WHERE expires_at <= ?1", [seconds])?;
            let sql = "INSERT INTO sessions (tenant_id, hash, expires_at)
                 SELECT id, ?2, ?3 FROM tenants WHERE id = ?1 AND password_hash = ?4";
            let values =
                params![tenant.id.0, hash, seconds + SESSION_SECONDS, tenant.password_hash];
            let inserted = transaction.prepare_cached(sql)?.execute(values)? == 1;
            if inserted {
                let admin = self.administer(tenant.id, Admin::Panel(client), now);
                admin.record(transaction, EventKind::SignedIn, None)?;
            }
            Ok(inserted)
        })
    }

    /// The tenant of the session with this hash, or `None` if there is no such session or it has
    /// expired.
    pub fn find_session(&self, hash: &[u8; 32], now: Moment) -> Result<Option<TenantRow>> {
        self.read(|connection| {
            let sql = "SELECT tenants.* FROM sessions JOIN tenants ON tenants.id = tenant_id
                       WHERE sessions.hash = ?1 AND sessions.expires_at > ?2";
            let values = params![hash, now.unix_seconds()];
            connection.prepare_cached(sql)?.query_row(values, TenantRow::read).optional()
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

impl Administration<'_> {
    /// Sets the panel's password, ends all sessions of the tenant and records the event.
    pub fn set_password(&self, password_hash: &str) -> Result<()> {
        self.change(|transaction| {
            let sql = "UPDATE tenants SET password_hash = ?2 WHERE id = ?1";
            if transaction.execute(sql, params![self.tenant_id.0, password_hash])? == 0 {
                return Err(no_tenant(self.tenant_id));
            }
            transaction.execute("DELETE FROM sessions WHERE tenant_id = ?1", [self.tenant_id.0])?;
            Ok(self.record(transaction, EventKind::PasswordChanged, None)?)
        })
    }
}
