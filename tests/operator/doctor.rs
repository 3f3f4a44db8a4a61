//! `tenantdesk doctor`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenantdesk::clock::Timestamp;

use crate::support::server::{DataDir, Output, run};
use crate::support::{ALL, TestServer, database};

/// The state of one check.
fn state(output: &Output, check: &str) -> String {
    let document = output.json();
    let checks = document["checks"].as_array().unwrap();
    let found = checks
        .iter()
        .find(|result| result["check"] == check)
        .unwrap_or_else(|| panic!("no {check}: {document}"));
    found["state"].as_str().unwrap().to_owned()
}

fn with_tenants() -> Arc<DataDir> {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    data_dir.tenant("umbrella");
    data_dir
}

#[test]
fn an_intact_data_directory_has_no_faults() {
    let server = TestServer::start();
    server.tenant("acme");
    let output = server.cli(&["--json", "doctor"]).done();
    assert_eq!(output.json()["ok"], Value::Bool(true), "{output:?}");
    for check in ["directory", "permissions", "databases", "keys"] {
        assert_eq!(state(&output, check), "ok", "{check}: {output:?}");
    }
    let idle = with_tenants();
    let text = idle.cli(&["doctor"]).done().stdout;
    assert!(text.contains("3 intact"), "{text}");
}

#[test]
fn damaged_databases_are_faults() {
    let data_dir = with_tenants();
    let file = data_dir.data().join("tenants/2.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let output = data_dir.cli(&["--json", "doctor"]).fails_saying("checks with a fault: 1");
    assert_eq!(state(&output, "permissions"), "fault");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    database(&file).pragma_update(None, "user_version", 99).unwrap();
    fs::remove_file(data_dir.data().join("tenants/1.db")).unwrap();
    let output = data_dir.cli(&["--json", "doctor"]).fails_saying("checks with a fault: 2");
    assert_eq!(state(&output, "tenants/1.db"), "fault");
    assert_eq!(state(&output, "tenants/2.db"), "fault");
    DataDir::new(false).cli(&["doctor"]).fails_saying("no data directory");
}

#[test]
fn access_by_others_is_a_warning_or_a_fault() {
    let data_dir = with_tenants();
    let doctor = || data_dir.cli(&["--json", "doctor"]);
    let set_mode = |path: &std::path::Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
    };
    assert_eq!(state(&doctor().done(), "permissions"), "ok");
    for directory in [data_dir.data(), data_dir.data().join("tenants")] {
        for mode in [0o755, 0o750] {
            set_mode(&directory, mode);
            let output = doctor().done();
            assert_eq!(
                state(&output, "permissions"),
                "warning",
                "{} {mode:o}",
                directory.display()
            );
            assert!(
                output.stdout.contains(&format!(
                    "{} is open to others (mode {mode:o})",
                    directory.display()
                ))
            );
            // Other commands do not change the mode.
            data_dir.cli(&["tenant", "list"]).done();
            assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, mode);
        }
        set_mode(&directory, 0o700);
    }
    for file in [data_dir.registry_file(), data_dir.data().join("tenants/1.db")] {
        set_mode(&file, 0o640);
        for suffix in ["-wal", "-shm"] {
            fs::remove_file(format!("{}{suffix}", file.display())).unwrap();
        }
        assert_eq!(state(&doctor().ends_with(1), "permissions"), "fault", "{}", file.display());
        // What a command makes beside the file is private.
        set_mode(&file, 0o600);
        assert_eq!(state(&doctor().done(), "permissions"), "ok");
    }
}

#[test]
fn a_file_that_its_owner_cannot_use_is_a_fault() {
    let data_dir = DataDir::for_two_users();
    data_dir.tenant("acme");
    let set_mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let (file, tenants) = (data_dir.data().join("tenants/1.db"), data_dir.data().join("tenants"));
    for (path, usual, modes) in [(&file, 0o600, [0o400, 0o000]), (&tenants, 0o700, [0o500, 0o000])]
    {
        for mode in modes {
            set_mode(path, mode);
            let output = data_dir.cli(&["--json", "doctor"]).ends_with(1);
            set_mode(path, usual);
            assert_eq!(state(&output, "permissions"), "fault");
            let expected = format!("{} is closed to its owner (mode {mode:o})", path.display());
            assert!(output.stdout.contains(&expected), "{output:?}");
        }
    }
    // A user who is not root cannot read the directory. The table is complete all the same.
    let mut command = data_dir.command();
    if chown(data_dir.data(), Some(64_999), None).is_err() {
        return;
    }
    for entry in fs::read_dir(data_dir.data()).unwrap().chain(fs::read_dir(&tenants).unwrap()) {
        chown(entry.unwrap().path(), Some(64_999), None).unwrap();
    }
    set_mode(&tenants, 0o000);
    command
        .uid(64_999)
        .gid(64_999)
        .arg("--data-dir")
        .arg(data_dir.data())
        .args(["--json", "doctor"]);
    let output = run(command, "").ends_with(1);
    assert_eq!(["permissions", "databases"].map(|check| state(&output, check)), ["fault"; 2]);
    assert!(!output.stdout.contains("os error"), "{output:?}");
}

