//! Upkeep: between commits the writer removes expired entries and responses, and copies the WAL into
//! the file. Each step is bounded, so that a mutation does not wait long.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::mutation::remove_old_responses;
use crate::clock::Timestamp;
use crate::store::database::{self, Database, LOCK_WAIT};
use crate::store::records;

/// Changed records after which a step is due, also while mutations wait. They add some 8 MiB to the
/// WAL.
const CHANGES: usize = 170;

/// The most entries, and the most responses, that one step removes. It is more than the groups
/// between two steps add.
const REMOVED: u16 = 2_000;

/// The upkeep that is due for one tenant's file. A file that was just opened is due: an earlier
/// process or an import may have left entries.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// The records that were changed since the last checkpoint, at most.
    changes: usize,
    /// Whether the last step left nothing to remove.
    is_done: bool,
}

impl Upkeep {
    /// Counts a commit that changed at most `changes` records.
    pub(super) fn committed(&mut self, changes: usize) {
        self.changes += changes;
        self.is_done = false;
    }

    /// Whether a step is due while mutations wait.
    pub(super) fn is_urgent(&self) -> bool {
        self.changes >= CHANGES
    }

    /// Whether there is anything to do while nothing waits.
    pub(super) fn has_work(&self) -> bool {
        !self.is_done
    }

    /// One bounded step.
    pub(super) fn step(
        &mut self,
        database: &Database,
        connection: &mut Connection,
        keep: Duration,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        self.is_done = true;
        // If another process writes, nothing is removed. The next commit makes a step due again.
        connection.busy_timeout(Duration::ZERO)?;
        let outcome = self.remove(connection, keep, now);
        connection.busy_timeout(LOCK_WAIT)?;
        match outcome {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            outcome => outcome?,
        }
        if self.is_urgent() {
            self.changes = 0;
            database.checkpoint(connection, false)?;
        }
        Ok(())
    }

    fn remove(
        &mut self,
        connection: &mut Connection,
        keep: Duration,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let entries = records::remove_old_entries(&transaction, now, keep, REMOVED.into())?;
        let responses = remove_old_responses(&transaction, now, REMOVED)?;
        database::commit(transaction)?;
        self.is_done = entries.max(responses) < REMOVED.into();
        Ok(())
    }
}
