//! Contract section 10: `undo` takes changes of the change log back.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::model::body;
use crate::support::contract::{RESOURCES, at};
use crate::support::random::{Random, seed};
use crate::support::server::{Output, Tenant, run};
use crate::support::{ALL, Api, Reply, Setup, TestServer, database, until};

/// Resource, as its place in [`RESOURCES`], and id.
type Name = (usize, i64);
/// All records, without what an undo does not bring back.
type State = BTreeMap<Name, Value>;

fn state(api: &Api) -> State {
    let mut state = State::new();
    for (resource, kind) in RESOURCES.iter().enumerate() {
        for mut record in api.all(&format!("{}?limit=200", kind.path)) {
            let members = record.as_object_mut().unwrap();
            members.remove("updated_at");
            members.remove("etag");
            state.insert((resource, members["id"].as_i64().unwrap()), record);
        }
    }
    state
}

fn undo(server: &TestServer, options: &[&str]) -> Output {
    server.cli(&[&["undo", "acme"], options].concat())
}

#[track_caller]
fn undo_json(server: &TestServer, options: &[&str]) -> Value {
    undo(server, &[options, &["--json"]].concat()).done().json()
}

/// Runs the command that a command has printed, in the same directory.
#[track_caller]
fn run_printed(server: &TestServer, printed: &str) -> Output {
    let (_, line) = printed.rsplit_once("tenantdesk ").unwrap();
    let mut command = server.command();
    command.args(line.split_whitespace());
    run(command, "")
}

fn request(reply: &Reply) -> String {
    reply.header("X-Request-Id").unwrap().to_owned()
}

/// Dates all entries to yesterday, so that `--since 2h` begins after them.
fn end_yesterday(tenant: &Tenant) {
    let sql = "UPDATE changes SET at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-1 day')";
    database(&tenant.file()).execute(sql, []).unwrap();
}

/// Makes a random change, which may fail.
fn change(rng: &mut Random, api: &Api) {
    let kind = *rng.pick(&RESOURCES);
    let path = at(kind, i64::try_from(rng.below(12)).unwrap() + 1);
    let is_new = rng.below(5) < 2;
    let mut body = body(rng, kind, is_new);
    let (name, text) = (*rng.pick(&["room", "floor"]), *rng.pick(&["", "1", "2"]));
    body.insert("custom".to_owned(), json!({ name: text }));
    match rng.below(4) {
        _ if is_new => _ = api.post(kind.path, Value::Object(body)),
        0 => _ = api.delete(&path),
        _ => _ = api.put(&path, Value::Object(body)),
    }
}

/// `MODEL_SEED` repeats a run.
#[test]
fn an_undo_since_a_moment_brings_back_its_state_and_can_be_undone() {
    let (server, tenant) = TestServer::with_unlimited_tenant();
    let api = tenant.with_scopes(ALL);
    let mut rng = Random::new(seed("MODEL_SEED"));
    for _ in 0..3 {
        (0..20).for_each(|_| change(&mut rng, &api));
        let moment = state(&api);
        end_yesterday(&tenant);
        (0..20).for_each(|_| change(&mut rng, &api));
        let present = state(&api);
        let since = ["--since", "2h", "--yes"];
        let mut tried = undo_json(&server, &["--since", "2h", "--dry-run"]);
        assert_eq!(state(&api), present, "a dry run changes nothing");
        let done = undo_json(&server, &since);
        assert_eq!(state(&api), moment, "{done}");
        assert_eq!(done["left"], json!([]));
        tried["run"] = done["run"].clone();
        assert_eq!(tried, done);
        if let Some(run) = done["run"].as_str() {
            assert_eq!(undo_json(&server, &["--request", run])["left"], json!([]));
        }
        assert_eq!(state(&api), present, "an undo of an undo");
    }
    server.cli(&["check"]).done();
}

