//! Contract section 10: what others see of an import while it runs, and what is left of one that does not end.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use serde_json::json;

use crate::support::server::Tenant;
use crate::support::{ALL, Api, DataDir, TestServer, database, until};

/// Rows that take several portions.
pub const ROWS: i64 = 12_000;

const PATH: &str = "/customers.php";

pub fn write_rows(data_dir: &DataDir, name: &str, rows: i64) {
    let mut text = String::from("name,city,notes\n");
    for row in 0..rows {
        text.push_str(&format!("Imported {row},Stadt {},a text whose words are indexed\n", row % 97));
    }
    std::fs::write(data_dir.home().join(name), text).unwrap();
}

fn import_command(data_dir: &DataDir, arguments: &[&str]) -> Command {
    let mut command = data_dir.command();
    command.arg("--data-dir").arg(data_dir.data()).args(["import", "acme"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

pub fn start_import(data_dir: &DataDir, arguments: &[&str]) -> Child {
    import_command(data_dir, arguments).spawn().unwrap()
}

#[track_caller]
pub fn succeeds(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The first id and the number of records that an import has stored and not yet shown.
pub fn pending(file: &Path) -> Option<(i64, i64)> {
    let row = database(file)
        .query_row("SELECT first_id, stored FROM pending_imports", [], |row| Ok((row.get(0)?, row.get(1)?)));
    row.ok()
}

/// Waits until an import has stored more than `rows` records, and returns the first id.
pub fn await_stored(file: &Path, rows: i64) -> i64 {
    until("rows are stored", || pending(file).filter(|(_, stored)| *stored > rows)).0
}

/// Records of an import, if hidden ones are removed from the file.
fn rows_in_file(file: &Path) -> i64 {
    let sql = "SELECT count(*) FROM customers WHERE name LIKE 'Imported%'";
    database(file).query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The entries of the journal in the file, up to its last number and beyond it.
fn entries_in_file(file: &Path) -> (i64, i64) {
    let sql =
        "SELECT count(*) FILTER (WHERE seq <= last_seq), count(*) FILTER (WHERE seq > last_seq) FROM changes, journal";
    database(file).query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

/// Asserts that the journal has `count` entries, none of which is of an import.
#[track_caller]
fn assert_entries_of_keys(server: &TestServer, api: &Api, count: usize) {
    let page = api.get("/changes.php?limit=200").found();
    let printed = server.cli(&["--json", "changes", "acme", "--last", "200"]).done().json();
    for entries in [&page["data"], &printed] {
        let entries = entries.as_array().unwrap();
        assert!(entries.iter().all(|entry| entry["by"]["kind"] == "key"), "{entries:?}");
        assert_eq!(entries.len(), count);
    }
    assert_eq!(page["more"], false);
}

/// Asserts that no way of reading shows a record with a hidden id.
fn assert_hidden(api: &Api, first: i64, present: i64) {
    let id = format!("{PATH}?id={first}");
    api.get(&id).fails_with(404, "not_found");
    api.put(&id, json!({"city": "Elsewhere"})).fails_with(404, "not_found");
    api.delete(&id).fails_with(404, "not_found");
    api.post("/employees.php", json!({"customer_id": first, "email": "a@b.example"}))
        .fails_with(422, "customer_not_found");
    for q in ["imported", "whose", "words+indexed", "exe", "im", "x"] {
        for list in ["", "&sort=-name", "&status=active"] {
            assert_eq!(api.total(&format!("{PATH}?q={q}{list}")), 0, "{q} {list}");
            assert_eq!(api.ids(&format!("{PATH}?q={q}{list}")), [0; 0], "{q} {list}");
        }
    }
    for sort in ["id", "-id", "city", "-city", "name", "-created_at"] {
        assert_eq!(api.total(&format!("{PATH}?sort={sort}")), present, "{sort}");
        let records = api.all(&format!("{PATH}?sort={sort}&limit=3"));
        let is_old = |record: &serde_json::Value| record["name"].as_str().unwrap().starts_with("Before");
        assert_eq!((records.len() as i64, records.iter().all(is_old)), (present, true), "{sort}");
    }
    assert_eq!(api.get(&format!("/changes.php?resource=customers&id={first}")).found()["data"], json!([]));
    assert_eq!(api.total(&format!("{PATH}?city=Stadt+1")), 0);
    assert_eq!(api.total(&format!("{PATH}?created_at_from=2020-01-01")), present);
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
    let first = await_stored(&tenant.file(), 0);
    assert_eq!(first, 6);
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
        assert!([(5, 5), (200, 5 + ROWS)].contains(&(shown, page["total"].as_i64().unwrap())), "{shown}");
    }
    assert!(seen > 1, "the import was observed");
    succeeds(child);
    assert_eq!(api.get(&format!("{PATH}?id={first}")).found()["name"], "Imported 0");
    assert_eq!(api.total(&format!("{PATH}?q=imported")), ROWS);
    assert_eq!(api.customer("After"), first + ROWS);
    server.cli(&["check"]).done();
}

/// The import is stopped in the middle, so that there is time to look.
#[test]
fn hidden_rows_cannot_be_read_changed_or_referred_to() {
    let (server, tenant, api) = server_with_five();
    write_rows(&server, "c.csv", ROWS);
    let child = start_import(&server, &["customers", "c.csv"]);
    let first = await_stored(&tenant.file(), 0);
    stop(&child);
    until("no portion is being stored", || {
        let mut file = database(&tenant.file());
        file.busy_timeout(std::time::Duration::ZERO).unwrap();
        let locked = file.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map(drop);
        if locked.is_err() {
            resume(&child);
            thread::sleep(std::time::Duration::from_millis(20));
            stop(&child);
        }
        locked.ok()
    });
    assert!(pending(&tenant.file()).is_some(), "the import has not ended");
    assert_hidden(&api, first, 5);
    assert_entries_of_keys(&server, &api, 5);
    server.cli(&["check"]).done();
    let exported = server.cli(&["export", "acme", "customers"]).done().stdout;
    assert_eq!(exported.lines().count(), 6);
    let backup = server.cli(&["--json", "backup", "backups"]).done().json();
    assert_eq!(backup["tenants"][0]["records"]["customers"], 5, "{backup}");
    assert!(api.customer("Written meanwhile") > first + ROWS - 1);
    resume(&child);
    succeeds(child);
    assert_eq!(api.total(PATH), 6 + ROWS);

    // The backup has none of the rows and entries, and the next list has what is left of them removed.
    let cursor = api.get("/changes.php?cursor=now").found()["next_cursor"].as_str().unwrap().to_owned();
    server.cli(&["restore", "backups", "acme", "--force"]).done();
    assert_entries_of_keys(&server, &api, 5);
    api.get(&format!("/changes.php?cursor={cursor}")).fails_with(410, "changes_gone");
    assert_eq!(api.total(PATH), 5);
    assert_eq!(api.total(&format!("{PATH}?q=imported")), 0);
    until("the server removes what is left", || {
        api.total(PATH);
        (rows_in_file(&tenant.file()) == 0 && pending(&tenant.file()).is_none()).then_some(())
    });
    server.cli(&["check"]).done();
    assert!(api.customer("After") > first + ROWS, "ids are not used again");
    assert_entries_of_keys(&server, &api, 6);
    assert_eq!(entries_in_file(&tenant.file()), (6, 0));
}

fn stop(child: &Child) {
    signal(child, "-STOP");
}

fn resume(child: &Child) {
    signal(child, "-CONT");
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").arg(name).arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
}

#[test]
fn an_import_that_is_killed_in_the_middle_leaves_nothing_visible() {
    let (server, tenant, api) = server_with_five();
    write_rows(&server, "c.csv", ROWS);
    let mut last_first = 0;
    for round in 0..5 {
        let mut child = start_import(&server, &["customers", "c.csv"]);
        // Ids rise. The rows of the round before have lower ones.
        let is_reached = |(first, stored): &(i64, i64)| *first > last_first && *stored > round * 1_200;
        let (first, _) = until("rows are stored", || pending(&tenant.file()).filter(is_reached));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "the import ended before it was killed");
        last_first = first;
        assert_eq!(api.total(PATH), 5, "round {round}");
        assert_eq!(api.total(&format!("{PATH}?q=imported")), 0);
        api.get(&format!("{PATH}?id={first}")).fails_with(404, "not_found");
        assert_entries_of_keys(&server, &api, 5);
        server.cli(&["check"]).done();
    }
    server.cli(&["import", "acme", "customers", "c.csv"]).done();
    assert_eq!(api.total(PATH), 5 + ROWS);
    assert_eq!(rows_in_file(&tenant.file()), ROWS, "what the others left is gone");
    assert_eq!(entries_in_file(&tenant.file()), (5 + ROWS, 0));
    assert!(!Path::new(&format!("{}.import", tenant.file().display())).exists());
    server.cli(&["check"]).done();
}

/// The number of entries is set to what it is after a million changes.
#[test]
fn entries_that_are_too_many_are_removed_but_no_hidden_ones() {
    let (server, tenant, api) = server_with_five();
    write_rows(&server, "c.csv", ROWS);
    let mut child = start_import(&server, &["customers", "c.csv"]);
    await_stored(&tenant.file(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    let (shown, hidden) = entries_in_file(&tenant.file());
    assert!((shown, hidden > 0) == (5, true), "{shown} {hidden}");
    let set_entries = |count: i64| {
        let changed = database(&tenant.file()).execute("UPDATE journal SET entries = ?", [count]).unwrap();
        assert_eq!(changed, 1);
    };
    set_entries(1_000_100);
    api.customer("The oldest entries give way");
    assert_eq!(entries_in_file(&tenant.file()), (0, hidden));
    set_entries(0);
    api.customer("An entry that is old when the import ends");
    set_entries(1_000_000);
    server.cli(&["import", "acme", "customers", "c.csv"]).done();
    let (shown, hidden) = entries_in_file(&tenant.file());
    assert_eq!((shown, hidden), (1, 0), "as many entries are removed as were added");
    set_entries(shown);
    server.cli(&["check"]).done();
}

#[test]
fn no_write_is_refused_while_an_import_runs() {
    let (server, _tenant, api) = server_with_five();
    write_rows(&server, "c.csv", 3 * ROWS);
    let data_dir = Arc::clone(&server);
    let import = thread::spawn(move || succeeds(start_import(&data_dir, &["customers", "c.csv"])));
    let mut written = 0;
    while !import.is_finished() {
        api.post(PATH, json!({"name": "Meanwhile"})).is(201);
        written += 1;
    }
    import.join().unwrap();
    assert!(written > 1);
    assert_eq!(api.total(PATH), 5 + 3 * ROWS + written);
    server.cli(&["check"]).done();
}

#[test]
fn an_import_waits_for_another_one() {
    let (server, tenant, api) = server_with_five();
    write_rows(&server, "c.csv", ROWS);
    let first = start_import(&server, &["customers", "c.csv"]);
    await_stored(&tenant.file(), 0);
    let second = start_import(&server, &["customers", "c.csv"]);
    let output = second.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("waiting for another import"), "{output:?}");
    succeeds(first);
    assert_eq!(api.total(PATH), 5 + 2 * ROWS);
}

/// The referenced customer is deleted after the rows were checked.
#[test]
fn a_row_that_fails_late_leaves_nothing() {
    let (server, tenant, api) = server_with_five();
    let mut text = String::from("email,customer_id\n");
    (0..ROWS).for_each(|row| text.push_str(&format!("e{row}@shop.example,1\n")));
    text.push_str("last@shop.example,2\n");
    std::fs::write(server.home().join("e.csv"), text).unwrap();
    let child = start_import(&server, &["employees", "e.csv"]);
    await_stored(&tenant.file(), 0);
    api.delete("/customers.php?id=1").fails_with(409, "has_dependents");
    api.delete("/customers.php?id=2").is(204);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("customer_not_found") && stderr.contains("nothing was imported"), "{stderr}");
    assert_eq!(api.total("/employees.php"), 0);
    assert!(pending(&tenant.file()).is_none());
    api.delete("/customers.php?id=1").is(204);
    server.cli(&["check"]).done();
}

#[test]
fn ids_can_be_kept_again_after_an_import_that_was_killed() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    let mut text = String::from("id,name\n");
    (0..ROWS).for_each(|row| text.push_str(&format!("{},Imported {row}\n", (row * 7) % ROWS + 11)));
    std::fs::write(data_dir.home().join("c.csv"), &text).unwrap();
    let mut child = start_import(&data_dir, &["customers", "c.csv", "--keep-ids"]);
    await_stored(&tenant.file(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    data_dir.cli(&["import", "acme", "customers", "c.csv", "--keep-ids"]).done();
    let exported = data_dir.cli(&["export", "acme", "customers"]).done().stdout;
    let ids = exported.lines().skip(1).map(|line| line.split(',').next().unwrap().parse::<i64>().unwrap());
    assert!(ids.eq(11..11 + ROWS));
    data_dir.cli(&["check"]).done();
}

#[test]
fn a_pipe_is_imported_like_a_file() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let pipe = data_dir.home().join("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let folder = data_dir.home().join("temporary");
    std::fs::create_dir(&folder).unwrap();
    for (text, code) in [("name\nOne\nTwo\n", 0), ("name\nThree\nx\n", 1)] {
        let mut command = import_command(&data_dir, &["customers", "pipe.csv"]);
        let child = command.env("TMPDIR", &folder).spawn().unwrap();
        let mut target = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        target.write_all(text.as_bytes()).unwrap();
        drop(target);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }
    assert_eq!(data_dir.cli(&["export", "acme", "customers"]).done().stdout.lines().count(), 3);
}
