//! `--copy-socket` with the real Litestream: what was answered with success is in the copy, whatever fails.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use tenantdesk::copy::{ControlSocket, PATIENCE};

use crate::clients::{Clients, Request};
use crate::load::{self, Known};
use crate::machines::{Copy, Machine, equipped, installed};
use crate::pair::can_make_namespaces;
use crate::rounds::number;
use crate::support::server::Output;
use crate::support::{ALL, DataDir, Tenant, database, until, uuid};

/// What fails while clients write. In the end of every round the first machine and its Litestream are killed, and the second machine
/// takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Litestream,
    Server,
    /// Only the end of the round.
    Both,
    Receiver,
    /// The line to the receiver is cut.
    Line,
}

fn rounds(fault: Fault, count: usize) {
    if !equipped() {
        return;
    }
    for round in 1..=count {
        let copy = match fault {
            Fault::Line => Copy::over_line(),
            Fault::Receiver => Copy::to_second_host(),
            _ if round % 2 == 0 => Copy::to_second_host(),
            _ => Copy::to_directory(),
        };
        one_round(fault, round, &copy);
    }
}

/// Rounds of each fault: `CONFIRMED_ROUNDS=10` is the long form.
fn count() -> usize {
    number("CONFIRMED_ROUNDS", 2)
}

#[test]
fn nothing_acknowledged_is_lost_when_litestream_is_killed() {
    rounds(Fault::Litestream, count());
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    rounds(Fault::Server, count());
}

#[test]
fn nothing_acknowledged_is_lost_when_both_are_killed() {
    rounds(Fault::Both, count());
}

#[test]
fn nothing_acknowledged_is_lost_when_the_receiver_is_killed() {
    rounds(Fault::Receiver, count());
}

#[test]
fn nothing_acknowledged_is_lost_when_the_line_is_cut() {
    line_rounds(1);
}

#[test]
#[ignore = "ten rounds of each fault take ten minutes"]
fn nothing_acknowledged_is_lost_in_ten_rounds() {
    for fault in [Fault::Litestream, Fault::Server, Fault::Both, Fault::Receiver] {
        rounds(fault, 10);
    }
}

#[test]
#[ignore = "ten rounds take six minutes"]
fn nothing_acknowledged_is_lost_in_ten_rounds_of_a_cut_line() {
    line_rounds(10);
}

fn line_rounds(count: usize) {
    if installed(&["ip", "nsenter", "unshare"]) && can_make_namespaces() {
        rounds(Fault::Line, count);
    }
}

fn random(below: u64) -> Duration {
    Duration::from_millis(u64::from_str_radix(&uuid()[..8], 16).unwrap() % below)
}

fn one_round(fault: Fault, round: usize, copy: &Copy) {
    let data_dir = DataDir::new(false);
    let known = load::tenants(&data_dir, 4);
    let mut copying = copy.begin(&data_dir);
    let mut machine = Machine::confirmed(Arc::clone(&data_dir), copy);
    copy.await_begun(known.iter().map(|tenant| tenant.id));

    let clients = Clients::start(&data_dir, &known, 8);
    thread::sleep(Duration::from_millis(500) + random(1_500));
    let began = Instant::now();
    // Some faults are over before a write has waited too long, some are not.
    let lasts = random(8_000);
    let mut refused = None;
    match fault {
        Fault::Litestream => {
            copying.kill();
            thread::sleep(lasts);
            copying = copy.begin(&data_dir);
        }
        Fault::Server => {
            machine.kill();
            machine = Machine::confirmed(Arc::clone(&data_dir), copy);
        }
        Fault::Receiver => {
            copy.kill_receiver();
            thread::sleep(lasts);
            copy.restart_receiver();
        }
        Fault::Line => refused = Some(cut_line(copy, &data_dir, &known, lasts)),
        Fault::Both => {}
    }
    let over = Instant::now();
    let resumed = clients.await_all_acknowledged_after(over);
    thread::sleep(random(1_500));
    machine.kill();
    copying.kill();
    let mut done = clients.end();
    done.unanswered.extend(refused);

    let second = Machine::second(copy);
    let acknowledged = done.acknowledged.len();
    let repeated = done.unanswered.len();
    for request in std::mem::take(&mut done.unanswered) {
        let id = request.send(&second.data_dir, &known).expect("the second machine answers");
        done.acknowledged.push((request, id));
    }
    check(&second, &known, &done.acknowledged);
    eprintln!(
        "{fault:?}, round {round}: lasted {:.1} s, each client went on within {:.2} s of its end; {acknowledged} acknowledged, \
         {} refused, {repeated} repeated on the second machine; lost 0, doubled 0",
        (over - began).as_secs_f64(),
        resumed.as_secs_f64(),
        done.refused
    );
}