#[test]
fn a_field_that_somebody_else_changed_later_stays_and_the_others_go_back() {
    let (server, tenant) = TestServer::with_tenant();
    let (intern, office) = (tenant.with_scopes(ALL), tenant.with_scopes(ALL));
    for name in ["Eins", "Zwei", "Drei", "Vier", "Fünf"] {
        let custom = json!({"room": "1", "key": "A"});
        office.create("/customers.php", json!({"name": name, "city": "Kiel", "custom": custom}));
    }
    let put = |api: &Api, id: i64, body: Value| {
        api.put(&format!("/customers.php?id={id}"), body).is(200);
    };
    let wrong = json!({"city": "Musterstadt", "street": "Weg 1"});
    for id in [1, 2, 3, 5] {
        put(&intern, id, wrong.clone());
    }
    put(&intern, 4, json!({"custom": {"room": "2", "key": null, "os": "Debian"}}));
    put(&office, 1, json!({"phone": "0345 2"}));
    put(&office, 2, json!({"city": "Bremen"}));
    put(&office, 3, json!({"city": "Kiel"}));
    put(&office, 4, json!({"custom": {"room": "3", "floor": "4"}}));
    put(&office, 5, json!({"phone": "0345 5"}));
    intern.delete("/customers.php?id=5").is(204);
    let before = state(&office);
    let options = ["--since", "2h", "--key", "1"];
    let said = undo(&server, &[&options[..], &["--dry-run"]].concat()).done().stdout;
    let expected = "customers: 4 would be changed, 1 created again; 2 fields would stay\n  \
        customer 2: city stays, changed later by key 2 \"a test's\"\n  \
        customer 4: custom.room stays, changed later by key 2 \"a test's\"\n\
        nothing was stored\n";
    assert_eq!(said, expected);
    let done = undo_json(&server, &options);
    let left = |id: i64, field: &str| {
        let reason = "changed later by key 2 \"a test's\"";
        json!({"resource": "customers", "id": id, "field": field, "reason": reason})
    };
    assert_eq!(done["left_fields"], json!([left(2, "city"), left(4, "custom.room")]));
    assert_eq!((&done["left"], &done["changed"]), (&json!([]), &json!({"customers": 4})));
    let names = ["city", "street", "phone", "custom"];
    let records = office.all("/customers.php");
    let records: Vec<_> = records.iter().map(|record| names.map(|name| &record[name])).collect();
    let custom = json!({"key": "A", "room": "1"});
    let expected = json!([
        ["Kiel", null, "0345 2", custom],
        ["Bremen", null, null, custom],
        ["Kiel", null, null, custom],
        ["Kiel", null, null, {"floor": "4", "key": "A", "room": "3"}],
        ["Kiel", null, "0345 5", custom],
    ]);
    assert_eq!(json!(records), expected);
    undo(&server, &["--request", done["run"].as_str().unwrap()]).done();
    assert_eq!(state(&office), before, "an undo of an undo");
}

#[test]
fn what_was_deleted_and_came_back_meanwhile_can_still_go_back() {
    let (server, tenant) = TestServer::with_tenant();
    let (intern, office) = (tenant.with_scopes(ALL), tenant.with_scopes(ALL));
    office.create("/customers.php", json!({"name": "Eins", "street": "Weg 1"}));
    let path = "/customers.php?id=1";
    intern.put(path, json!({"street": "Weg 3"})).is(200);
    end_yesterday(&tenant);
    let deleted = request(&office.delete(path).is(204));
    undo(&server, &["--request", &deleted]).done();
    assert_eq!(office.get(path).found()["street"], "Weg 3");
    undo(&server, &["--since", "2d", "--key", "1"]).done();
    assert_eq!(office.get(path).found()["street"], "Weg 1");
}

#[test]
fn what_one_batch_deleted_comes_back_with_ids_and_times() {
    let (server, api) = TestServer::with_api();
    let customer = api.customer("Eins");
    let employee = api.employee(customer);
    api.create("/hardware.php", json!({"name": "Laptop", "employee_id": employee}));
    let before = state(&api);
    let delete = |path: &str| json!({"method": "DELETE", "path": path});
    let paths = ["/hardware.php?id=1", "/employees.php?id=1", "/customers.php?id=1"];
    let batch = json!({"operations": paths.map(delete)});
    let request = request(&api.post("/batch.php", batch).is(200));
    assert_eq!(api.customer("Zwei"), 2);
    let report = undo_json(&server, &["--request", &request]);
    assert_eq!(report["created"], json!({"customers": 1, "employees": 1, "hardware": 1}));
    api.delete("/customers.php?id=2").is(204);
    assert_eq!(state(&api), before);
    assert_eq!(api.customer("Drei"), 3, "no id is used for another record");
    assert_eq!(api.total("/customers.php?q=eins"), 1);
    let page = api.get("/changes.php?resource=customers&id=1").found();
    let last = page["data"].as_array().unwrap().last().unwrap();
    assert_eq!(last["by"], json!({"kind": "command", "name": "undo"}));
    assert_eq!((&last["request_id"], &last["action"]), (&report["run"], &json!("created")));
    server.cli(&["check"]).done();
}

