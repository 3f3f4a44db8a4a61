//! Contract section 10: `backup` and `restore`. Section 14: a tenant is renamed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use crate::support::server::run;
use crate::support::syncs::Syncs;
use crate::support::{ALL, DataDir, Setup, TestServer, database, tree, until, uuid};

fn directories(data_dir: &DataDir) -> Vec<String> {
    let entries = std::fs::read_dir(data_dir.home().join("backups")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn manifest(backup: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(backup.join("manifest.json")).unwrap()).unwrap()
}

#[test]
fn a_backup_is_a_private_directory_named_by_its_time() {
    let (server, api) = TestServer::with_api();
    api.customer("Eins");
    let made = server.cli_json(&["backup", "backups"]);
    let names = directories(&server);
    assert_eq!(made["folder"], format!("backups/{}", names[0]));
    assert_eq!(made["created_at"].as_str().unwrap().replace(':', "-"), names[0]);
    let directory = server.home().join("backups").join(&names[0]);
    let manifest = manifest(&directory);
    let records = json!({"customers": 1, "employees": 0, "hardware": 0});
    assert_eq!(manifest["tenants"], json!([{"id": 1, "name": "acme", "records": records}]));
    for file in manifest["files"].as_array().unwrap() {
        let path = directory.join(file["path"].as_str().unwrap());
        let sum = Command::new("sha256sum").arg(&path).output().unwrap().stdout;
        assert!(sum.starts_with(file["sha256"].as_str().unwrap().as_bytes()), "{file}");
        assert_eq!(file["bytes"], path.metadata().unwrap().len());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for _ in 0..3 {
        server.cli(&["backup", "backups", "acme", "--keep", "2"]).done();
    }
    assert_eq!(directories(&server).len(), 3);
    let removed = server.cli_json(&["backup", "backups", "--keep", "1"]);
    assert_eq!(removed["removed"], json!([format!("backups/{}", names[0])]));
    assert_eq!(directories(&server).len(), 3);
    server.cli(&["backup", "backups", "--keep", "0"]).ends_with(2);
    server.cli(&["backup", "backups", "nobody"]).fails_saying("no tenant nobody");
}

#[test]
fn everything_is_restored_on_another_machine() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL);
    tenant.key(ALL);
    tenant.key_command("revoke", &tenant.key(ALL));
    let api = server.with_key(&key.key);
    api.customer("Eins");
    // The backup has a stored response of each kind, and an entry of each kind.
    let (post, id) = (uuid(), "/customers.php?id=2");
    let body = json!({"name": "Grüße \u{200d}", "notes": "\u{7}", "custom": {"room": "\"\\"}});
    let created = api.call("POST", "/v1/customers.php").key(&post).json(&body).send().is(201);
    api.call("PUT", id).key(&uuid()).json(&json!({"name": "Zwei"})).send().is(200);
    let operation = json!({"method": "PUT", "path": id, "body": {"city": "Kiel"}});
    let batch = json!({"operations": [operation]});
    api.call("POST", "/batch.php").key(&uuid()).json(&batch).send().is(200);
    api.call("DELETE", id).key(&uuid()).send().is(204);
    server.cli(&["backup", "backups"]).done();
    let data_dir = DataDir::new(false);
    std::fs::create_dir(data_dir.data()).unwrap();
    std::fs::write(data_dir.data().join(".gitignore"), "*").unwrap();
    let backups = server.home().join("backups");
    let restored = data_dir.cli(&["--json", "restore", backups.to_str().unwrap()]).done();
    assert_eq!(restored.json()["tenants"][0]["records"]["customers"], 1);
    assert!(restored.stderr.contains("2 keys of the backup are active."), "{restored:?}");
    data_dir.cli(&["restore", backups.to_str().unwrap()]).fails_saying("is not empty");
    data_dir.cli(&["check"]).done();
    let other = Setup::plain().start_at(data_dir);
    let api = other.with_key(&key.key);
    assert_eq!(api.get("/customers.php?id=1").found()["name"], "Eins");
    let repeated = api.call("POST", "/v1/customers.php").key(&post).json(&body).send();
    assert_eq!((repeated.status, repeated.body), (201, created.body));
    assert_eq!(api.customer("Drei"), 3);
    other.cli(&["restore", backups.to_str().unwrap(), "--force"]).ends_with(2);
    let refused = other.cli(&["restore", backups.to_str().unwrap()]);
    refused.fails_saying("is not empty, and a server uses it; stop the server");
    other.cli(&["restore", backups.to_str().unwrap(), "acme", "--force"]).done();
    assert_eq!(api.ids("/customers.php"), [1]);
    assert_eq!(api.customer("Vier"), 4);
    let strange = DataDir::new(false);
    std::fs::create_dir_all(strange.data().join("empty")).unwrap();
    strange.cli(&["restore", backups.to_str().unwrap()]).fails_saying("is not empty");
    other.cli(&["restore", "nowhere"]).fails_saying("nowhere");
    other.cli(&["restore", backups.to_str().unwrap(), "nobody"]).fails_saying("nobody");
}

