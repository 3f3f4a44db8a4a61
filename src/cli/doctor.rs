//! `doctor`: what an operator would look at first, looked at.

mod backups;
mod system;

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::General;
use super::output::{print_json, print_table};
use crate::store::check::{self, Finding};
use crate::store::{registry, sqlite_version, tenants};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Where backups lie: the newest is looked at too
    #[arg(long, env = "TENANTDESK_BACKUPS", value_name = "DIR")]
    backups: Option<PathBuf>,
    /// How old the newest backup may be
    #[arg(long, default_value = "2", value_name = "DAYS")]
    backup_age: u16,
    /// The private key that `serve` is given: whether others can read it
    #[arg(long, env = "TENANTDESK_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Good,
    /// It works, and will not for ever.
    Warning,
    /// Exit code 1.
    Fault,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            State::Good => "ok",
            State::Warning => "warning",
            State::Fault => "FAULT",
        }
    }
}

/// What was found out about one thing.
#[derive(Debug)]
struct Report {
    what: String,
    state: State,
    says: String,
}

impl Report {
    fn new(what: impl Into<String>, state: State, says: impl Into<String>) -> Report {
        Report { what: what.into(), state, says: says.into() }
    }

    fn document(&self) -> Value {
        json!({"check": self.what, "state": self.state.as_str().to_lowercase(), "message": self.says})
    }
}

pub fn run(general: &General, arguments: &Arguments) -> anyhow::Result<()> {
    let data_dir = &general.data_dir;
    ensure!(data_dir.join(registry::FILE).exists(), "{} is no data directory", data_dir.display());
    let now = general.clock().now();
    let mut reports = vec![versions(), directory(data_dir), permissions(data_dir), system::space(data_dir)];
    reports.extend(arguments.tls_key.as_deref().map(tls_key));
    reports.extend(system::server(data_dir));
    reports.push(system::descriptors());
    reports.push(system::clock(now, newest_write(data_dir)));
    reports.extend(databases(general)?);
    reports.push(match &arguments.backups {
        Some(dir) => backups::newest(dir, now, arguments.backup_age),
        None => Report::new("backup", State::Warning, "not looked at; say where backups lie with --backups DIR"),
    });
    let faults = reports.iter().filter(|report| report.state == State::Fault).count();
    if general.json {
        let checks: Vec<Value> = reports.iter().map(Report::document).collect();
        print_json(&json!({"ok": faults == 0, "checks": checks}))?;
    } else {
        print_table(
            ["CHECK", "STATE", "WHAT IT SAYS"],
            reports.into_iter().map(|report| [report.what, report.state.as_str().to_owned(), report.says]),
        )?;
    }
    match faults {
        0 => Ok(()),
        1 => bail!("one thing is wrong"),
        more => bail!("{more} things are wrong"),
    }
}

fn versions() -> Report {
    let says = format!(
        "tenantdesk {}, SQLite {}, schemas: registry {}, tenant {}",
        env!("CARGO_PKG_VERSION"),
        sqlite_version(),
        registry::SCHEMA.version,
        tenants::SCHEMA.version
    );
    Report::new("version", State::Good, says)
}

fn directory(data_dir: &Path) -> Report {
    let (state, kind) = system::file_system(data_dir);
    let path = fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    Report::new("directory", state, format!("{} {kind}", path.display()))
}

/// How others can reach the file or folder, if they can.
fn open_to_others(path: &Path, metadata: &Metadata) -> Option<String> {
    let mode = metadata.mode() & 0o777;
    let is_open = mode & 0o077 != 0;
    is_open.then(|| format!("{} is open to others (mode {mode:o}); chmod go= it", path.display()))
}

