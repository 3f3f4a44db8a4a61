//! Copies of whole databases, page by page, with SQLite's backup API.

use std::ffi::c_int;
use std::io;
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, ffi};

use super::connection::{
    self, OpenError, discard_failed_commit, is_disk_error, open_error, open_raw, remove_database, unusable,
    wait_for_lock,
};
use crate::files;

/// Why a database was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The database cannot be read.
    #[error(transparent)]
    Source(OpenError),
    /// The copy cannot be written.
    #[error(transparent)]
    Target(OpenError),
}

impl From<CopyError> for OpenError {
    fn from(error: CopyError) -> OpenError {
        match error {
            CopyError::Source(cause) | CopyError::Target(cause) => cause,
        }
    }
}

/// Copies a consistent snapshot of the database to a new private file, and syncs it. The copy has no write-ahead log. Writers
/// of the source continue meanwhile.
///
/// All pages are copied in one step: in several steps, each commit by another connection would restart the copy.
///
/// # Errors
///
/// [`CopyError`]. The new file is removed.
pub fn copy_to(source: &Connection, path: &Path) -> Result<(), CopyError> {
    let cannot_write = |error: io::Error| CopyError::Target(unusable(path, error));
    let file = files::create_private(path).map_err(cannot_write)?;
    copy_into(source, path).and_then(|()| file.sync_all().map_err(cannot_write)).inspect_err(|_| remove_database(path))
}

fn copy_into(source: &Connection, path: &Path) -> Result<(), CopyError> {
    let target_error = |error: rusqlite::Error| CopyError::Target(open_error(path, &error));
    let mut target = open_raw(path).map_err(target_error)?;
    copy_pages(source, &mut target).map_err(|error| {
        if is_write_error(&error) {
            target_error(error)
        } else {
            CopyError::Source(open_error(Path::new(source.path().unwrap_or_default()), &error))
        }
    })?;
    // A reader of a database in WAL mode must be able to create files next to it.
    target.pragma_update(None, "journal_mode", "DELETE").map_err(target_error)
}

/// Returns whether a step of the copy failed at its target. The source is only read.
fn is_write_error(error: &rusqlite::Error) -> bool {
    let write_errors = [
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_DIR_FSYNC,
        ffi::SQLITE_IOERR_TRUNCATE,
        ffi::SQLITE_IOERR_DELETE,
    ];
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::CannotOpen))
        || error.sqlite_error().is_some_and(|error| write_errors.contains(&error.extended_code))
}

fn copy_pages(source: &Connection, target: &mut Connection) -> rusqlite::Result<()> {
    let backup = Backup::new(source, target)?;
    let mut tries = 0;
    while backup.step(-1)? != StepResult::Done {
        if !wait_for_lock(tries) {
            return Err(still_locked());
        }
        tries += 1;
    }
    Ok(())
}

/// Replaces the content of `target` with that of `source` in one transaction of `target`, which waits for its other writers.
/// Pages are copied, so no constraint is checked.
///
/// `prepare` runs when `target` is locked for writing. It may still change `source`.
///
/// # Errors
///
/// Those of SQLite and of `prepare`. `target` is unchanged.
pub fn replace_content(
    source: &Connection,
    target: &mut Connection,
    prepare: impl FnOnce() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let backup = Backup::new(source, target)?;
    // The first step acquires the write lock. It is held until the last page is copied.
    step(&backup, 1)?;
    prepare()?;
    let copied = step(&backup, -1);
    drop(backup);
    copied.inspect_err(|error| {
        if let Some(path) = target.path().filter(|_| is_disk_error(error)) {
            let _ = discard_failed_commit(Path::new(path));
        }
    })?;
    // The backup API does not checkpoint as a commit does. If this fails, the next commit tries again.
    if !target.path().is_some_and(|path| connection::is_copied(Path::new(path))) {
        let _ = target.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }
    Ok(())
}

/// Copies `pages` pages; a negative number means all that remain. The busy handler of the target has waited for locks already.
fn step(backup: &Backup<'_, '_>, pages: c_int) -> rusqlite::Result<()> {
    match backup.step(pages)? {
        StepResult::Done | StepResult::More => Ok(()),
        _ => Err(still_locked()),
    }
}

fn still_locked() -> rusqlite::Error {
    let busy = ffi::Error::new(ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(busy, Some("the database stayed locked".to_owned()))
}
