//! Checks of the operating system: file system, free space, clock.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use indicatif::HumanBytes;
use rustix::fs::{StatVfsMountFlags, major, minor, statfs, statvfs};

use super::{Check, Status};
use crate::clock::{Moment, Timestamp};

const MEBIBYTE: u64 = 1024 * 1024;

/// Less free space than this is a fault.
const MIN_SPACE: u64 = 128 * MEBIBYTE;

/// Less free space than this is a warning.
const RECOMMENDED_SPACE: u64 = 1024 * MEBIBYTE;

/// Returns whether SQLite's locks and write-ahead log are reliable on the file system, and a phrase
/// about it.
pub(super) fn file_system(directory: &Path) -> (Status, &'static str) {
    const UNRELIABLE: [(i64, &str); 8] = [
        (0x6969, "on NFS, where SQLite's locks are unreliable; use a local disk"),
        (0x517b, "on SMB, where SQLite's locks are unreliable; use a local disk"),
        (0xff53_4d42, "on CIFS, where SQLite's locks are unreliable; use a local disk"),
        (0xfe53_4d42, "on SMB, where SQLite's locks are unreliable; use a local disk"),
        (0x0102_1997, "on a 9p share, where SQLite's locks are unreliable; use a local disk"),
        (0x5346_414f, "on AFS, where SQLite's locks are unreliable; use a local disk"),
        (0x00c3_6400, "on CephFS, where SQLite's locks are unreliable; use a local disk"),
        (0x0bd0_0bd0, "on Lustre, where SQLite's locks are unreliable; use a local disk"),
    ];
    const TMPFS: i64 = 0x0102_1994;
    const FUSE: i64 = 0x6573_5546;
    let Ok(info) = statfs(directory) else { return (Status::Warning, "on an unknown file system") };
    #[expect(clippy::unnecessary_cast, reason = "the field's width differs between targets")]
    let kind = info.f_type as i64;
    if kind == TMPFS {
        return (Status::Warning, "in memory: all data are lost when the machine stops");
    }
    if kind == FUSE {
        return (
            Status::Warning,
            "on FUSE: whether a sync reaches a disk depends on the program that serves it",
        );
    }
    if lacks_barriers(directory) {
        return (
            Status::Warning,
            "mounted without barriers: a power loss can lose what was answered with success",
        );
    }
    match UNRELIABLE.iter().find(|(magic, _)| *magic == kind) {
        Some((_, message)) => (Status::Fault, message),
        None => (Status::Ok, "on a local file system"),
    }
}

/// Returns whether the file system of the directory is mounted with an option by which a sync does
/// not empty the disk's cache.
fn lacks_barriers(directory: &Path) -> bool {
    let device = fs::metadata(directory).map(|metadata| metadata.dev()).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    has_mount_without_barriers(&mounts, &format!("{}:{}", major(device), minor(device)))
}

/// `mounts` is the content of `mountinfo` (proc(5)); `device` is `major:minor`.
fn has_mount_without_barriers(mounts: &str, device: &str) -> bool {
    let mut of_device = mounts.lines().filter(|line| line.split(' ').nth(2) == Some(device));
    of_device.any(|line| {
        line.split([' ', ',']).any(|option| matches!(option, "nobarrier" | "barrier=0"))
    })
}

/// Checks free space and free inodes of the data directory's file system.
pub(super) fn space(directory: &Path) -> Check {
    let info = match statvfs(directory) {
        Ok(info) => info,
        Err(error) => {
            return Check::new("free space", Status::Warning, format!("cannot be read: {error}"));
        }
    };
    if info.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Check::new("free space", Status::Fault, "the file system is read-only");
    }
    let free = info.f_bavail.saturating_mul(info.f_frsize);
    let status = match free {
        _ if info.f_files > 0 && info.f_favail == 0 => {
            return Check::new("free space", Status::Fault, "the file system has no free inodes");
        }
        free if free < MIN_SPACE => Status::Fault,
        free if free < RECOMMENDED_SPACE => Status::Warning,
        _ => Status::Ok,
    };
    let total = info.f_blocks.saturating_mul(info.f_frsize);
    Check::new("free space", status, format!("{} of {}", HumanBytes(free), HumanBytes(total)))
}

/// Checks that the clock is not earlier than the last write to a database.
pub(super) fn clock(now: Moment, newest_write: Option<i64>) -> Check {
    const TOLERANCE: i64 = 120;
    /// 2025-01-01: earlier than any version of this program.
    const EARLIEST: i64 = 1_735_689_600;
    let time = now.timestamp().to_string();
    if now.unix_seconds() < EARLIEST {
        return Check::new(
            "clock",
            Status::Fault,
            format!("{time} is in the past; set the machine's clock"),
        );
    }
    match newest_write.filter(|written| *written > now.unix_seconds() + TOLERANCE) {
        Some(written) => {
            let message = format!(
                "{time}, but a database was written to at {}",
                Timestamp::from_unix(written)
            );
            Check::new("clock", Status::Fault, message)
        }
        None => Check::new("clock", Status::Ok, time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_mount_without_barriers_is_found() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                      40 22 8:2 / /srv rw,relatime shared:2 - ext4 /dev/sda2 rw,nobarrier\n\
                      41 22 8:3 / /var rw shared:3 - ext4 /dev/sda3 rw,barrier=0,data=ordered\n";
        let found =
            ["8:1", "8:2", "8:3", "8:4"].map(|device| has_mount_without_barriers(mounts, device));
        assert_eq!(found, [false, true, true, false]);
    }

    #[test]
    fn a_clock_before_the_last_write_is_a_fault() {
        let now = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap()).now();
        assert_eq!(clock(now, Some(now.unix_seconds() + 60)).status, Status::Ok);
        assert_eq!(clock(now, Some(now.unix_seconds() + 3600)).status, Status::Fault);
        let early = Clock::manual("1970-01-01T00:10:00Z".parse().unwrap()).now();
        assert_eq!(clock(early, None).status, Status::Fault);
    }
}
