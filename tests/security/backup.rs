//! A backup that a stranger has prepared, with a manifest that fits it: F7. Each way to prepare one
//! is in `src/store/archive/hostile_tests.rs`; these are those of the audit, on the binary.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::server::{binary, run};
use crate::support::{ALL, DataDir, database};

const TENANT: &str = "tenants/1.db";
const REGISTRY: &str = "registry.db";

/// Has the manifest tell the present length and checksum of `file`.
fn sign(directory: &Path, file: &str) {
    let path = directory.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let bytes = fs::read(directory.join(file)).unwrap();
    let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    for entry in manifest["files"].as_array_mut().unwrap() {
        if entry["path"] == file {
            entry["bytes"] = json!(bytes.len());
            entry["sha256"] = json!(sum);
        }
    }
    fs::write(path, manifest.to_string()).unwrap();
}

/// Expects that a backup changed by `prepare` is not restored, and that all is as it was.
#[track_caller]
fn assert_refused(prepare: impl FnOnce(&Path)) {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme").key(ALL);
    let made = data_dir.cli(&["--json", "backup", "backups"]).done().json();
    assert_eq!(made["tenants"].as_array().map(Vec::len), Some(1), "{made}");
    let backups = data_dir.home().join("backups");
    prepare(&fs::read_dir(&backups).unwrap().next().unwrap().unwrap().path());
    let other = DataDir::new(false);
    let backups = backups.to_str().unwrap();
    restore(&other, &[backups]);
    assert!(!other.registry_file().exists());
    restore(&data_dir, &[backups, "acme", "--force"]);
    restore(&data_dir, &[backups, "acme", "--as", "evil"]);
    let tenants = data_dir.cli(&["--json", "tenant", "list"]).done().json();
    assert_eq!(tenants.as_array().unwrap().len(), 1, "{tenants}");
    data_dir.cli(&["check"]).done();
}

/// Runs `restore`, which fails. One that reads a pipe would wait for ever.
#[track_caller]
fn restore(data_dir: &Arc<DataDir>, arguments: &[&str]) {
    let mut command = Command::new("timeout");
    command.arg("20").arg(binary()).arg("--data-dir").arg(data_dir.data()).arg("restore");
    data_dir.as_its_user(command.args(arguments));
    let output = run(command, "").ends_with(1);
    assert!(!output.stderr.contains("panicked"), "{output:?}");
    assert!(!output.stderr.contains('\u{1b}'), "{output:?}");
}

/// Expects that a backup is refused in whose `file` this SQL has run.
#[track_caller]
fn assert_sql_refused(file: &str, sql: &str) {
    assert_refused(|directory| {
        let connection = database(&directory.join(file));
        connection.execute_batch(sql).unwrap();
        drop(connection);
        sign(directory, file);
    });
}

#[test]
fn a_password_hash_that_takes_all_memory() {
    let sql = "UPDATE tenants SET password_hash =
        replace(password_hash, 'm=19456', 'm=4194303')";
    assert_sql_refused(REGISTRY, sql);
}

#[test]
fn counters_that_leave_no_ids() {
    let sql = "UPDATE sqlite_sequence SET seq = 9223372036854775806";
    assert_sql_refused(REGISTRY, sql);
}

#[test]
fn an_endless_view() {
    let endless = "CREATE VIEW frequent_words AS WITH RECURSIVE endless (word) AS
        (SELECT 1 UNION ALL SELECT word + 1 FROM endless) SELECT word FROM endless";
    assert_sql_refused(TENANT, &format!("DROP TABLE IF EXISTS frequent_words; {endless}"));
}

#[test]
fn a_trigger() {
    let sql = "CREATE TRIGGER x AFTER INSERT ON customers BEGIN DELETE FROM employees; END";
    assert_sql_refused(TENANT, sql);
}

#[test]
fn a_name_for_the_terminal() {
    assert_refused(|directory| {
        let name = "'x' || char(10) || char(27) || '[31m'";
        let registry = database(&directory.join(REGISTRY));
        registry.execute_batch(&format!("UPDATE tenants SET name = {name}")).unwrap();
        drop(registry);
        sign(directory, REGISTRY);
        let path = directory.join("manifest.json");
        let manifest = fs::read_to_string(&path).unwrap();
        fs::write(path, manifest.replace("\"acme\"", "\"x\\n\\u001b[31m\"")).unwrap();
    });
}

#[test]
fn a_pipe_in_place_of_a_file() {
    assert_refused(|directory| {
        let path = directory.join(TENANT);
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    });
}
