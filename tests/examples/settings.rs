//! The settings of `examples/` for other programs: the units of systemd, the command of `sync`, and
//! the files of `pair`. `lab/test-pair` runs the steps of its README in virtual machines. The rules in
//! the documents that find attackers and leaked keys match the log and the keys of the server.

use std::fs::{self, read_to_string};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::server::Output;
use crate::support::{ALL, Api, TestServer, example, until};

const UNITS: [&str; 7] = [
    "alert/tenantdesk-alert@.service",
    "systemd/tenantdesk.service",
    "systemd/tenantdesk-backup.service",
    "standby/tenantdesk-copy.service",
    "standby/tenantdesk-take-over.service",
    "sync/tenantdesk-sync@.service",
    "webhook/tenantdesk-webhook@.service",
];

/// A setting that it does not know, a value that it does not take.
#[test]
fn systemd_has_nothing_to_say_against_the_units() {
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("bin");
    fs::create_dir(&programs).unwrap();
    for program in
        ["tenantdesk", "tenantdesk-alert", "litestream", "take-over", "tenantdesk-webhook"]
    {
        std::os::unix::fs::symlink("/bin/true", programs.join(program)).unwrap();
    }
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no", "--recursive-errors=no"]);
    let timers = ["systemd/tenantdesk-backup.timer", "sync/tenantdesk-sync@.timer"];
    for unit in UNITS.into_iter().chain(timers) {
        let text = fs::read_to_string(example(unit)).unwrap();
        let copy = directory.path().join(Path::new(unit).file_name().unwrap());
        fs::write(&copy, text.replace("/usr/local/bin", programs.to_str().unwrap())).unwrap();
        command.arg(copy);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("tenantdesk"), "{said}");
}

/// The exposure that systemd sees, 0 to 10, for each unit.
#[test]
fn the_units_are_as_closed_as_they_can_be() {
    for unit in UNITS {
        let output = Command::new("systemd-analyze")
            .args(["security", "--offline=yes", "--no-pager", "--threshold=20"])
            .arg(example(unit))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        let exposure =
            said.lines().find_map(|line| line.split("exposure level for ").nth(1)).unwrap();
        let level: f64 = exposure.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(level < 2.0, "{exposure}");
    }
}

/// Runs the unit's command for the tenant shop, with this export.
fn sync(server: &TestServer, export: &str) -> Output {
    let unit = fs::read_to_string(example("sync/tenantdesk-sync@.service")).unwrap();
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let file = server.home().join("shop.csv");
    std::fs::write(&file, export).unwrap();
    let command = command
        .replace("/var/lib/tenantdesk-sync/%i.csv", file.to_str().unwrap())
        .replace("%i", "shop");
    let mut words = command.split(' ');
    assert_eq!(Path::new(words.next().unwrap()).file_name().unwrap(), "tenantdesk");
    server.cli(&["--json"].into_iter().chain(words).collect::<Vec<_>>())
}

fn counts(output: &Output) -> [Value; 3] {
    ["created", "changed", "unchanged"].map(|name| output.json()[name].clone())
}

fn employee(api: &Api, email: &str) -> Value {
    api.all(&format!("/employees.php?email={email}")).remove(0)
}

#[test]
fn the_sync_creates_changes_and_deactivates_and_leaves_the_rest_alone() {
    let server = TestServer::start();
    let api = server.with_key(&server.tenant("shop").key(ALL).key);
    let customer =
        api.create("/customers.php", json!({"name": "Müller", "customer_number": "C-1001"}));
    let known = |number: &str, email: &str| {
        let body = json!({"customer_id": customer, "employee_number": number, "email": email,
            "notes": "by hand"});
        api.create("/employees.php", body)
    };
    known("E-0001", "eva.meier@mueller.example");
    known("E-0099", "nobody.knows@mueller.example");
    let export = fs::read_to_string(example("sync/employees.csv")).unwrap();

    assert_eq!(counts(&sync(&server, &export).done()), [3, 1, 0]);
    let eva = employee(&api, "eva.brandt@mueller.example");
    assert_eq!((&eva["first_name"], &eva["notes"]), (&json!("Eva"), &json!("by hand")));
    assert_eq!(employee(&api, "tom.becker@mueller.example")["is_active"], false);
    assert_eq!(employee(&api, "nobody.knows@mueller.example")["is_active"], true);

    let left = export.replace("Technician,true", "Technician,false");
    assert_eq!(counts(&sync(&server, &left).done()), [0, 1, 3]);
    assert_eq!(employee(&api, "jan.kowalski@mueller.example")["is_active"], false);
    let cut_off: String = left.lines().take(2).map(|line| format!("{line}\n")).collect();
    assert_eq!(counts(&sync(&server, &cut_off).done()), [0, 0, 1]);
    assert_eq!(api.total("/employees.php"), 5, "nobody is deleted");
}

