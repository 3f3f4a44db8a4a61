//! What the writer does between commits: it merges segments of the search tables, copies the WAL
//! into the file, and removes what is over. Each step is bounded, so that a mutation does not wait
//! long.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::Shared;
use crate::clock::Timestamp;
use crate::store::database::{self, Database, LOCK_WAIT};
use crate::store::records;

/// Commits, and so segments, or changed records, after which a step is due also while mutations
/// wait.
const COMMITS: u32 = 8;
const CHANGES: usize = 128;

/// Pages that one step merges.
const MERGE_PAGES: u32 = 64;

/// Frames from which the WAL is copied into the file.
const CHECKPOINT_FRAMES: u32 = 2_000;

/// Entries and responses that a step removes at least, if they are over.
const REMOVED: usize = 1_000;

/// What is due for one tenant's file. A file that is opened may have segments and entries that an
/// earlier process or an import has left.
#[derive(Debug)]
pub(super) struct Upkeep {
    commits: u32,
    changes: usize,
    frames: u32,
    /// The frames at which the next checkpoint is due. One that failed, or that a reader kept from
    /// copying everything, is tried again when the WAL has grown.
    checkpoint_at: u32,
    must_merge: bool,
    must_remove: bool,
}

impl Upkeep {
    pub(super) fn new() -> Upkeep {
        Upkeep {
            commits: 0,
            changes: 0,
            frames: 0,
            checkpoint_at: CHECKPOINT_FRAMES,
            must_merge: true,
            must_remove: true,
        }
    }

    /// Counts a commit that changed at most `changes` records. The WAL has `frames`.
    pub(super) fn committed(&mut self, changes: usize, frames: u32) {
        self.commits += 1;
        self.changes += changes;
        self.frames = frames;
        if frames < CHECKPOINT_FRAMES {
            self.checkpoint_at = CHECKPOINT_FRAMES;
        }
    }

    /// Whether a step is due while mutations wait.
    pub(super) fn is_urgent(&self) -> bool {
        self.frames >= self.checkpoint_at || self.commits >= COMMITS || self.changes >= CHANGES
    }

    /// Whether a step is due while nothing waits.
    pub(super) fn is_due(&self) -> bool {
        self.is_urgent() || self.must_merge || self.must_remove
    }

    /// Whether there is anything to do.
    pub(super) fn is_left(&self) -> bool {
        self.is_due() || self.commits > 0
    }

    /// One bounded step.
    pub(super) fn step(
        &mut self,
        database: &Database,
        connection: &mut Connection,
        shared: &Shared,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        if self.frames >= self.checkpoint_at {
            return self.checkpoint(database, connection, shared);
        }
        let (commits, changes) = (self.commits, std::mem::take(&mut self.changes));
        self.commits = 0;
        self.must_merge |= commits > 0;
        self.must_remove |= changes > 0;
        // Whoever holds the lock writes for a while. The next commit makes a step due again.
        connection.busy_timeout(Duration::ZERO)?;
        let outcome = self.merge_and_remove(connection, shared, now, changes);
        connection.busy_timeout(LOCK_WAIT)?;
        if outcome.is_err() {
            (self.must_merge, self.must_remove) = (false, false);
        }
        match outcome {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
            outcome => outcome,
        }
    }

    fn checkpoint(
        &mut self,
        database: &Database,
        connection: &Connection,
        shared: &Shared,
    ) -> rusqlite::Result<()> {
        let begun = Instant::now();
        self.checkpoint_at = self.frames.saturating_add(CHECKPOINT_FRAMES);
        self.frames = 0;
        database.checkpoint(connection, false)?;
        shared.metrics.checkpoints.add(begun.elapsed());
        Ok(())
    }

    fn merge_and_remove(
        &mut self,
        connection: &mut Connection,
        shared: &Shared,
        now: Timestamp,
        changes: usize,
    ) -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if self.must_merge {
            let begun = Instant::now();
            self.must_merge = records::merge_step(&transaction, MERGE_PAGES)?;
            shared.metrics.search_merges.add(begun.elapsed());
        }
        if self.must_remove {
            let most = REMOVED.max(changes.saturating_mul(2));
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let keep = Some(shared.limits.keep_changes);
            let entries = records::remove_old_entries(&transaction, now, keep, most)?;
            let responses = records::remove_old_responses(&transaction, now, most)?;
            self.must_remove = entries == most || i64::try_from(responses) == Ok(most);
        }
        database::commit(transaction)
    }
}