#[test]
fn each_record_that_stays_has_its_reason() {
    let (server, tenant) = TestServer::with_tenant();
    let (api, other) = (tenant.with_scopes(ALL), tenant.with_scopes(ALL));
    let custom: BTreeMap<String, &str> = (0..20).map(|n| (format!("n{n}"), "1")).collect();
    api.create("/customers.php", json!({"name": "Full", "custom": custom}));
    api.customer("Changed");
    api.customer("Gone");
    api.employee(3);
    end_yesterday(&tenant);
    api.put("/customers.php?id=1", json!({"city": "Kiel", "custom": {"n0": null}})).is(200);
    other.put("/customers.php?id=1", json!({"custom": {"room": "2"}})).is(200);
    api.put("/customers.php?id=2", json!({"city": "Kiel"})).is(200);
    other.delete("/customers.php?id=2").is(204);
    api.delete("/employees.php?id=1").is(204);
    other.delete("/customers.php?id=3").is(204);
    api.customer("Needed");
    other.employee(4);
    api.customer("New");
    other.put("/customers.php?id=5", json!({"notes": "Later"})).is(200);
    api.customer("Superfluous");
    let options = ["--since", "2h", "--key", "1"];
    let tried = undo(&server, &[&options[..], &["--dry-run"]].concat()).done().stdout;
    let expected = "customers: 1 would be deleted; 4 would stay\n\
        employees: 1 would stay\n  \
        customer 1 would have more than 20 custom fields\n  \
        customer 2 was changed later by key 2 \"a test's\"\n  \
        employee 1 would refer to customer 3, which does not exist\n  \
        customer 4 must stay, because 1 employee refers to it\n  \
        customer 5 was changed later by key 2 \"a test's\"\n\
        nothing was stored\n";
    assert_eq!(tried, expected);
    assert_eq!(api.ids("/customers.php"), [1, 4, 5, 6]);
    let done = undo(&server, &options).done().stdout;
    assert!(done.starts_with("customers: 1 deleted; 4 left\n"), "{done}");
    assert_eq!(api.ids("/customers.php"), [1, 4, 5]);
    assert_eq!(api.get("/customers.php?id=1").found()["city"], "Kiel");
    run_printed(&server, &done).done();
    assert_eq!(api.ids("/customers.php"), [1, 4, 5, 6]);
}

#[test]
fn a_client_that_sends_the_id_of_a_command_or_of_another_key_adds_nothing_to_it() {
    let (server, tenant) = TestServer::with_tenant();
    let (api, other) = (tenant.with_scopes(ALL), tenant.with_scopes(ALL));
    std::fs::write(server.home().join("c.csv"), "name\nOne\nTwo\n").unwrap();
    server.cli(&["import", "acme", "customers", "c.csv"]).done();
    let run = server.cli_json(&["changes", "acme"])[0]["request_id"].as_str().unwrap().to_owned();
    let with_id = |api: &Api, id: &str, body: Value| {
        api.call("POST", "/customers.php").header("X-Request-Id", id).json(&body).send().is(201);
    };
    with_id(&api, &run, json!({"name": "Three"}));
    let report = undo_json(&server, &["--request", &run]);
    assert_eq!(report["deleted"], json!({"customers": 2}));
    let id = "6f1c3a52-6a0d-4d0c-9a53-2f1c1f0b8e77";
    with_id(&other, id, json!({"name": "Four"}));
    with_id(&api, id, json!({"name": "Five"}));
    assert_eq!(api.ids("/customers.php"), [3, 4, 5]);
    undo(&server, &["--request", id]).done();
    assert_eq!(api.ids("/customers.php"), [3, 5]);
    undo(&server, &["--request", id, "--key", "1"]).fails_saying("no entry");
}

