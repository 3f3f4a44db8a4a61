//! `doctor` finds what an operator has to act on. `check` examines integrity, foreign keys and
//! schema version of every database.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use indicatif::HumanBytes;
use rustix::fs::statfs;
use rustix::process::geteuid;
use serde::Serialize;
use serde_json::{Value, json};

use super::options::GlobalOptions;
use crate::clock::{Clock, Moment};
use crate::config::whole;
use crate::files::{free_space, user_name};
use crate::store::backup::check::{self, Finding};
use crate::store::backup::{self, BackupKind, Manifest};
use crate::store::registry::{Inactive, KeyState, Registry};
use crate::store::{StoreCode, StoreError, tenants_dir};
use crate::words::count;

#[derive(Debug, Args)]
pub(super) struct DoctorArguments {
    /// The directory of backups; the newest must be complete, recent and undamaged
    #[arg(long, env = "TENANTDESK_BACKUPS", value_name = "DIR")]
    backups: Option<PathBuf>,
    /// The maximum age of the newest backup
    #[arg(long, default_value = "2", value_name = "DAYS", value_parser = days)]
    backup_age: u16,
}

fn days(text: &str) -> Result<u16, &'static str> {
    whole(text).ok_or("not a number of days from 0 to 65535, such as 2")
}

/// The free space from which on there is no warning.
const ENOUGH_SPACE: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Ok,
    /// Works, but may fail later.
    Warning,
    /// Does not work. The exit code is 1.
    Fault,
}

/// One check and its result.
#[derive(Debug, Serialize)]
struct Diagnosis {
    check: String,
    state: Severity,
    message: String,
}

impl Diagnosis {
    fn new(check: &str, state: Severity, message: impl Into<String>) -> Diagnosis {
        Diagnosis { check: check.to_owned(), state, message: message.into() }
    }
}

pub(super) fn run(
    options: &GlobalOptions,
    arguments: &DoctorArguments,
    unknown_variables: &[String],
) -> anyhow::Result<()> {
    let data_dir = &options.data_dir;
    let databases = match check::check(data_dir) {
        Ok(findings) => check_databases(&findings),
        Err(error) if matches!(error.code, StoreCode::Missing | StoreCode::OtherOwner) => {
            return Err(options.explain(error));
        }
        // The other checks may say why.
        Err(error) => vec![Diagnosis::new("databases", Severity::Fault, error.to_string())],
    };
    let now = Clock::system().now();
    let mut checks =
        vec![check_file_system(data_dir), check_free_space(data_dir), check_permissions(data_dir)];
    if !unknown_variables.is_empty() {
        let names = unknown_variables.join(", ");
        let message = format!("no option has the variable {names}; correct its name");
        checks.push(Diagnosis::new("settings", Severity::Warning, message));
    }
    checks.extend(databases);
    // The check of the databases has reported a registry that cannot be opened.
    let registry = options.open_registry().ok();
    checks.extend(registry.as_ref().map(|registry| check_keys(registry, now)));
    checks.extend(registry.as_ref().and_then(check_moves));
    checks.push(check_backup(data_dir, arguments, registry.as_ref(), now));
    let faults = checks.iter().filter(|check| check.state == Severity::Fault).count();
    let documents = json!(checks);
    if options.json {
        options.report(&json!({"ok": faults == 0, "checks": documents}), "")?;
    } else {
        options.list(&documents, &["check", "state", "message"])?;
    }
    ensure!(faults == 0, "checks with a fault: {faults}");
    Ok(())
}

/// Checks whether SQLite's locks and WAL are reliable on the file system.
fn check_file_system(data_dir: &Path) -> Diagnosis {
    // NFS, CIFS, SMB 2, 9p, CephFS: the numbers of statfs(2).
    const NETWORK: [i64; 5] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400];
    const TMPFS: i64 = 0x0102_1994;
    const FUSE: i64 = 0x6573_5546;
    #[expect(clippy::unnecessary_cast, reason = "the field's width differs between targets")]
    let kind = statfs(data_dir).map(|info| info.f_type as i64).unwrap_or_default();
    let (state, message) = match kind {
        TMPFS => (Severity::Warning, "in memory: all data are lost when the machine stops"),
        FUSE => (Severity::Warning, "on FUSE: a sync may not reach the disk; use a local disk"),
        _ if NETWORK.contains(&kind) => (
            Severity::Fault,
            "on a network file system, where SQLite's locks are unreliable; use a local disk",
        ),
        _ => (Severity::Ok, "on a local file system"),
    };
    Diagnosis::new("directory", state, format!("{} {message}", data_dir.display()))
}

fn check_free_space(data_dir: &Path) -> Diagnosis {
    let (state, message) = match free_space(data_dir) {
        Ok((_, Some(warning))) => (Severity::Fault, format!("{warning}; free some space")),
        Ok((free @ 0..ENOUGH_SPACE, None)) => {
            let free = HumanBytes(free);
            (
                Severity::Warning,
                format!("{free}; below 256 MiB writes are refused: free some space"),
            )
        }
        Ok((free, None)) => (Severity::Ok, HumanBytes(free).to_string()),
        Err(error) => (Severity::Fault, error.to_string()),
    };
    Diagnosis::new("free space", state, message)
}

