//! Contract section 11: files, their modes, their versions, and the end of the process. Section 10: a
//! command is refused unless its user owns the data directory, and a command that fails leaves no file
//! behind but an empty data directory.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::json;

use crate::support::server::{Output, run};
use crate::support::{ALL, DataDir, TestServer, database, tree, until};

const RECORDS: &str = "/customers.php";

#[test]
fn files_and_directories_are_private_to_the_owner() {
    let (server, tenant) = TestServer::with_tenant();
    let api = tenant.with_scopes(ALL);
    api.customer("Private");
    let paths = [tree(&server.data()), vec![server.data()]].concat();
    assert!(paths.contains(&server.registry_file()) && paths.contains(&tenant.file()));
    assert!(paths.contains(&tenant.files()[1]), "the write-ahead log exists and is checked, too");
    for path in paths {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[test]
fn a_tenants_file_of_a_newer_schema_makes_that_tenant_unavailable() {
    let server = TestServer::start();
    let (newer, other) = (server.tenant("newer"), server.tenant("other"));
    let (api, others) = (newer.with_scopes(ALL), other.with_scopes(ALL));
    let version: u32 =
        database(&newer.file()).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    database(&newer.file()).pragma_update(None, "user_version", 99).unwrap();
    api.get(RECORDS).fails_with(503, "tenant_unavailable");
    others.get(RECORDS).is(200);
    until("the log reports the newer schema", || server.log().contains("newer").then_some(()));
    let report = server.cli(&["--json", "check"]).ends_with(1).json();
    let faults = report.as_array().unwrap().iter().filter(|row| row["ok"] == false);
    assert_eq!(faults.count(), 1, "{report}");
    database(&newer.file()).pragma_update(None, "user_version", version).unwrap();
    until("the tenant is served again", || (api.get(RECORDS).status == 200).then_some(()));
}

#[test]
fn a_registry_that_cannot_be_used_ends_every_command() {
    for why in ["newer", "no database", "is empty", "is missing"] {
        let data_dir = DataDir::acme();
        let file = data_dir.registry_file();
        match why {
            "newer" => database(&file).pragma_update(None, "user_version", 99).unwrap(),
            "no database" => fs::write(file, "garbage ".repeat(1_000)).unwrap(),
            "is empty" => fs::write(file, "").unwrap(),
            _ => fs::remove_file(file).unwrap(),
        }
        for command in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["tenant", "list"],
            &["tenant", "create", "other"],
            &["export", "acme", "customers"],
            &["check"],
        ] {
            let output = data_dir.cli(command).ends_with(1);
            let said = output.stdout + &output.stderr;
            assert!(said.contains(why) && !said.contains("panicked"), "{command:?}: {said}");
        }
        assert!(data_dir.data().join("tenants/1.db").exists());
    }
}

#[test]
fn a_signal_ends_a_server_that_waits_for_a_command() {
    let data_dir = DataDir::acme();
    let in_use = File::open(data_dir.data()).unwrap();
    in_use.lock_shared().unwrap();
    for signal in ["TERM", "INT"] {
        let serve = data_dir.command();
        // As a script that starts it in the background.
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' INT; exec \"$@\"", "sh"]).arg(serve.get_program());
        shell.arg("--data-dir").arg(data_dir.data());
        data_dir.as_its_user(&mut shell);
        shell.args(["serve", "--listen", "127.0.0.1:0"]);
        let mut serve = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(serve.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("waiting for the commands")));
        crate::support::signal(serve.id(), signal);
        until("the server ends", || serve.try_wait().unwrap());
    }
    data_dir.cli(&["check"]).done();
}

/// A user without a name.
const STRANGER: u32 = 64_999;

/// Runs a command as root, or as another user.
fn run_as(data_dir: &DataDir, user: u32, arguments: &[&str]) -> Output {
    let mut command = data_dir.command();
    command.uid(user).gid(user).arg("--data-dir").arg(data_dir.data()).args(arguments);
    run(command, "")
}

/// Each path below `directory`, with its owner and length.
fn state(directory: &Path) -> Vec<(PathBuf, u32, u64)> {
    let describe = |path: PathBuf| {
        let metadata = fs::symlink_metadata(&path).unwrap();
        (path, metadata.uid(), metadata.len())
    };
    tree(directory).into_iter().map(describe).collect()
}

/// A data directory of root with the tenant `acme`, and a backup. Other users may look at both.
fn with_backup() -> (Arc<DataDir>, PathBuf) {
    let data_dir = DataDir::for_two_users();
    data_dir.tenant("acme");
    let backups = data_dir.home().join("backups");
    data_dir.cli(&["backup", backups.to_str().unwrap()]).done();
    (data_dir, backups)
}

