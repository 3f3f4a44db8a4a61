//! Contract section 10: others see nothing of an import while it runs, and an import that does not
//! end leaves nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rusqlite::ErrorCode;
use serde_json::json;
use tenantdesk::clock::Clock;

use crate::support::server::Tenant;
use crate::support::{ALL, Api, DataDir, TestServer, database, signal, until};

/// Rows that take a good part of a second to store.
const ROWS: i64 = 5_000;

const PATH: &str = "/customers.php";

pub(crate) fn write_rows(data_dir: &DataDir, name: &str, rows: i64) {
    let mut text = String::from("name,city,notes\n");
    for row in 0..rows {
        text.push_str(&format!(
            "Imported {row},Stadt {},a text whose words are indexed\n",
            row % 97
        ));
    }
    std::fs::write(data_dir.home().join(name), text).unwrap();
}

fn import_command(data_dir: &DataDir, arguments: &[&str]) -> Command {
    command(data_dir, &[&["import", "acme"], arguments].concat())
}

pub(crate) fn command(data_dir: &DataDir, arguments: &[&str]) -> Command {
    let mut command = data_dir.command();
    command.arg("--data-dir").arg(data_dir.data()).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

pub(crate) fn start_import(data_dir: &DataDir, arguments: &[&str]) -> Child {
    import_command(data_dir, arguments).spawn().unwrap()
}

#[track_caller]
pub(crate) fn succeeds(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Whether somebody writes to the file at this moment.
fn is_locked(file: &Path) -> bool {
    let file = database(file);
    file.busy_timeout(Duration::ZERO).unwrap();
    let begun = file.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
    begun.is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy))
}

/// Stops an import in the middle of its transaction, so that there is time to look.
pub(crate) fn stop_in_the_middle(child: &Child, file: &Path) {
    until("rows are stored", || {
        if !is_locked(file) {
            return None;
        }
        signal(child.id(), "STOP");
        // It may have been the server, or the end of the import.
        let is_stopped = is_locked(file);
        if !is_stopped {
            resume(child);
        }
        is_stopped.then_some(())
    });
}

pub(crate) fn resume(child: &Child) {
    signal(child.id(), "CONT");
}

/// Waits until the import says that it waits for another one.
fn await_waiting(child: &mut Child) {
    let lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let said = lines.map(Result::unwrap).find(|line| line.contains("waiting for another import"));
    assert!(said.is_some(), "it has ended");
}

/// Asserts that no way of reading shows a row of an import beside the five records.
#[track_caller]
fn assert_five(server: &TestServer, api: &Api) {
    for query in ["", "sort=name", "sort=-city", "created_at_from=2020-01-01", "city=Old"] {
        assert_eq!(api.ids(&format!("{PATH}?{query}")).len(), 5, "{query}");
    }
    assert_eq!(api.total(&format!("{PATH}?q=imported")), 0);
    assert_eq!(api.get("/changes.php").found()["data"].as_array().unwrap().len(), 5);
    assert_eq!(server.cli(&["export", "acme", "customers"]).done().stdout.lines().count(), 6);
}

fn server_with_five() -> (TestServer, Tenant, Api) {
    let server = TestServer::without_rate_limit();
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(ALL);
    for n in 0..5 {
        api.create(PATH, json!({"name": format!("Before {n}"), "city": "Old"}));
    }
    (server, tenant, api)
}

#[test]
fn readers_see_all_rows_or_none() {
    let (server, tenant, api) = server_with_five();
    write_rows(&server, "c.csv", ROWS);
    let child = start_import(&server, &["customers", "c.csv"]);
    until("rows are stored", || is_locked(&tenant.file()).then_some(()));
    let mut seen = 0;
    loop {
        let total = api.total(PATH);
        if total != 5 {
            assert_eq!(total, 5 + ROWS);
            break;
        }
        seen += 1;
        // The rows of this page are of one moment, which may be after the end.
        let page = api.get(&format!("{PATH}?sort=-id&limit=200&total=true")).found();
        let shown = page["data"].as_array().unwrap().len();
        assert!(
            [(5, 5), (200, 5 + ROWS)].contains(&(shown, page["total"].as_i64().unwrap())),
            "{shown}"
        );
    }
    assert!(seen > 1, "the import was observed");
    succeeds(child);
    assert_eq!(api.get(&format!("{PATH}?id=6")).found()["name"], "Imported 0");
    assert_eq!(api.total(&format!("{PATH}?q=imported")), ROWS);
    assert_eq!(api.customer("After"), 6 + ROWS);
    server.cli(&["check"]).done();
}

#[test]
fn an_import_that_is_killed_in_the_middle_leaves_nothing() {
    let (server, tenant, api) = server_with_five();
    write_rows(&server, "c.csv", ROWS);
    for _ in 0..3 {
        let mut child = start_import(&server, &["customers", "c.csv"]);
        stop_in_the_middle(&child, &tenant.file());
        child.kill().unwrap();
        let signal = child.wait().unwrap().signal();
        assert_eq!(signal, Some(9), "the import ended before it was killed");
        assert_five(&server, &api);
        server.cli(&["check"]).done();
    }
    server.cli(&["import", "acme", "customers", "c.csv"]).done();
    assert_eq!(api.total(PATH), 5 + ROWS);
    assert_eq!(api.customer("After"), 6 + ROWS, "no id was used up");
    server.cli(&["check"]).done();
}