#[test]
fn a_missing_or_damaged_file_is_restored_while_the_server_runs() {
    let (server, tenant) = TestServer::with_tenant();
    let api = tenant.with_scopes(ALL);
    api.customer("Eins");
    server.cli(&["backup", "backups"]).done();
    let restore = || {
        server.cli(&["restore", "backups", "acme", "--force"]).done();
        until("the tenant is served again", || (api.get(RECORDS).status == 200).then_some(()));
        assert_eq!(api.get("/customers.php?id=1").found()["name"], "Eins");
        api.customer("After");
    };
    std::fs::remove_file(tenant.file()).unwrap();
    api.get("/customers.php").fails_with(503, "tenant_unavailable");
    restore();
    std::fs::write(tenant.file(), vec![b'x'; 20_000]).unwrap();
    api.get("/customers.php").fails_with(503, "tenant_unavailable");
    restore();
    server.cli(&["check"]).done();
}

/// Another process that opens and closes a tenant's file must not remove the write-ahead log that
/// the server uses. SQLite would remove it if the server had opened and closed the file outside
/// SQLite before.
#[test]
fn records_written_after_another_command_are_kept() {
    let (mut server, tenant) = TestServer::with_tenant();
    let api = tenant.with_scopes(ALL);
    api.customer("Eins");
    for day in ["2020-01-01", "2020-01-02"] {
        assert!(
            Command::new("touch").args(["-d", day]).arg(tenant.file()).status().unwrap().success()
        );
        api.customer("Before");
        server.cli(&["check"]).done();
        assert!(tenant.files()[1].exists(), "the log was removed");
        api.customer("After");
    }
    server.kill();
    server.restart();
    assert_eq!(api.total("/customers.php"), 5);
}

/// A data directory with a backup of three tenants. Two are damaged after the backup: of one, the ids
/// that were used, so that it can be opened and not read; of the other, the header.
fn with_damaged_tenants() -> (std::sync::Arc<DataDir>, String) {
    let data_dir = DataDir::new(false);
    let [one, two, three] = ["good", "torn", "garbage"].map(|name| data_dir.tenant(name));
    for name in ["good", "torn", "garbage"] {
        let rows: String = (0..500).map(|row| format!("Customer {row} of {name}\n")).collect();
        std::fs::write(data_dir.home().join("c.csv"), format!("name\n{rows}")).unwrap();
        data_dir.cli(&["import", name, "customers", "c.csv"]).done();
    }
    let whole = data_dir.cli_json(&["backup", "backups"])["folder"].as_str().unwrap().to_owned();
    let file = database(&two.file());
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let page = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_sequence'";
    let page: u32 = file.query_row(page, [], |row| row.get(0)).unwrap();
    let mut torn = std::fs::read(two.file()).unwrap();
    torn[(page as usize - 1) * 4096..][..4096].fill(b'x');
    std::fs::write(two.file(), torn).unwrap();
    std::fs::write(three.file(), "no database ".repeat(1_000)).unwrap();
    assert!(one.file().exists());
    (data_dir, whole)
}

