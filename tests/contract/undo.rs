//! Contract section 10: `undo` takes changes of the change log back.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use tenantdesk::clock::{Clock, Timestamp};

use crate::model::body;
use crate::support::contract::RESOURCES;
use crate::support::random::{Random, seed};
use crate::support::server::{Key, Output, Tenant};
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

fn request(reply: &Reply) -> String {
    reply.header("X-Request-Id").unwrap().to_owned()
}

/// Dates all entries to yesterday, so that `--since 2h` begins after them.
fn end_yesterday(tenant: &Tenant) {
    let sql = "UPDATE changes SET at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-1 day')";
    database(&tenant.file()).execute(sql, []).unwrap();
}

/// A change by a client or a command.
struct Step {
    key: Option<i64>,
    /// How an undo names the client or the command.
    by: String,
    request: String,
    /// All records after it.
    state: State,
    /// The number of its last entry.
    last: i64,
}

/// A tenant with two clients, whose records change at random.
struct Shop {
    server: TestServer,
    tenant: Tenant,
    clients: [(Key, Api); 2],
    /// In seconds.
    start: i64,
    rng: Random,
    history: Vec<Step>,
    /// The number of steps with a time of their own.
    dated: usize,
}

impl Shop {
    fn new(seed: u64) -> Shop {
        let server = TestServer::without_rate_limit();
        let tenant = server.tenant("acme");
        let clients = [tenant.key(ALL), tenant.key(ALL)];
        let clients = clients.map(|key| (key.clone(), server.with_key(&key.key)));
        let (rng, history) = (Random::new(seed), Vec::new());
        Shop {
            server,
            tenant,
            clients,
            rng,
            history,
            start: Clock::system().now().unix_seconds(),
            dated: 0,
        }
    }

    fn state(&self) -> State {
        state(&self.clients[0].1)
    }

    /// All records before this step.
    fn before(&self, step: usize) -> State {
        step.checked_sub(1).map_or_else(State::new, |last| self.history[last].state.clone())
    }

    /// Adds a step, unless nothing was changed.
    fn add(&mut self, key: Option<i64>, by: String, request: String) {
        let state = self.state();
        if state != self.before(self.history.len()) {
            let file = database(&self.tenant.file());
            let sql = "SELECT last_seq FROM changes_state";
            let last = file.query_row(sql, [], |row| row.get(0)).unwrap();
            self.history.push(Step { key, by, request, state, last });
        }
    }

    /// Method, path and body of a change, which may fail.
    fn operation(&mut self) -> Value {
        let rng = &mut self.rng;
        let kind = *rng.pick(&RESOURCES);
        let path = kind.at(i64::try_from(rng.below(12)).unwrap() + 1);
        let method = *rng.pick(&["POST", "POST", "PUT", "PUT", "DELETE"]);
        if method == "DELETE" {
            return json!({"method": method, "path": path});
        }
        let is_whole = rng.one_in(2);
        let mut fields = body(rng, kind, is_whole || method == "POST");
        if rng.one_in(3) {
            fields.insert("custom".to_owned(), json!({"room": *rng.pick(&["1", "2", ""])}));
        }
        let path = if method == "POST" { kind.path } else { &path };
        json!({"method": method, "path": path, "body": fields})
    }

    fn step(&mut self) {
        match self.rng.below(16) {
            0 => self.import(),
            1 if !self.history.is_empty() => {
                let earlier = self.rng.below(self.history.len());
                let request = self.history[earlier].request.clone();
                self.undo(&["--request", &request]);
            }
            choice => {
                let operations: Vec<Value> = (0..=choice / 12).map(|_| self.operation()).collect();
                let (key, api) = &self.clients[self.rng.below(2)];
                let reply = api.post("/batch.php", json!({"operations": operations}));
                let (id, request) = (key.id, request(&reply));
                self.add(Some(id), format!("key {id} \"a test's\""), request);
            }
        }
    }

    /// Changes some customers by their names, and creates others.
    fn import(&mut self) {
        let mut text = "name,custom.room,notes\n".to_owned();
        for name in ["Alpha", "Imported", "ärger im Büro"] {
            text += &format!("{name},{},\n", self.rng.below(3));
        }
        std::fs::write(self.server.home().join("c.csv"), text).unwrap();
        let import = ["import", "acme", "customers", "c.csv", "--update-by", "name"];
        let said = self.server.cli(&import).stderr;
        if let Some((_, run)) = said.trim_end().split_once("--request ") {
            self.add(None, "the command import".to_owned(), run.to_owned());
        }
    }

    fn undo(&mut self, options: &[&str]) -> Value {
        let report = undo_json(&self.server, options);
        if let Some(run) = report["run"].as_str() {
            self.add(None, "the command undo".to_owned(), run.to_owned());
        }
        report
    }

