//! Checkpoints between portions. A portion changes nearly every page of the indexes, so copying the write-ahead log takes as long as
//! writing it. No commit waits for that: neither of the import nor of another writer.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::store::connection::{self, OpenError, unusable};

/// A connection of its own for checkpoints: one inside a transaction cannot do them.
#[derive(Debug)]
pub(super) struct Checkpoints(Connection);

impl Checkpoints {
    pub fn open(database: &Path) -> Result<Checkpoints, OpenError> {
        connection::connect(database).map(Checkpoints).map_err(|error| unusable(database, error))
    }

    /// Copies the log to its end, so that the next transaction starts it again from its beginning. Others write while most of it is
    /// copied. What they have added is copied while `writer` locks the file.
    ///
    /// A reader may still need the log; then it grows, and the next call copies it.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn copy_log(&self, writer: &Connection) -> rusqlite::Result<()> {
        connection::checkpoint(&self.0)?;
        let lock = Transaction::new_unchecked(writer, TransactionBehavior::Immediate)?;
        connection::checkpoint(&self.0)?;
        lock.rollback()
    }
}