#[test]
fn a_tenant_that_is_deleted_during_a_backup_is_no_part_of_it() {
    let data_dir = DataDir::new(false);
    for name in ["stays", "leaves"] {
        data_dir.tenant(name);
    }
    let syncs = Syncs::new();
    syncs.hold(".partial/tenants/1.db");
    let mut command = data_dir.command();
    syncs.observe(&mut command);
    command.arg("--data-dir").arg(data_dir.data()).args(["--json", "backup", "backups"]);
    let running = thread::spawn(|| run(command, ""));
    let copy = data_dir.home().join("backups/.partial/tenants/1.db");
    until("the first tenant is copied", || copy.exists().then_some(()));
    data_dir.cli(&["tenant", "delete", "leaves", "--yes"]).done();
    syncs.release();
    let made = running.join().unwrap().done().json();
    assert_eq!((&made["tenants"][0]["name"], &made["left_out"]), (&json!("stays"), &json!([])));
    assert_eq!(made["tenants"].as_array().unwrap().len(), 1);
    std::fs::remove_dir_all(data_dir.data()).unwrap();
    data_dir.cli(&["restore", "backups"]).done();
    data_dir.cli(&["check"]).done();
}

#[test]
fn tenants_that_cannot_be_read_are_left_out_and_named() {
    let (data_dir, whole) = with_damaged_tenants();
    let output =
        data_dir.cli(&["--json", "backup", "backups", "--keep", "1"]).fails_saying("torn, garbage");
    let made = output.json();
    for line in ["tenant torn (id 2) is left out: ", "tenant garbage (id 3) is left out: "] {
        assert!(output.stderr.contains(line), "{output:?}");
    }
    assert_eq!(made["removed"], json!([]));
    assert_eq!(directories(&data_dir).len(), 2, "nothing is pruned");
    let records = json!({"customers": 500, "employees": 0, "hardware": 0});
    assert_eq!(made["tenants"], json!([{"id": 1, "name": "good", "records": records}]));
    let names: Vec<&Value> =
        made["left_out"].as_array().unwrap().iter().map(|tenant| &tenant["name"]).collect();
    assert_eq!(names, ["torn", "garbage"]);
    let partial = made["folder"].as_str().unwrap().to_owned();
    let manifest = manifest(&data_dir.home().join(&partial));
    assert_eq!(manifest["left_out"], made["left_out"]);
    let files = tree(&data_dir.home().join(&partial).join("tenants"));
    assert_eq!(files.len(), 1, "no copy of what is damaged: {files:?}");

    let doctor = data_dir.cli(&["doctor", "--backups", "backups"]).ends_with(1);
    assert!(doctor.stdout.contains("lacks the tenant torn"), "{doctor:?}");
    data_dir.cli(&["backup", "backups", "torn"]).fails_saying("no backup was made");
    assert_eq!(directories(&data_dir).len(), 2);

    // On another machine the other tenants are restored, and the missing ones are named.
    let other = DataDir::new(false);
    let partial = data_dir.home().join(partial);
    let restored = other.cli(&["--json", "restore", partial.to_str().unwrap()]).done();
    assert_eq!(restored.json()["left_out"], made["left_out"]);
    let left_out = "tenant torn (id 2) was left out of this backup";
    assert!(restored.stderr.contains(left_out), "{restored:?}");
    assert_eq!(other.cli_json(&["tenant", "list"]).as_array().unwrap().len(), 1);
    let torn = ["restore", partial.to_str().unwrap(), "torn"];
    other.cli(&torn).fails_saying("was left out of the backup");

    // On this machine the newest backup that holds a tenant is found.
    for name in ["torn", "garbage"] {
        let restored = data_dir.cli_json(&["restore", "backups", name, "--force"]);
        assert_eq!((&restored["folder"], &restored["left_out"]), (&json!(whole), &json!([])));
    }
    data_dir.cli(&["check"]).done();
    let removed = data_dir.cli_json(&["backup", "backups", "--keep", "1"]);
    assert_eq!(removed["removed"].as_array().unwrap().len(), 2);
}