/// A key that others can read is no secret. It may have its mode on purpose, for a group.
fn tls_key(path: &Path) -> Report {
    let report = |state, says| Report::new("TLS key", state, says);
    match fs::metadata(path) {
        Ok(metadata) => match open_to_others(path, &metadata) {
            Some(says) => report(State::Warning, says),
            None => report(State::Good, format!("{} is private to its owner", path.display())),
        },
        Err(error) => report(State::Fault, format!("{}: {error}", path.display())),
    }
}

/// Everything of ours in the data directory.
fn files(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![data_dir.to_owned(), tenants::folder(data_dir)];
    for folder in found.clone() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_ours = [".db", ".db-wal", ".db-shm", ".lock"].iter().any(|ending| name.ends_with(ending));
            // `.db.v1` is a copy from before a migration.
            if is_ours || name.contains(".db.v") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Private to one owner, who is the one that runs this or served by root. A folder keeps the mode that its owner gave it, so
/// one that is open to others is a warning; files are always made private.
fn permissions(data_dir: &Path) -> Report {
    let fault = |says: String| Report::new("permissions", State::Fault, says);
    let found = match files(data_dir) {
        Ok(found) => found,
        Err(error) => return fault(format!("the data directory cannot be read: {error}")),
    };
    let mut open_folders = Vec::new();
    let owner = fs::metadata(data_dir).map(|metadata| metadata.uid()).ok();
    for path in &found {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            // SQLite removes what stands beside a database when the last one closes it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return fault(format!("{}: {error}", path.display())),
        };
        match open_to_others(path, &metadata) {
            Some(says) if metadata.is_dir() => open_folders.push(says),
            Some(says) => return fault(says),
            None => (),
        }
        if Some(metadata.uid()) != owner {
            let uid = metadata.uid();
            return fault(format!("{} belongs to user {uid}, the directory does not", path.display()));
        }
    }
    if !open_folders.is_empty() {
        return Report::new("permissions", State::Warning, open_folders.join("; "));
    }
    let uid = owner.unwrap_or_default();
    let me = rustix::process::geteuid().as_raw();
    if me != uid && me != 0 {
        return Report::new("permissions", State::Warning, format!("all belongs to user {uid}; this is user {me}"));
    }
    Report::new("permissions", State::Good, format!("private to user {uid}, {} files and folders", found.len()))
}

/// Unix seconds at which a database was last written to.
fn newest_write(data_dir: &Path) -> Option<i64> {
    let found = files(data_dir).ok()?;
    found.iter().filter_map(|path| fs::metadata(path).ok()).map(|metadata| metadata.mtime()).max()
}

/// The registry and every faulty tenant by itself; the sound ones together.
fn databases(general: &General) -> anyhow::Result<Vec<Report>> {
    let data_dir = &general.data_dir;
    let findings = check::check(data_dir).map_err(|error| general.explain(error))?;
    let size = |finding: &Finding| size_of(&data_dir.join(&finding.database));
    let mut reports = Vec::new();
    let mut sound: Vec<(u64, &str)> = Vec::new();
    for finding in &findings {
        if !finding.problems.is_empty() {
            reports.push(Report::new(&finding.database, State::Fault, finding.problems.join("; ")));
        } else if finding.database == registry::FILE {
            reports.push(Report::new(
                &finding.database,
                State::Good,
                format!("sound, {}", system::bytes(size(finding))),
            ));
        } else {
            sound.push((size(finding), &finding.database));
        }
    }
    let total: u64 = sound.iter().map(|(size, _)| size).sum();
    let largest = sound
        .iter()
        .max()
        .map_or_else(String::new, |(size, name)| format!("; the largest is {name} with {}", system::bytes(*size)));
    let says = format!("{} sound, {} together{largest}", sound.len(), system::bytes(total));
    reports.push(Report::new("tenants", State::Good, says));
    Ok(reports)
}

/// With what is still in its write-ahead log.
fn size_of(database: &Path) -> u64 {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    [database.to_owned(), PathBuf::from(log)].iter().filter_map(|path| fs::metadata(path).ok()).map(|m| m.len()).sum()
}
