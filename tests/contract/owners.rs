//! Contract section 10: a command is refused unless its user owns the data directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::server::{Output, run};
use crate::support::{DataDir, tree};

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

#[test]
fn a_linked_backup_is_neither_restored_nor_removed() {
    let (data_dir, backups) = with_backup();
    let made = fs::read_dir(&backups).unwrap().next().unwrap().unwrap().path();
    let outside = data_dir.home().join("outside");
    fs::rename(&made, &outside).unwrap();
    symlink(&outside, &made).unwrap();
    let dir = backups.to_str().unwrap();
    data_dir
        .cli(&["restore", dir, "acme", "--force"])
        .fails_saying("holds no backup of the tenant acme, and none of another tenant");
    for _ in 0..2 {
        data_dir.cli(&["backup", dir, "--keep", "1"]).done();
    }
    assert!(outside.join("tenants/1.db").exists() && made.is_symlink());
    assert_eq!(fs::read_dir(&backups).unwrap().count(), 2);
}