    /// The time of a step: an hour before the start, each a second after the step before.
    fn time(&self, step: usize) -> String {
        let seconds = self.start - 3_600 + i64::try_from(step).unwrap();
        Timestamp::from_unix(seconds).to_string()
    }

    /// Dates each step to its time.
    fn date_steps(&mut self) {
        let file = database(&self.tenant.file());
        let mut first = 0;
        for (number, Step { last, .. }) in self.history.iter().enumerate() {
            let sql = "UPDATE changes SET at = ? WHERE seq BETWEEN ? AND ?";
            file.execute(sql, (self.time(number), first, last)).unwrap();
            first = last + 1;
        }
        self.dated = self.history.len();
    }
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

/// The options of an undo. An entry is named by the number of its step.
struct Selection {
    since: Option<usize>,
    until: Option<usize>,
    key: Option<i64>,
    request: Option<usize>,
}

impl Selection {
    fn random(shop: &mut Shop) -> Selection {
        let rng = &mut shop.rng;
        let since = rng.below(shop.dated);
        let until = since + rng.below(shop.dated - since);
        let key = shop.clients[rng.below(2)].0.id;
        let request = rng.one_in(4);
        Selection {
            since: Some(since).filter(|_| !request),
            until: Some(until).filter(|_| !request && rng.one_in(2)),
            key: Some(key).filter(|_| !request && rng.one_in(2)),
            request: request.then(|| rng.below(shop.history.len())),
        }
    }

    fn selects(&self, number: usize, step: &Step) -> bool {
        self.since.is_none_or(|since| number >= since)
            && self.until.is_none_or(|until| number <= until)
            && self.key.is_none_or(|key| step.key == Some(key))
            && self.request.is_none_or(|request| number == request)
    }

