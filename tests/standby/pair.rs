//! `examples/pair`: two machines and a witness in namespaces of their own. `pair/world.py` makes them,
//! `pair/rounds` has one fail and compares, and `pair/several` moves a tenant from one pair to another.

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

#[test]
#[ignore = "two pairs take three minutes to start, move a tenant and lose a machine"]
fn a_tenant_moves_from_one_pair_to_another_while_its_clients_go_on() {
    if installed(&["nginx", "openssl"]) {
        run("several", &[]);
    }
}

fn rounds(count: usize) {
    run("rounds", &[count.to_string()]);
}

/// Runs a program of `pair/` in namespaces of its own.
fn run(program: &str, arguments: &[String]) {
    if !equipped() || !installed(&PROGRAMS) || !can_make_namespaces() {
        return;
    }
    let program = format!("{}/tests/standby/pair/{program}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).args([&program, env!("CARGO_BIN_EXE_tenantdesk"), &litestream()]).args(arguments);
    assert!(command.status().unwrap().success(), "see above");
}

/// With `CI` set, missing rights fail the test.
pub fn can_make_namespaces() -> bool {
    let made = Command::new("unshare").args(NAMESPACES).arg("true").stderr(Stdio::null()).status();
    let can = made.is_ok_and(|status| status.success());
    if !can {
        assert!(std::env::var_os("CI").is_none(), "namespaces cannot be made");
        // The test harness captures what macros print.
        let _ = writeln!(std::io::stderr(), "\n*** LEFT OUT: no right to make namespaces, so this was not tried ***");
    }
    can
}
