//! What failed syncs have left undone in one write-ahead log.
//!
//! The kernel may drop pages that it could not write, and it reports that once. A later sync that succeeds does not repair
//! one that failed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

use super::connection::{self, OpenError};

/// What has to be done with one write-ahead log before the next commit.
#[derive(Debug, Default)]
pub(super) struct LogHealth {
    /// Frames of a failed commit may be behind the last committed one.
    needs_discard: AtomicBool,
    /// Pages that count as copied into the database may be lost.
    needs_replay: AtomicBool,
}

impl LogHealth {
    /// Handles a commit that failed: after an error of the disk its frames in the log of the database at `path` are discarded.
    pub fn commit_failed(&self, path: &Path, error: &rusqlite::Error) {
        if connection::is_disk_error(error) {
            self.needs_discard.store(true, Ordering::Relaxed);
            // If this fails, the next commit tries again.
            let _ = self.ensure_discarded(path);
        }
    }

    /// Discards the frames of a failed commit if that is still to be done.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. Nothing may be committed.
    pub fn ensure_discarded(&self, path: &Path) -> Result<(), OpenError> {
        if self.needs_discard() {
            connection::discard_failed_commit(path)?;
            self.needs_discard.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns whether no open connection may be used for the next commit.
    pub fn needs_work(&self) -> bool {
        self.needs_discard() || self.needs_replay()
    }

    /// Returns whether frames have still to be discarded. After a crash, the failed commit may be there.
    pub fn needs_discard(&self) -> bool {
        self.needs_discard.load(Ordering::Relaxed)
    }

    /// Handles a checkpoint that failed. Returns whether the log has to be replayed: after a sync that failed. A write that failed,
    /// on a full disk for instance, loses no page that was written before, and the file can still be read.
    pub fn checkpoint_failed(&self, error: &rusqlite::Error) -> bool {
        let has_failed = connection::is_failed_sync(error);
        self.needs_replay.fetch_or(has_failed, Ordering::Relaxed);
        has_failed
    }

    /// Returns whether all connections have to be closed, so that the next one reads the log from its beginning. Until then nothing
    /// may be read, committed or copied.
    pub fn needs_replay(&self) -> bool {
        self.needs_replay.load(Ordering::Relaxed)
    }

    /// Prepares a connection for its end: it must not copy a log that has to be replayed.
    pub fn before_close(&self, connection: &Connection) {
        if self.needs_replay() {
            connection::keep_log_on_close(connection);
        }
    }

    /// Checks on a new connection that a log that had to be replayed was replayed.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: a connection is still open, perhaps one of another process.
    pub fn check_replayed(&self, connection: &Connection, path: &Path) -> Result<(), OpenError> {
        if self.needs_replay() {
            connection::keep_log_on_close(connection);
            connection::check_replayed(connection, path)?;
            self.needs_replay.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}
