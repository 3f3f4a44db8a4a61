//! The systemd units allow all system calls that the programs make. A call outside of the filter
//! would be rejected, or end the program. `tests/operator` checks the units with systemd.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::machines::{Copy, Machine, equipped, example, installed, take_over};
use crate::support::{ALL, DataDir};

#[test]
fn the_units_let_every_system_call_through() {
    if !equipped() || !installed(&["strace", "systemd-analyze"]) {
        return;
    }
    let copy = Copy::to_second_host();
    let first = Machine::first(DataDir::new(false));
    let api = first.data_dir.tenant("acme").with_scopes(ALL);
    api.customer("First");
    let calls = first.data_dir.home().join("calls");
    let mut copying = copy.begin_as(&first.data_dir, |command| traced(&command, &calls));
    copy.await_begun([1]);
    first.data_dir.tenant("late");
    api.customer("Second");
    copy.await_begun([2]);
    copying.kill();
    assert_allowed("tenantdesk-copy.service", &calls);

    let second = DataDir::new(false);
    let calls = second.home().join("calls");
    let fetched = traced(&take_over(&second, &copy), &calls).output().unwrap();
    assert!(fetched.status.success(), "{fetched:?}");
    assert_allowed("tenantdesk-take-over.service", &calls);
}

/// The same command under strace, which writes all system calls to a file and ends with the
/// command.
fn traced(command: &Command, calls: &Path) -> Command {
    let mut traced = Command::new("strace");
    traced
        .args(["-D", "-f", "-qq", "-o"])
        .arg(calls)
        .arg(command.get_program())
        .args(command.get_args());
    traced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    traced.stdin(Stdio::null());
    traced
}

/// The system calls that the unit's `SystemCallFilter=` allows. A line with `~` removes some that
/// earlier lines allow.
fn allowed(unit: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(example(unit)).unwrap();
    let mut allowed = BTreeSet::new();
    for filter in text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (names, taken) =
            filter.strip_prefix('~').map_or((filter, false), |names| (names, true));
        for call in names.split_whitespace().flat_map(calls_of) {
            if taken {
                allowed.remove(&call);
            } else {
                allowed.insert(call);
            }
        }
    }
    allowed
}

/// The system calls of one of systemd's sets, and of the sets in it.
fn calls_of(name: &str) -> Vec<String> {
    if !name.starts_with('@') {
        return vec![name.to_owned()];
    }
    let output = Command::new("systemd-analyze")
        .args(["--no-pager", "syscall-filter", name])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let members = text
        .lines()
        .skip(1)
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    members.flat_map(calls_of).collect()
}

#[track_caller]
fn assert_allowed(unit: &str, calls: &Path) {
    let text = fs::read_to_string(calls).unwrap();
    // A line is `PID NAME(…`, reports a signal, or continues an earlier one.
    let mut made: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_once(' ')?.1.trim_start().split_once('('))
        .map(|(name, _)| name.to_owned())
        .filter(|name| {
            name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect();
    assert!(made.len() > 20, "{made:?}");
    // SQLite calls it only if root runs it, which is possible in this test.
    made.remove("fchown");
    let allowed = allowed(unit);
    let refused: Vec<&String> = made.difference(&allowed).collect();
    assert!(refused.is_empty(), "{unit} refuses {refused:?}");
}
