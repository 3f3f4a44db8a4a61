//! The files of `examples/pair` agree with each other. `lab/test-pair` runs the steps of the README
//! in virtual machines.

use std::collections::BTreeSet;
use std::fs;

use crate::support::example;

const FILES: [&str; 6] =
    ["cluster.crm", "corosync.conf", "firewall.nft", "pair.conf", "sbd", "tenantdesk.res"];

fn file(name: &str) -> String {
    fs::read_to_string(example("pair").join(name)).unwrap()
}

/// The address that `text` begins with.
fn address(text: &str) -> &str {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.')).next().unwrap().trim_end_matches('.')
}

/// Every address of the example's two networks.
fn addresses(text: &str) -> BTreeSet<&str> {
    let starts = ["10.77.0.", "192.0.2."].iter().flat_map(|network| text.match_indices(network));
    starts.map(|(at, _)| address(&text[at..])).collect()
}

#[test]
fn the_readme_lists_every_address_of_the_files() {
    let readme = file("README.md");
    let listed: String = readme
        .lines()
        .skip_while(|line| !line.starts_with("| in the files and commands |"))
        .take_while(|line| line.starts_with('|'))
        .collect();
    let files: Vec<String> = FILES.iter().map(|name| file(name)).collect();
    let used: BTreeSet<&str> = files.iter().flat_map(|text| addresses(text)).collect();
    assert_eq!(used, addresses(&listed));
}

/// The number after the first `name` in `text`.
fn number(text: &str, name: &str) -> u64 {
    let after = text.split(name).nth(1).unwrap();
    after.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Pacemaker takes the other machine for reset after `stonith-watchdog-timeout`. By then that
/// machine must have lost its quorum, and its watchdog must have reset it.
#[test]
fn a_machine_is_reset_before_the_other_one_takes_it_for_reset() {
    let (cluster, corosync, sbd) = (file("cluster.crm"), file("corosync.conf"), file("sbd"));
    let taken_for_reset = number(&cluster, "stonith-watchdog-timeout=");
    let quorum_lost = number(&corosync, "\n    sync_timeout: ").div_ceil(1000);
    let reset = number(&sbd, "SBD_WATCHDOG_TIMEOUT=");
    assert!(taken_for_reset > quorum_lost + reset, "{taken_for_reset} {quorum_lost} {reset}");
}

/// Pacemaker resets a machine on which something does not stop in time.
#[test]
fn a_busy_machine_has_time_to_stop_and_the_backup_resets_none() {
    let cluster = file("cluster.crm");
    assert!(number(&cluster, "op_defaults timeout=") >= 100);
    let backup = cluster.split("\nprimitive backup ").nth(1).unwrap();
    let backup = backup.split("\ngroup ").next().unwrap();
    assert_eq!(backup.matches(" on-fail=ignore").count(), 3, "{backup}");
}