    fn options(&self, shop: &Shop) -> Vec<String> {
        let since = self.since.map(|step| ["--since".to_owned(), shop.time(step)]);
        let until = self.until.map(|step| ["--until".to_owned(), shop.time(step)]);
        let key = self.key.map(|key| ["--key".to_owned(), key.to_string()]);
        let request =
            self.request.map(|step| ["--request".to_owned(), shop.history[step].request.clone()]);
        [since, until, key, request].into_iter().flatten().flatten().collect()
    }
}

/// The state after an undo of the selected steps, and how the reason begins of each record that is
/// left.
fn expected(history: &[Step], selection: &Selection) -> (State, BTreeMap<Name, String>) {
    let mut former: BTreeMap<Name, Option<Value>> = BTreeMap::new();
    let mut left = BTreeMap::new();
    let mut present = &State::new();
    for (number, step) in history.iter().enumerate() {
        for name in present.keys().chain(step.state.keys()) {
            if present.get(name) == step.state.get(name) {
                continue;
            }
            if selection.selects(number, step) {
                former.entry(*name).or_insert_with(|| present.get(name).cloned());
            } else if former.contains_key(name) {
                left.insert(*name, format!("was changed later by {}", step.by));
            }
        }
        present = &step.state;
    }
    former.retain(|name, value| present.get(name) != value.as_ref());
    left.retain(|name, _| former.contains_key(name));
    // A record that would refer to nothing stays, even if no created record were deleted.
    loop {
        let state = merged(present, &former, &left, false);
        let missing = |name: &Name| {
            let record = state.get(name).filter(|_| !left.contains_key(name))?;
            references(*name, record).into_iter().find(|target| !state.contains_key(target))
        };
        let lost = former.keys().find_map(|name| Some((*name, missing(name)?)));
        let Some((name, (resource, id))) = lost else { break };
        let target = RESOURCES[resource].singular;
        left.insert(name, format!("would refer to {target} {id}, which does not exist"));
    }
    // A created record to which others refer stays.
    loop {
        let state = merged(present, &former, &left, true);
        let targets = state.iter().flat_map(|(name, record)| references(*name, record));
        let missing: Vec<Name> = targets.filter(|name| !state.contains_key(name)).collect();
        if missing.is_empty() {
            return (state, left);
        }
        left.extend(missing.into_iter().map(|name| (name, "must stay, because".to_owned())));
    }
}

/// `present` with the former state of all records but those in `left`.
fn merged(
    present: &State,
    former: &BTreeMap<Name, Option<Value>>,
    left: &BTreeMap<Name, String>,
    deletes: bool,
) -> State {
    let mut state = present.clone();
    for (name, value) in former.iter().filter(|(name, _)| !left.contains_key(name)) {
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
    let mut shop = Shop::new(seed("MODEL_SEED"));
    for _ in 0..100 {
        shop.step();
    }
    shop.date_steps();
    for _ in 0..5 {
        let since = Some(shop.rng.below(shop.dated));
        let all_since = Selection { since, until: None, key: None, request: None };
        let selection = Selection::random(&mut shop);
        for selection in [selection, all_since] {
            undo_and_compare(&mut shop, &selection);
        }
    }
    shop.server.cli(&["check"]).done();
}

fn undo_and_compare(shop: &mut Shop, selection: &Selection) {
    let options = selection.options(shop);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (wanted, left) = expected(&shop.history, selection);
    let present = shop.state();
    let mut numbered = shop.history.iter().enumerate();
    if !numbered.any(|(number, step)| selection.selects(number, step)) {
        undo(&shop.server, &options).fails_saying("no entry");
        return;
    }
    let mut tried = undo_json(&shop.server, &[&options[..], &["--dry-run"]].concat());
    assert_eq!((shop.state(), &tried["run"]), (present.clone(), &Value::Null));
    let done = shop.undo(&options);
    assert_eq!(difference(&shop.state(), &wanted), [], "{options:?}: {done}");
    if let Selection { since: Some(since), until: None, key: None, .. } = selection {
        assert_eq!(difference(&wanted, &shop.before(*since)), [], "a restore to a moment");
    }
    let reasons: BTreeMap<Name, &str> = done["left"].as_array().unwrap().iter().map(name).collect();
    assert!(reasons.keys().eq(left.keys()), "{options:?}: {done}, wanted {left:?}");
    for (name, reason) in reasons {
        assert!(reason.starts_with(&left[&name]), "{options:?}: {done}, wanted {left:?}");
    }
    tried["run"] = done["run"].clone();
    assert_eq!(tried, done);
    if let Some(run) = done["run"].as_str() {
        assert_eq!(shop.undo(&["--request", run])["left"], json!([]));
    }
    assert_eq!(difference(&shop.state(), &present), [], "an undo of an undo");
}

/// The records that differ.
fn difference(found: &State, wanted: &State) -> Vec<(Name, Option<Value>, Option<Value>)> {
    let names: BTreeSet<Name> = found.keys().chain(wanted.keys()).copied().collect();
    let values = names.into_iter().map(|name| (name, found.get(&name), wanted.get(&name)));
    let differ = values.filter(|(_, found, wanted)| found != wanted);
    differ.map(|(name, found, wanted)| (name, found.cloned(), wanted.cloned())).collect()
}

fn name(left: &Value) -> (Name, &str) {
    let resource = RESOURCES.iter().position(|kind| left["resource"] == kind.plural);
    ((resource.unwrap(), left["id"].as_i64().unwrap()), left["reason"].as_str().unwrap())
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
    let expected = "customers: 1 would be deleted; 2 would stay\n\
        employees: 1 would stay\n  \
        customer 4 must stay, because 1 employee refers to it\n  \
        customer 1 was changed later by key 2 \"a test's\"\n  \
        employee 1 would refer to customer 2, which does not exist\n\
        nothing was stored\n";
    assert_eq!(tried, expected);
    assert_eq!(api.ids("/customers.php"), [1, 3, 4, 5]);
    let done = undo(&server, &options).done().stdout;
    assert!(done.starts_with("customers: 1 deleted; 2 left\n"), "{done}");
    assert_eq!(api.ids("/customers.php"), [1, 3, 4]);
    let way_back = done.trim_end().rsplit("tenantdesk undo acme ").next().unwrap();
    undo(&server, &way_back.split(' ').collect::<Vec<_>>()).done();
    assert_eq!(api.ids("/customers.php"), [1, 3, 4, 5]);
}

/// A record from before a stricter rule, of a suspended tenant.
#[test]
fn values_that_rules_refuse_come_back() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
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

#[test]
fn an_import_says_how_to_take_it_back() {
    let (server, api) = TestServer::with_api();
    api.create("/customers.php", json!({"name": "Eins", "custom": {"room": "\"1\" \\ / \t\u{7f}\u{2028}😀", "os": "Debian"}}));
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
    let deleted = request(&api.delete("/customers.php?id=1").is(204));
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
    let old = request(&api.post("/customers.php", json!({"name": "Old"})));
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
    let day = ["--since", "2026-01-03", "--until", "2026-01-03"];
    for none in [&day[..], &["--since", "2h", "--until", "1h"], &["--since", "2h", "--key", "9"]] {
        undo(&server, none).fails_saying("no entry");
    }
    undo(&server, &["--request", &old]).fails_saying("from 2026-01-02T03:04:06Z on");
    assert_eq!(api.total("/customers.php"), 10);
    undo(&server, &["--since", "2026-01-02T05:04:05.1+02:00"]).done();
    assert_eq!(api.ids("/customers.php"), [1], "older entries do not matter");
    for wrong in
        [&["--key", "1"][..], &["--since", "yesterday"], &["--since", "1y"], &["--request", "1"]]
    {
        assert!(undo(&server, wrong).ends_with(2).stderr.contains("--"));
    }
    server.cli(&["undo", "amce", "--since", "2h"]).fails_saying("did you mean acme?");
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
