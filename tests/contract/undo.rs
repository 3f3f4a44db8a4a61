//! Contract section 10: `undo` takes changes of the change log back.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;

use serde_json::{Value, json};

use crate::imports;
use crate::model::body;
use crate::support::contract::RESOURCES;
use crate::support::random::{Random, seed};
use crate::support::server::{Output, Tenant};
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

/// Dates all entries to yesterday, so that `--since 2h` begins after them.
fn end_yesterday(tenant: &Tenant) {
    let sql = "UPDATE changes SET at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-1 day')";
    database(&tenant.file()).execute(sql, []).unwrap();
}

/// A random change with one of the clients, which may fail. Returns whose it was.
fn change(rng: &mut Random, apis: &[Api; 2]) -> usize {
    let (who, kind) = (rng.below(2), RESOURCES[rng.below(RESOURCES.len())]);
    let id = i64::try_from(rng.below(12)).unwrap() + 1;
    let is_whole = rng.below(2) == 0;
    let mut fields = body(rng, kind, is_whole);
    if rng.below(3) == 0 {
        let room = *rng.pick(&["1", "2", ""]);
        fields.insert("custom".to_owned(), json!({"room": room}));
    }
    match rng.below(5) {
        0..=1 => drop(apis[who].post(kind.path, fields.into())),
        2..=3 => drop(apis[who].put(&kind.at(id), fields.into())),
        _ => drop(apis[who].delete(&kind.at(id))),
    }
    who
}

/// The records to which a record refers.
fn references((resource, _): Name, record: &Value) -> Vec<Name> {
    let mut names = Vec::new();
    for (field, path, _) in &RESOURCES[resource].references {
        let target = RESOURCES.iter().position(|kind| kind.path == *path).unwrap();
        names.extend(record[field].as_i64().map(|id| (target, id)));
    }
    names
}

/// The state after an undo of all changes by `who`, and the records that are left. `history` has
/// the state before and after each change.
fn expected(before: &State, history: &[(usize, State)], who: usize) -> (State, BTreeSet<Name>) {
    let present = history.last().map_or(before, |(_, state)| state);
    let mut former: BTreeMap<Name, Option<Value>> = BTreeMap::new();
    let mut left = BTreeSet::new();
    let mut earlier = before;
    for (by, later) in history {
        for name in earlier.keys().chain(later.keys()) {
            if earlier.get(name) == later.get(name) {
                continue;
            }
            if *by == who {
                former.entry(*name).or_insert_with(|| earlier.get(name).cloned());
            } else if former.contains_key(name) {
                left.insert(*name);
            }
        }
        earlier = later;
    }
    former.retain(|name, value| present.get(name) != value.as_ref());
    left.retain(|name| former.contains_key(name));
    // A record that would refer to nothing stays, even if no created record were deleted.
    loop {
        let state = merged(present, &former, &left, false);
        let lost = |name: &Name| {
            !left.contains(name)
                && state.get(name).is_some_and(|record| {
                    references(*name, record).iter().any(|target| !state.contains_key(target))
                })
        };
        let Some(name) = former.keys().copied().find(lost) else { break };
        left.insert(name);
    }
    // A created record to which others refer stays.
    loop {
        let state = merged(present, &former, &left, true);
        let targets = state.iter().flat_map(|(name, record)| references(*name, record));
        let missing: BTreeSet<Name> = targets.filter(|name| !state.contains_key(name)).collect();
        if missing.is_empty() {
            return (state, left);
        }
        left.extend(missing);
    }
}

/// `present` with the former state of all records but those in `left`.
fn merged(
    present: &State,
    former: &BTreeMap<Name, Option<Value>>,
    left: &BTreeSet<Name>,
    deletes: bool,
) -> State {
    let mut state = present.clone();
    for (name, value) in former.iter().filter(|(name, _)| !left.contains(name)) {
        match value {
            Some(record) => drop(state.insert(*name, record.clone())),
            None if deletes => drop(state.remove(name)),
            None => (),
        }
    }
    // A device belongs to the customer of its employee.
    let employees = state.clone();
    for record in state.values_mut() {
        if let Some(employee) = record["employee_id"].as_i64()
            && let Some(employee) = employees.get(&(1, employee))
        {
            record["customer_id"] = employee["customer_id"].clone();
        }
    }
    state
}