/// Cuts the line until `lasts` after a change was refused at once, and waits until the copy can confirm all tenants' changes again.
/// Reads go on meanwhile. Returns the request that was refused.
fn cut_line(copy: &Copy, data_dir: &Arc<DataDir>, known: &[Known], lasts: Duration) -> Request {
    let (api, request) = (data_dir.with_key(&known[0].key), Request::new(0));
    let is_cut = AtomicBool::new(true);
    let read = || {
        let api = data_dir.with_key(&known[0].key);
        let mut slowest = Duration::ZERO;
        while is_cut.load(Ordering::Relaxed) {
            let began = Instant::now();
            api.get("/customers.php?limit=1").is(200);
            slowest = slowest.max(began.elapsed());
        }
        slowest
    };
    copy.line().cut();
    let cut = Instant::now();
    let (first, at_once, slowest_read) = thread::scope(|scope| {
        let reader = scope.spawn(read);
        let mut first = None;
        let at_once = until("a change is refused at once", || {
            let began = Instant::now();
            let refusal = request.try_send(&api)?.expect_err("nothing is confirmed");
            first.get_or_insert_with(|| began.elapsed());
            refusal.message().contains("This request changed nothing").then(|| began.elapsed())
        });
        thread::sleep(lasts);
        is_cut.store(false, Ordering::Relaxed);
        (first, at_once, reader.join().unwrap())
    });
    let lasted = cut.elapsed();
    copy.line().mend();
    let confirmable = await_confirmable(copy, data_dir, known).as_secs_f64();
    eprintln!(
        "line cut for {:.1} s: the first change was refused after {:.1} s, a further one after {:.0} ms; slowest read {:.0} ms; \
         the copy could confirm every tenant {confirmable:.1} s after the line was back",
        lasted.as_secs_f64(),
        first.unwrap_or_default().as_secs_f64(),
        at_once.as_secs_f64() * 1_000.0,
        slowest_read.as_secs_f64() * 1_000.0
    );
    request
}

/// Waits until Litestream confirms each tenant's file. Returns how long that took.
fn await_confirmable(copy: &Copy, data_dir: &DataDir, known: &[Known]) -> Duration {
    let (socket, began) = (ControlSocket::new(copy.socket()), Instant::now());
    let confirmed = |id: i64| {
        let file = data_dir.data().join(format!("tenants/{id}.db"));
        until("the copy confirms changes again", || socket.sync(&file, Instant::now() + PATIENCE).ok());
    };
    thread::scope(|scope| known.iter().for_each(|tenant| drop(scope.spawn(|| confirmed(tenant.id)))));
    began.elapsed()
}

/// Every acknowledged request has made one record, and nothing else has.
#[track_caller]
fn check(second: &Machine, known: &[Known], acknowledged: &[(Request, i64)]) {
    for (n, tenant) in known.iter().enumerate() {
        let records = second.data_dir.with_key(&tenant.key).all("/customers.php?limit=200&sort=id");
        let found: BTreeMap<i64, String> = records
            .iter()
            .map(|record| (record["id"].as_i64().unwrap(), record["name"].as_str().unwrap().to_owned()))
            .collect();
        let expected: BTreeMap<i64, String> = acknowledged
            .iter()
            .filter(|(request, _)| request.tenant == n)
            .map(|(request, id)| (*id, request.name.clone()))
            .collect();
        let lost: Vec<_> = expected.iter().filter(|(id, name)| found.get(id) != Some(name)).collect();
        let doubled: Vec<_> = found.iter().filter(|(id, name)| expected.get(id) != Some(name)).collect();
        assert!(lost.is_empty() && doubled.is_empty(), "{}: lost {lost:?}, doubled {doubled:?}", tenant.name);
    }
}

