//! What is kept in memory and written at most once a minute, so that no request waits for it: last
//! uses of keys, and failed sign-ins.

use std::collections::HashMap;

use rusqlite::{Transaction, params};

use super::events::Event;
use super::{Registry, Result};
use crate::clock::{Moment, Timestamp};
use crate::model::{KeyId, TenantId};

#[derive(Default)]
pub(super) struct Unwritten {
    /// Each rounded down to the minute.
    pub(super) uses: HashMap<KeyId, Timestamp>,
    /// The oldest first. Each has hashed a password, so a minute has some thousand at most.
    pub(super) failed_sign_ins: Vec<(TenantId, Event)>,
}

impl Unwritten {
    pub(super) fn failed_sign_ins_of(&self, tenant_id: TenantId) -> Vec<Event> {
        let own = self.failed_sign_ins.iter().filter(|(id, _)| *id == tenant_id);
        own.map(|(_, event)| event.clone()).collect()
    }

    fn write(&self, transaction: &Transaction<'_>) -> Result<()> {
        let mut update = transaction.prepare_cached(
            "UPDATE keys SET last_used_at = ?2 WHERE id = ?1 AND last_used_at IS NOT ?2",
        )?;
        for (key, minute) in &self.uses {
            update.execute(params![key, minute])?;
        }
        for (tenant_id, event) in &self.failed_sign_ins {
            event.insert(transaction, *tenant_id)?;
        }
        Ok(())
    }
}

impl Registry {
    /// Records that a key was used.
    pub fn record_use(&self, key_id: KeyId, now: Moment) {
        let seconds = now.unix_seconds();
        let minute = Timestamp::from_unix(seconds - seconds.rem_euclid(60));
        self.unwritten.lock().uses.insert(key_id, minute);
    }

    /// Writes what is in memory. The server calls it once a minute and when it stops. After an
    /// error the uses are kept for the next call; failed sign-ins are in the log.
    pub fn flush(&self) -> Result<()> {
        let unwritten = std::mem::take(&mut *self.unwritten.lock());
        if unwritten.uses.is_empty() && unwritten.failed_sign_ins.is_empty() {
            return Ok(());
        }
        self.change(|transaction| unwritten.write(transaction)).inspect_err(|_| {
            let mut newer = self.unwritten.lock();
            for (key, minute) in &unwritten.uses {
                newer.uses.entry(*key).or_insert(*minute);
            }
        })
    }
}
