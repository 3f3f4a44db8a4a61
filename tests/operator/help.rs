//! Help texts, and the version.

use std::process::Command;

use crate::support::TestServer;
use crate::support::server::{DataDir, run};

/// The paths of the command `path` and all commands below it.
fn commands(path: &[String]) -> Vec<Vec<String>> {
    let help = help(path);
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    // A name is indented by two spaces, the continuation of a description by more.
    let names =
        listed.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let below = names.flat_map(|line| {
        let name = line.split_whitespace().next().unwrap().to_owned();
        commands(&[path, &[name]].concat())
    });
    std::iter::once(path.to_vec()).chain(below).collect()
}

fn help(path: &[String]) -> String {
    let data_dir = DataDir::new(false);
    let mut command: Command = data_dir.command();
    command.args(path).arg("--help");
    run(command, "").done().stdout
}

#[test]
fn every_command_has_examples_and_everything_has_a_description() {
    for path in commands(&[]) {
        let help = help(&path);
        let (before, examples) = help.split_once("\nExamples:\n").expect(&help);
        assert!(examples.starts_with("  ") && help.starts_with(char::is_uppercase), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        // The continuation of a description is indented by more.
        let names = before.lines().filter(|line| {
            let name = line.trim_start();
            match line.len() - name.len() {
                2 => true,
                6 => name.starts_with("--"),
                _ => false,
            }
        });
        for line in names {
            let description = line.trim_start().split_once("  ").map(|(_, rest)| rest.trim_start());
            assert!(description.is_some_and(|text| text.starts_with(char::is_uppercase)), "{line}");
        }
    }
}

#[test]
fn the_version_names_the_release_and_sqlite() {
    let server = TestServer::start();
    let printed = server.cli(&["--version"]).done().stdout;
    let (release, rest) = printed.trim_end().split_once(" (").unwrap();
    assert_eq!(release, concat!("tenantdesk ", env!("CARGO_PKG_VERSION")));
    assert!(rest.contains("SQLite 3."), "{printed}");
}
