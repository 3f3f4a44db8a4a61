//! `examples/pair`: its files are what their tools accept, and agree with each other.
//! `lab/test-pair` runs the steps of the README in virtual machines.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::examples::{example, has};
use crate::support::can;

const FILES: [&str; 6] =
    ["cluster.crm", "corosync.conf", "firewall.nft", "pair.conf", "sbd", "tenantdesk.res"];

fn file(name: &str) -> String {
    fs::read_to_string(example("pair").join(name)).unwrap()
}

/// Whether the command succeeds, and its output.
fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
}

fn accepted(command: &mut Command) -> String {
    let (success, printed) = run(command);
    assert!(success, "{command:?}: {printed}");
    printed
}

/// Debian's kernel has DRBD 8.4. Its tools assume 9 where the module is not loaded.
fn drbdadm(file: &Path) -> Command {
    let mut command = Command::new("drbdadm");
    command.env("DRBD_DRIVER_VERSION_OVERRIDE", "8.4.11").arg("-c").arg(file).args(["dump", "all"]);
    command
}

#[test]
fn drbd_accepts_the_file_with_a_secret_and_refuses_it_without() {
    if !has("drbdadm", "--version") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tenantdesk.res");
    let text = file("tenantdesk.res");
    fs::write(&path, &text).unwrap();
    let (success, printed) = run(&mut drbdadm(&path));
    assert!(!success, "nobody copies a secret from an example: {printed}");
    let with_secret = text.replace("@SECRET@;", "\"0123456789abcdef\";");
    assert_ne!(text, with_secret);
    fs::write(&path, with_secret).unwrap();
    let printed = accepted(&mut drbdadm(&path));
    let words: Vec<&str> = printed.split_whitespace().collect();
    for expected in [["protocol", "C;"], ["fencing", "resource-and-stonith;"]] {
        assert!(words.windows(2).any(|pair| pair == expected), "{expected:?}: {printed}");
    }
}

/// `corosync -t` wants a key, and that this machine is one of the two.
#[test]
fn corosync_accepts_the_file() {
    if !has("corosync", "-v") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("authkey");
    accepted(Command::new("corosync-keygen").arg("-l").arg("-k").arg(&key));
    let text = file("corosync.conf")
        .replace("totem {", &format!("totem {{\n  keyfile: {}", key.display()))
        .replace("10.77.0.1\n", "127.0.0.1\n")
        .replace("192.0.2.11\n", "127.0.0.2\n");
    let path = directory.path().join("corosync.conf");
    fs::write(&path, text).unwrap();
    accepted(Command::new("corosync").arg("-t").arg("-c").arg(path));
}

/// The package's units are not installed here: another agent stands for them.
#[test]
fn pacemaker_accepts_the_file() {
    if !has("crm", "--version") || !has("crm_verify", "--version") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (cib, path) = (directory.path().join("cib.xml"), directory.path().join("cluster.crm"));
    fs::write(&cib, accepted(Command::new("cibadmin").arg("--empty"))).unwrap();
    let text = file("cluster.crm")
        .replace("systemd:tenantdesk-backup.timer", "ocf:pacemaker:Dummy")
        .replace("systemd:tenantdesk", "ocf:pacemaker:Dummy");
    fs::write(&path, text).unwrap();
    let tool = |name: &str| {
        let mut command = Command::new(name);
        command.env("CIB_file", &cib);
        command
    };
    // The cluster sets this by itself where SBD runs.
    accepted(tool("crm_attribute").args(["-t", "crm_config", "-n", "have-watchdog", "-v", "true"]));
    accepted(tool("crm").args(["configure", "load", "update"]).arg(&path));
    accepted(tool("crm_verify").arg("-V").arg("-x").arg(&cib));
}

#[test]
fn nftables_accepts_the_file() {
    // Only root can have nft check a file.
    if !can("nft list ruleset") {
        return;
    }
    accepted(Command::new("nft").arg("-c").arg("-f").arg(example("pair/firewall.nft")));
}

#[test]
fn systemd_accepts_the_drop_in_of_the_unit() {
    if !has("systemd-analyze", "--version") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(example("systemd/tenantdesk.service")).unwrap();
    let path = directory.path().join("tenantdesk.service");
    fs::write(&path, unit.replace("/usr/local/bin/tenantdesk", "/bin/true")).unwrap();
    let drop_ins = directory.path().join("tenantdesk.service.d");
    fs::create_dir(&drop_ins).unwrap();
    fs::write(drop_ins.join("pair.conf"), file("pair.conf")).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(path);
    let printed = accepted(&mut verify);
    assert!(!printed.contains("pair.conf"), "{printed}");
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
