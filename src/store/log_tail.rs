//! The end of a write-ahead log, where a killed process may have left a transaction.
//!
//! A commit writes its frames to the log, syncs it, and then enters them in the index that all processes share. Of a process that is
//! killed in between, the transaction is complete in the log and not in the index. To SQLite it does not exist, and the next
//! transaction overwrites it. Litestream reads the log without the index. It may have copied the transaction, and would take a shorter
//! one in its place for the same: it would confirm a change that it has not copied.
//!
//! Such a transaction becomes part of the database when no process has the file open and the next one opens it. Nothing may be
//! written before that.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{TransactionBehavior, ffi};

use super::connection::{self, OpenError, unusable};
use crate::copy::ConfirmedCopy;

/// Lengths in bytes, from SQLite's file format.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

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

    /// Returns whether the log ends with a transaction that is in the index. The caller holds the write lock; otherwise the answer may
    /// also be `false` because another process is committing.
    ///
    /// # Errors
    ///
    /// The log or the database cannot be read.
    pub fn is_complete(&self) -> rusqlite::Result<bool> {
        let Some(log) = Log::open(&self.database).map_err(unreadable)? else { return Ok(true) };
        let mut known = self.known.lock();
        // The usual case: nothing was written since, which two short reads show.
        if let Some(position) = *known
            && position.salt == log.salt
            && !log.continues_after(position.frames)
        {
            return Ok(true);
        }
        let frames = connection::connect(&self.database).and_then(|other| connection::log_state(&other))?.frames;
        let is_complete = !log.has_transaction_after(frames).map_err(unreadable)?;
        *known = is_complete.then_some(Position { salt: log.salt, frames });
        Ok(is_complete)
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
    if tail.is_complete()? {
        return Ok(true);
    }
    // Another process may be committing. It is not while this one holds the lock.
    let mut connection = connection::connect(database)?;
    let lock = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_complete = tail.is_complete();
    lock.rollback()?;
    is_complete
}

/// An open log. Only its index is locked, so opening and closing it as a plain file drops no lock.
struct Log {
    file: File,
    salt: [u8; 8],
    page_size: u64,
    /// Whether checksums are of big-endian numbers.
    is_big_endian: bool,
    checksum: Checksum,
}

/// SQLite's checksum of all that was written so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checksum(u32, u32);

impl Log {
    /// Returns `None` if there is no log, or an empty one.
    fn open(database: &Path) -> io::Result<Option<Log>> {
        const MAGIC: u32 = 0x377f_0682;
        let file = match File::open(connection::sibling_path(database, "-wal")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let Some(header) = read::<{ LOG_HEADER as usize }>(&file, 0)? else { return Ok(None) };
        let magic = number(&header, 0);
        if magic & !1 != MAGIC {
            return Ok(None);
        }
        let (page_size, is_big_endian) = (u64::from(number(&header, 8)), magic & 1 == 1);
        let checksum = Checksum(number(&header, 24), number(&header, 28));
        Ok(Some(Log { file, salt: part(&header, 16), page_size, is_big_endian, checksum }))
    }

    fn offset(&self, frames: u32) -> u64 {
        LOG_HEADER + u64::from(frames) * (FRAME_HEADER + self.page_size)
    }

    /// The header of the frame after `frames` frames, if it is there and of this log.
    fn frame_after(&self, frames: u32) -> io::Result<Option<[u8; FRAME_HEADER as usize]>> {
        let header = read::<{ FRAME_HEADER as usize }>(&self.file, self.offset(frames))?;
        Ok(header.filter(|header| part::<8>(header, 8) == self.salt))
    }

    /// Whether there is a frame of this log after `frames` frames.
    fn continues_after(&self, frames: u32) -> bool {
        !matches!(self.frame_after(frames), Ok(None))
    }

    /// Whether a whole transaction follows after `frames` frames, as SQLite's recovery would find it.
    fn has_transaction_after(&self, frames: u32) -> io::Result<bool> {
        let mut checksum = match frames.checked_sub(1) {
            None => self.checksum,
            Some(before) => match self.frame_after(before)? {
                Some(header) => Checksum(number(&header, 16), number(&header, 20)),
                None => return Ok(false),
            },
        };
        let mut page = vec![0; usize::try_from(self.page_size).unwrap_or(0)];
        for frames in frames.. {
            let Some(header) = self.frame_after(frames)? else { return Ok(false) };
            if !fill(&self.file, &mut page, self.offset(frames) + FRAME_HEADER)? {
                return Ok(false);
            }
            checksum = checksum.of(&part::<8>(&header, 0), self.is_big_endian).of(&page, self.is_big_endian);
            if checksum != Checksum(number(&header, 16), number(&header, 20)) {
                return Ok(false);
            }
            // Only the last frame of a transaction has the size of the database.
            if number(&header, 4) > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Checksum {
    fn of(self, bytes: &[u8], is_big_endian: bool) -> Checksum {
        let word = |bytes: [u8; 4]| if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        let (words, _) = bytes.as_chunks::<4>();
        let (pairs, _) = words.as_chunks::<2>();
        pairs.iter().fold(self, |Checksum(first, second), [one, other]| {
            let first = first.wrapping_add(word(*one)).wrapping_add(second);
            Checksum(first, second.wrapping_add(word(*other)).wrapping_add(first))
        })
    }
}

/// Returns `None` if the file is too short.
fn read<const N: usize>(file: &File, offset: u64) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    Ok(fill(file, &mut bytes, offset)?.then_some(bytes))
}

fn fill(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The `N` bytes at `offset` of a header that has them.
fn part<const N: usize>(header: &[u8], offset: usize) -> [u8; N] {
    header.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn number(header: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(part(header, offset))
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
        assert!(tail.is_complete().unwrap());
        // A commit of another process, and one of this.
        for _ in 0..2 {
            writer.execute("INSERT INTO t VALUES (2)", []).unwrap();
            assert!(tail.is_complete().unwrap());
        }
        // Frames without a commit are overwritten by everyone.
        writer.pragma_update(None, "cache_size", 1).unwrap();
        writer.execute_batch("BEGIN; INSERT INTO t SELECT randomblob(4000) FROM t, t, t, t, t; ROLLBACK").unwrap();
        assert!(tail.is_complete().unwrap());

        let index = connection::sibling_path(&database, "-shm");
        copy_file(&index, &saved);
        writer.execute("INSERT INTO t VALUES (3)", []).unwrap();
        copy_file(&saved, &index);
        drop(writer);
        assert!(!tail.is_complete().unwrap());
        assert!(!ends_complete(&database).unwrap());
        assert_eq!(rows(&database), 3);
        assert!(is_open_here(&database));
        drop(open);
        assert!(!is_open_here(&database));
        assert_eq!(rows(&database), 4, "it has become part of the database");
        assert!(tail.is_complete().unwrap());
    }

    #[test]
    fn a_file_without_a_log_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        assert!(LogTail::new(folder.path().join("1.db")).is_complete().unwrap());
    }
}