/// An operator has looked after the file with sqlite3.
#[test]
fn a_backup_can_be_restored_or_names_the_sql_that_cures_the_file() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("other");
    let file = data_dir.tenant("acme").file();
    let sql = |sql: &str| database(&file).execute_batch(sql).unwrap();
    sql("CREATE INDEX by_room ON customers (custom ->> 'room'); ANALYZE");
    for (added, cure) in
        [("index by_room", "DROP INDEX by_room"), ("table sqlite_stat1", "DROP TABLE sqlite_stat1")]
    {
        let said = format!("acme (id 2) is left out: {}: it has an added {added}", file.display());
        let output = data_dir.cli(&["backup", "backups"]).ends_with(1);
        assert!(output.stderr.contains(&format!("{said}; run in sqlite3: {cure}\n")), "{output:?}");
        let doctor = data_dir.cli(&["doctor"]).ends_with(1).stdout;
        assert!(doctor.contains(cure), "{doctor}");
        sql(cure);
    }
    data_dir.cli(&["doctor"]).done();
}

/// The server starts with an empty data directory where the disk is not mounted. The backups of the
/// following nights must not take the place of those with the records.
#[test]
fn backups_of_a_lost_data_directory_do_not_replace_those_before() {
    let data_dir = DataDir::acme();
    let whole = back_up(&data_dir, &[]);
    std::fs::remove_dir_all(data_dir.data()).unwrap();
    drop(Setup::plain().start_at(data_dir.clone()));
    let doctor = || data_dir.cli(&["doctor", "--backups", "backups"]).ends_with(1).stdout;
    let lost = doctor();
    assert!(lost.contains("the data directory has no tenants"), "{lost}");
    let empty = back_up(&data_dir, &["--keep", "1"]);
    assert_eq!(directories(&data_dir), [whole.clone(), empty]);
    let empty = doctor();
    assert!(empty.contains(&format!("has no tenants, and backups/{whole} has")), "{empty}");
    std::fs::remove_dir_all(data_dir.data()).unwrap();
    let restored = data_dir.cli_json(&["restore", "backups"]);
    assert_eq!(restored["folder"], format!("backups/{whole}"));
    data_dir.cli(&["restore", "backups", "acme"]).fails_saying("would be overwritten");
}

#[test]
fn a_restore_of_everything_names_a_newer_backup_of_one_tenant() {
    let data_dir = DataDir::new(false);
    for name in ["acme", "other"] {
        data_dir.tenant(name);
        back_up(&data_dir, &[name]);
    }
    let newer = "there is a newer backup of the tenant";
    let restore = || {
        std::fs::remove_dir_all(data_dir.data()).unwrap();
        data_dir.cli(&["restore", "backups"]).done().stderr
    };
    back_up(&data_dir, &[]);
    assert!(!restore().contains(newer));
    back_up(&data_dir, &["acme"]);
    let said = restore();
    assert!(said.contains(&format!("{newer} acme: ")), "{said}");
    assert!(!said.contains(&format!("{newer} other")), "{said}");
}

#[test]
fn a_damaged_backup_is_refused_and_the_one_before_it_is_named() {
    let data_dir = DataDir::acme();
    data_dir.tenant("other");
    let whole = back_up(&data_dir, &[]);
    back_up(&data_dir, &["other"]);
    let damaged = data_dir.home().join("backups").join(back_up(&data_dir, &["acme"]));
    std::fs::write(damaged.join("tenants/1.db"), "torn").unwrap();
    let restore = ["restore", "backups", "acme", "--force"];
    data_dir.cli(&restore).fails_saying(&format!("the backup before it is backups/{whole}"));
    let folder = format!("backups/{whole}");
    data_dir.cli(&["restore", &folder, "acme", "--force"]).done();
}

