//! Contract section 10: what an interrupted command has left is finished or removed by the next one.

use std::path::Path;
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