#[test]
fn an_undo_of_most_records_asks_for_yes() {
    let (server, api) = TestServer::with_api();
    for name in ["One", "Two", "Three"] {
        api.customer(name);
    }
    let before = state(&api);
    let since = ["--since", "2h"];
    let refused = undo(&server, &since).ends_with(2).stderr;
    assert!(refused.contains("3 of 3 records") && refused.contains("Add --yes"), "{refused}");
    assert_eq!(state(&api), before);
    undo(&server, &["--since", "2h", "--dry-run"]).done();
    undo(&server, &["--since", "2h", "--key", "1"]).done();
    assert_eq!(api.total("/customers.php"), 0);
    assert_eq!(undo(&server, &since).done().stdout, "nothing was changed\n");
}

/// A record from before a stricter rule, of a suspended tenant.
#[test]
fn values_that_rules_refuse_come_back() {
    let (server, tenant) = TestServer::with_tenant();
    let api = tenant.with_scopes(ALL);
    api.customer("Eins");
    let sql = "UPDATE customers SET email = 'none', notes = printf('%.9000c', 'x')";
    database(&tenant.file()).execute(sql, []).unwrap();
    let export = || {
        let text = server.cli(&["export", "acme", "customers", "--format", "jsonl"]).done().stdout;
        text.split("\"created_at\"").next().unwrap().to_owned()
    };
    let before = export();
    let deleted = request(&api.delete("/customers.php?id=1").is(204));
    tenant.ask("suspend", &[]);
    undo(&server, &["--request", &deleted]).done();
    assert_eq!(export(), before);
}

#[test]
fn a_device_follows_its_employee_back() {
    let (server, api) = TestServer::with_api();
    let owners = || -> Vec<Value> {
        api.all("/hardware.php").iter().map(|device| device["customer_id"].clone()).collect()
    };
    api.customer("Eins");
    api.customer("Zwei");
    api.employee(1);
    api.create("/hardware.php", json!({"name": "Laptop", "employee_id": 1}));
    api.create("/hardware.php", json!({"name": "Phone"}));
    let moved = request(&api.put("/employees.php?id=1", json!({"customer_id": 2})));
    api.put("/hardware.php?id=2", json!({"employee_id": 1})).is(200);
    let report = undo_json(&server, &["--request", &moved]);
    assert_eq!(report["changed"], json!({"employees": 1, "hardware": 2}));
    assert_eq!(owners(), [1, 1], "also a device that the employee got later");
    let given = request(&api.put("/hardware.php?id=1", json!({"employee_id": null})));
    api.put("/employees.php?id=1", json!({"customer_id": 2})).is(200);
    undo(&server, &["--request", &given]).done();
    assert_eq!(owners(), [2, 2], "the customer that the employee has now");
}