/// A command with `--copy-socket`.
#[track_caller]
fn cli(data_dir: &DataDir, copy: &Copy, arguments: &[&str]) -> Output {
    data_dir.cli_with_copy(&copy.socket(), arguments)
}

#[test]
fn what_a_command_reported_as_done_is_in_the_copy() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_second_host();
    let data_dir = DataDir::new(false);
    let first = data_dir.tenant("first");
    let leaked = first.key(ALL);
    let mut copying = copy.begin(&data_dir);
    copy.await_begun([first.id]);
    let mut machine = Machine::confirmed(Arc::clone(&data_dir), &copy);
    // Litestream finds the new tenant's file itself.
    let made = cli(&data_dir, &copy, &["--json", "tenant", "create", "new"]).done().json();
    assert_eq!(made["id"], 2);
    let key = cli(&data_dir, &copy, &["key", "create", "new", "--name", "x", "--scope", "all"]).done();
    let rows = data_dir.home().join("rows.csv");
    std::fs::write(&rows, format!("name,notes\n{}", format!("Row,{}\n", "x".repeat(200)).repeat(5_000))).unwrap();
    cli(&data_dir, &copy, &["import", "new", "customers", rows.to_str().unwrap()]).done();
    let status = cli(&data_dir, &copy, &["--json", "copy", "status"]).done().json();
    assert_eq!((&status["litestream"], status["databases"].as_array().map(Vec::len)), (&json!("0.5.17"), Some(3)));
    cli(&data_dir, &copy, &["key", "revoke", "first", &leaked.id.to_string()]).done();
    machine.kill();
    copying.kill();

    let second = Machine::second(&copy);
    second.data_dir.with_key(&leaked.key).get("/customers.php").fails_with(401, "revoked_api_key");
    assert_eq!(second.data_dir.with_key(key.stdout.trim()).total("/customers.php"), 5_000);
}

/// A damaged registry that is restored gets another file under its name. Litestream is told, and copies that one.
#[test]
fn a_restored_registry_is_in_the_copy() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_directory();
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    let backups = data_dir.home().join("backups");
    let backups = backups.to_str().unwrap();
    data_dir.cli(&["backup", backups]).done();
    tenant.key(ALL);
    let mut copying = copy.begin(&data_dir);
    copy.await_begun([tenant.id]);
    let _ = std::fs::remove_file(data_dir.data().join("registry.db-wal"));
    std::fs::write(data_dir.registry_file(), "This is no database. ".repeat(1_000)).unwrap();
    cli(&data_dir, &copy, &["restore", backups, "--force"]).done();
    let key = cli(&data_dir, &copy, &["key", "create", "acme", "--name", "x", "--scope", "all"]).done();
    copying.kill();
    let second = Machine::second(&copy);
    second.data_dir.with_key(key.stdout.trim()).get("/customers.php").is(200);
}

/// Litestream does not copy a file that was missing and came back. `restore` says that Litestream has to be started again, and waits for it.
#[test]
fn a_restore_of_a_missing_file_ends_once_litestream_copies_it_again() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_directory();
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    let key = tenant.key(ALL).key;
    let backups = data_dir.home().join("backups");
    let backups = backups.to_str().unwrap();
    data_dir.cli(&["backup", backups]).done();
    let mut copying = copy.begin(&data_dir);
    copy.await_begun([tenant.id]);
    for file in tenant.files() {
        let _ = std::fs::remove_file(file);
    }
    thread::scope(|scope| {
        let restoring = scope.spawn(|| cli(&data_dir, &copy, &["restore", backups, "acme", "--force"]));
        until("the file is back", || tenant.file().exists().then_some(()));
        copying.kill();
        copying = copy.begin(&data_dir);
        let restored = restoring.join().unwrap().done();
        assert!(restored.stderr.contains("restart it"), "{restored:?}");
    });
    copying.kill();
    let second = Machine::second(&copy);
    second.data_dir.with_key(&key).get("/customers.php").is(200);
}

