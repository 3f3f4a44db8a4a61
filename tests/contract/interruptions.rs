//! Contract section 10: what an interrupted command has left is finished or removed by the next one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::server::{Output, run};
use crate::support::syncs::Syncs;
use crate::support::{ALL, DataDir, Setup, database};

/// Leaves a registry as a first start does that is interrupted.
fn interrupted_start(leave: impl Fn(&Path)) -> Arc<DataDir> {
    let data_dir = DataDir::new(false);
    std::fs::create_dir_all(data_dir.data().join("tenants")).unwrap();
    leave(&data_dir.registry_file());
    data_dir
}

/// The ways in which a first start can leave the registry unfinished.
fn unfinished_registries() -> Vec<Arc<DataDir>> {
    let beside = |path: &Path, suffix: &str| format!("{}{suffix}", path.display());
    vec![
        interrupted_start(|path| std::fs::write(path, "").unwrap()),
        interrupted_start(|path| {
            std::fs::write(path, "").unwrap();
            std::fs::write(beside(path, "-journal"), "").unwrap();
            std::fs::write(beside(path, "-wal"), "").unwrap();
        }),
        interrupted_start(|path| database(path).pragma_update(None, "journal_mode", "WAL").unwrap()),
        interrupted_start(|path| {
            std::fs::write(beside(path, ".partial"), "half of a database").unwrap();
            std::fs::write(beside(path, ".partial-journal"), "").unwrap();
        }),
    ]
}

#[test]
fn a_registry_that_was_never_finished_is_made_anew() {
    for data_dir in unfinished_registries() {
        data_dir.cli(&["check"]).fails_saying("no data directory");
        data_dir.cli(&["tenant", "list"]).fails_saying("no data directory");
        data_dir.tenant("acme");
        data_dir.cli(&["check"]).done();
    }
    for data_dir in unfinished_registries() {
        let server = Setup::plain().start_at(data_dir);
        assert_eq!(server.tenant("acme").with_scopes(ALL).customer("First"), 1);
        assert!(!server.data().join("registry.db.partial").exists());
    }
    let source = DataDir::new(false);
    source.tenant("acme");
    source.cli(&["backup", "backups"]).done();
    let backups = source.home().join("backups");
    for data_dir in unfinished_registries() {
        data_dir.cli(&["restore", backups.to_str().unwrap()]).done();
        data_dir.cli(&["check"]).done();
    }
}

#[test]
fn a_registry_without_a_table_beside_tenants_is_damaged() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    std::fs::write(data_dir.registry_file(), "").unwrap();
    data_dir.cli(&["serve", "--listen", "127.0.0.1:0"]).fails_saying("it has no schema");
    data_dir.cli(&["tenant", "create", "other"]).fails_saying("it has no schema");
    assert!(data_dir.data().join("tenants/1.db").exists());
}

/// Runs a command under the observation of its syncs.
fn observed(data_dir: &DataDir, syncs: &Syncs, arguments: &[&str]) -> Output {
    let mut command = data_dir.command();
    syncs.observe(&mut command);
    command.arg("--data-dir").arg(data_dir.data()).args(arguments);
    run(command, "")
}

#[test]
fn the_names_of_new_files_and_folders_are_synced() {
    let (data_dir, syncs) = (DataDir::new(false), Syncs::new());
    observed(&data_dir, &syncs, &["tenant", "create", "acme"]).done();
    for folder in [data_dir.home().to_owned(), data_dir.data(), data_dir.data().join("tenants")] {
        assert!(syncs.has_synced(&folder), "{}: {:#?}", folder.display(), syncs.take());
    }
    syncs.take();
    observed(&data_dir, &syncs, &["backup", "new/backups"]).done();
    for folder in [data_dir.home().to_owned(), data_dir.home().join("new"), data_dir.home().join("new/backups")] {
        assert!(syncs.has_synced(&folder), "{}: {:#?}", folder.display(), syncs.take());
    }
}

#[test]
fn a_data_directory_whose_name_cannot_be_synced_is_not_used() {
    let (data_dir, syncs) = (DataDir::new(false), Syncs::new());
    let home = data_dir.home().to_str().unwrap().to_owned();
    syncs.fail(&home);
    observed(&data_dir, &syncs, &["tenant", "create", "acme"]).fails_saying("cannot be used");
    assert!(!data_dir.data().exists());
    syncs.succeed();
    observed(&data_dir, &syncs, &["tenant", "create", "acme"]).done();
}

