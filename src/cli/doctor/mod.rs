//! `doctor`: diagnoses the installation.

mod backups;
mod keys;
mod system;

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::Args;
use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::GlobalOptions;
use super::output::{print_json, print_table};
use crate::cli::check::ORPHAN;
use crate::store::archive::check::{self, Finding};
use crate::store::registry::TenantRow;
use crate::store::{registry, schema_versions, sqlite_version, tenants_dir};

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

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    /// Works, but may fail later.
    Warning,
    /// Does not work. The exit code is 1.
    Fault,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Fault => "FAULT",
        }
    }
}

/// One check and its result.
#[derive(Debug)]
struct Check {
    name: String,
    status: Status,
    message: String,
}

impl Check {
    fn new(name: impl Into<String>, status: Status, message: impl Into<String>) -> Check {
        Check { name: name.into(), status, message: message.into() }
    }

    fn document(&self) -> Value {
        json!({"check": self.name, "state": self.status.as_str().to_lowercase(), "message": self.message})
    }
}

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let data_dir = &options.data_dir;
    ensure!(data_dir.join(registry::FILE).exists(), "{} is no data directory", data_dir.display());
    let now = options.clock().now();
    let mut checks =
        vec![versions(), directory(data_dir), permissions(data_dir), system::space(data_dir)];
    checks.extend(arguments.tls_key.as_deref().map(tls_key));
    checks.push(system::clock(now, newest_write(data_dir)));
    checks.extend(databases(options)?);
    // The check of the databases has reported a registry that cannot be opened.
    checks.extend(options.open_registry().ok().map(|registry| keys::ends(&registry, now)));
    checks.push(match &arguments.backups {
        Some(dir) => backups::newest(dir, now, arguments.backup_age),
        None => Check::new(
            "backup",
            Status::Warning,
            "not checked; name the directory of backups with --backups DIR",
        ),
    });
    let faults = checks.iter().filter(|check| check.status == Status::Fault).count();
    if options.json {
        let documents: Vec<Value> = checks.iter().map(Check::document).collect();
        print_json(&json!({"ok": faults == 0, "checks": documents}))?;
    } else {
        print_table(
            ["CHECK", "STATE", "MESSAGE"],
            checks
                .into_iter()
                .map(|check| [check.name, check.status.as_str().to_owned(), check.message]),
        )?;
    }
    match faults {
        0 => Ok(()),
        1 => bail!("1 fault was found"),
        more => bail!("{more} faults were found"),
    }
}

fn versions() -> Check {
    let (registry_schema, tenant_schema) = schema_versions();
    let message = format!(
        "tenantdesk {}, SQLite {}, schemas: registry {}, tenant {}",
        env!("CARGO_PKG_VERSION"),
        sqlite_version(),
        registry_schema,
        tenant_schema
    );
    Check::new("version", Status::Ok, message)
}

fn directory(data_dir: &Path) -> Check {
    let (status, kind) = system::file_system(data_dir);
    let path = fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    Check::new("directory", status, format!("{} {kind}", path.display()))
}

/// A message if other users have access to the file or directory.
fn access_by_others(path: &Path, metadata: &Metadata) -> Option<String> {
    let mode = metadata.mode() & 0o777;
    let is_accessible = mode & 0o077 != 0;
    is_accessible
        .then(|| format!("{} is open to others (mode {mode:o}); chmod go= it", path.display()))
}

/// Checks that only the owner can read the TLS key. Access by others is a warning, because a group
/// may need it.
fn tls_key(path: &Path) -> Check {
    let check = |status, message| Check::new("TLS key", status, message);
    match fs::metadata(path) {
        Ok(metadata) => match access_by_others(path, &metadata) {
            Some(message) => check(Status::Warning, message),
            None => check(Status::Ok, format!("{} is private to its owner", path.display())),
        },
        Err(error) => check(Status::Fault, format!("{}: {error}", path.display())),
    }
}

