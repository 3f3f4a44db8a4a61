//! The pages in a real browser: the scripts of `tests/browser` drive it against the shipped binary.

use std::path::Path;
use std::process::Command;

/// Runs a script, which needs Chromium at `CHROMIUM` or where Debian installs it, Node.js, and
/// `npm ci` in `tests/browser`.
fn run(script: &str, arguments: &[&str]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let mut node = Command::new("node");
    node.arg(script).arg(env!("CARGO_BIN_EXE_tenantdesk")).args(arguments).current_dir(&directory);
    let output = node.output().expect("Node.js");
    let (report, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{report}{errors}");
    print!("{report}");
}

#[test]
fn the_panel_with_javascript() {
    run("panel.mjs", &["on"]);
}

#[test]
fn the_panel_without_javascript() {
    run("panel.mjs", &["off"]);
}

#[test]
fn the_reference() {
    run("docs.mjs", &[]);
}
