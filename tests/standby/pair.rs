//! `examples/pair`: two machines and a witness in namespaces of their own. `pair/rounds` makes them, has one fail, and compares.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::machines::{equipped, installed, litestream};

/// The programs of the three machines.
const PROGRAMS: [&str; 9] = ["etcd", "etcdctl", "ip", "arping", "curl", "cc", "python3", "setpriv", "/usr/sbin/sshd"];

/// Namespaces of the network, of mounts and of processes.
const NAMESPACES: [&str; 6] = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

#[test]
fn the_other_machine_takes_over_with_all_that_was_answered() {
    rounds(1);
}

#[test]
#[ignore = "20 rounds take 12 minutes"]
fn twenty_rounds_of_every_fault_lose_nothing() {
    rounds(20);
}

fn rounds(count: usize) {
    if !equipped() || !installed(&PROGRAMS) || !can_make_namespaces() {
        return;
    }
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/standby/pair/rounds");
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).arg(driver).arg(env!("CARGO_BIN_EXE_tenantdesk")).arg(litestream()).arg(count.to_string());
    assert!(command.status().unwrap().success(), "see above");
}

/// With `CI` set, missing rights fail the test.
pub fn can_make_namespaces() -> bool {
    let made = Command::new("unshare").args(NAMESPACES).arg("true").stderr(Stdio::null()).status();
    let can = made.is_ok_and(|status| status.success());
    if !can {
        assert!(std::env::var_os("CI").is_none(), "namespaces cannot be made");
        // The test harness captures what macros print.
        let _ =
            writeln!(std::io::stderr(), "\n*** LEFT OUT: no right to make namespaces, so this was not tried ***");
    }
    can
}
