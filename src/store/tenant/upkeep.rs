//! Upkeep: between commits the writer merges segments of the search tables, removes expired entries
//! and responses, and copies the WAL into the file. Each step is bounded, so that a mutation does
//! not wait long.
//!
//! Each commit adds a segment to a search table. FTS5 would merge all segments inside one commit
//! now and then, which took up to 0.7 s beside 120,000 records. A step merges 64 pages instead,
//! which takes some 4 ms, and 33 ms at most.
//!
//! Small segments cannot be merged while large ones are, for example those of an undo of a million
//! records. At 900 segments (`crisismerge` in schema.sql), one commit would merge all of them, which
//! took 6 s. So while changes leave the writer no pause, each step merges a sixteenth more than
//! the last one, until nothing is left. Here this took 480 commits, and 0.5 s at most.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::mutation::remove_old_responses;
use crate::clock::Timestamp;
use crate::store::database::{self, Database, LOCK_WAIT};
use crate::store::records;

/// Commits, and so segments, after which a step merges some, also while mutations wait.
const COMMITS: u32 = 8;

/// The least that a step merges of each search table.
const MERGE_PAGES: u32 = 64;

/// The most that it merges, however long changes leave no pause.
const MOST_PAGES: u32 = 2_048;

/// Written pages after which a step copies the WAL into the file, also while mutations wait.
const CHECKPOINT_PAGES: u64 = 2_048;

/// About as many pages as a changed record adds to the WAL.
const PAGES_OF_CHANGE: u64 = 12;

/// The most entries, and the most responses, that one step removes. It is more than the commits
/// between two steps add.
const REMOVED: u16 = 2_000;

/// The upkeep that is due for one tenant's file. A file that was just opened is due: an earlier
/// process or an import may have left segments and entries.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Since segments were merged.
    commits: u32,
    /// About as many pages as were written since the last checkpoint.
    pages: u64,
    /// The most that the last urgent step could merge; 0 since nothing was left.
    urgent_pages: u32,
    /// Whether the last step left nothing to merge or to remove.
    is_done: bool,
}

impl Upkeep {
    /// Counts a commit that changed at most `changes` records.
    pub(super) fn committed(&mut self, changes: usize) {
        self.commits += 1;
        self.pages += changes as u64 * PAGES_OF_CHANGE;
    }

    /// Whether a step is due while mutations wait.
    pub(super) fn is_urgent(&self) -> bool {
        self.commits >= COMMITS || self.pages >= CHECKPOINT_PAGES
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
        if self.pages >= CHECKPOINT_PAGES && self.commits < COMMITS {
            self.pages = 0;
            return database.checkpoint(connection, false).map(drop);
        }
        let is_urgent = self.is_urgent();
        (self.commits, self.is_done) = (0, true);
        // If another process writes, the step is left out. The next commit makes one due again.
        connection.busy_timeout(Duration::ZERO)?;
        let outcome = self.merge_and_remove(connection, is_urgent, keep, now);
        connection.busy_timeout(LOCK_WAIT)?;
        match outcome {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
            outcome => outcome,
        }
    }

    fn merge_and_remove(
        &mut self,
        connection: &mut Connection,
        is_urgent: bool,
        keep: Duration,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let more_pages = self.urgent_pages + self.urgent_pages / 16;
        let pages = if is_urgent { more_pages.clamp(MERGE_PAGES, MOST_PAGES) } else { MERGE_PAGES };
        let is_merge_left = records::merge_step(&transaction, pages)?;
        let entries = records::remove_old_entries(&transaction, now, keep, REMOVED.into())?;
        let responses = remove_old_responses(&transaction, now, REMOVED)?;
        database::commit(transaction)?;
        if is_merge_left {
            self.pages += u64::from(pages);
            if is_urgent {
                self.urgent_pages = pages;
            }
        } else {
            self.urgent_pages = 0;
        }
        self.is_done = !is_merge_left && ![entries, responses].contains(&REMOVED.into());
        Ok(())
    }
}