/// Only this user may read and write the directories and databases. A directory that others can enter
/// is a warning, because the owner may have set its mode. The program itself makes none.
fn check_permissions(data_dir: &Path) -> Diagnosis {
    let user = geteuid().as_raw();
    // The group of a container's volume may be given access to each file in it.
    let is_volume = fs::metadata(data_dir).is_ok_and(|found| found.uid() != user);
    let (strangers, others) = if is_volume { (0o007, "o") } else { (0o077, "go") };
    let (mut state, mut wrong) = (Severity::Ok, Vec::new());
    for path in files_of_databases(data_dir) {
        // SQLite may have removed it meanwhile.
        let Ok(found) = fs::metadata(&path) else { continue };
        let (mode, owner) = (found.mode() & 0o777, found.uid());
        let needed = if found.is_dir() { 0o700 } else { 0o600 };
        let is_mount = is_volume && path == data_dir;
        let is_usable = is_mount || (owner == user && mode & needed == needed);
        if is_usable && mode & strangers == 0 {
            continue;
        }
        let is_warning = is_usable && found.is_dir();
        state = state.max(if is_warning { Severity::Warning } else { Severity::Fault });
        wrong.push(format!("{} (mode {mode:o}, of {})", path.display(), user_name(owner)));
    }
    let (user, dir) = (user_name(user), data_dir.display());
    let message = match wrong.first() {
        None => format!("private to {user}"),
        Some(first) => format!(
            "{first} is not private to {user} ({}); run: sudo chown -R {user}: {dir} && sudo chmod \
             -R u=rwX,{others}= {dir}",
            count(wrong.len() as u64, "such file")
        ),
    };
    Diagnosis::new("permissions", state, message)
}

/// The data directory, its databases, and what SQLite keeps beside them. A directory that cannot be
/// read is in the list, and its content is not.
fn files_of_databases(data_dir: &Path) -> Vec<PathBuf> {
    let directories = [data_dir.to_owned(), tenants_dir(data_dir)];
    let entries = directories.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten();
    let mut found = entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>();
    found.retain(|path| {
        let name = path.to_string_lossy();
        [".db", "-wal", "-shm"].iter().any(|end| name.ends_with(end))
    });
    found.sort();
    [directories.to_vec(), found].concat()
}

/// One check for each database with a problem, and one for all others together.
fn check_databases(findings: &[Finding]) -> Vec<Diagnosis> {
    let (mut checks, mut intact) = (Vec::new(), 0);
    for Finding { database, problems, unexamined, is_orphan, warnings } in findings {
        for warning in warnings {
            checks.push(Diagnosis::new(database, Severity::Warning, warning));
        }
        if *is_orphan {
            let message = format!("{ORPHAN}; move it away if no tenant is missing");
            checks.push(Diagnosis::new(database, Severity::Warning, message));
        } else if let Some(cause) = unexamined {
            checks.push(Diagnosis::new(database, Severity::Warning, cause));
        } else if problems.is_empty() {
            intact += 1;
        } else {
            checks.push(Diagnosis::new(database, Severity::Fault, summary(problems)));
        }
    }
    if intact > 0 {
        checks.push(Diagnosis::new("databases", Severity::Ok, format!("{intact} intact")));
    }
    checks
}

/// Warns of keys that end within 14 days: somebody may have to replace them. A key that was replaced
/// has a newer one of its name, which ends later.
fn check_keys(registry: &Registry, now: Moment) -> Diagnosis {
    let (state, message) = match ending_keys(registry, now) {
        Ok(ending) if ending.is_empty() => (Severity::Ok, "none ends within 14 days".to_owned()),
        Ok(ending) => (Severity::Warning, format!("end within 14 days: {}", ending.join(", "))),
        Err(error) => (Severity::Fault, error.to_string()),
    };
    Diagnosis::new("keys", state, message)
}

/// Warns of tenants that move: one whose move was given up would wait for ever.
fn check_moves(registry: &Registry) -> Option<Diagnosis> {
    let tenants = registry.list_tenants().ok()?.into_iter().map(|(tenant, _)| tenant);
    let moving = tenants.filter(|tenant| tenant.suspension == Some(Inactive::Moving));
    let names: Vec<String> = moving.map(|tenant| tenant.name).collect();
    let message = format!(
        "moving, so their clients get 503: {}; end the move, or give it up with \"tenant activate\"",
        names.join(", ")
    );
    (!names.is_empty()).then(|| Diagnosis::new("tenants", Severity::Warning, message))
}

fn ending_keys(registry: &Registry, now: Moment) -> Result<Vec<String>, StoreError> {
    let mut ending = Vec::new();
    for (tenant, _) in registry.list_tenants()? {
        let mut keys = registry.list_keys(tenant.id)?;
        keys.retain(|key| key.state(now) == KeyState::Active);
        for key in &keys {
            let Some(end) = key.near_end(now) else { continue };
            let is_replaced = keys.iter().any(|newer| {
                newer.id > key.id
                    && newer.name == key.name
                    && newer.expires_at.is_none_or(|later| later > end)
            });
            if !is_replaced {
                ending.push(format!("key {} of {} at {end}", key.id, tenant.name));
            }
        }
    }
    Ok(ending)
}

