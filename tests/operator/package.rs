//! What the Debian package says to its user agrees with the program. `release/README.md` names the
//! tests of the built package.

use std::path::Path;

use crate::support::TestServer;

fn debian(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("release/debian").join(file))
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