/// The machine starts again in the middle of a restore. An empty service would refuse every key.
#[test]
fn no_server_starts_beside_a_restore_of_everything_that_was_killed() {
    let data_dir = DataDir::acme();
    back_up(&data_dir, &[]);
    std::fs::remove_dir_all(data_dir.data()).unwrap();
    std::fs::create_dir_all(data_dir.data().join(".restore/tenants")).unwrap();
    std::fs::create_dir(data_dir.data().join("tenants")).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    data_dir.cli(&serve).fails_saying("a restore did not end");
    assert!(!data_dir.registry_file().exists());
    data_dir.cli(&["restore", "backups"]).done();
    let new = "new, empty data directory";
    assert!(!Setup::plain().start_at(data_dir).log().contains(new));
    let server = Setup::plain().start_at(DataDir::new(false));
    until("the log says so", || server.log().contains(new).then_some(()));
}

/// The directory of backups can be a disk of its own, whose `lost+found` belongs to root.
#[test]
fn the_lost_and_found_of_a_disk_is_no_backup() {
    let data_dir = DataDir::acme();
    let former = back_up(&data_dir, &[]);
    let found = data_dir.home().join("backups/lost+found");
    std::fs::create_dir(&found).unwrap();
    std::fs::write(found.join("manifest.json"), "a piece of something else").unwrap();
    let kept = back_up(&data_dir, &["--keep", "1"]);
    assert!(!directories(&data_dir).contains(&former) && found.exists());
    data_dir.cli(&["doctor", "--backups", "backups"]).done();
    let restored = data_dir.cli_json(&["restore", "backups", "acme", "--force"]);
    assert_eq!(restored["folder"], format!("backups/{kept}"));
}

#[test]
fn a_backup_from_the_future_is_a_fault_and_never_the_newest() {
    let data_dir = DataDir::acme();
    let ahead = back_up(&data_dir, &[]);
    let directory = data_dir.home().join("backups").join(&ahead);
    let mut changed = manifest(&directory);
    changed["created_at"] = json!("2099-01-01T00:00:00Z");
    std::fs::write(directory.join("manifest.json"), changed.to_string()).unwrap();
    let restore = |source: &str| data_dir.cli(&["--json", "restore", source, "acme", "--force"]);
    restore("backups").fails_saying("restore this backup by its own path");
    let removed = back_up(&data_dir, &["--keep", "1"]);
    let last = back_up(&data_dir, &["--keep", "1"]);
    let mut kept = vec![ahead.clone(), last.clone()];
    kept.sort();
    assert_eq!(directories(&data_dir), kept, "{removed} is removed");
    let restored = restore("backups").done();
    assert_eq!(restored.json()["folder"], format!("backups/{last}"));
    assert!(restored.stderr.contains(&format!("backups/{ahead} is not taken")), "{restored:?}");
    let diagnosed = data_dir.cli(&["doctor", "--backups", "backups"]).ends_with(1).stdout;
    let expected = format!("backups/{ahead} is dated 2099-01-01T00:00:00Z, after now");
    assert!(diagnosed.contains(&expected), "{diagnosed}");
    restore(&format!("backups/{ahead}")).done();
}

#[test]
fn a_backup_lies_outside_the_data_directory() {
    let data_dir = DataDir::acme();
    let data = data_dir.data();
    std::os::unix::fs::symlink(&data, data_dir.home().join("link")).unwrap();
    for inside in [data.clone(), data.join("new/backups"), data_dir.home().join("link/new")] {
        let output = data_dir.cli(&["backup", inside.to_str().unwrap()]);
        output.fails_saying("is in the data directory");
        assert!(!data.join("new").exists() && !data.join(".partial").exists());
    }
    let beside = data.join("../backups");
    data_dir.cli(&["backup", beside.to_str().unwrap()]).done();
}

/// Makes a backup and returns its name.
fn back_up(data_dir: &DataDir, options: &[&str]) -> String {
    let made = data_dir.cli_json(&[&["backup", "backups"], options].concat());
    made["folder"].as_str().unwrap().strip_prefix("backups/").unwrap().to_owned()
}

