//! Files that only their owner can read, files that may not exist, and names that survive a power
//! loss.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Creates a file for writing, with access for its owner only (contract section 11).
///
/// # Errors
///
/// Those of the file system; `AlreadyExists` if the path exists.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Returns `Ok` instead of the error that a file does not exist.
///
/// # Errors
///
/// Every other error in `result`.
pub(crate) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Syncs a file or a directory.
///
/// # Errors
///
/// Those of the file system.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Syncs the directory that holds `path`. A new, renamed or removed name is durable from then on.
///
/// # Errors
///
/// Those of the file system.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    sync(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}
