//! Upkeep: between commits the writer merges segments of the search tables, removes expired entries
//! and responses, and copies the WAL into the file. Each step is bounded, so that a mutation does
//! not wait long.
//!
//! Each commit adds a segment to a search table. FTS5 would merge all segments inside one commit
//! now and then, which took up to 0.7 s beside 120,000 records. A step merges 64 pages instead,
//! which takes some 4 ms, and 33 ms at most.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::mutation::remove_old_responses;
use crate::clock::Timestamp;
use crate::store::database::{self, Database, LOCK_WAIT};
use crate::store::records;

/// Commits, and so segments, after which a step merges some, also while mutations wait.
const COMMITS: u32 = 8;

const MERGE_PAGES: u32 = 64;

/// Changed records after which a step copies the WAL into the file, also while mutations wait. Each
/// adds about a dozen pages.
const CHANGES: usize = 128;

/// The most entries, and the most responses, that one step removes. It is more than the commits
/// between two steps add.
const REMOVED: u16 = 2_000;

/// The upkeep that is due for one tenant's file. A file that was just opened is due: an earlier
/// process or an import may have left segments and entries.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Since segments were merged.
    commits: u32,
    /// Since the last checkpoint.
    changes: usize,
    /// Whether the last step left nothing to merge or to remove.
    is_done: bool,
}

impl Upkeep {
    /// Counts a commit that changed at most `changes` records.
    pub(super) fn committed(&mut self, changes: usize) {
        self.commits += 1;
        self.changes += changes;
    }

    /// Whether a step is due while mutations wait.
    pub(super) fn is_urgent(&self) -> bool {
        self.commits >= COMMITS || self.changes >= CHANGES
    }

    /// Whether there is anything to do while nothing waits.
    pub(super) fn has_work(&self) -> bool {
        self.commits > 0 || !self.is_done
    }

    /// One bounded step.
    pub(super) fn step(
        &mut self,
        database: &Database,
        connection: &mut Connection,
        keep: Duration,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        if self.changes >= CHANGES && self.commits < COMMITS {
            self.changes = 0;
            return database.checkpoint(connection, false).map(drop);
        }
        (self.commits, self.is_done) = (0, true);
        // If another process writes, the step is left out. The next commit makes one due again.
        connection.busy_timeout(Duration::ZERO)?;
        let outcome = merge_and_remove(connection, keep, now);
        connection.busy_timeout(LOCK_WAIT)?;
        match outcome {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
            outcome => outcome.map(|is_done| self.is_done = is_done),
        }
    }
}

/// Returns whether nothing is left.
fn merge_and_remove(
    connection: &mut Connection,
    keep: Duration,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_merge_left = records::merge_step(&transaction, MERGE_PAGES)?;
    let entries = records::remove_old_entries(&transaction, now, keep, REMOVED.into())?;
    let responses = remove_old_responses(&transaction, now, REMOVED)?;
    database::commit(transaction)?;
    Ok(!is_merge_left && ![entries, responses].contains(&REMOVED.into()))
}
