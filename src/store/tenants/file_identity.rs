//! Which file a path names.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::connection;

/// The file that was opened under a path. An open connection goes on with a file that was removed or replaced, and serves cached
/// pages of one that was overwritten.
#[derive(Debug)]
pub(in crate::store) struct FileIdentity {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Nanoseconds. A change is a reason to look at the header again.
    modified: AtomicU64,
}

impl FileIdentity {
    /// The identity of the file at `path`.
    pub fn of(path: &Path) -> io::Result<FileIdentity> {
        let found = fs::metadata(path)?;
        let modified = AtomicU64::new(modified(&found));
        Ok(FileIdentity { path: path.to_owned(), device: found.dev(), inode: found.ino(), modified })
    }

    /// Whether the path still names this file, and the file is still a database. SQLite writes to the file only at a checkpoint,
    /// so the header is read seldom.
    pub fn is_current(&self) -> bool {
        let Ok(found) = fs::metadata(&self.path) else { return false };
        if (found.dev(), found.ino()) != (self.device, self.inode) {
            return false;
        }
        let now = modified(&found);
        self.modified.swap(now, Ordering::Relaxed) == now || connection::is_database(&self.path)
    }
}

fn modified(metadata: &Metadata) -> u64 {
    metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec()).cast_unsigned()
}