#[test]
#[ignore = "needs root; `make proof` runs it"]
fn proof_a_command_of_another_user_changes_nothing_and_says_what_to_run() {
    let (data_dir, backups) = with_backup();
    let backups = backups.to_str().unwrap();
    let commands: [&[&str]; 13] = [
        &["serve", "--listen", "127.0.0.1:0"],
        &["tenant", "create", "beta"],
        &["tenant", "list"],
        &["tenant", "delete", "acme", "--yes"],
        &["key", "create", "acme", "--name", "x", "--scope", "all"],
        &["import", "acme", "customers", "c.csv"],
        &["export", "acme", "customers"],
        &["changes", "acme"],
        &["backup", backups],
        &["restore", backups],
        &["restore", backups, "acme", "--force"],
        &["check"],
        &["doctor"],
    ];
    let before = state(data_dir.home());
    for arguments in commands {
        let said = "belongs to root; run: sudo -u root tenantdesk …";
        run_as(&data_dir, STRANGER, arguments).fails_saying(said);
    }
    assert_eq!(state(data_dir.home()), before);
    // Root is another user, too.
    for path in tree(&data_dir.data()).into_iter().chain([data_dir.data()]) {
        chown(path, Some(STRANGER), None).unwrap();
    }
    let before = state(data_dir.home());
    for arguments in commands {
        data_dir.cli(arguments).fails_saying("belongs to 64999; run: ");
    }
    assert_eq!(state(data_dir.home()), before);
}

/// `cp` as root has put a registry into the directory of the service.
#[test]
#[ignore = "needs root; `make proof` runs it"]
fn proof_a_registry_of_root_in_a_directory_of_the_service_is_given_back() {
    let (data_dir, _) = with_backup();
    chown(data_dir.data(), Some(STRANGER), Some(STRANGER)).unwrap();
    let advice = format!(
        "registry.db belongs to root; run: sudo chown -R {STRANGER}: {}",
        data_dir.data().display()
    );
    run_as(&data_dir, STRANGER, &["tenant", "list"]).fails_saying(&advice);
}

/// Kubernetes mounts a volume that belongs to root, and lets the service in by its group.
#[test]
#[ignore = "needs root; `make proof` runs it"]
fn proof_a_volume_of_root_and_the_services_group_is_used() {
    let (_data_dir, backups) = with_backup();
    let backups = backups.to_str().unwrap();
    let volume = || {
        let volume = DataDir::for_two_users();
        fs::create_dir_all(volume.data().join("lost+found")).unwrap();
        chown(volume.data(), None, Some(STRANGER)).unwrap();
        fs::set_permissions(volume.data(), Permissions::from_mode(0o2770)).unwrap();
        volume
    };
    // Root may restore into it, too, if the service runs as root.
    let of_root = volume();
    of_root.cli(&["restore", backups]).done();
    of_root.cli(&["doctor"]).done();
    let output = run_as(&volume(), STRANGER, &["restore", backups]);
    output.fails_saying(&format!("; run: sudo chown -R {STRANGER}: {backups}"));
    for entry in tree(Path::new(backups)) {
        chown(entry, Some(STRANGER), None).unwrap();
    }
    chown(backups, Some(STRANGER), None).unwrap();
    for tenant in [None, Some("acme")] {
        let volume = volume();
        let arguments: Vec<&str> = ["restore", backups].into_iter().chain(tenant).collect();
        run_as(&volume, STRANGER, &arguments).done();
        // Kubernetes gives the group access to all files when it mounts the volume again.
        for file in tree(&volume.data()).into_iter().filter(|path| path.is_file()) {
            fs::set_permissions(file, Permissions::from_mode(0o660)).unwrap();
        }
        let output = run_as(&volume, STRANGER, &["doctor"]).done();
        assert!(output.stdout.contains("private to 64999"), "{output:?}");
        let serve = ["serve", "--listen", "192.0.2.1:80"];
        run_as(&volume, STRANGER, &serve).fails_saying("192.0.2.1:80");
        // Root's files would lock the service out.
        volume.cli(&["tenant", "create", "beta"]).fails_saying("belongs to 64999");
    }
}

/// Runs a command that cannot write a file beyond `kibibytes`, which to SQLite is like a full disk.
#[track_caller]
fn limited(data_dir: &DataDir, kibibytes: u64, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    data_dir.as_its_user(&mut command);
    command.arg("-c").arg(format!("ulimit -f {} && exec \"$@\"", kibibytes * 2)).arg("sh");
    command
        .arg(data_dir.command().get_program())
        .arg("--data-dir")
        .arg(data_dir.data())
        .args(arguments);
    run(command, "")
}

