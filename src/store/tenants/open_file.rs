//! Whether a path still names the file that is open.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::connection;
use crate::store::file_identity::FileIdentity;

/// The file that was opened under a path. An open connection goes on with a file that was removed or replaced, and serves cached
/// pages of one that was overwritten.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    identity: FileIdentity,
    /// Nanoseconds. A change is a reason to look at the header again.
    modified: AtomicU64,
}

impl OpenFile {
    /// The file at `path`.
    ///
    /// # Errors
    ///
    /// Those of `stat`.
    pub fn new(path: &Path) -> io::Result<OpenFile> {
        let found = fs::metadata(path)?;
        let (identity, modified) = (FileIdentity::of(&found), AtomicU64::new(modified(&found)));
        Ok(OpenFile { path: path.to_owned(), identity, modified })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still names this file, and the file is still a database. SQLite writes to the file only at a checkpoint,
    /// so the header is read seldom.
    pub fn is_current(&self) -> bool {
        let Ok(found) = fs::metadata(&self.path) else { return false };
        if FileIdentity::of(&found) != self.identity {
            return false;
        }
        let now = modified(&found);
        self.modified.swap(now, Ordering::Relaxed) == now || connection::is_database(&self.path)
    }
}

fn modified(metadata: &Metadata) -> u64 {
    metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec()).cast_unsigned()
}
