//! What the system says: space, descriptors, clock, who serves.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statfs, statvfs};
use rustix::process::{Resource, getrlimit};

use super::{Report, State};
use crate::clock::{Moment, rfc3339};

const MEBIBYTE: u64 = 1024 * 1024;

/// Below this, writes fail soon.
const LEAST_SPACE: u64 = 128 * MEBIBYTE;

/// Below this it is time to look for more.
const GOOD_SPACE: u64 = 1024 * MEBIBYTE;

/// `12.3 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut tenths = count.saturating_mul(10) / 1024;
    let mut name = "KiB";
    for unit in UNITS {
        name = unit;
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
    }
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// Whether SQLite's locks and its write-ahead log can be relied on there.
pub fn file_system(directory: &Path) -> (State, &'static str) {
    const UNSOUND: [(i64, &str); 6] = [
        (0x6969, "on NFS, where SQLite's locks cannot be relied on; use a local disk"),
        (0x517b, "on SMB, where SQLite's locks cannot be relied on; use a local disk"),
        (0xff53_4d42, "on CIFS, where SQLite's locks cannot be relied on; use a local disk"),
        (0xfe53_4d42, "on SMB, where SQLite's locks cannot be relied on; use a local disk"),
        (0x0102_1997, "on a 9p share, where SQLite's locks cannot be relied on; use a local disk"),
        (0x5346_414f, "on AFS, where SQLite's locks cannot be relied on; use a local disk"),
    ];
    const TMPFS: i64 = 0x0102_1994;
    let Ok(found) = statfs(directory) else { return (State::Warning, "on an unknown file system") };
    #[expect(clippy::unnecessary_cast, reason = "the field's width differs between targets")]
    let kind = found.f_type as i64;
    if kind == TMPFS {
        return (State::Warning, "in memory: all of it is lost when the machine stops");
    }
    match UNSOUND.iter().find(|(magic, _)| *magic == kind) {
        Some((_, why)) => (State::Fault, why),
        None => (State::Good, "on a local file system"),
    }
}

/// Free space and file names on the data directory's disk.
pub fn space(directory: &Path) -> Report {
    let found = match statvfs(directory) {
        Ok(found) => found,
        Err(error) => return Report::new("free space", State::Warning, format!("cannot be read: {error}")),
    };
    if found.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Report::new("free space", State::Fault, "the file system is read-only");
    }
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let state = match free {
        _ if found.f_files > 0 && found.f_favail == 0 => {
            return Report::new("free space", State::Fault, "the file system has no room for another file (inodes)");
        }
        free if free < LEAST_SPACE => State::Fault,
        free if free < GOOD_SPACE => State::Warning,
        _ => State::Good,
    };
    let all = found.f_blocks.saturating_mul(found.f_frsize);
    Report::new("free space", state, format!("{} of {}", bytes(free), bytes(all)))
}

/// Which process serves the directory, and how many of its descriptors it uses. Without one that is no fault.
pub fn server(directory: &Path) -> Option<Report> {
    let lock = fs::metadata(directory.join("serve.lock")).ok()?;
    let held = fs::read_to_string("/proc/locks").ok()?;
    let inode = format!(":{}", lock.ino());
    let holder = held.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_lock = words.next() == Some("FLOCK");
        let (id, file) = (words.nth(2)?, words.next()?);
        (is_lock && file.ends_with(&inode)).then(|| id.to_owned())
    });
    let Some(id) = holder else { return Some(Report::new("server", State::Good, "none serves this directory now")) };
    let open = fs::read_dir(format!("/proc/{id}/fd")).map(Iterator::count).ok();
    let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let most: Option<usize> = line.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse().ok());
    Some(match (open, most) {
        (Some(open), Some(most)) => {
            let state = if open.saturating_mul(10) > most.saturating_mul(9) { State::Fault } else { State::Good };
            Report::new("server", state, format!("process {id} serves, with {open} of {most} descriptors open"))
        }
        _ => Report::new("server", State::Good, format!("process {id} serves")),
    })
}

/// What a server that is started from here could open.
pub fn descriptors() -> Report {
    const FEW: u64 = 4096;
    const TOO_FEW: u64 = 512;
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let state = match most {
        most if most < TOO_FEW => State::Fault,
        most if most < FEW => State::Warning,
        _ => State::Good,
    };
    let says = format!("up to {most} for a server started from here; an open tenant takes 3 and more, a client 1");
    Report::new("descriptors", state, says)
}

/// A clock that runs behind what it wrote itself is wrong: now, or it was then.
pub fn clock(now: Moment, newest_write: Option<i64>) -> Report {
    const TOLERANCE: i64 = 120;
    /// No version of this program is older.
    const EARLIEST: i64 = 1_735_689_600;
    let says = now.rfc3339();
    if now.unix_seconds() < EARLIEST {
        return Report::new("clock", State::Fault, format!("{says} cannot be; set the machine's clock"));
    }
    match newest_write.filter(|written| *written > now.unix_seconds() + TOLERANCE) {
        Some(written) => {
            let says = format!("{says}, but a database was written to at {}", rfc3339(written));
            Report::new("clock", State::Fault, says)
        }
        None => Report::new("clock", State::Good, says),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn sizes_are_readable() {
        let sizes = [0, 1023, 1024, 1_572_864, 10 * 1024 * MEBIBYTE, u64::MAX].map(bytes);
        assert_eq!(sizes[..5], ["0.0 KiB", "0.9 KiB", "1.0 KiB", "1.5 MiB", "10.0 GiB"]);
        assert!(sizes[5].ends_with(" PiB"));
    }

    #[test]
    fn a_clock_that_went_back_is_a_fault() {
        let now = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap()).now();
        assert_eq!(clock(now, Some(now.unix_seconds() + 60)).state, State::Good);
        assert_eq!(clock(now, Some(now.unix_seconds() + 3600)).state, State::Fault);
        let early = Clock::manual("1970-01-01T00:10:00Z".parse().unwrap()).now();
        assert_eq!(clock(early, None).state, State::Fault);
    }
}
