//! A real browser pays the panel a whole visit (`tests/browser/panel.mjs`), with JavaScript and without.

use std::path::Path;
use std::process::Command;

/// Needs Chromium, Node.js and `npm ci` in `tests/browser`. Where one is missing the test says so and is left out, but not
/// where `CI` is `true`.
fn visit(javascript: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    let missing = if !Path::new(&chromium).exists() {
        Some(format!("there is no {chromium}"))
    } else if !folder.join("node_modules").exists() {
        Some("there is no tests/browser/node_modules: run npm ci there".to_owned())
    } else {
        None
    };
    if let Some(missing) = missing {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "the panel cannot be driven in a browser: {missing}");
        eprintln!("\n!!! LEFT OUT: the panel in a browser, JavaScript {javascript}: {missing}\n");
        return;
    }
    let mut node = Command::new("node");
    node.arg("panel.mjs").arg(env!("CARGO_BIN_EXE_tenantdesk")).arg(javascript).current_dir(&folder);
    let output = node.output().expect("Node.js");
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{errors}");
    print!("{told}");
}

#[test]
fn a_whole_visit_with_javascript() {
    visit("on");
}

#[test]
fn a_whole_visit_without_javascript() {
    visit("off");
}
