//! Copies of whole databases, page by page, with SQLite's backup API.

use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, ffi};

use super::connection::{LOCK_WAIT, open_plain};
use super::{remove, wal};
use crate::files;
use crate::store::error::OpenError;

/// Why a database was not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// The database cannot be read.
    #[error(transparent)]
    Source(OpenError),
    /// The copy cannot be written.
    #[error(transparent)]
    Target(OpenError),
}

/// Copies a consistent snapshot of the database to a new private file, and syncs it. The copy has
/// no WAL. After an error there is no copy.
///
/// All pages are copied in one step: in several steps, each commit of another connection would
/// begin the copy anew.
pub(crate) fn copy_to(source: &Connection, path: &Path) -> Result<(), CopyError> {
    let cannot_write = |cause: io::Error| CopyError::Target(OpenError::unusable(path, cause));
    let file = files::create_private(path).map_err(cannot_write)?;
    copy_pages(source, path)
        .and_then(|()| file.sync_all().map_err(cannot_write))
        .inspect_err(|_| remove(path))
}

fn copy_pages(source: &Connection, path: &Path) -> Result<(), CopyError> {
    let failed = |error: rusqlite::Error| {
        if is_write_error(&error) {
            CopyError::Target(OpenError::unusable(path, error))
        } else {
            let source = Path::new(source.path().unwrap_or_default());
            CopyError::Source(OpenError::unusable(source, error))
        }
    };
    let mut target = open_plain(path).map_err(failed)?;
    // The file is synced once, when it is complete.
    target.pragma_update(None, "synchronous", "OFF").map_err(failed)?;
    step(&Backup::new(source, &mut target).map_err(failed)?, -1).map_err(failed)?;
    // A reader of a database in WAL mode must be able to create files beside it.
    target.pragma_update(None, "journal_mode", "DELETE").map_err(failed)
}

/// Whether a step of the copy failed at its target. The source is only read.
fn is_write_error(error: &rusqlite::Error) -> bool {
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