#[test]
fn the_backups_of_a_renamed_tenant_are_of_one_kind_and_those_of_another_tenant_are_not() {
    let data_dir = DataDir::acme();
    data_dir.tenant("other");
    let first = back_up(&data_dir, &["acme"]);
    let other = back_up(&data_dir, &["other"]);
    data_dir.cli(&["tenant", "rename", "acme", "acme-berlin"]).done();
    let last = back_up(&data_dir, &["acme-berlin", "--keep", "1"]);
    let mut kept = vec![other, last];
    kept.sort();
    assert_eq!(directories(&data_dir), kept, "{first} is removed");
}

const RECORDS: &str = "/customers.php";

#[test]
fn a_running_server_has_the_new_name_from_the_next_request_on() {
    let (server, tenant) = TestServer::with_tenant();
    server.tenant("other");
    let api = tenant.with_scopes(ALL);
    api.customer("Kept");
    assert_eq!(api.get("/whoami.php").found()["tenant"], "acme");
    let done = server.cli_json(&["tenant", "rename", "acme", "acme-berlin"]);
    assert_eq!([&done["name"], &done["done"]], ["acme-berlin", "renamed"]);
    assert_eq!(api.get("/whoami.php").found()["tenant"], "acme-berlin");
    assert_eq!(api.ids(RECORDS), [1]);
    until("the log has the new name", || {
        server.log().contains("tenant=\"acme-berlin\"").then_some(())
    });
    server.cli(&["key", "list", "acme"]).fails_saying("no tenant acme");
    assert_eq!(server.cli_json(&["key", "list", "acme-berlin"]).as_array().unwrap().len(), 1);
    server.cli(&["tenant", "rename", "acme-berlin", "other"]).fails_saying("other exists already");
    server.cli(&["tenant", "rename", "acme-berlin", "acme-berlin"]).fails_saying("exists already");
    server.cli(&["tenant", "rename", "nobody", "new"]).fails_saying("no tenant nobody");
    for wrong in ["New", "a_b", "", "-a"] {
        server.cli(&["tenant", "rename", "acme-berlin", "--", wrong]).ends_with(2);
    }
    // The old name is free.
    server.tenant("acme");
    assert_eq!(api.ids(RECORDS), [1]);
}

#[test]
fn a_backup_from_before_is_restored_under_the_new_name_while_the_server_runs() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL);
    let api = server.with_key(&key.key);
    api.customer("Eins");
    server.cli(&["backup", "backups", "acme"]).done();
    tenant.ask("rename", &["new"]);
    api.customer("Zwei");
    server
        .cli(&["restore", "backups", "acme", "--as", "new"])
        .fails_saying("the tenant new would be overwritten");
    let restored = server.cli_json(&["restore", "backups", "acme", "--as", "new", "--force"]);
    let records = json!({"customers": 1, "employees": 0, "hardware": 0});
    let same = json!({"id": 1, "name": "new", "existed": true, "keys": 0, "records": records});
    assert_eq!(restored["tenants"], json!([same]));
    assert_eq!(api.ids(RECORDS), [1]);
    assert_eq!(api.customer("Drei"), 3, "ids go on from the higher count");
    assert_eq!(api.get("/whoami.php").found()["tenant"], "new");

    server.cli(&["tenant", "delete", "new", "--yes"]).done();
    let restored = server.cli_json(&["restore", "backups", "acme", "--as", "newer"]);
    let new = json!({"id": 2, "name": "newer", "existed": false, "keys": 1, "records": records});
    assert_eq!(restored["tenants"], json!([new]));
    assert_eq!(api.get("/whoami.php").found()["tenant"], "newer", "it comes with its keys");
    let copied = server.cli(&["restore", "backups", "acme", "--as", "copy"]).done();
    assert!(copied.stdout.contains("0 keys came with it"), "newer has them: {}", copied.stdout);
    assert_eq!(api.ids(RECORDS), [1]);
    server.cli(&["restore", "backups", "--as", "new"]).ends_with(2);
    server.cli(&["restore", "backups", "acme", "--as", "New"]).ends_with(2);
    server.cli(&["restore", "backups", "new", "--as", "x"]).fails_saying("of the tenant new");
}