/// The devices 1 to 6, and employee 6: who had them, what the intern did, what the office did then.
#[test]
fn a_device_keeps_employee_and_customer_if_only_one_may_go_back() {
    let (server, tenant) = TestServer::with_tenant();
    let (intern, office) = (tenant.with_scopes(ALL), tenant.with_scopes(ALL));
    for name in ["Eins", "Zwei", "Drei"] {
        office.customer(name);
    }
    for customer in [1, 2, 2, 2, 1, 1] {
        office.employee(customer);
    }
    let owners = [
        ("customer_id", 1),
        ("employee_id", 1),
        ("customer_id", 1),
        ("employee_id", 1),
        ("employee_id", 6),
        ("employee_id", 1),
    ];
    for (name, id) in owners {
        office.create("/hardware.php", json!({"name": "Laptop", name: id}));
    }
    let put = |api: &Api, path: &str, body: Value| _ = api.put(path, body).is(200);
    put(&intern, "/hardware.php?id=1", json!({"customer_id": 2, "notes": "Wrong"}));
    put(&office, "/hardware.php?id=1", json!({"employee_id": 3}));
    put(&intern, "/hardware.php?id=2", json!({"employee_id": 2, "notes": "Wrong"}));
    put(&office, "/hardware.php?id=2", json!({"employee_id": 3}));
    put(&intern, "/hardware.php?id=3", json!({"employee_id": 4, "notes": "Wrong"}));
    put(&office, "/employees.php?id=4", json!({"customer_id": 3}));
    put(&intern, "/hardware.php?id=4", json!({"employee_id": 5, "notes": "Wrong"}));
    put(&office, "/employees.php?id=5", json!({"customer_id": 3}));
    put(&intern, "/employees.php?id=6", json!({"customer_id": 2, "phone": "Wrong"}));
    put(&office, "/employees.php?id=6", json!({"customer_id": 3}));
    put(&intern, "/hardware.php?id=6", json!({"employee_id": null, "notes": "Wrong"}));
    put(&office, "/hardware.php?id=6", json!({"customer_id": 2}));
    let before = state(&office);
    let done = undo_json(&server, &["--since", "2h", "--key", "1"]);
    assert_eq!(done["changed"], json!({"employees": 1, "hardware": 5}));
    let later = "changed later by key 2 \"a test's\"";
    let owned = "because a device belongs to the customer of its employee";
    let left = [
        ("employees", 6, "customer_id", later),
        ("hardware", 1, "customer_id", owned),
        ("hardware", 2, "employee_id", later),
        ("hardware", 2, "customer_id", owned),
        ("hardware", 3, "customer_id", later),
        ("hardware", 3, "employee_id", owned),
        ("hardware", 4, "employee_id", owned),
        ("hardware", 5, "customer_id", later),
        ("hardware", 6, "employee_id", owned),
    ]
    .map(|(resource, id, field, reason)| json!({"resource": resource, "id": id, "field": field, "reason": reason}));
    assert_eq!((&done["left_fields"], &done["left"]), (&json!(left), &json!([])));
    let fields = ["employee_id", "customer_id", "notes"];
    let devices = office.all("/hardware.php");
    let devices: Vec<_> = devices.iter().map(|device| fields.map(|name| &device[name])).collect();
    let expected = [
        json!([3, 2, null]),
        json!([3, 2, null]),
        json!([4, 3, null]),
        json!([5, 3, null]),
        json!([6, 3, null]),
        json!([null, 2, null]),
    ];
    assert_eq!(json!(devices), json!(expected));
    assert_eq!(office.get("/employees.php?id=6").found()["phone"], Value::Null);
    undo(&server, &["--request", done["run"].as_str().unwrap()]).done();
    assert_eq!(state(&office), before);
}

#[test]
fn an_import_says_how_to_take_it_back() {
    let (server, api) = TestServer::with_api();
    let custom = json!({"room": "\"1\" \\ / 😀", "os": "Debian"});
    let notes = "\"1\" \\ / \t\u{7f}\u{2028}😀";
    api.create("/customers.php", json!({"name": "Eins", "notes": notes, "custom": custom}));
    let before = state(&api);
    let import = |text: &str, options: &[&str]| {
        std::fs::write(server.home().join("c.csv"), text).unwrap();
        let command = [&["import", "acme", "customers", "c.csv"], options].concat();
        server.cli(&command).done().stderr
    };
    let said =
        import("id,name,notes,custom.room,custom.floor\n1,Null,,,2\n", &["--update-by", "id"]);
    assert!(said.contains(" undo acme --request "), "{said}");
    run_printed(&server, &said).done();
    assert_eq!(state(&api), before);
    let run = said.split_whitespace().last().unwrap();
    assert!(server.cli(&["changes", "acme"]).done().stdout.contains(run));
    for (options, text) in
        [(["--dry-run"].as_slice(), "name\nNew\n"), (&["--update-by", "id"], "id\n1\n")]
    {
        assert_eq!(import(text, options), "", "nothing was changed");
    }
}

