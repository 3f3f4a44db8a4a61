//! How a commit reaches the disk, and the end of the process if the disk refuses to sync.
//!
//! After a failed sync nobody knows what the disk holds. Linux marks the pages as clean, although
//! they may not be on the disk, and a second sync reports success. So the process ends at once, as
//! PostgreSQL does (contract section 11). Ending the process is not enough to save the data.
//! Example:
//!
//! 1. The WAL has 100 frames on the disk. A commit writes frame 101, its sync fails, and the
//!    process ends. The client gets no response.
//! 2. The process starts again. It reads frame 101 from the page cache and takes it for committed.
//! 3. A client commits frame 102. Its sync succeeds, because only the page of frame 102 is dirty.
//! 4. The power fails. The disk has frames 1 to 100 and 102. SQLite ends the WAL at the gap, so the
//!    acknowledged change in frame 102 is lost.
//!
//! So before step 3 each process makes the WAL durable ([`make_durable`]). It reads the bytes of
//! the WAL and writes them again in place. That makes their pages dirty, and a sync then writes all
//! of them or fails. In the example, frame 101 is on the disk before frame 102 is written. A reader
//! sees the same bytes all the time. [`make_durable`] also syncs the name of the WAL. A reader may
//! have made the file, and a reader waits for no sync.
//!
//! When a server starts, or a command while no other process has a database open,
//! `Database::recover` makes each WAL durable and copies it into its database. Every function here
//! runs in the thread that writes: a command's only thread, the tenant's writer thread, or the
//! thread that starts the server.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Transaction, ffi};

use crate::files::{self, companion};

/// Commits. Ends the process if the disk refuses to sync. If SQLite has ended the transaction by
/// itself, on a full disk for example, the result is an error.
pub(crate) fn commit(transaction: Transaction<'_>) -> rusqlite::Result<()> {
    transaction.commit().inspect_err(end_if_not_synced)
}

pub(super) fn end_if_not_synced(error: &rusqlite::Error) {
    let codes = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC];
    if error.sqlite_error().is_some_and(|error| codes.contains(&error.extended_code)) {
        end_process(error);
    }
}

/// The tracing target of the log's last line. `serve` writes an event with this target to standard
/// error at once: its other events wait in a buffer, which the end of the process would lose.
pub(crate) const LAST_LINE: &str = "tenantdesk::end";

/// How long the process waits for its last line to be written.
const REPORT_WAIT: Duration = Duration::from_secs(1);

/// Ends the process with exit code 1. Does not return to the writer, which would tell the client
/// that nothing was changed.
fn end_process(error: &dyn Display) -> ! {
    let message = format!(
        "the disk refused to sync ({error}), so what it holds is unknown; the process ends, and \
         its next start makes the data consistent"
    );
    let report = move || {
        if tracing::dispatcher::has_been_set() {
            tracing::error!(target: LAST_LINE, "{message}");
        } else {
            // A command has no log. If standard error is closed, the exit code has to do.
            let _ = writeln!(io::stderr(), "error: {message}");
        }
    };
    // On another thread: a log that nobody reads must not keep the process.
    let reporter = thread::Builder::new().spawn(report);
    let until = Instant::now() + REPORT_WAIT;
    while reporter.as_ref().is_ok_and(|thread| !thread.is_finished()) && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    process::exit(1)
}

/// Makes the WAL of the database at `path` durable. A connection calls it before its first write,
/// and holds the write lock, so that nobody else writes to the WAL.
///
/// The recovery at the start of the server is not enough. Example: the server has closed an idle
/// tenant, an import ends at a failed sync of that tenant's WAL, and then the server opens the
/// tenant again.
pub(crate) fn make_durable(path: &Path) -> rusqlite::Result<()> {
    let wal = companion(path, "-wal");
    rewrite_in_place(&wal).and_then(|_| sync_name(&wal)).map_err(|error| {
        let cause = format!("{}: {error}", wal.display());
        rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR), Some(cause))
    })
}

/// Writes a file's bytes again in place, and syncs them. Returns whether the file has bytes.
///
/// The WAL is the only file of a database that may be opened like this. If a process closes any
/// descriptor of a file, Linux drops all locks of the process on that file. SQLite locks the
/// database and its `-shm` file, but not the WAL.
pub(super) fn rewrite_in_place(path: &Path) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let count = match file.read_at(&mut buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else { break };
        file.write_all_at(part, at)?;
        at += count as u64;
    }
    if at > 0 {
        file.sync_all().unwrap_or_else(|error| end_process(&error));
    }
    Ok(at > 0)
}

/// Syncs the directory that holds `path`. Ends the process if the disk refuses to sync. If the
/// directory cannot be opened, because of too many open files for example, no sync was tried, and
/// the result is an ordinary error.
fn sync_name(path: &Path) -> io::Result<()> {
    files::open_parent(path)?.sync_all().unwrap_or_else(|error| end_process(&error));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_again_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a-wal");
        assert!(!rewrite_in_place(&path).unwrap());
        std::fs::write(&path, b"").unwrap();
        assert!(!rewrite_in_place(&path).unwrap());
        let bytes: Vec<u8> = (0..3_000_001).map(|n: u32| n.to_le_bytes()[0]).collect();
        std::fs::write(&path, &bytes).unwrap();
        assert!(rewrite_in_place(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