/// All directories, databases and lock files of the data directory.
fn files(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![data_dir.to_owned(), tenants_dir(data_dir)];
    for directory in found.clone() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if [".db", ".db-wal", ".db-shm", ".lock"].iter().any(|suffix| name.ends_with(suffix)) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Checks that all files belong to one user and that others have no access. Access to a directory
/// is a warning, because the owner may have set its mode; the program always creates files without
/// access for others.
fn permissions(data_dir: &Path) -> Check {
    let check = |status, message: String| Check::new("permissions", status, message);
    let files = match files(data_dir) {
        Ok(files) => files,
        Err(error) => {
            return check(Status::Fault, format!("the data directory cannot be read: {error}"));
        }
    };
    let owner = fs::metadata(data_dir).map(|metadata| metadata.uid()).ok();
    let warnings: Vec<String> =
        match files.iter().filter_map(|path| check_access(path, owner).transpose()).collect() {
            Ok(warnings) => warnings,
            Err(fault) => return check(Status::Fault, fault),
        };
    if !warnings.is_empty() {
        return check(Status::Warning, warnings.join("; "));
    }
    let uid = owner.unwrap_or_default();
    let user = rustix::process::geteuid().as_raw();
    if user != uid && user != 0 {
        return check(
            Status::Warning,
            format!("all files belong to user {uid}; this is user {user}"),
        );
    }
    check(Status::Ok, format!("private to user {uid}, {} files and directories", files.len()))
}

/// Checks that a file or directory belongs to `owner` and that others have no access. Returns a
/// warning if they have access to a directory.
///
/// # Errors
///
/// The fault, as a message.
fn check_access(path: &Path, owner: Option<u32>) -> Result<Option<String>, String> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        // SQLite removes the files of the write-ahead log when the last connection closes.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    match access_by_others(path, &metadata) {
        Some(message) if !metadata.is_dir() => Err(message),
        _ if Some(metadata.uid()) != owner => Err(format!(
            "{} belongs to user {}, unlike the directory",
            path.display(),
            metadata.uid()
        )),
        warning => Ok(warning),
    }
}

/// The time of the last write to any file, in seconds since the Unix epoch.
fn newest_write(data_dir: &Path) -> Option<i64> {
    let files = files(data_dir).ok()?;
    files.iter().filter_map(|path| fs::metadata(path).ok()).map(|metadata| metadata.mtime()).max()
}

/// One check for the registry and for each damaged tenant, and one for all intact tenants together.
fn databases(options: &GlobalOptions) -> anyhow::Result<Vec<Check>> {
    let data_dir = &options.data_dir;
    let findings = check::check(data_dir).map_err(|error| options.explain(error))?;
    let tenants = options
        .open_registry()
        .and_then(|registry| Ok(registry.list_tenants()?))
        .unwrap_or_default();
    let tenants: Vec<TenantRow> = tenants.into_iter().map(|(tenant, _)| tenant).collect();
    let size = |finding: &Finding| size_of(&data_dir.join(&finding.database));
    let mut checks = Vec::new();
    let mut intact: Vec<(u64, &str)> = Vec::new();
    for finding in &findings {
        if finding.is_orphan {
            let message = format!("{ORPHAN}; {}", advice(finding, &tenants));
            checks.push(Check::new(&finding.database, Status::Warning, message));
        } else if !finding.problems.is_empty() {
            let message = format!("{}; {}", finding.problems.join("; "), advice(finding, &tenants));
            checks.push(Check::new(&finding.database, Status::Fault, message));
        } else if finding.database == registry::FILE {
            checks.push(Check::new(
                &finding.database,
                Status::Ok,
                format!("intact, {}", HumanBytes(size(finding))),
            ));
        } else {
            intact.push((size(finding), &finding.database));
        }
    }
    let total: u64 = intact.iter().map(|(size, _)| size).sum();
    let largest = intact.iter().max().map_or_else(String::new, |(size, name)| {
        format!("; the largest is {name} with {}", HumanBytes(*size))
    });
    let message = format!("{} intact, {} in total{largest}", intact.len(), HumanBytes(total));
    checks.push(Check::new("tenants", Status::Ok, message));
    Ok(checks)
}

/// What to do about a database with problems.
fn advice(finding: &Finding, tenants: &[TenantRow]) -> String {
    let tenant =
        tenants.iter().find(|tenant| finding.database == format!("tenants/{}.db", tenant.id));
    match tenant {
        _ if finding.problems.iter().any(|problem| problem.contains("newer version")) => "nothing is damaged".to_owned(),
        Some(tenant) => {
            format!("if it is damaged, keep a copy and restore it: tenantdesk restore DIR {} --force", tenant.name)
        }
        None if finding.database == registry::FILE => {
            "if it is damaged, stop the server, move the data directory away and restore everything: tenantdesk restore DIR"
                .to_owned()
        }
        None => "move it away if no tenant is missing".to_owned(),
    }
}

/// The size of a database with its WAL, in bytes.
fn size_of(database: &Path) -> u64 {
    let mut wal = database.as_os_str().to_owned();
    wal.push("-wal");
    [database, Path::new(&wal)]
        .iter()
        .filter_map(|path| fs::metadata(path).ok())
        .map(|metadata| metadata.len())
        .sum()
}
