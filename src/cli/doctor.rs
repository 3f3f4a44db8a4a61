//! `doctor`: what an operator has to act on.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use indicatif::HumanBytes;
use rustix::fs::statfs;
use serde::Serialize;
use serde_json::json;

use super::GlobalOptions;
use super::check::ORPHAN;
use crate::clock::{Clock, Moment, Timestamp};
use crate::files;
use crate::store::archive::{BackupKind, backup, check};
use crate::store::registry::{KeyState, Registry};
use crate::store::{REGISTRY_FILE, tenants_dir};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The directory of backups, of which the newest is checked
    #[arg(long, env = "TENANTDESK_BACKUPS", value_name = "DIR")]
    backups: Option<PathBuf>,
    /// The maximum age of the newest backup
    #[arg(long, default_value = "2", value_name = "DAYS")]
    backup_age: u16,
    /// The private key of `serve`, whose permissions are checked
    #[arg(long, env = "TENANTDESK_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// Works, but may fail later.
    Warning,
    /// Does not work. The exit code is 1.
    Fault,
}

/// One check and its result.
#[derive(Debug, Serialize)]
struct Check {
    check: String,
    state: State,
    message: String,
}

impl Check {
    fn new(check: &str, state: State, message: impl Into<String>) -> Check {
        Check { check: check.to_owned(), state, message: message.into() }
    }
}

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let data_dir = &options.data_dir;
    ensure!(data_dir.join(REGISTRY_FILE).exists(), "{} is no data directory", data_dir.display());
    let now = Clock::system().now();
    let files = files(data_dir)?;
    let mut checks = vec![file_system(data_dir), free_space(data_dir), permissions(&files)];
    checks.extend(arguments.tls_key.as_deref().map(tls_key));
    checks.push(clock(now, &files));
    checks.extend(databases(options)?);
    // The check of the databases has reported a registry that cannot be opened.
    checks.extend(options.open_registry().ok().map(|registry| keys(&registry, now)).transpose()?);
    checks.push(newest_backup(arguments, now));
    let faults = checks.iter().filter(|check| check.state == State::Fault).count();
    let documents = json!(checks);
    if options.json {
        options.report(&json!({"ok": faults == 0, "checks": documents}), "")?;
    } else {
        options.list(&documents, &["check", "state", "message"])?;
    }
    ensure!(faults == 0, "checks with a fault: {faults}");
    Ok(())
}

/// The directories, databases and lock files of the data directory, as far as they still exist.
fn files(data_dir: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let mut paths = vec![data_dir.to_owned(), tenants_dir(data_dir)];
    for directory in paths.clone() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if [".db", ".db-wal", ".db-shm", ".lock"].iter().any(|suffix| name.ends_with(suffix)) {
                paths.push(path);
            }
        }
    }
    // SQLite removes the files of the WAL when the last connection closes.
    let existing = |path: PathBuf| fs::metadata(&path).ok().map(|metadata| (path, metadata));
    Ok(paths.into_iter().filter_map(existing).collect())
}

/// Checks whether SQLite's locks and WAL are reliable on the file system.
fn file_system(data_dir: &Path) -> Check {
    // NFS, CIFS, SMB 2, 9p, CephFS: the numbers of statfs(2).
    const NETWORK: [i64; 5] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400];
    const TMPFS: i64 = 0x0102_1994;
    const FUSE: i64 = 0x6573_5546;
    #[expect(clippy::unnecessary_cast, reason = "the field's width differs between targets")]
    let kind = statfs(data_dir).map(|info| info.f_type as i64).unwrap_or_default();
    let (state, message) = match kind {
        TMPFS => (State::Warning, "in memory: all data are lost when the machine stops"),
        FUSE => (State::Warning, "on FUSE: a sync may not reach the disk; use a local disk"),
        _ if NETWORK.contains(&kind) => (
            State::Fault,
            "on a network file system, where SQLite's locks are unreliable; use a local disk",
        ),
        _ => (State::Ok, "on a local file system"),
    };
    Check::new("directory", state, format!("{} {message}", data_dir.display()))
}

/// Below 64 MiB, the server accepts only deletions.
fn free_space(data_dir: &Path) -> Check {
    const MEBIBYTE: u64 = 1024 * 1024;
    let free = match files::free_space(data_dir) {
        Ok((free, _)) => free,
        Err(error) => return Check::new("free space", State::Fault, error.to_string()),
    };
    let state = match free / MEBIBYTE {
        0..128 => State::Fault,
        128..1024 => State::Warning,
        _ => State::Ok,
    };
    Check::new("free space", state, HumanBytes(free).to_string())
}

/// A message if other users have access to the file or directory.
fn access_by_others(path: &Path, metadata: &Metadata) -> Option<String> {
    let mode = metadata.mode() & 0o777;
    let is_open = mode & 0o077 != 0;
    is_open.then(|| format!("{} is open to others (mode {mode:o}); chmod go= it", path.display()))
}

