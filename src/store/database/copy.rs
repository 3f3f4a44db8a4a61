//! Copies of whole databases, page by page, with SQLite's backup API.

use std::ffi::c_int;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, ffi};

use super::{Database, LOCK_WAIT, Role, open_plain, wal};
use crate::files;
use crate::store::error::OpenError;

/// Copies a consistent snapshot of the database to the empty file at `path`. The copy has no WAL
/// and is not synced.
///
/// All pages are copied in one step: in several steps, each commit of another connection would
/// begin the copy anew.
pub(crate) fn copy_pages(source: &Connection, path: &Path) -> rusqlite::Result<()> {
    copy_into(source, &mut open_plain(path)?)
}

fn copy_into(source: &Connection, target: &mut Connection) -> rusqlite::Result<()> {
    target.pragma_update(None, "synchronous", "OFF")?;
    step(&Backup::new(source, target)?, -1)?;
    // A reader of a database in WAL mode must be able to create files beside it.
    target.pragma_update(None, "journal_mode", "DELETE")
}

impl Database {
    /// Copies a consistent snapshot to the file `path`, and returns the copy open. The file then has
    /// no name, so it ends with the connection.
    ///
    /// The copy must leave the reserve of the disk free, or clients' writes would be refused while the
    /// copy is there. If less is free already, they are refused anyway, and half of it is enough.
    pub(crate) fn copy_to_examine(&self, path: &Path) -> Result<Connection, OpenError> {
        let source = self.open(Role::Bulk)?;
        let unusable = |error| OpenError::unusable(path, error);
        files::ignore_missing(fs::remove_file(path)).map_err(unusable)?;
        files::create_private(path).map_err(unusable)?;
        let (free, _) = files::free_space(path).map_err(unusable)?;
        let kept = files::RESERVE.min(free / 2);
        let needed = self.file_length() + self.wal_length() + kept;
        let copied = if free < needed {
            Err(self.unusable(format!(
                "its examination needs a copy, and the disk has too little space for one: {} MiB \
                 free, {} MiB needed",
                free >> 20,
                needed >> 20
            )))
        } else {
            let open = || -> rusqlite::Result<Connection> {
                let mut copy = open_plain(path)?;
                copy_into(&source, &mut copy)?;
                Ok(copy)
            };
            open().map_err(|error| self.error(&error))
        };
        // SQLite needs the name no longer: it only reads the copy.
        fs::remove_file(path).map_err(unusable)?;
        copied
    }
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