/// Leaves a transaction in the log of a database as a process does that is killed in the middle of a commit: its frames are in the
/// log, and the index does not know them. It is larger than one new customer. Other processes have the file open.
fn leave_transaction(data_dir: &DataDir, copy: &Copy, file: &Path) {
    // Litestream has emptied the log before, so it does not write to the file itself when it copies the transaction.
    for _ in 0..3 {
        database(file).execute("UPDATE customers SET notes = notes || 'y' WHERE id = 1", []).unwrap();
        cli(data_dir, copy, &["copy", "resume"]).done();
    }
    let index = format!("{}-shm", file.display());
    let saved = format!("{index}.saved");
    // As another process: closing a descriptor of the index would drop this process's locks on it.
    let copy_index = |from: &str, to: &str| {
        let arguments = [format!("if={from}"), format!("of={to}"), "conv=notrunc".to_owned(), "status=none".to_owned()];
        assert!(Command::new("dd").args(arguments).status().unwrap().success());
    };
    let connection = database(file);
    connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    copy_index(&index, &saved);
    assert!(connection.execute("UPDATE customers SET notes = notes || 'y'", []).unwrap() > 1_000);
    copy_index(&saved, &index);
    std::fs::remove_file(saved).unwrap();
    drop(connection);
    // Litestream takes it for committed.
    cli(data_dir, copy, &["copy", "resume"]).done();
}

/// A tenant with so many customers that a change to all of them is larger than one new customer, and its copy.
fn with_many_customers() -> (Copy, Arc<DataDir>, Tenant, String) {
    let copy = Copy::to_directory();
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    let key = tenant.key(ALL).key;
    let rows = data_dir.home().join("rows.csv");
    std::fs::write(&rows, format!("name,notes\n{}", format!("Row,{}\n", "x".repeat(200)).repeat(2_000))).unwrap();
    data_dir.cli(&["import", "acme", "customers", rows.to_str().unwrap()]).done();
    (copy, data_dir, tenant, key)
}

#[test]
fn a_transaction_that_a_killed_server_left_hides_no_later_one() {
    if !equipped() {
        return;
    }
    let (copy, data_dir, tenant, key) = with_many_customers();
    let mut copying = copy.begin(&data_dir);
    copy.await_begun([tenant.id]);
    leave_transaction(&data_dir, &copy, &tenant.file());
    let mut machine = Machine::confirmed(Arc::clone(&data_dir), &copy);
    let id = data_dir.with_key(&key).customer("After the restart");
    machine.kill();
    copying.kill();
    let second = Machine::second(&copy);
    let found = second.data_dir.with_key(&key).get(&format!("/customers.php?id={id}")).found();
    assert_eq!(found["name"], "After the restart");
    assert!(machine.log().contains("the file is recovered"), "{}", machine.log());
    second.data_dir.cli(&["check"]).done();
}

#[test]
fn a_transaction_that_a_killed_command_left_hides_no_later_one() {
    if !equipped() {
        return;
    }
    let (copy, data_dir, tenant, key) = with_many_customers();
    let mut copying = copy.begin(&data_dir);
    copy.await_begun([tenant.id]);
    let mut machine = Machine::confirmed(Arc::clone(&data_dir), &copy);
    let api = data_dir.with_key(&key);
    api.customer("Before");
    leave_transaction(&data_dir, &copy, &tenant.file());
    // The file is closed and opened again in between.
    let name = "After the command";
    let made = until("a write is accepted", || {
        let reply = api.post("/customers.php", json!({"name": name}));
        (reply.status != 503).then_some(reply)
    });
    let id = made.created()["id"].as_i64().unwrap();
    machine.kill();
    copying.kill();
    let second = Machine::second(&copy);
    assert_eq!(second.data_dir.with_key(&key).get(&format!("/customers.php?id={id}")).found()["name"], name);
    assert!(machine.log().contains("the file is recovered"), "{}", machine.log());
    second.data_dir.cli(&["check"]).done();
}