/// Every file in the home of the data directory, and every directory except the targets of backups.
/// The log and the index of an existing database are left out. A data directory without tenants does
/// not count.
fn left_by(data_dir: &DataDir) -> Vec<PathBuf> {
    let all = tree(data_dir.home());
    let mut found = all.clone();
    found.retain(|path| {
        let name = path.to_str().unwrap();
        let database = name.strip_suffix("-wal").or_else(|| name.strip_suffix("-shm"));
        !database.is_some_and(|database| all.contains(&PathBuf::from(database)))
    });
    found.retain(|path| !path.starts_with(data_dir.home().join("new")) || path.is_file());
    let data = data_dir.data();
    let of_empty = [data.clone(), data.join("tenants"), data_dir.registry_file()];
    found.retain(|path| !of_empty.contains(path));
    found
}

/// Runs a command with every limit; returns how often it failed. It must have left nothing each
/// time.
#[track_caller]
fn fails_cleanly(data_dir: &DataDir, limits: &[u64], arguments: &[&str]) -> usize {
    let mut failures = 0;
    for limit in limits {
        let before = left_by(data_dir);
        let output = limited(data_dir, *limit, arguments);
        if output.code == Some(0) {
            return failures;
        }
        output.fails_saying("");
        failures += 1;
        assert_eq!(left_by(data_dir), before, "{arguments:?} with {limit} KiB");
    }
    failures
}

/// KiB. A registry and a tenant's file are larger than the first and smaller than the last of
/// these.
const LIMITS: [u64; 5] = [1, 40, 100, 200, 320];

#[test]
fn a_tenant_that_cannot_be_made_leaves_no_file() {
    let fresh = DataDir::new(false);
    assert!(fails_cleanly(&fresh, &LIMITS, &["tenant", "create", "acme"]) > 2);
    let data_dir = DataDir::acme();
    assert!(fails_cleanly(&data_dir, &LIMITS, &["tenant", "create", "other"]) > 2);
    data_dir.cli(&["check"]).done();
    assert_eq!(data_dir.cli_json(&["tenant", "list"]).as_array().unwrap().len(), 2);
}

#[test]
fn a_server_that_cannot_make_its_tenants_leaves_no_file() {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--create-tenant", "one,two"];
    let (fresh, data_dir) = (DataDir::new(false), DataDir::new(false));
    data_dir.tenant("acme");
    let size = std::fs::metadata(data_dir.data().join("tenants/1.db")).unwrap().len() / 1024;
    for limit in [8, 70, size / 2, size - 8] {
        assert_eq!(fails_cleanly(&fresh, &[limit], &serve), 1);
        assert_eq!(fails_cleanly(&data_dir, &[limit], &serve), 1);
    }
    data_dir.cli(&["check"]).done();
}

#[test]
fn a_backup_and_a_restore_that_fail_leave_no_file() {
    let data_dir = DataDir::acme();
    assert!(fails_cleanly(&data_dir, &LIMITS, &["backup", "new/backups"]) > 2);
    data_dir.cli(&["backup", "backups"]).done();
    assert!(fails_cleanly(&data_dir, &LIMITS, &["backup", "backups"]) > 2);
    let other = DataDir::new(false);
    let backups = data_dir.home().join("backups");
    assert!(fails_cleanly(&other, &LIMITS, &["restore", backups.to_str().unwrap()]) > 2);
    let one = DataDir::new(false);
    assert!(fails_cleanly(&one, &LIMITS, &["restore", backups.to_str().unwrap(), "acme"]) > 2);
}

#[test]
fn an_export_that_fails_leaves_no_file() {
    let data_dir = DataDir::acme();
    let rows: String = (0..2_000).map(|row| format!("Customer {row}\n")).collect();
    std::fs::write(data_dir.home().join("c.csv"), format!("name\n{rows}")).unwrap();
    data_dir.cli(&["import", "acme", "customers", "c.csv"]).done();
    let workbook = ["export", "acme", "customers", "--output", "out.xlsx"];
    limited(&data_dir, 40, &workbook).fails_saying("probably because the disk");
    for export in [["export", "acme", "customers", "--output", "out.csv"], workbook] {
        assert_eq!(fails_cleanly(&data_dir, &[40], &export), 1, "{export:?}");
    }
}

#[test]
fn a_key_that_cannot_be_printed_exists_and_can_be_deleted() {
    let data_dir = DataDir::acme();
    let mut command = data_dir.command();
    command.arg("--data-dir").arg(data_dir.data());
    command.args(["key", "create", "acme", "--name", "x", "--scope", "all"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = command.stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let keys = data_dir.cli_json(&["key", "list", "acme"]);
    data_dir.cli(&["key", "delete", "acme", &keys[0]["id"].to_string()]).done();
    assert_eq!(data_dir.cli_json(&["key", "list", "acme"]), json!([]));
}