/// A data directory with the tenant `acme`, which has one customer.
fn with_acme() -> Arc<DataDir> {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    std::fs::write(data_dir.home().join("c.csv"), "name\nEins\n").unwrap();
    data_dir.cli(&["import", "acme", "customers", "c.csv"]).done();
    data_dir
}

/// Its file, with records.
fn acme_file(data_dir: &DataDir) -> PathBuf {
    data_dir.data().join("tenants/1.db")
}

/// Returns the names in a folder of the data directory, without those of write-ahead logs, sorted.
fn names(data_dir: &DataDir, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(data_dir.data().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm")).collect();
    names.sort();
    names
}

#[test]
fn the_files_of_a_tenant_that_was_being_made_are_removed() {
    let finishing: [&[&str]; 3] = [&["check"], &["tenant", "create", "other"], &["backup", "backups"]];
    for command in finishing {
        let data_dir = with_acme();
        let left = data_dir.data().join("tenants/2.db");
        std::fs::copy(acme_file(&data_dir), &left).unwrap();
        for suffix in [".uncommitted", "-journal", ".partial"] {
            std::fs::write(format!("{}{suffix}", left.display()), "").unwrap();
        }
        // Earlier versions set no mark.
        std::fs::write(data_dir.data().join("tenants/9.db"), "").unwrap();
        std::fs::write(data_dir.data().join("tenants/9.db-journal"), "").unwrap();
        data_dir.cli(command).done();
        data_dir.cli(&["check"]).done();
        let second: &[&str] = if command[0] == "tenant" { &["2.db"] } else { &[] };
        assert_eq!(names(&data_dir, "tenants"), [&["1.db"], second].concat(), "{command:?}");
    }
}

#[test]
fn a_mark_beside_the_file_of_a_tenant_has_no_effect() {
    let data_dir = with_acme();
    std::fs::write(format!("{}.uncommitted", acme_file(&data_dir).display()), "acme").unwrap();
    data_dir.cli(&["check"]).done();
    assert_eq!(names(&data_dir, "tenants"), ["1.db"]);
    assert_eq!(data_dir.cli(&["export", "acme", "customers"]).done().stdout.lines().count(), 2);
}

/// Leaves what a `tenant delete` leaves that is killed after it has changed the registry.
fn interrupted_deletion() -> Arc<DataDir> {
    let data_dir = with_acme();
    let (file, aside) = (acme_file(&data_dir), data_dir.home().join("aside.db"));
    std::fs::copy(&file, &aside).unwrap();
    data_dir.cli(&["tenant", "delete", "acme", "--yes"]).done();
    std::fs::rename(&aside, &file).unwrap();
    std::fs::write(format!("{}.uncommitted", file.display()), "acme").unwrap();
    data_dir
}

#[test]
fn a_deletion_that_was_interrupted_is_finished() {
    let data_dir = interrupted_deletion();
    let repeated = data_dir.cli(&["--json", "tenant", "delete", "acme", "--yes"]).done().json();
    assert_eq!(repeated, serde_json::json!({"done": "deleted", "id": 1, "name": "acme"}));
    assert_eq!(names(&data_dir, "tenants"), [] as [String; 0]);
    data_dir.cli(&["tenant", "delete", "acme", "--yes"]).fails_saying("no tenant acme");
    let server = Setup::plain().start_at(interrupted_deletion());
    assert_eq!(names(&server, "tenants"), [] as [String; 0]);
    server.cli(&["check"]).done();
}

#[test]
fn a_deletion_that_fails_changes_nothing_and_can_be_repeated() {
    let (data_dir, syncs) = (with_acme(), Syncs::new());
    for end in ["/tenants", ".uncommitted", "/registry.db-wal"] {
        syncs.fail(end);
        observed(&data_dir, &syncs, &["tenant", "delete", "acme", "--yes"]).ends_with(1);
        syncs.succeed();
        data_dir.cli(&["check"]).done();
        assert_eq!(data_dir.cli(&["export", "acme", "customers"]).done().stdout.lines().count(), 2, "{end}");
        assert_eq!(names(&data_dir, "tenants"), ["1.db"], "{end}");
    }
    data_dir.cli(&["tenant", "delete", "acme", "--yes"]).done();
}

#[test]
fn a_tenant_its_password_and_its_first_key_are_made_together() {
    let data_dir = with_acme();
    let registry = database(&data_dir.registry_file());
    let fault = |event: &str| {
        format!("CREATE TRIGGER fault_{0} BEFORE {1} BEGIN SELECT raise(ABORT, 'fault'); END", event.len(), event)
    };
    registry.execute_batch(&fault("INSERT ON keys")).unwrap();
    // Nothing that is committed could be taken back.
    registry.execute_batch(&fault("DELETE ON tenants")).unwrap();
    data_dir.cli(&["serve", "--listen", "127.0.0.1:0", "--create-tenant", "other"]).fails_saying("fault");
    let tenants = data_dir.cli(&["--json", "tenant", "list"]).done().json();
    assert_eq!(tenants.as_array().unwrap().len(), 1, "{tenants}");
    assert_eq!(names(&data_dir, "tenants"), ["1.db"]);
}

#[test]
fn a_start_says_what_to_do_if_the_secrets_of_a_tenant_were_not_shown() {
    let mut server = Setup::plain().option("--create-tenant").option("acme").start();
    let advice = "tenant password acme --generate";
    assert!(!server.log().contains(advice), "{}", server.log());
    let output = server.output();
    let key = output.split_whitespace().find(|word| word.starts_with("tdk_")).unwrap().to_owned();
    server.kill();
    server.restart();
    assert!(server.log().contains(advice), "{}", server.log());
    server.with_key(&key).get("/customers.php").is(200);
    server.stop();
    server.restart();
    assert!(!server.log().contains(advice), "its key was used: {}", server.log());
}

/// Moves a database away as a restore does before it puts another in its place.
fn set_aside(data_dir: &DataDir, database: &Path) {
    let replaced = data_dir.data().join(".restore-1/replaced");
    std::fs::create_dir_all(&replaced).unwrap();
    std::fs::rename(database, replaced.join(database.file_name().unwrap())).unwrap();
}

#[test]
fn what_a_killed_restore_has_moved_away_is_put_back() {
    for command in [&["check"][..], &["tenant", "create", "other"]] {
        let data_dir = with_acme();
        set_aside(&data_dir, &acme_file(&data_dir));
        set_aside(&data_dir, &data_dir.registry_file());
        std::fs::create_dir(data_dir.data().join(".restore-2")).unwrap();
        data_dir.cli(command).done();
        assert_eq!(names(&data_dir, ""), ["registry.db", "tenants"]);
        assert_eq!(data_dir.cli(&["export", "acme", "customers"]).done().stdout.lines().count(), 2);
    }
    let data_dir = with_acme();
    set_aside(&data_dir, &data_dir.registry_file());
    let server = Setup::plain().start_at(data_dir);
    server.cli(&["export", "acme", "customers"]).done();
    assert_eq!(names(&server, ""), ["registry.db", "serve.lock", "tenants"]);
}

#[test]
fn what_a_killed_restore_has_replaced_stays_replaced() {
    let data_dir = with_acme();
    let replaced = data_dir.data().join(".restore-1/replaced");
    std::fs::create_dir_all(&replaced).unwrap();
    std::fs::write(replaced.join("1.db"), "the content from before").unwrap();
    std::fs::write(replaced.join("registry.db"), "a damaged registry").unwrap();
    data_dir.cli(&["check"]).done();
    assert_eq!(names(&data_dir, ""), ["registry.db", "tenants"]);
    assert_eq!(data_dir.cli(&["export", "acme", "customers"]).done().stdout.lines().count(), 2);
}

#[test]
fn an_export_can_be_repeated_after_it_was_killed() {
    let data_dir = with_acme();
    let partial = data_dir.home().join("out.csv.partial");
    std::fs::write(&partial, "a longer text than all that the tenant has ".repeat(1_000)).unwrap();
    let export = ["export", "acme", "customers", "--output", "out.csv"];
    let other = std::fs::File::open(&partial).unwrap();
    other.lock().unwrap();
    data_dir.cli(&export).fails_saying("another export");
    drop(other);
    data_dir.cli(&export).done();
    let out = data_dir.home().join("out.csv");
    assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 2);
    assert_eq!(out.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!partial.exists());
}
