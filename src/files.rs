//! Files and directories that only their owner can read, files that may not exist, and names that
//! survive a power loss.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

/// Tenants take only deletions while less than this is free, so that the registry has room: keys
/// can still be revoked and tenants suspended. Each tenant's writer asks once for a group of
/// changes, which adds less than this.
pub(crate) const RESERVE: u64 = 256 << 20;

/// A disk with less free space is full: no further database is opened. SQLite's files of shared
/// memory begin with 32 KiB each.
const FULL: u64 = 1 << 20;

pub(crate) fn is_disk_full(path: &Path) -> bool {
    free_space(path).is_ok_and(|(free, _)| free < FULL)
}

/// The bytes that are free on the disk of `path`, and a warning to the operator if they are less
/// than the reserve.
pub(crate) fn free_space(path: &Path) -> io::Result<(u64, Option<String>)> {
    let disk = statvfs(path)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let warning = (free < RESERVE).then(|| {
        let free = free >> 20;
        format!("the data directory's disk has {free} MiB free; below 256 MiB tenants only delete")
    });
    Ok((free, warning))
}

/// Creates a file for writing, with access for its owner only (contract section 11).
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Creates a directory and its parents, as far as they do not exist, with access for their owner
/// only, and syncs their names.
pub(crate) fn create_private_directories(path: &Path) -> io::Result<()> {
    let named = path.ancestors().filter(|directory| !directory.as_os_str().is_empty());
    let missing: Vec<&Path> = named.take_while(|directory| !directory.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    missing.iter().copied().try_for_each(sync_parent).inspect_err(|_| {
        // The next process would take a directory that is there for durable.
        missing.iter().for_each(|directory| _ = fs::remove_dir(directory));
    })
}

/// The name of a user in `/etc/passwd`, else the number. A static binary cannot ask the system's
/// name service.
pub(crate) fn user_name(number: u32) -> String {
    let number = number.to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.unwrap_or(number)
}

/// The path of a file beside `path`, such as the one that SQLite keeps for a database.
pub(crate) fn companion(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(crate) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

pub(crate) fn open_parent(path: &Path) -> io::Result<File> {
    let parent = path.parent().unwrap_or(path);
    File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Syncs the directory that holds `path`. A new, renamed or removed name is durable from then on.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    open_parent(path)?.sync_all()
}
