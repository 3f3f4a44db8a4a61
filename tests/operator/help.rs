//! Help texts, shell completions, manual pages, and the version.

use std::fs;
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
fn completions_contain_every_command() {
    let data_dir = DataDir::new(false);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = data_dir.cli(&["completions", shell]).done().stdout;
        for word in ["serve", "tenant", "suspend", "metrics-listen", "doctor"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
    let file = data_dir.home().join("completions.bash");
    fs::write(&file, data_dir.cli(&["completions", "bash"]).done().stdout).unwrap();
    let output = Command::new("bash")
        .arg("-c")
        .arg("source \"$1\"; COMP_WORDS=(tenantdesk ten); COMP_CWORD=1; _tenantdesk tenantdesk ten ''; echo ${COMPREPLY[@]}")
        .arg("bash")
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "tenant");
    data_dir.cli(&["completions", "sh"]).ends_with(2);
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let data_dir = DataDir::new(false);
    let page = data_dir.cli(&["manual"]).done().stdout;
    assert!(page.contains(".TH tenantdesk 1") && page.contains("tenantdesk\\-serve(1)"), "{page}");
    let directory = data_dir.home().join("man");
    data_dir.cli(&["manual", "--output", directory.to_str().unwrap()]).done();
    for path in commands(&[]) {
        let name = [&["tenantdesk".to_owned()], &path[..]].concat().join("-");
        let page = fs::read_to_string(directory.join(format!("{name}.1"))).unwrap();
        assert!(page.contains("Examples"), "{name}: {page}");
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
