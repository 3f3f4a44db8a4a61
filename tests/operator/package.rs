//! The texts of the Debian package agree with the program. `release/README.md` names the tests of
//! the built package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::TestServer;

fn debian(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("release/debian").join(file))
        .unwrap()
}

#[test]
fn the_two_commands_that_the_installation_prints_give_a_key() {
    let server = TestServer::start();
    let script = debian("tenantdesk.postinst");
    let command = |line: &str| {
        line.split_once("$as tenantdesk --data-dir /var/lib/tenantdesk ")
            .map(|(_, words)| words.to_owned())
    };
    let commands: Vec<String> = script.lines().filter_map(command).collect();
    assert_eq!(commands.len(), 2, "{script}");
    let outputs: Vec<_> = commands
        .iter()
        .map(|words| server.cli(&words.split(' ').collect::<Vec<_>>()).done())
        .collect();
    let key = outputs[1].stdout.trim();
    server.with_key(key).post("/customers.php", serde_json::json!({"name": "First"})).is(201);
}

#[test]
fn the_settings_file_names_options_of_serve() {
    let server = TestServer::start();
    let help = server.cli(&["serve", "--help"]).done().stdout;
    let settings = debian("tenantdesk.env");
    let names: Vec<&str> = settings
        .lines()
        .filter_map(|line| line.strip_prefix("#TENANTDESK_")?.split('=').next())
        .collect();
    assert!(names.len() > 5, "{settings}");
    for name in names {
        assert!(help.contains(&format!("TENANTDESK_{name}=")), "{name}");
    }
}

/// The script runs with other commands for finding and deleting users.
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
    let programs = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let purge = Command::new("sh")
        .args(["-c", &debian("tenantdesk.postrm"), "sh", "purge"])
        .env("PATH", programs)
        .output()
        .unwrap();
    assert!(purge.status.success(), "{purge:?}");
    assert!(!deleted.exists(), "the user is deleted");
}
