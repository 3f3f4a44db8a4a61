//! Contract section 10: a command that fails, on a full disk for example, leaves no file behind but
//! an empty data directory.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::server::{Output, run};
use crate::support::{DataDir, tree};

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
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
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
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
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
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let rows: String = (0..2_000).map(|row| format!("Customer {row}\n")).collect();
    std::fs::write(data_dir.home().join("c.csv"), format!("name\n{rows}")).unwrap();
    data_dir.cli(&["import", "acme", "customers", "c.csv"]).done();
    assert_eq!(
        fails_cleanly(&data_dir, &[40], &["export", "acme", "customers", "--output", "out.csv"]),
        1
    );
}

#[test]
fn a_key_that_cannot_be_printed_exists_and_can_be_deleted() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
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
