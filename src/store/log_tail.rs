//! The end of a write-ahead log, where a killed process may have left a transaction.
//!
//! A commit writes its frames to the log, syncs it, and then enters them in the index that all processes share. If a process is
//! killed in between, its transaction is in the log but not in the index. To SQLite it does not exist, and the next
//! transaction overwrites it. Litestream reads the log without the index. It may have copied the transaction, and would take a shorter
//! one in its place for the same: it would confirm a change that it has not copied.
//!
//! Such a transaction becomes part of the database when no process has the file open and the next one opens it. Nothing may be
//! written before that.
//!
//! A transaction that could not be synced is discarded (`log_file`). Litestream may have copied that one, too, so it
//! has to read the log before anything else is written there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{TransactionBehavior, ffi};

use super::connection::{self, OpenError, unusable};
use super::log_file::{LogFile, Next};
use crate::copy::{ConfirmedCopy, SocketError};

/// Attempts to have all processes close a file, and the pause between two.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(25);

/// Watches the end of one database's log.
#[derive(Debug)]
pub struct LogTail {
    database: PathBuf,
    /// The end that was complete when it was last looked at, or the end of this process's last commit.
    known: Mutex<Option<Position>>,
}

/// What is behind the last transaction in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Nothing,
    /// Frames that were discarded.
    Discarded,
    /// A whole transaction.
    Transaction,
}

/// Why nothing may be written to the log.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The log or the database cannot be read.
    #[error(transparent)]
    Unreadable(#[from] rusqlite::Error),
    /// A process was killed in the middle of a commit.
    #[error("a process was killed in the middle of a commit")]
    Unfinished,
    /// A commit that failed was discarded, and Litestream has not read the log since.
    #[error("a change could not be synced, and Litestream has to read the log before the next: {0}")]
    Unread(SocketError),
}

/// A position in the log. The salt changes when the log starts again from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    salt: [u8; 8],
    frames: u32,
}

impl LogTail {
    /// The log of the file `database`.
    pub fn new(database: PathBuf) -> LogTail {
        LogTail { database, known: Mutex::new(None) }
    }

    /// Notes that a commit of this process ended the log at `frames`.
    pub fn committed(&self, frames: u32) {
        if let Some(known) = self.known.lock().as_mut() {
            known.frames = frames;
        }
    }

    /// Checks that the log may be written to, as far as `copy` is concerned. Without the write lock a commit in progress looks
    /// unfinished.
    ///
    /// # Errors
    ///
    /// [`TailError`].
    pub fn check(&self, copy: &ConfirmedCopy) -> Result<(), TailError> {
        match self.end()? {
            End::Nothing => Ok(()),
            End::Discarded => copy.read_log(&self.database).map_err(TailError::Unread),
            End::Transaction => Err(TailError::Unfinished),
        }
    }

    /// Without the write lock the answer may also be `Transaction` because another process is committing.
    fn end(&self) -> rusqlite::Result<End> {
        let log = LogFile::open(&connection::sibling_path(&self.database, "-wal")).map_err(unreadable)?;
        let Some(log) = log else { return Ok(End::Nothing) };
        let mut known = self.known.lock();
        // The usual case: nothing was written since, which two short reads show.
        let position = known.filter(|position| position.salt == log.salt());
        match position.and_then(|position| log.next(position.frames).ok()) {
            Some(Next::Nothing) => return Ok(End::Nothing),
            Some(Next::Discarded) => return Ok(End::Discarded),
            Some(Next::Frame) | None => {}
        }
        let frames = connection::connect(&self.database).and_then(|other| connection::log_state(&other))?.frames;
        *known = None;
        if log.has_transaction_after(frames).map_err(unreadable)? {
            return Ok(End::Transaction);
        }
        *known = Some(Position { salt: log.salt(), frames });
        let is_discarded = log.next(frames).map_err(unreadable)? == Next::Discarded;
        Ok(if is_discarded { End::Discarded } else { End::Nothing })
    }
}

/// The error of SQLite that reading the log would have been.
fn unreadable(error: io::Error) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_READ), Some(error.to_string()))
}