/// Checks that all files belong to one user and that others have no access. Access to a directory
/// is a warning, because the owner may have set its mode; the program always creates files without
/// access for others.
fn permissions(files: &[(PathBuf, Metadata)]) -> Check {
    let owner = files.first().map(|(_, data_dir)| data_dir.uid()).unwrap_or_default();
    let mut state = State::Ok;
    let mut messages = Vec::new();
    for (path, metadata) in files {
        if let Some(message) = access_by_others(path, metadata) {
            state = state.max(if metadata.is_dir() { State::Warning } else { State::Fault });
            messages.push(message);
        }
        if metadata.uid() != owner {
            state = State::Fault;
            let (path, uid) = (path.display(), metadata.uid());
            messages.push(format!("{path} belongs to user {uid}, and the directory to {owner}"));
        }
    }
    if messages.is_empty() {
        messages.push(format!("private to user {owner}"));
    }
    Check::new("permissions", state, messages.join("; "))
}

/// Access by others is a warning, because a group may need it.
fn tls_key(path: &Path) -> Check {
    let (state, message) = match fs::metadata(path) {
        Ok(metadata) => match access_by_others(path, &metadata) {
            Some(message) => (State::Warning, message),
            None => (State::Ok, format!("{} is private to its owner", path.display())),
        },
        Err(error) => (State::Fault, format!("{}: {error}", path.display())),
    };
    Check::new("TLS key", state, message)
}

/// Checks that the clock is not earlier than the last write to a database.
fn clock(now: Moment, files: &[(PathBuf, Metadata)]) -> Check {
    /// Seconds by which the clocks of two machines may differ.
    const TOLERANCE: i64 = 120;
    let written = files.iter().map(|(_, metadata)| metadata.mtime()).max().unwrap_or_default();
    let time = now.timestamp();
    if written > now.unix_seconds() + TOLERANCE {
        let message =
            format!("{time}, but a file was written at {}", Timestamp::from_unix(written));
        return Check::new("clock", State::Fault, message);
    }
    Check::new("clock", State::Ok, time.to_string())
}

/// One check for each database with a problem, and one for all others together.
fn databases(options: &GlobalOptions) -> anyhow::Result<Vec<Check>> {
    const ADVICE: &str = "if it is damaged, keep a copy and restore it from a backup";
    let findings = check::check(&options.data_dir).map_err(|error| options.explain(error))?;
    let mut checks = Vec::new();
    let mut intact = 0;
    for finding in &findings {
        if finding.is_orphan {
            let message = format!("{ORPHAN}; move it away if no tenant is missing");
            checks.push(Check::new(&finding.database, State::Warning, message));
        } else if finding.problems.is_empty() {
            intact += 1;
        } else {
            let message = format!("{}; {ADVICE}", finding.problems.join("; "));
            checks.push(Check::new(&finding.database, State::Fault, message));
        }
    }
    checks.push(Check::new("databases", State::Ok, format!("{intact} intact")));
    Ok(checks)
}

/// Warns of keys that end within 14 days: somebody may have to replace them.
fn keys(registry: &Registry, now: Moment) -> anyhow::Result<Check> {
    let mut ending = Vec::new();
    for (tenant, _) in registry.list_tenants()? {
        for key in registry.list_keys(tenant.id)? {
            let is_active = key.state(now) == KeyState::Active;
            if let Some(end) = key.near_end(now).filter(|_| is_active) {
                ending.push(format!("key {} of {} at {end}", key.id, tenant.name));
            }
        }
    }
    if ending.is_empty() {
        return Ok(Check::new("keys", State::Ok, "none ends within 14 days"));
    }
    let message = format!("end within 14 days: {}", ending.join(", "));
    Ok(Check::new("keys", State::Warning, message))
}

/// Checks the newest backup of all tenants: it is a fault if it is too old or lacks a tenant.
fn newest_backup(arguments: &Arguments, now: Moment) -> Check {
    let check = |state, message: String| Check::new("backup", state, message);
    let Some(dir) = &arguments.backups else {
        let message = "not checked; name the directory of backups with --backups DIR";
        return check(State::Warning, message.to_owned());
    };
    let backups = match backup::list(dir) {
        Ok(backups) => backups,
        Err(error) => return check(State::Fault, error.to_string()),
    };
    let newest = backups.into_iter().find(|(_, manifest)| manifest.kind == BackupKind::All);
    let Some((directory, manifest)) = newest else {
        let message = format!("{} contains no backup of all tenants", dir.display());
        return check(State::Fault, message);
    };
    let directory = directory.display();
    if let Some(tenant) = manifest.left_out.first() {
        let message = format!("{directory} lacks the tenant {} ({})", tenant.name, tenant.reason);
        return check(State::Fault, message);
    }
    let hours = (now.unix_seconds() - manifest.created_at.unix()) / 3600;
    let is_old = hours > i64::from(arguments.backup_age) * 24;
    let state = if is_old { State::Fault } else { State::Ok };
    check(state, format!("{directory} is {hours} hours old"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_the_last_write_is_a_fault() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let written = jiff::Timestamp::from_second(metadata.mtime()).unwrap();
        let files = [(file.path().to_owned(), metadata)];
        let state = |seconds: i64| {
            let now = written + jiff::SignedDuration::from_secs(seconds);
            clock(Clock::manual(now).now(), &files).state
        };
        assert_eq!(state(-60), State::Ok);
        assert_eq!(state(-3600), State::Fault);
    }
}