/// Checks the newest backup of all tenants: it is a fault if it is too old, damaged, lacks a tenant,
/// or has none although an older one has. So is any backup that is dated after now. If a backup has
/// tenants and the registry has none, the data directory was lost.
fn check_backup(
    data_dir: &Path,
    arguments: &DoctorArguments,
    registry: Option<&Registry>,
    now: Moment,
) -> Diagnosis {
    let check = |state, message: String| Diagnosis::new("backup", state, message);
    let Some(dir) = &arguments.backups else {
        let message = "not checked; name the directory of backups with --backups DIR";
        return check(Severity::Warning, message.to_owned());
    };
    let backups = match backup::list(dir) {
        Ok(backups) => backups,
        Err(error) => return check(Severity::Fault, error.to_string()),
    };
    if let Some(message) = find_ahead(&backups, now) {
        return check(Severity::Fault, message);
    }
    let mut backups = backups.into_iter().filter(|(_, manifest)| manifest.kind == BackupKind::All);
    let Some((directory, manifest)) = backups.next() else {
        let message = format!("{} contains no backup of all tenants", dir.display());
        return check(Severity::Fault, message);
    };
    if let Err(error) = manifest.verify(&directory) {
        return check(Severity::Fault, format!("{error}; make another backup"));
    }
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let is_on_same_disk = device(&directory) == device(data_dir);
    let directory = directory.display();
    if let Some(tenant) = manifest.left_out.first() {
        let message = format!("{directory} lacks the tenant {} ({})", tenant.name, tenant.reason);
        return check(Severity::Fault, message);
    }
    let has_tenants = |manifest: &Manifest| !manifest.tenants.is_empty();
    if manifest.tenants.is_empty()
        && let Some((older, _)) = backups.find(|(_, manifest)| has_tenants(manifest))
    {
        let message = format!(
            "{directory} has no tenants, and {} has; if the data directory was lost, restore that",
            older.display()
        );
        return check(Severity::Fault, message);
    }
    let is_empty = |registry: &Registry| registry.list_tenants().is_ok_and(|all| all.is_empty());
    if has_tenants(&manifest) && registry.is_some_and(is_empty) {
        let message = format!(
            "the data directory has no tenants, and {directory} has; if the data directory was \
             lost, restore that"
        );
        return check(Severity::Fault, message);
    }
    let hours = (now.unix_seconds() - manifest.created_at.unix()) / 3600;
    let is_old = hours > i64::from(arguments.backup_age) * 24;
    let age = format!("{directory} is {hours} hours old");
    match (is_old, is_on_same_disk) {
        (true, _) => check(Severity::Fault, age),
        (false, true) => {
            check(Severity::Warning, age + ", on the disk of the data; copy it to another disk")
        }
        (false, false) => check(Severity::Ok, age),
    }
}

fn find_ahead(backups: &[(PathBuf, Manifest)], now: Moment) -> Option<String> {
    let (directory, manifest) = backups.iter().find(|(_, manifest)| manifest.is_ahead(now))?;
    Some(format!(
        "{} is dated {}, after now, because a clock was wrong, or is; correct the clock, or move \
         this backup away: restore takes it only by its own path, and --keep leaves it",
        directory.display(),
        manifest.created_at
    ))
}

/// The message about a file without a tenant. The file is no fault.
const ORPHAN: &str = "no tenant in the registry has this file; it is left as it is";

pub(super) fn run_check(options: &GlobalOptions) -> anyhow::Result<()> {
    let findings = check::check(&options.data_dir).map_err(|error| options.explain(error))?;
    let documents: Vec<Value> =
        findings.iter().map(|finding| finding_document(finding, options.json)).collect();
    options.list(&documents.into(), &["database", "ok", "problems"])?;
    let faulty = findings.iter().filter(|finding| !is_intact(finding)).count();
    ensure!(
        faulty == 0,
        "{faulty} of {} databases have faults or are not examined",
        findings.len()
    );
    Ok(())
}

fn is_intact(finding: &Finding) -> bool {
    finding.problems.is_empty() && finding.unexamined.is_none()
}

fn finding_document(finding: &Finding, is_whole: bool) -> Value {
    let orphan = finding.is_orphan.then(|| ORPHAN.to_owned());
    let others = finding.unexamined.iter().cloned().chain(orphan);
    let mut problems: Vec<String> = finding.problems.iter().cloned().chain(others).collect();
    if !is_whole && problems.len() > 1 {
        problems = vec![summary(&problems)];
    }
    json!({"database": finding.database, "ok": is_intact(finding), "problems": problems})
}

/// The first problem, and the number of the others.
fn summary(problems: &[String]) -> String {
    match problems {
        [] => String::new(),
        [only] => only.clone(),
        [first, others @ ..] => {
            format!("{first} (and {} more; \"check --json\" has them)", others.len())
        }
    }
}
