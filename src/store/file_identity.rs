//! The identity of a file, to detect that a path names another file than the one that is open.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Device and inode. An open descriptor or connection still works after its file was removed or replaced; two equal
/// identities show that it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Returns the identity of the file that `path` names.
    ///
    /// # Errors
    ///
    /// Those of `stat`: the file does not exist or its folder cannot be searched.
    pub fn of_path(path: &Path) -> io::Result<FileIdentity> {
        fs::metadata(path).map(|metadata| FileIdentity::of(&metadata))
    }

    /// Returns the identity of the file that `metadata` describes.
    pub fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity { device: metadata.dev(), inode: metadata.ino() }
    }
}