/// Has a transaction that a killed process has left made part of the database, before this process opens it. Does nothing where there
/// is none.
///
/// # Errors
///
/// [`OpenError::Unusable`] if other processes keep the file open, or Litestream cannot be asked to close it.
pub fn recover(database: &Path, copy: &ConfirmedCopy) -> Result<(), OpenError> {
    for _ in 0..ATTEMPTS {
        match ends_complete(database) {
            // Whoever opens the file reports what is wrong with it.
            Ok(true) | Err(_) => return Ok(()),
            Ok(false) => {}
        }
        // Litestream has to be the last to close the file: it keeps the log. Running requests of this process may still have it open.
        if !is_open_here(database) {
            tracing::warn!(file = %database.display(), "a process was killed in the middle of a commit; the file is recovered");
            copy.reopen(database).map_err(|error| unusable(database, error))?;
        }
        thread::sleep(PAUSE);
    }
    Err(unusable(database, "a process was killed in the middle of a commit, and another one still has the file open"))
}

fn is_open_here(database: &Path) -> bool {
    let Ok(database) = fs::canonicalize(database) else { return false };
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok()).any(|open| open == database)
}

fn ends_complete(database: &Path) -> rusqlite::Result<bool> {
    let tail = LogTail::new(database.to_owned());
    if tail.end()? != End::Transaction {
        return Ok(true);
    }
    // Another process may be committing. It is not while this one holds the lock.
    let mut connection = connection::connect(database)?;
    let lock = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let end = tail.end();
    lock.rollback()?;
    Ok(end? != End::Transaction)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn copy_file(from: &Path, to: &Path) {
        // As another process: closing a descriptor of the index would drop this process's locks on it.
        let arguments = [format!("if={}", from.display()), format!("of={}", to.display())];
        let status = Command::new("dd").args(arguments).args(["conv=notrunc", "status=none"]).status().unwrap();
        assert!(status.success());
    }

    fn rows(database: &Path) -> i64 {
        connection::connect(database).unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_transaction_that_is_not_in_the_index_is_found_until_the_file_is_opened_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (database, saved) = (folder.path().join("1.db"), folder.path().join("saved"));
        std::fs::write(&database, "").unwrap();
        // The first stands for Litestream, which keeps the file open.
        let [open, writer] = [(), ()].map(|()| connection::connect(&database).unwrap());
        connection::persist_wal(&open);
        open.pragma_update(None, "journal_size_limit", -1).unwrap();
        writer.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        rows(&database);
        open.query_row("SELECT count(*) FROM t", [], |_| Ok(())).unwrap();
        let tail = LogTail::new(database.clone());
        assert_eq!(tail.end().unwrap(), End::Nothing);
        // A commit of another process, and one of this.
        for _ in 0..2 {
            writer.execute("INSERT INTO t VALUES (2)", []).unwrap();
            assert_eq!(tail.end().unwrap(), End::Nothing);
        }
        // Frames without a commit are overwritten by everyone.
        writer.pragma_update(None, "cache_size", 1).unwrap();
        writer.execute_batch("BEGIN; INSERT INTO t SELECT randomblob(4000) FROM t, t, t, t, t; ROLLBACK").unwrap();
        assert_eq!(tail.end().unwrap(), End::Nothing);

        let index = connection::sibling_path(&database, "-shm");
        copy_file(&index, &saved);
        writer.execute("INSERT INTO t VALUES (3)", []).unwrap();
        copy_file(&saved, &index);
        drop(writer);
        assert_eq!(tail.end().unwrap(), End::Transaction);
        assert!(!ends_complete(&database).unwrap());
        assert_eq!(rows(&database), 3);
        assert!(is_open_here(&database));
        drop(open);
        assert!(!is_open_here(&database));
        assert_eq!(rows(&database), 4, "it has become part of the database");
        assert_eq!(tail.end().unwrap(), End::Nothing);
    }

    #[test]
    fn a_file_without_a_log_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(LogTail::new(folder.path().join("1.db")).end().unwrap(), End::Nothing);
    }
}