#[test]
fn a_finding_says_effect_and_cure() {
    let data_dir = with_tenants();
    let (data, file) = (data_dir.data(), data_dir.data().join("tenants/2.db"));
    // The owner of the directory is right, also about a registry that root has put there.
    let cases: [(&[&Path], u32, &Path); 2] = [
        (&[&file], 0, &file),
        (&[&data, &file, &data.join("tenants")], 64_999, &data_dir.registry_file()),
    ];
    for (changed, owner, wrong) in cases {
        if changed.iter().all(|path| chown(path, Some(64_999), None).is_ok()) {
            let output = data_dir.cli(&["doctor"]).ends_with(1).stdout;
            let user = if owner == 0 { "root".to_owned() } else { owner.to_string() };
            let cure = format!("run: sudo chown -R {user}: {}", data.display());
            assert!(output.contains(&format!("{} belongs to ", wrong.display())), "{output}");
            let cures = output.matches(&cure).count();
            assert!(cures > 0 && cures == output.matches("chown").count(), "{output}");
        }
        for path in changed {
            let _ = chown(path, Some(0), None);
        }
    }
    // A file of an older version is not damaged.
    database(&file).pragma_update(None, "user_version", 4).unwrap();
    let output = data_dir.cli(&["doctor"]).ends_with(1).stdout;
    assert!(output.contains("1.0.0 serve the data directory once"), "{output}");
    assert!(!output.contains("damaged"), "{output}");
}

#[test]
fn a_missing_old_or_incomplete_backup_is_a_fault() {
    let data_dir = with_tenants();
    let dir = data_dir.home().join("backups");
    let doctor = || data_dir.cli(&["--json", "doctor", "--backups", dir.to_str().unwrap()]);
    assert_eq!(state(&doctor().ends_with(1), "backup"), "fault");
    let directory = dir.join("2026-11-20T19-30-00Z");
    fs::create_dir_all(&directory).unwrap();
    assert_eq!(state(&doctor().ends_with(1), "backup"), "fault", "a directory without a manifest");
    let write = |created_at: Timestamp, left_out: Value| {
        let manifest = json!({"format": 1, "tenantdesk": "0.1.0", "created_at": created_at, "kind": "all", "tenants": [], "left_out": left_out, "files": []});
        fs::write(directory.join("manifest.json"), manifest.to_string()).unwrap();
    };
    let now = tenantdesk::clock::Clock::system().now().timestamp();
    fs::write(directory.join("manifest.json"), "{\"format\": 1").unwrap();
    let output = doctor().ends_with(1);
    assert!(output.stdout.contains("manifest.json: it is damaged; use another"), "{output:?}");
    write(now, json!([]));
    assert_eq!(state(&doctor().done(), "backup"), "warning", "on the disk of the data");
    write(now, json!([{"id": 1, "name": "torn", "reason": "it is damaged"}]));
    assert_eq!(state(&doctor().ends_with(1), "backup"), "fault", "a tenant is left out");
    write(now.before(Duration::from_hours(3 * 24)), json!([]));
    assert_eq!(state(&doctor().ends_with(1), "backup"), "fault", "three days old");
    let arguments = ["doctor", "--backup-age", "4", "--backups", dir.to_str().unwrap()];
    data_dir.cli(&arguments).done();
}

#[test]
fn a_byte_of_the_newest_backup_that_changed_is_a_fault() {
    let data_dir = with_tenants();
    let made = data_dir.cli_json(&["backup", "backups"]);
    data_dir.cli(&["doctor", "--backups", "backups"]).done();
    let file = data_dir.home().join(made["folder"].as_str().unwrap()).join("tenants/1.db");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let output = data_dir.cli(&["doctor", "--backups", "backups"]).ends_with(1).stdout;
    assert!(output.contains("tenants/1.db: its length or SHA-256 is not that"), "{output}");
}

#[test]
fn keys_that_end_within_14_days_are_a_warning() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    tenant.key(ALL);
    tenant.key_with(ALL, &["--expires", "15d"]);
    assert_eq!(state(&data_dir.cli(&["--json", "doctor"]).done(), "keys"), "ok");
    let soon = tenant.key_with(ALL, &["--expires", "13d"]);
    let output = data_dir.cli(&["--json", "doctor"]).done();
    assert_eq!(state(&output, "keys"), "warning");
    let named = format!("key {} of acme", soon.id);
    assert!(
        output.stdout.contains(&named) && output.stdout.matches(" of acme").count() == 1,
        "{output:?}"
    );
    tenant.key_command("revoke", &soon);
    assert_eq!(state(&data_dir.cli(&["--json", "doctor"]).done(), "keys"), "ok");
    // Somebody has replaced this key already.
    let replaced = tenant.key(ALL);
    data_dir.cli(&["key", "replace", "acme", &replaced.id.to_string(), "--overlap", "7d"]).done();
    assert_eq!(state(&data_dir.cli(&["--json", "doctor"]).done(), "keys"), "ok");
}
