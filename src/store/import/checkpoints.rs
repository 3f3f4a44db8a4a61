//! Checkpoints between portions. A portion changes nearly every page of the indexes, so copying the write-ahead log takes as long as
//! writing it. No commit waits for that: neither of the import nor of another writer.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::store::connection::{self, Checkpoint, OpenError, unusable};

/// A connection of its own for checkpoints: one inside a transaction cannot do them. `None` if Litestream does them.
#[derive(Debug)]
pub(super) struct Checkpoints(Option<Connection>);

impl Checkpoints {
    pub fn open(database: &Path) -> Result<Checkpoints, OpenError> {
        if connection::is_copied(database) {
            return Ok(Checkpoints(None));
        }
        connection::connect(database).map(|own| Checkpoints(Some(own))).map_err(|error| unusable(database, error))
    }

    /// Copies most of the log, while others write. To be called at once after a commit: another writer that comes first copies it
    /// inside its own commit.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn copy_log(&self) -> rusqlite::Result<()> {
        self.0.as_ref().map_or(Ok(()), |own| connection::checkpoint(own).map(drop))
    }

    /// Copies what others have added since, while `writer` locks the file for a moment. The next transaction then starts the log
    /// again from its beginning. A reader may still need the log; then it grows, and a later call copies it.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn complete(&self, writer: &Connection) -> rusqlite::Result<()> {
        let Some(own) = &self.0 else { return Ok(()) };
        for _ in 0..ATTEMPTS {
            if is_complete(connection::checkpoint(own)?) {
                break;
            }
            thread::sleep(RETRY);
        }
        let lock = Transaction::new_unchecked(writer, TransactionBehavior::Immediate)?;
        connection::checkpoint(own)?;
        lock.rollback()
    }
}

/// Attempts to copy a log that another connection copies, and the time between two of them.
const ATTEMPTS: usize = 100;
const RETRY: Duration = Duration::from_millis(5);

fn is_complete(checkpoint: Option<Checkpoint>) -> bool {
    checkpoint.is_some_and(|Checkpoint { frames, copied }| copied == frames)
}
