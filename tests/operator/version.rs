//! `tenantdesk --version`, and where the build finds the commit that it names.

use std::path::Path;
use std::process::Command;

use crate::support::TestServer;

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
