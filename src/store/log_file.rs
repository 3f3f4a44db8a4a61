//! A write-ahead log as a file, in SQLite's format ("WAL-mode File Format"), read without the index that all processes share.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Lengths in bytes.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// The sizes of pages that SQLite knows.
const PAGE_SIZES: RangeInclusive<u64> = 512..=65_536;

/// What overwrites the header of a frame that was discarded. No frame of a log has it, because a page's number is at least 1.
const DISCARDED: [u8; FRAME_HEADER as usize] = [0; FRAME_HEADER as usize];

/// An open log. SQLite locks its index and not the log, so opening and closing it as a plain file drops no lock.
pub(super) struct LogFile {
    file: File,
    /// Changes when the log starts again from its beginning. Each frame has it.
    salt: [u8; 8],
    page_size: u64,
}

/// What follows after a number of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing of this log.
    Nothing,
    /// Frames that were discarded. Nothing was written over them.
    Discarded,
    /// A frame.
    Frame,
}

impl LogFile {
    fn open_with(options: &OpenOptions, path: &Path) -> io::Result<Option<LogFile>> {
        const MAGIC: u32 = 0x377f_0682;
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let Some(header) = read::<{ LOG_HEADER as usize }>(&file, 0)? else { return Ok(None) };
        let magic = number(&header, 0);
        let page_size = u64::from(number(&header, 8));
        if magic & !1 != MAGIC || !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return Ok(None);
        }
        Ok(Some(LogFile { file, salt: part(&header, 16), page_size }))
    }

    fn offset(&self, frames: u32) -> u64 {
        LOG_HEADER + u64::from(frames) * (FRAME_HEADER + self.page_size)
    }

    /// Whether the frame with this header was written since the log last started from its beginning.
    fn is_own(&self, header: &[u8]) -> bool {
        part::<8>(header, 8) == self.salt
    }

    fn header_after(&self, frames: u32) -> io::Result<Option<[u8; FRAME_HEADER as usize]>> {
        read(&self.file, self.offset(frames))
    }

    /// What follows after `frames` frames.
    pub fn next(&self, frames: u32) -> io::Result<Next> {
        Ok(match self.header_after(frames)? {
            Some(DISCARDED) => Next::Discarded,
            Some(header) if self.is_own(&header) => Next::Frame,
            _ => Next::Nothing,
        })
    }
}

/// Discards all frames of the log at `path` after `frames` frames, and syncs it. Nobody may write to the log meanwhile.
///
/// The frames are overwritten, because Litestream takes a log that becomes shorter for one that was copied into the database. It would
/// keep the pages of a discarded transaction that it has read. A discarded frame in the place of the last one that it has read makes it
/// copy the whole database. It does not compare the first frame of a log, so it would miss a discarded transaction of one frame there;
/// usually the first frame is of a transaction of its own.
///
/// # Errors
///
/// Those of the file system. Frames may still be there.
pub(super) fn discard_after(path: &Path, frames: u32) -> io::Result<()> {
    let Some(log) = LogFile::open_with(OpenOptions::new().read(true).write(true), path)? else { return Ok(()) };
    let mut end = frames;
    while log.next(end)? != Next::Nothing {
        end += 1;
    }
    // The last frame makes a transaction complete. If a call or the sync fails, the next attempt finds and writes all of them again.
    for frame in (frames..end).rev() {
        log.file.write_all_at(&DISCARDED, log.offset(frame))?;
    }
    log.file.sync_all()
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
    use super::*;
    use crate::store::connection;

    #[test]
    fn what_is_discarded_is_no_part_of_the_database_and_is_told_until_it_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("1.db");
        std::fs::write(&database, "").unwrap();
        let writer = connection::connect(&database).unwrap();
        writer.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        let before = connection::log_state(&writer).unwrap().frames;
        writer.execute_batch("INSERT INTO t VALUES (2); INSERT INTO t VALUES (3)").unwrap();
        let after = connection::log_state(&writer).unwrap().frames;

        // As a process leaves it that is killed.
        let (other, log) = (folder.path().join("2.db"), folder.path().join("2.db-wal"));
        std::fs::copy(&database, &other).unwrap();
        std::fs::copy(connection::sibling_path(&database, "-wal"), &log).unwrap();
        let length = std::fs::metadata(&log).unwrap().len();
        let next = |frames: u32| {
            LogFile::open_with(OpenOptions::new().read(true), &log).unwrap().unwrap().next(frames).unwrap()
        };
        assert_eq!((next(before), next(after)), (Next::Frame, Next::Nothing));
        // An attempt before this one has ended in the middle.
        let open = LogFile::open_with(OpenOptions::new().read(true).write(true), &log).unwrap().unwrap();
        open.file.write_all_at(&DISCARDED, open.offset(before)).unwrap();
        discard_after(&log, before).unwrap();
        assert_eq!((next(before - 1), next(before), next(after - 1)), (Next::Frame, Next::Discarded, Next::Discarded));
        assert_eq!(std::fs::metadata(&log).unwrap().len(), length);
        let opened = connection::connect(&other).unwrap();
        connection::keep_log_on_close(&opened);
        let rows: i64 = opened.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 1);
        opened.execute_batch("INSERT INTO t VALUES (4)").unwrap();
        assert_eq!(next(before), Next::Frame);
        discard_after(&folder.path().join("none"), 0).unwrap();
    }
}
