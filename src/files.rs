//! Files that only their owner can read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Creates a file for writing, with access for its owner only (contract section 11).
///
/// # Errors
///
/// Those of the file system; `AlreadyExists` if the path exists.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