#[test]
fn an_undo_needs_all_entries_since_its_beginning() {
    let (server, tenant) = Setup::plain().option("--keep-changes").option("1d").start_with_tenant();
    let api = tenant.with_scopes(ALL);
    let old = request(&api.post("/customers.php", json!({"name": "Old"})));
    let sql = "UPDATE changes SET at = '2026-01-02T03:04:05Z'";
    database(&tenant.file()).execute(sql, []).unwrap();
    for n in 0..9 {
        api.customer(&format!("New {n}"));
    }
    until("the old entry is removed", || {
        let sql = "SELECT count(*) FROM changes";
        let kept: i64 = database(&tenant.file()).query_row(sql, [], |row| row.get(0)).unwrap();
        (kept == 9).then_some(())
    });
    undo(&server, &["--since", "2026-01-02T03:04:05Z"])
        .fails_saying("from 2026-01-02T03:04:06Z on");
    let day = ["--since", "2026-01-03", "--until", "2026-01-03"];
    for none in [&day[..], &["--since", "2h", "--until", "1h"], &["--since", "2h", "--key", "9"]] {
        undo(&server, none).fails_saying("no entry");
    }
    undo(&server, &["--request", &old]).fails_saying("from 2026-01-02T03:04:06Z on");
    assert_eq!(api.total("/customers.php"), 10);
    undo(&server, &["--since", "2026-01-02T05:04:05.1+02:00", "--yes"]).done();
    assert_eq!(api.ids("/customers.php"), [1], "older entries do not matter");
    for wrong in [
        &["--key", "1"][..],
        &["--since", "yesterday"],
        &["--since", "1y"],
        &["--request", "1"],
        &["--since", "1h", "--until", "2h"],
        &["--since", "2999-01-01"],
    ] {
        assert!(undo(&server, wrong).ends_with(2).stderr.contains("--"));
    }
    server.cli(&["undo", "amce", "--since", "2h"]).fails_saying("did you mean acme?");
}

/// An entry belongs to a moment if it, or an entry after it, is not dated later.
#[test]
fn an_undo_goes_by_the_order_of_the_entries_if_the_clock_was_wrong() {
    let server = TestServer::without_rate_limit();
    let tenant = server.tenant("wrong");
    let api = tenant.with_scopes(ALL);
    for name in ["In 2099", "Yesterday", "An hour ago", "In 2099 again", "Now"] {
        api.customer(name);
    }
    database(&tenant.file())
        .execute_batch(
            "UPDATE changes SET at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-1 day');
             UPDATE changes SET at = '2099-01-01T00:00:00Z' WHERE record_id IN (1, 4);
             UPDATE changes SET at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-1 hour')
               WHERE record_id = 3;
             UPDATE changes SET at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now') WHERE record_id = 5;",
        )
        .unwrap();
    let undo = |options: &[&str]| {
        server.cli(&[&["undo", "wrong"], options].concat()).done();
        api.ids("/customers.php")
    };
    assert_eq!(undo(&["--since", "30m"]), [1, 2, 3], "2099 stands before an entry of now");
    let selection = ["--since", "2d", "--until", "2h", "--yes"];
    assert_eq!(undo(&selection), [3], "2099 stands before yesterday");
}

/// In the new data directory, the former number of the key is that of another key.
#[test]
fn after_a_move_entries_name_their_key_without_its_number() {
    let (old, new) = (TestServer::start(), TestServer::start());
    new.tenant("other").with_scopes(ALL);
    let tenant = old.tenant("acme");
    let key = tenant.key(ALL);
    old.with_key(&key.key).customer("Eins");
    let backups = new.home().join("backups");
    old.cli(&["backup", backups.to_str().unwrap(), "acme"]).done();
    new.cli(&["restore", "backups", "acme"]).done();
    let by = json!({"kind": "key", "id": null, "name": "a test's", "prefix": key.prefix});
    assert_eq!(new.cli_json(&["changes", "acme"])[0]["by"], by);
    let api = new.with_key(&key.key);
    let read = api.get("/changes.php").found();
    assert_eq!(read["data"][0]["by"], by);
    undo(&new, &["--key", "1", "--since", "2h"]).fails_saying("no entry");
    let mut report = undo_json(&new, &["--since", "2h", "--dry-run"]);
    assert_eq!(report["deleted"].take(), json!({"customers": 1}));
    api.put("/customers.php?id=1", json!({"city": "Kiel"})).is(200);
    let now = api.get("/changes.php").found()["data"][1]["by"]["id"].clone();
    assert_eq!(new.listed_key(now.as_i64().unwrap())["prefix"], json!(key.prefix));
}
