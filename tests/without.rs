//! Lists at the end of `cargo test` the suites that were left out, with their commands. Cargo runs
//! the files in the order of their names.

use std::io::Write as _;
use std::process::Command;

const OTHER_SUITES: [(&str, &str); 4] = [
    ("the panel and /docs in a browser", "cargo test --test browser"),
    ("the warm copy by Litestream", "lab/standby.py target/debug/tenantdesk"),
    ("generated clients and Schemathesis", "tests/clients/run target/debug/tenantdesk"),
    ("long tests", "cargo test -- --ignored long_"),
];

/// The programs that tests start. If one is missing, its tests pass without testing anything.
const PROGRAMS: &str = "
    caddy cc corosync crm curl drbdadm fail2ban-regex git ip jq nft nginx node openssl promtool
    python3 soffice systemd-analyze
";

#[test]
fn what_was_left_out() {
    let mut text = "\nLeft out, with the command that runs it:\n".to_owned();
    for (suite, command) in OTHER_SUITES {
        text.push_str(&format!("  {suite:<45}{command}\n"));
    }
    // `type` finds a program without running it.
    let is_missing = |program: &&str| {
        let search = format!("type {program} >/dev/null 2>&1");
        let found = Command::new("sh").args(["-c", &search]).status();
        !found.is_ok_and(|status| status.success())
    };
    let missing: Vec<&str> = PROGRAMS.split_whitespace().filter(is_missing).collect();
    if !missing.is_empty() {
        text.push_str(&format!(
            "Left out, because they are not installed: {}\n",
            missing.join(", ")
        ));
    }
    if !rustix::process::geteuid().is_root() {
        text.push_str("Left out, because only root can run them: tests of namespaces and limits\n");
    }
    // The test harness captures what macros print.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