#[test]
fn an_import_waits_for_another_one() {
    let (server, tenant, api) = server_with_five();
    write_rows(&server, "c.csv", ROWS);
    let first = start_import(&server, &["customers", "c.csv"]);
    stop_in_the_middle(&first, &tenant.file());
    let mut second = start_import(&server, &["customers", "c.csv"]);
    await_waiting(&mut second);
    let now = || Clock::system().now().timestamp();
    let waiting = now();
    until("a second is over", || (now() > waiting).then_some(()));
    resume(&first);
    succeeds(first);
    succeeds(second);
    assert_eq!(api.total(PATH), 5 + 2 * ROWS);
    let last = &server.cli_json(&["changes", "acme", "--last", "1"])[0];
    assert!(last["at"].as_str().unwrap() > waiting.to_string().as_str(), "{last}");
}

/// The referenced customer is deleted while the import waits.
#[test]
fn a_row_that_fails_late_leaves_nothing() {
    let (server, tenant, api) = server_with_five();
    let rows: String = (0..300).map(|row| format!("e{row}@shop.example,1\n")).collect();
    let text = format!("email,customer_id\n{rows}last@shop.example,2\n");
    std::fs::write(server.home().join("e.csv"), text).unwrap();
    let locked = database(&tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut child = start_import(&server, &["employees", "e.csv"]);
    await_waiting(&mut child);
    locked.execute_batch("DELETE FROM customers WHERE id = 2; COMMIT").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("customer_not_found") && stderr.contains("nothing was imported"),
        "{stderr}"
    );
    assert_eq!(api.total("/employees.php"), 0);
    api.delete("/customers.php?id=1").is(204);
}

#[test]
fn a_pipe_is_imported_like_a_file() {
    let data_dir = DataDir::acme();
    let pipe = data_dir.home().join("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let directory = data_dir.home().join("temporary");
    std::fs::create_dir(&directory).unwrap();
    for (text, code) in [("name\nOne\nTwo\n", 0), ("name\nThree\nx\n", 1)] {
        let mut command = import_command(&data_dir, &["customers", "pipe.csv"]);
        let child = command.env("TMPDIR", &directory).spawn().unwrap();
        let mut target = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        target.write_all(text.as_bytes()).unwrap();
        drop(target);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    }
    assert_eq!(data_dir.cli(&["export", "acme", "customers"]).done().stdout.lines().count(), 3);
}

#[test]
fn an_import_that_waits_for_a_pipe_holds_no_lock() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    let mut command = import_command(&data_dir, &["customers", "-", "--format", "csv"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"name\nOne\n").unwrap();
    until("it has read these bytes and waits for more", || {
        let waits_in = std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap();
        waits_in.contains("pipe").then_some(())
    });
    assert!(!is_locked(&tenant.file()));
    input.write_all(b"Two\n").unwrap();
    drop(input);
    succeeds(child);
    assert_eq!(data_dir.cli(&["export", "acme", "customers"]).done().stdout.lines().count(), 3);
}

/// The process that reads the workbook is stopped.
#[test]
fn an_import_holds_no_lock_while_a_workbook_is_parsed() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    let mut workbook = rust_xlsxwriter::Workbook::new();
    let sheet = workbook.add_worksheet();
    sheet.write(0, 0, "name").unwrap();
    for row in 1..20_000 {
        sheet.write(row, 0, format!("Customer {row}")).unwrap();
    }
    workbook.save(data_dir.home().join("w.xlsx")).unwrap();
    let child = start_import(&data_dir, &["customers", "w.xlsx"]);
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let reader = until("the workbook is read", || {
        let children = std::fs::read_to_string(&children).unwrap();
        let reader: u32 = children.split_whitespace().next()?.parse().ok()?;
        signal(reader, "STOP");
        Some(reader)
    });
    assert!(!is_locked(&tenant.file()));
    signal(reader, "CONT");
    succeeds(child);
    let lines = data_dir.cli(&["export", "acme", "customers"]).done().stdout.lines().count();
    assert_eq!(lines, 20_000);
}

/// It makes durable what the command before it may have left, when no other command writes.
#[test]
fn a_server_that_starts_waits_for_an_import() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    write_rows(&data_dir, "c.csv", ROWS);
    let import = start_import(&data_dir, &["customers", "c.csv"]);
    stop_in_the_middle(&import, &tenant.file());
    let mut command = data_dir.command();
    command.arg("--data-dir").arg(data_dir.data()).args(["serve", "--listen", "127.0.0.1:0"]);
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut server = command.spawn().unwrap();
    let mut said = BufReader::new(reader).lines().map(Result::unwrap);
    let first = said.find(|line| line.contains("waiting for") || line.contains("listening"));
    assert!(first.as_ref().is_some_and(|line| line.contains("waiting for")), "{first:?}");
    resume(&import);
    succeeds(import);
    assert!(said.any(|line| line.contains("listening")), "it has ended");
    server.kill().unwrap();
    server.wait().unwrap();
}