/// `MODEL_SEED` repeats a run.
#[test]
fn an_undo_agrees_with_a_model_of_it() {
    let server = TestServer::without_rate_limit();
    let tenant = server.tenant("acme");
    let keys = [tenant.key(ALL), tenant.key(ALL)];
    let apis = [server.with_key(&keys[0].key), server.with_key(&keys[1].key)];
    let mut rng = Random::new(seed("MODEL_SEED"));
    for _ in 0..80 {
        change(&mut rng, &apis);
    }
    let before = state(&apis[0]);
    end_yesterday(&tenant);
    let mut history = Vec::new();
    for _ in 0..80 {
        let who = change(&mut rng, &apis);
        history.push((who, state(&apis[0])));
    }
    let present = state(&apis[0]);
    let (wanted, left) = expected(&before, &history, 1);
    let key = keys[1].id.to_string();
    let report = undo_json(&server, &["--since", "2h", "--key", &key]);
    assert_eq!(state(&apis[0]), wanted);
    let named: BTreeSet<Name> = report["left"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(named, left, "{report}");
    let run = report["run"].as_str().unwrap();
    undo(&server, &["--request", run]).done();
    assert_eq!(state(&apis[0]), present, "an undo of an undo");
    let mut tried = undo_json(&server, &["--since", "2h", "--dry-run"]);
    assert_eq!((state(&apis[0]), &tried["run"]), (present.clone(), &Value::Null));
    let done = undo_json(&server, &["--since", "2h"]);
    assert_eq!(state(&apis[0]), before, "a restore to a moment");
    tried["run"] = done["run"].clone();
    assert_eq!(tried, done);
    assert_eq!(done["left"], json!([]));
    undo(&server, &["--request", done["run"].as_str().unwrap()]).done();
    assert_eq!(state(&apis[0]), present, "an undo of an undo");
    server.cli(&["check"]).done();
}

fn name(left: &Value) -> Name {
    let resource = RESOURCES.iter().position(|kind| left["resource"] == kind.plural);
    (resource.unwrap(), left["id"].as_i64().unwrap())
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
    let batch = api.post("/batch.php", json!({"operations": paths.map(delete)})).is(200);
    let request = batch.header("X-Request-Id").unwrap().to_owned();
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
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    let (api, other) = (tenant.with_scopes(ALL), tenant.with_scopes(ALL));
    for name in ["Changed", "Gone", "Changed back"] {
        api.customer(name);
    }
    api.employee(2);
    end_yesterday(&tenant);
    api.put("/customers.php?id=1", json!({"city": "Kiel"})).is(200);
    other.put("/customers.php?id=1", json!({"notes": "Later"})).is(200);
    api.put("/customers.php?id=3", json!({"city": "Kiel"})).is(200);
    other.put("/customers.php?id=3", json!({"city": null})).is(200);
    api.customer("Needed");
    other.employee(4);
    api.delete("/employees.php?id=1").is(204);
    other.delete("/customers.php?id=2").is(204);
    api.customer("Superfluous");
    let options = ["--since", "2h", "--key", "1"];
    let tried = undo(&server, &[&options[..], &["--dry-run"]].concat()).done().stdout;
    let expected = "customers: 1 would be deleted; 2 would stay\nemployees: 1 would stay\n  \
        employee 1 would refer to customer 2, which does not exist\n  \
        customer 4 must stay, because 1 employee refers to it\n";
    let changed = "customer 1 was changed later by key 2 \"a test's\"\n";
    assert!(tried.contains(changed) && tried.ends_with("nothing was stored\n"), "{tried}");
    let others = tried.replace(&format!("  {changed}"), "").replace("nothing was stored\n", "");
    assert_eq!(others, expected);
    assert_eq!(api.ids("/customers.php"), [1, 3, 4, 5]);
    let done = undo(&server, &options).done().stdout;
    assert!(done.starts_with("customers: 1 deleted; 2 stay\nemployees: 1 stays\n"), "{done}");
    assert_eq!(api.ids("/customers.php"), [1, 3, 4]);
    let way_back = done.trim_end().rsplit("tenantdesk undo acme ").next().unwrap();
    undo(&server, &way_back.split(' ').collect::<Vec<_>>()).done();
    assert_eq!(api.ids("/customers.php"), [1, 3, 4, 5]);
}

#[test]
fn a_device_follows_its_employee_back() {
    let (server, api) = TestServer::with_api();
    let request = |reply: Reply| reply.is(200).header("X-Request-Id").unwrap().to_owned();
    let owners = || -> Vec<Value> {
        api.all("/hardware.php").iter().map(|device| device["customer_id"].clone()).collect()
    };
    api.customer("Eins");
    api.customer("Zwei");
    api.employee(1);
    api.create("/hardware.php", json!({"name": "Laptop", "employee_id": 1}));
    api.create("/hardware.php", json!({"name": "Phone"}));
    let moved = request(api.put("/employees.php?id=1", json!({"customer_id": 2})));
    api.put("/hardware.php?id=2", json!({"employee_id": 1})).is(200);
    let report = undo_json(&server, &["--request", &moved]);
    assert_eq!(report["changed"], json!({"employees": 1, "hardware": 2}));
    assert_eq!(owners(), [1, 1], "also a device that the employee got later");
    let given = request(api.put("/hardware.php?id=1", json!({"employee_id": null})));
    api.put("/employees.php?id=1", json!({"customer_id": 2})).is(200);
    undo(&server, &["--request", &given]).done();
    assert_eq!(owners(), [2, 2], "the customer that the employee has now");
}

#[test]
fn an_import_says_how_to_take_it_back() {
    let (server, api) = TestServer::with_api();
    api.create("/customers.php", json!({"name": "Eins", "custom": {"room": "1", "os": "Debian"}}));
    let before = state(&api);
    let import = |text: &str, options: &[&str]| {
        std::fs::write(server.home().join("c.csv"), text).unwrap();
        let command = [&["import", "acme", "customers", "c.csv"], options].concat();
        server.cli(&command).done().stderr
    };
    let said = import("id,name,custom.room,custom.floor\n1,Null,,2\n", &["--update-by", "id"]);
    let (_, way_back) =
        said.trim_end().split_once("To take this back: tenantdesk undo acme ").unwrap();
    undo(&server, &way_back.split(' ').collect::<Vec<_>>()).done();
    assert_eq!(state(&api), before);
    let run = way_back.trim_start_matches("--request ");
    assert!(server.cli(&["changes", "acme"]).done().stdout.contains(run));
    for (options, text) in
        [(["--dry-run"].as_slice(), "name\nNew\n"), (&["--update-by", "id"], "id\n1\n")]
    {
        assert_eq!(import(text, options), "", "nothing was changed");
    }
}

#[test]
fn a_full_tenant_takes_only_deletions_back() {
    let server = Setup::without_rate_limit().option("--max-tenant-size").option("1MiB").start();
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(ALL);
    api.customer("Deleted");
    let deleted =
        api.delete("/customers.php?id=1").is(204).header("X-Request-Id").unwrap().to_owned();
    end_yesterday(&tenant);
    let long = json!({"name": "Long", "notes": "x".repeat(5_000)});
    until("the tenant is at its size", || {
        (api.post("/customers.php", long.clone()).status == 503).then_some(())
    });
    undo(&server, &["--request", &deleted]).fails_saying("size limit");
    assert_eq!(api.total("/customers.php?q=deleted"), 0);
    undo(&server, &["--since", "2h"]).done();
    assert_eq!(api.total("/customers.php"), 0);
    undo(&server, &["--request", &deleted]).done();
    assert_eq!(api.ids("/customers.php"), [1]);
}

#[test]
fn an_undo_needs_all_entries_since_its_beginning() {
    let server = Setup::plain().option("--keep-changes").option("1d").start();
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(ALL);
    let request = |reply: Reply| reply.header("X-Request-Id").unwrap().to_owned();
    let old = request(api.post("/customers.php", json!({"name": "Old"})));
    let sql = "UPDATE changes SET at = '2026-01-02T03:04:05Z'";
    database(&tenant.file()).execute(sql, []).unwrap();
    undo(&server, &["--request", &old]).fails_saying("complete only from");
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
    undo(&server, &["--since", "2h", "--until", "1h"]).fails_saying("no entry");
    undo(&server, &["--request", &old]).fails_saying("no entry");
    assert_eq!(api.total("/customers.php"), 10);
    undo(&server, &["--since", "2026-01-02T03:04:06Z"]).done();
    assert_eq!(api.ids("/customers.php"), [1], "older entries do not matter");
    for wrong in
        [&["--key", "1"][..], &["--since", "yesterday"], &["--since", "1y"], &["--request", "1"]]
    {
        undo(&server, wrong).ends_with(2);
    }
}

#[test]
fn a_restored_tenant_has_the_change_log_of_its_backup() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(ALL);
    api.customer("Eins");
    end_yesterday(&tenant);
    api.put("/customers.php?id=1", json!({"city": "Kiel"})).is(200);
    server.cli(&["backup", "backups"]).done();
    api.delete("/customers.php?id=1").is(204);
    server.cli(&["restore", "backups", "acme", "--force"]).done();
    let report = undo_json(&server, &["--since", "2h"]);
    assert_eq!((&report["changed"], &report["created"]), (&json!({"customers": 1}), &json!({})));
    until("the tenant is served again", || (api.get("/customers.php").status == 200).then_some(()));
    assert_eq!(api.get("/customers.php?id=1").found()["city"], Value::Null);
}

/// Records whose deletion takes a good part of a second.
const ROWS: i64 = 3_000;

#[test]
fn an_undo_that_is_killed_in_the_middle_changes_nothing() {
    let server = TestServer::without_rate_limit();
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(ALL);
    imports::write_rows(&server, "c.csv", ROWS);
    server.cli(&["import", "acme", "customers", "c.csv"]).done();
    let options = ["undo", "acme", "--since", "2h"];
    let mut child = imports::command(&server, &options).spawn().unwrap();
    imports::stop_in_the_middle(&child, &tenant.file());
    assert_eq!(api.total("/customers.php?q=imported"), ROWS);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "the undo ended before it was killed");
    assert_eq!(api.total("/customers.php?q=imported"), ROWS);
    undo(&server, &["--since", "2h"]).done();
    assert_eq!(api.total("/customers.php"), 0);
    server.cli(&["check"]).done();
}
