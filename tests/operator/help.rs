//! Help texts, shell completions, manual pages, and the version with its commit.

use std::fs;
use std::path::Path;
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

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const SHORT: Option<&str> = Some("0123456789ab");

/// Runs the program in a directory and returns the commit that it found.
fn commit_in(directory: &Path, program: &Path, environment: Option<&str>) -> Option<String> {
    let mut command = Command::new(program);
    command.current_dir(directory).env_remove("TENANTDESK_COMMIT");
    if let Some(commit) = environment {
        command.env("TENANTDESK_COMMIT", commit);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    Some(printed).filter(|commit| !commit.is_empty())
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .args(["-c", "user.name=Test", "-c", "user.email=test@shop.example"])
        .args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_commit_is_found_in_the_environment_and_in_an_archive() {
    if !crate::support::has("git", "--version") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("build");
    let source = directory.path().join("build.rs");
    let text = concat!(
        "#[path = \"",
        env!("CARGO_MANIFEST_DIR"),
        "/release/commit.rs\"] mod commit;\n",
        "fn main() { print!(\"{}\", commit::find().unwrap_or_default()); }"
    );
    std::fs::write(&source, text).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiled = Command::new(rustc)
        .args(["--edition", "2024", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{compiled:?}");

    let tree = directory.path().join("tree");
    std::fs::create_dir_all(tree.join("release")).unwrap();
    let found = |environment| commit_in(&tree, &program, environment);
    assert_eq!(found(None), None, "a directory of unknown origin");
    assert_eq!(found(Some(COMMIT)).as_deref(), SHORT);

    std::fs::write(tree.join("release/commit"), "$Format:%H$\n").unwrap();
    std::fs::write(tree.join(".gitattributes"), "release/commit export-subst\n").unwrap();
    git(&tree, &["init", "-q"]);
    git(&tree, &["add", "."]);
    git(&tree, &["commit", "-q", "-m", "First"]);
    let head = git(&tree, &["rev-parse", "HEAD"]);
    assert_eq!(found(None), None, "a checkout has no commit in the file");

    git(&tree, &["archive", "--output=../archive.tar", "HEAD"]);
    let archive = directory.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    let unpacked =
        Command::new("tar").args(["-xf", "../archive.tar"]).current_dir(&archive).status().unwrap();
    assert!(unpacked.success());
    assert_eq!(commit_in(&archive, &program, None).as_deref(), head.get(..12));
}
