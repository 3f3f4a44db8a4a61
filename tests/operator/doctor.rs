//! `tenantdesk doctor`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenantdesk::clock::Timestamp;

use crate::support::server::Output;
use crate::support::{ALL, DataDir, TestServer, database};

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
    let data_dir = DataDir::acme();
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

/// Damages the pages of a database that have this text.
fn damage(file: &Path, text: &str) {
    database(file).pragma_update(None, "wal_checkpoint", "TRUNCATE").unwrap();
    let mut content = fs::read(file).unwrap();
    let pages = content.chunks_mut(4096);
    let has_text = |page: &[u8]| page.windows(text.len()).any(|part| part == text.as_bytes());
    let found: Vec<&mut [u8]> = pages.filter(|page| has_text(page)).collect();
    assert!(!found.is_empty());
    found.into_iter().for_each(|page| page.fill(0xff));
    fs::write(file, content).unwrap();
}

#[test]
fn a_service_does_not_start_if_its_registry_answers_no_request() {
    for part in ["a key", "a tenant"] {
        let data_dir = with_tenants();
        let key = data_dir.tenant("third").key(ALL).key;
        damage(&data_dir.registry_file(), if part == "a key" { &key[..8] } else { "$argon2id" });
        let serve = ["serve", "--listen", "127.0.0.1:0"];
        data_dir.cli(&serve).fails_saying("registry.db is damaged or no database");
        if part == "a tenant" {
            data_dir.cli(&["tenant", "list"]).fails_saying("registry.db is damaged");
        }
        let output = data_dir.cli(&["--json", "doctor"]).ends_with(1);
        assert_eq!(state(&output, "registry.db"), "fault", "{part}: {output:?}");
    }
}

#[test]
fn a_database_without_room_for_its_copy_is_not_examined() {
    let data_dir = with_tenants();
    let file = fs::OpenOptions::new().write(true).open(data_dir.data().join("tenants/2.db"));
    file.unwrap().set_len(1 << 43).unwrap();
    let output = data_dir.cli(&["--json", "doctor"]).done();
    assert_eq!(state(&output, "tenants/2.db"), "warning", "{output:?}");
    let output = data_dir.cli(&["check"]);
    let output = output.fails_saying("1 of 3 databases have faults or are not examined");
    assert!(output.stdout.contains("not examined: its copy needs"), "{output:?}");
}

#[test]
fn a_tenant_that_moves_is_a_warning() {
    let data_dir = with_tenants();
    data_dir.cli(&["tenant", "suspend", "umbrella", "--moving"]).done();
    let output = data_dir.cli(&["--json", "doctor"]).done();
    assert_eq!(state(&output, "tenants"), "warning");
    assert!(output.stdout.contains("get 503: umbrella;"), "{output:?}");
}

/// A command that looks leaves each file as it is.
#[test]
fn an_examination_changes_no_file() {
    let data_dir = with_tenants();
    let tenants = data_dir.data().join("tenants");
    let file = tenants.join("2.db");
    for name in ["2.db-wal", "2.db-shm"] {
        let _ = fs::remove_file(tenants.join(name));
    }
    fs::write(&file, "").unwrap();
    fs::write(tenants.join("99.db"), "").unwrap();
    fs::write(tenants.join("98.db"), "mine").unwrap();
    let output = data_dir.cli(&["doctor"]).ends_with(1).stdout;
    assert!(output.contains("the file is empty"), "{output}");
    data_dir.cli(&["check"]).ends_with(1);
    let lengths =
        ["2.db", "98.db", "99.db"].map(|name| fs::metadata(tenants.join(name)).unwrap().len());
    assert_eq!(lengths, [0, 4, 0]);
    let others = |name: &str| name.starts_with("2.db-") || name.starts_with("9") && name.len() > 5;
    for entry in fs::read_dir(&tenants).unwrap().chain(fs::read_dir(data_dir.data()).unwrap()) {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!others(&name) && name != ".examined", "{name}");
    }
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
            assert_eq!(state(&output, "permissions"), "warning", "{output:?}");
            let said = format!("{} (mode {mode:o}, of ", directory.display());
            let cure = format!("sudo chmod -R u=rwX,go= {}", data_dir.data().display());
            assert!(output.stdout.contains(&said) && output.stdout.contains(&cure), "{output:?}");
            // Commands that make the directory do not change the mode.
            data_dir.cli(&["tenant", "create", "acme"]).fails_saying("exists");
            assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, mode);
        }
        set_mode(&directory, 0o700);
    }
    for file in [data_dir.registry_file(), data_dir.data().join("tenants/1.db")] {
        set_mode(&file, 0o640);
        assert_eq!(state(&doctor().ends_with(1), "permissions"), "fault", "{}", file.display());
        // The cure that it prints. The files beside a database have its mode.
        let cure = Command::new("chmod").args(["-R", "u=rwX,go="]).arg(data_dir.data()).status();
        assert!(cure.unwrap().success());
        assert_eq!(state(&doctor().done(), "permissions"), "ok");
    }
}

#[test]
fn a_file_that_its_owner_cannot_use_is_a_fault() {
    let data_dir = DataDir::acme();
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
            let expected = format!("{} (mode {mode:o}, of ", path.display());
            assert!(output.stdout.contains(&expected), "{output:?}");
        }
    }
}

#[test]
fn a_finding_says_effect_and_cure() {
    let data_dir = with_tenants();
    let (data, file) = (data_dir.data(), data_dir.data().join("tenants/2.db"));
    if chown(&file, Some(64_999), None).is_ok() {
        let output = data_dir.cli(&["doctor"]).ends_with(1).stdout;
        let cure = format!("run: sudo chown -R root: {}", data.display());
        assert!(output.contains(&file.display().to_string()), "{output}");
        assert_eq!(output.matches(&cure).count(), 1, "{output}");
        chown(&file, Some(0), None).unwrap();
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

#[test]
fn entries_from_the_future_are_a_warning() {
    let data_dir = with_tenants();
    let file = data_dir.data().join("tenants/1.db");
    database(&file)
        .execute_batch(
            "INSERT INTO changes (seq, at, resource, record_id, action, fields, by_name)
             SELECT last_seq + 1, '2099-01-01T00:00:00Z', 'customers', 1, 'updated', '[]', 'import'
             FROM changes_state;
             UPDATE changes_state SET last_seq = last_seq + 1",
        )
        .unwrap();
    let output = data_dir.cli(&["--json", "doctor"]).done();
    assert_eq!(state(&output, "tenants/1.db"), "warning");
    assert!(output.stdout.contains("from the future"), "{output:?}");
}

#[test]
fn a_number_that_several_records_have_is_a_warning() {
    let (server, tenant) = TestServer::with_tenant();
    let api = tenant.with_scopes(ALL);
    for (name, serial) in [("One", "PF-1"), ("Two", "PF-2"), ("Three", "PF-1"), ("Four", "")] {
        let device = json!({"name": name, "type": "laptop", "serial_number": serial});
        api.post("/hardware.php", device).created();
    }
    let output = server.cli(&["--json", "doctor"]).done();
    assert_eq!(state(&output, "tenants/1.db"), "warning");
    let expected = "hardware: 2 records have the serial_number PF-1, such as the ids 1 and 3";
    assert!(output.stdout.contains(expected), "{output:?}");
    assert!(!output.stdout.contains("PF-2"), "{output:?}");
}
