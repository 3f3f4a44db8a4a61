//! The pages in a real browser: the scripts of `tests/browser` drive it against the shipped binary.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// Runs a script. Needs Chromium, Node.js and `npm ci` in `tests/browser`. If one is missing, the
/// test is left out with a message, or fails if `CI` is set.
fn run(script: &str, arguments: &[&str]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    let missing = if !Path::new(&chromium).exists() {
        Some(format!("there is no {chromium}"))
    } else if !directory.join("node_modules").exists() {
        Some("there is no tests/browser/node_modules: run npm ci there".to_owned())
    } else {
        None
    };
    if let Some(missing) = missing {
        assert!(std::env::var_os("CI").is_none(), "{script} cannot drive a browser: {missing}");
        // The test harness captures what macros print.
        let report = format!("\n!!! LEFT OUT: {script} {arguments:?} in a browser: {missing}\n");
        let _ = std::io::stderr().write_all(report.as_bytes());
        return;
    }
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