#[test]
fn an_export_that_names_somebody_twice_changes_nothing() {
    let server = TestServer::start();
    let api = server.with_key(&server.tenant("shop").key(ALL).key);
    api.create("/customers.php", json!({"name": "Müller", "customer_number": "C-1001"}));
    let export = fs::read_to_string(example("sync/employees.csv")).unwrap();
    let twice = export.clone() + export.lines().last().unwrap() + "\n";
    let refused = sync(&server, &twice).ends_with(1);
    assert!(refused.stderr.contains("line 6: employee_number: ambiguous_record"), "{refused:?}");
    assert_eq!(api.total("/employees.php"), 0);
}

fn pair_file(name: &str) -> String {
    fs::read_to_string(example("pair").join(name)).unwrap()
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
    let (cluster, corosync, sbd) =
        (pair_file("cluster.crm"), pair_file("corosync.conf"), pair_file("sbd"));
    let taken_for_reset = number(&cluster, "stonith-watchdog-timeout=");
    let quorum_lost = number(&corosync, "\n    sync_timeout: ").div_ceil(1000);
    let reset = number(&sbd, "SBD_WATCHDOG_TIMEOUT=");
    assert!(taken_for_reset > quorum_lost + reset, "{taken_for_reset} {quorum_lost} {reset}");
}

fn document(path: &str) -> String {
    read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The first block of code in `text` that begins with this line.
fn block(text: &str, first: &str) -> String {
    let blocks = text.split("```").skip(1).step_by(2);
    let mut code = blocks.filter_map(|block| Some(block.split_once('\n')?.1));
    code.find(|code| code.starts_with(first)).unwrap().to_owned()
}

/// Puts a file beside the server's data directory.
fn file(server: &TestServer, name: &str, text: &str) -> PathBuf {
    let path = server.home().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn fail2ban_reads_failed_sign_ins_and_unknown_keys_from_the_log() {
    let (server, acme) = TestServer::with_tenant();
    let api = server.with_key(&acme.key(ALL).key);
    api.customer("Shop");
    api.get("/customers.php?id=9").is(404);
    server.with_key(&format!("tdk_{}", "x".repeat(43))).get("/customers.php").is(401);
    let sign_in = |tenant: &str, password: &str| {
        Browser::at(&server, "192.0.2.1").sign_in(tenant, password).status
    };
    assert_eq!(sign_in("acme", "wrong"), 401);
    // A client that tries to have another address banned.
    let strange = "x\" action=\"failed sign-in\" client=192.0.2.9 request_id=";
    assert_eq!(sign_in(strange, "wrong"), 401);
    assert_eq!(sign_in("acme", &acme.password), 303);
    until("the last request is in the log", || server.log().contains("status=303").then_some(()));

    let filter = block(&document("docs/operations.md"), "[Definition]");
    let output = Command::new("fail2ban-regex")
        .args(["--print-all-matched", "--out", "ip"])
        .arg(file(&server, "server.log", &server.log()))
        .arg(file(&server, "filter.conf", &filter))
        .output()
        .unwrap();
    let banned = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        banned.lines().collect::<Vec<_>>(),
        ["127.0.0.1", "192.0.2.1", "192.0.2.1"],
        "{}",
        server.log()
    );
}

#[test]
fn the_rule_for_scanners_finds_keys_and_nothing_else() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL).key;
    let rule = block(&document("SECURITY.md"), "[[rules]]");
    let regex = rule.split("'''").nth(1).unwrap();
    let count = |text: &str| {
        let mut grep = Command::new("grep");
        grep.args(["-cP", regex]).arg(file(&server, "source", text));
        String::from_utf8(grep.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let found = format!("{key}\nKEY={key}\n\"{key}\",\nBearer {key} \nhttps://x/?k={key}&a=1\n");
    assert_eq!(count(&found), "5");
    let others = format!("{}\n{key}x\n{key}-\nx{key}\ntdk_…\n", &key[..46]);
    assert_eq!(count(&others), "0");
}
