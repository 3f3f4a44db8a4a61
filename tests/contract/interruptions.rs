//! Contract sections 10 and 11: a command that is interrupted, or whose syncs fail, can be
//! repeated.

use std::sync::Arc;

use crate::support::server::{Output, run};
use crate::support::syncs::Syncs;
use crate::support::{DataDir, database};

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
fn the_names_of_new_files_and_directories_are_synced() {
    let (data_dir, syncs) = (DataDir::new(false), Syncs::new());
    observed(&data_dir, &syncs, &["tenant", "create", "acme"]).done();
    for directory in [data_dir.home().to_owned(), data_dir.data(), data_dir.data().join("tenants")]
    {
        assert!(syncs.has_synced(&directory), "{}: {:#?}", directory.display(), syncs.take());
    }
    syncs.take();
    observed(&data_dir, &syncs, &["backup", "new/backups"]).done();
    for directory in [
        data_dir.home().to_owned(),
        data_dir.home().join("new"),
        data_dir.home().join("new/backups"),
    ] {
        assert!(syncs.has_synced(&directory), "{}: {:#?}", directory.display(), syncs.take());
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

/// Returns the names in a directory of the data directory, without write-ahead logs, sorted.
fn names(data_dir: &DataDir, directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(data_dir.data().join(directory)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        names.filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm")).collect();
    names.sort();
    names
}

#[test]
fn a_tenant_its_password_and_its_first_key_are_made_together() {
    let data_dir = with_acme();
    let registry = database(&data_dir.registry_file());
    let fault = |event: &str| {
        format!(
            "CREATE TRIGGER fault_{0} BEFORE {1} BEGIN SELECT raise(ABORT, 'fault'); END",
            event.len(),
            event
        )
    };
    registry.execute_batch(&fault("INSERT ON keys")).unwrap();
    // Nothing that is committed could be taken back.
    registry.execute_batch(&fault("DELETE ON tenants")).unwrap();
    data_dir
        .cli(&["serve", "--listen", "127.0.0.1:0", "--create-tenant", "other"])
        .fails_saying("fault");
    let tenants = data_dir.cli_json(&["tenant", "list"]);
    assert_eq!(tenants.as_array().unwrap().len(), 1, "{tenants}");
    assert_eq!(names(&data_dir, "tenants"), ["1.db"]);
}
