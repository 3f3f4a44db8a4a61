//! Contract section 10: a command that fails, on a full disk for example, leaves no file behind but
//! an empty data directory.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::server::{Output, run};
use crate::support::{DataDir, database, tree};

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

/// Every file in the home of the data directory, and every directory except the targets of backups
/// and manual pages. The log and the index of an existing database are left out. A data directory
/// without tenants does not count.
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
    // The first of two is no use to anybody: its secrets were not shown.
    let registry = database(&data_dir.registry_file());
    registry.execute_batch("CREATE TRIGGER fault BEFORE INSERT ON tenants WHEN NEW.name = 'two' BEGIN SELECT raise(ABORT, 'fault'); END").unwrap();
    let before = left_by(&data_dir);
    data_dir.cli(&serve).fails_saying("fault");
    assert_eq!(left_by(&data_dir), before);
    assert_eq!(data_dir.cli_json(&["tenant", "list"]).as_array().unwrap().len(), 1);
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
fn an_export_and_manual_pages_that_fail_leave_no_file() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let rows: String = (0..2_000).map(|row| format!("Customer {row}\n")).collect();
    std::fs::write(data_dir.home().join("c.csv"), format!("name\n{rows}")).unwrap();
    data_dir.cli(&["import", "acme", "customers", "c.csv"]).done();
    assert_eq!(
        fails_cleanly(&data_dir, &[40], &["export", "acme", "customers", "--output", "out.csv"]),
        1
    );
    assert_eq!(fails_cleanly(&data_dir, &[1], &["manual", "--output", "new/man"]), 1);
    std::fs::create_dir(data_dir.home().join("man")).unwrap();
    std::fs::write(data_dir.home().join("man/other.1"), "not ours").unwrap();
    assert_eq!(fails_cleanly(&data_dir, &[1], &["manual", "--output", "man"]), 1);
}

#[test]
fn secrets_that_cannot_be_printed_are_taken_back() {
    let data_dir = DataDir::new(false);
    let unprinted = |arguments: &[&str]| {
        let mut command = data_dir.command();
        command.arg("--data-dir").arg(data_dir.data()).args(arguments);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = command.stdout(full).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    };
    unprinted(&["tenant", "create", "acme"]);
    unprinted(&["serve", "--listen", "127.0.0.1:0", "--create-tenant", "acme"]);
    assert_eq!(left_by(&data_dir), [] as [PathBuf; 0]);
    data_dir.tenant("acme");
    unprinted(&["key", "create", "acme", "--name", "x", "--scope", "all"]);
    unprinted(&["tenant", "create", "other"]);
    unprinted(&["serve", "--listen", "127.0.0.1:0", "--create-tenant", "other"]);
    assert_eq!(data_dir.cli_json(&["key", "list", "acme"]), json!([]));
    assert_eq!(data_dir.cli_json(&["tenant", "list"]).as_array().unwrap().len(), 1);
    let create = ["key", "create", "acme", "--name", "x", "--scope", "all"];
    let key =
        data_dir.cli_json(&[&create[..], &["--expires", "2999-06-30"]].concat())["id"].to_string();
    let secrets = || {
        let sql = "SELECT password_hash FROM tenants";
        let registry = database(&data_dir.registry_file());
        let password: String = registry.query_row(sql, [], |row| row.get(0)).unwrap();
        (data_dir.cli_json(&["key", "list", "acme"]), password)
    };
    let before = secrets();
    unprinted(&["key", "replace", "acme", &key]);
    unprinted(&["key", "replace", "acme", &key, "--overlap", "0"]);
    unprinted(&["tenant", "password", "acme", "--generate"]);
    assert_eq!(secrets(), before);
    data_dir.cli(&["check"]).done();
}
