//! How a commit reaches the disk, and what happens where the disk refuses to sync.
//!
//! After a failed sync nobody knows what the disk holds, so the process ends, as PostgreSQL does
//! (contract section 11). The next start finds frames in the page cache that may not be on the
//! disk. It writes the WAL's bytes again in place, which makes their pages dirty, syncs them, and
//! copies them into the database, before anything is committed behind them.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, ffi};
use rustix::fs::OFlags;

use super::{Database, Role, companion};
use crate::files;
use crate::store::error::OpenError;

/// Commits. Ends the process where the disk refuses to sync. An error, too, where SQLite has ended
/// the transaction by itself, on a full disk for example.
pub(crate) fn commit(transaction: Transaction<'_>) -> rusqlite::Result<()> {
    transaction.commit().inspect_err(end_if_not_synced)
}

/// Ends the process if the error is a failed sync.
pub(super) fn end_if_not_synced(error: &rusqlite::Error) {
    let codes = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC];
    if error.sqlite_error().is_some_and(|error| codes.contains(&error.extended_code)) {
        end(error);
    }
}

/// The target of the last line of the log. `serve` writes a line with it at once.
pub(crate) const LAST_LINE: &str = "tenantdesk::end";

/// How long the process waits until its last line is written.
const REPORT_WAIT: Duration = Duration::from_secs(1);

/// Ends the process: the disk refused to sync.
fn end(error: &dyn Display) -> ! {
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

impl Database {
    /// Copies the WAL into the database while others read and write. With `truncate` the WAL is
    /// empty afterwards, unless another connection uses it. Ends the process where the disk refuses
    /// to sync.
    pub(crate) fn checkpoint(
        &self,
        connection: &Connection,
        truncate: bool,
    ) -> rusqlite::Result<()> {
        self.limit_wal(connection)?;
        let mode = if truncate { "TRUNCATE" } else { "PASSIVE" };
        let mut checkpoint =
            connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
        checkpoint.query_row([], |_| Ok(())).inspect_err(end_if_not_synced)
    }
}

/// Makes a WAL durable that an earlier process has left, and copies it into the database. No other
/// process may use the database.
///
/// A WAL that cannot be made durable is an error: nothing may be committed behind it. If only the
/// copy fails, the WAL stays, and whoever opens the database reports why.
pub(crate) fn recover(database: &Database) -> Result<(), OpenError> {
    if !write_again(&database.companion("-wal")).map_err(|error| database.unusable(error))? {
        return Ok(());
    }
    let copied = database.connect(Role::Writer).and_then(|connection| {
        database.checkpoint(&connection, true).map_err(|error| database.error(&error))
    });
    if let Err(error) = copied {
        tracing::warn!(%error, "a WAL cannot be copied into its database");
    }
    Ok(())
}

/// Makes the WAL of the database at `path` durable. A connection that writes for the first time
/// calls it, and holds the write lock, so that nobody else writes to the WAL.
///
/// Another process may have ended at a failed sync while this one did not have the database open.
/// What it wrote is visible to whoever opens the database next.
pub(crate) fn make_durable(path: &Path) -> rusqlite::Result<()> {
    let wal = companion(path, "-wal");
    write_again(&wal).map(drop).map_err(|error| {
        let cause = format!("{}: {error}", wal.display());
        rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR), Some(cause))
    })
}

/// Writes a file's bytes again in place, and syncs them and its name. Returns whether there are
/// any. SQLite has no lock on a WAL, so it may be opened as a plain file. A symbolic link is not
/// followed.
fn write_again(path: &Path) -> io::Result<bool> {
    files::refuse_link(path)?;
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
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
        file.sync_all().unwrap_or_else(|error| end(&error));
        sync_name(path)?;
    }
    Ok(at > 0)
}

/// Syncs the directory that holds `path`. Ends the process where the disk refuses to sync. A
/// directory that cannot be opened, because of too many open files for example, is an ordinary
/// error: nothing was asked of the disk.
pub(super) fn sync_name(path: &Path) -> io::Result<()> {
    files::open_parent(path)?.sync_all().unwrap_or_else(|error| end(&error));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_again_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a-wal");
        assert!(!write_again(&path).unwrap());
        std::fs::write(&path, b"").unwrap();
        assert!(!write_again(&path).unwrap());
        let bytes: Vec<u8> = (0..3_000_001).map(|n: u32| n.to_le_bytes()[0]).collect();
        std::fs::write(&path, &bytes).unwrap();
        assert!(write_again(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
