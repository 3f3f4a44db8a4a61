//! Copies of whole databases, page by page, with SQLite's backup API.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, ffi};

use super::{LOCK_WAIT, open_plain, wal};

/// Copies a consistent snapshot of the database to the empty file at `path`. The copy has no WAL
/// and is not synced.
///
/// All pages are copied in one step: in several steps, each commit of another connection would
/// begin the copy anew.
pub(crate) fn copy_pages(source: &Connection, path: &Path) -> rusqlite::Result<()> {
    let mut target = open_plain(path)?;
    target.pragma_update(None, "synchronous", "OFF")?;
    step(&Backup::new(source, &mut target)?, -1)?;
    // A reader of a database in WAL mode must be able to create files beside it.
    target.pragma_update(None, "journal_mode", "DELETE")
}

/// Whether [`copy_pages`] failed at its target. The source is only read.
pub(crate) fn is_write_error(error: &rusqlite::Error) -> bool {
    let codes = [
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_TRUNCATE,
        ffi::SQLITE_IOERR_DELETE,
    ];
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::CannotOpen))
        || error.sqlite_error().is_some_and(|error| codes.contains(&error.extended_code))
}

/// Replaces the content of `target` with that of `source` in one transaction of `target`, so that
/// every reader sees the old content or the new. Pages are copied, and no constraint is checked.
///
/// `prepare` runs when `target` is locked for writing. It may still change `source`.
pub(crate) fn replace_content(
    source: &Connection,
    target: &mut Connection,
    prepare: impl FnOnce() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let path = PathBuf::from(target.path().unwrap_or_default());
    let backup = Backup::new(source, target)?;
    // The first step takes the write lock. It is held until the last page is copied.
    step(&backup, 1)?;
    wal::make_durable(&path)?;
    prepare()?;
    step(&backup, -1).inspect_err(wal::end_if_not_synced)
}

/// Copies `pages` pages; a negative number means all that remain. The busy handler does not wait
/// for every lock that a step needs.
fn step(backup: &Backup<'_, '_>, pages: c_int) -> rusqlite::Result<()> {
    let begun = Instant::now();
    while !matches!(backup.step(pages)?, StepResult::Done | StepResult::More) {
        if begun.elapsed() > LOCK_WAIT {
            let busy = ffi::Error::new(ffi::SQLITE_BUSY);
            let cause = "the database stayed locked".to_owned();
            return Err(rusqlite::Error::SqliteFailure(busy, Some(cause)));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
