//! A user of the machine that the service runs on.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use crate::support::DataDir;

/// The script runs with commands in place of those that know and delete users.
#[test]
fn a_purge_keeps_the_user_whose_data_it_keeps() {
    let directory = tempfile::tempdir().unwrap();
    let deleted = directory.path().join("deleted");
    for (command, script) in [
        ("getent", "exit 0".to_owned()),
        ("userdel", format!("touch {}", deleted.display())),
        ("deluser", format!("touch {}", deleted.display())),
    ] {
        let path = directory.path().join(command);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("release/debian/tenantdesk.postrm");
    let programs = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let purge = Command::new("sh").arg(script).arg("purge").env("PATH", programs).output().unwrap();
    assert!(purge.status.success(), "{purge:?}");
    assert!(!deleted.exists(), "the user is deleted");
}

/// F11: whoever can write to the directory of an export plants something under its temporary name.
#[test]
fn an_export_writes_to_nothing_that_was_planted() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let target = data_dir.home().join("target");
    for is_link in [true, false] {
        fs::write(&target, "not an export").unwrap();
        let shared = data_dir.home().join(format!("shared-{is_link}"));
        fs::create_dir(&shared).unwrap();
        let planted = shared.join("out.csv.partial");
        if is_link {
            std::os::unix::fs::symlink(&target, &planted).unwrap();
        } else {
            fs::hard_link(&target, &planted).unwrap();
        }
        let output = shared.join("out.csv");
        // It may refuse, or leave alone what is there.
        let export = ["export", "acme", "customers", "--output", output.to_str().unwrap()];
        let done = data_dir.cli(&export);
        assert!(!done.stderr.contains("panicked"), "{done:?}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "not an export");
        if let Ok(written) = fs::symlink_metadata(&output) {
            assert!(written.is_file() && written.nlink() == 1, "{written:?}");
        }
    }
}

/// F19: a key's name that turns the direction of what stands behind it on a terminal.
#[test]
fn names_of_keys_turn_nothing_on_a_terminal() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let name = "safe\u{202e}live\u{200b}";
    data_dir.cli(&["key", "create", "acme", "--name", name, "--scope", "all"]);
    for command in [&["key", "list", "acme"][..], &["changes", "acme"]] {
        let printed = data_dir.cli(command).done().stdout;
        assert!(!printed.contains(['\u{202e}', '\u{200b}']), "{printed:?}");
    }
}
