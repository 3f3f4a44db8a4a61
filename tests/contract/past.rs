//! Contract section 4: reads of a moment of the past.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::lists::compare;
use crate::model::body;
use crate::support::contract::{Field, Kind, RESOURCES, Resource, at, fields};
use crate::support::random::{Random, seed};
use crate::support::server::Tenant;
use crate::support::{ALL, Api, InProcess, TestServer, database, encoded, uuid};

/// 10:00 of a day on which every tenant of the tests exists.
const START: &str = "2030-05-01T10:00:00Z";

fn served() -> (InProcess, Api) {
    let (server, tenant) = InProcess::at(START);
    let api = tenant.with_scopes(ALL);
    (server, api)
}

#[test]
fn a_record_and_its_lists_are_as_they_were() {
    let (server, api) = served();
    let customer = api.customer("Eins");
    let other = api.customer("Zwei");
    let employee = api.employee(customer);
    let device = json!({"name": "Laptop", "employee_id": employee, "custom": {"room": "1"}});
    let device = api.create("/hardware.php", device);
    let laptop = at(RESOURCES[2], device);
    let included = format!("{laptop}&include=employee,customer");
    let before = api.get(&included).found();
    server.advance(60);
    api.put("/customers.php?id=1", json!({"name": "Uno"})).found();
    api.put(&at(RESOURCES[1], employee), json!({"customer_id": other})).found();
    api.put(&laptop, json!({"name": "Notebook", "custom": {"room": "2"}})).found();
    server.advance(60);
    api.delete(&laptop).is(204);
    api.customer("Drei");
    server.advance(60);
    // The end of the day before, and every moment until the first change.
    let first = "2030-05-01T10:00:00Z";
    for moment in [first, "2030-05-01T10:00:00.9Z", "2030-05-01T12:00:59%2B02:00"] {
        assert_eq!(api.get(&format!("{included}&at={moment}")).found(), before, "{moment}");
    }
    let renamed = api.get(&format!("{included}&at=2030-05-01T10:01:00Z")).found();
    assert_eq!((&renamed["name"], &renamed["custom"]), (&json!("Notebook"), &json!({"room": "2"})));
    assert_eq!(
        (&renamed["customer"]["name"], &renamed["customer_id"]),
        (&json!("Zwei"), &json!(2))
    );
    api.get(&laptop).fails_with(404, "not_found");
    api.get(&format!("{laptop}&at=2030-05-01T10:02:00Z")).fails_with(404, "not_found");
    api.get(&format!("/customers.php?id=3&at={first}")).fails_with(404, "not_found");
    for (query, ids) in [
        ("/customers.php?sort=-name", vec![2, 1]),
        ("/customers.php?name=Eins", vec![1]),
        ("/customers.php?name=Uno", vec![]),
        ("/customers.php?q=eins", vec![1]),
        ("/hardware.php?custom.room=1&customer_id=1", vec![device]),
        ("/hardware.php?updated_at_to=2030-05-01T10:00:30Z&total=true", vec![device]),
        ("/hardware.php?updated_at_from=2030-05-01T10:00:30Z", vec![]),
    ] {
        assert_eq!(api.ids(&format!("{query}&at={first}")), ids, "{query}");
    }
    assert_eq!(api.total(&format!("/customers.php?at={first}")), 2);
    let reply = api.head(&format!("/customers.php?at={first}"));
    assert_eq!((reply.status, reply.body.len()), (200, 0));
}

#[test]
fn a_moment_can_be_read_once_it_is_over() {
    let (server, api) = served();
    api.customer("Eins");
    server.advance(5);
    for (moment, status) in [
        ("2030-05-01T10:00:04Z", 200),
        ("2030-05-01T12:00:04.999%2B02:00", 200),
        ("2030-05-01T10:00:05Z", 400),
        ("2030-05-01", 400),
        ("9999-12-31", 400),
        ("2030-04-30", 200),
        ("2030-05-01T10:00:04", 400),
        ("yesterday", 400),
        ("", 400),
        ("null", 400),
    ] {
        for path in ["/customers.php?", "/customers.php?sort=name&", "/employees.php?"] {
            let reply = api.get(&format!("{path}at={moment}"));
            assert_eq!(reply.status, status, "{moment}: {}", reply.text());
        }
    }
    let early = api.get("/customers.php?at=2030-05-01T10:00:05Z").fails_with(400, "bad_request");
    early.saying("2030-05-01T10:00:04Z");
    api.get("/customers.php?id=1&limit=3&at=2030-05-01T10:00:00Z").fails_with(400, "bad_request");
    assert_eq!(api.ids("/customers.php?at=2030-04-30"), [0_i64; 0], "nobody was there");
}

#[test]
fn an_old_version_has_its_etag_but_no_header_for_it() {
    let (server, api) = served();
    let made = api.post("/customers.php", json!({"name": "Eins"})).created();
    api.customer("Zwei");
    api.customer("Drei");
    server.advance(10);
    api.put("/customers.php?id=1", json!({"name": "Uno"})).found();
    server.advance(10);
    let moment = "/customers.php?id=1&at=2030-05-01T10:00:00Z";
    let etag = made["etag"].as_str().unwrap();
    let reply = api.call("GET", moment).header("If-None-Match", etag).send();
    assert_eq!(reply.header("ETag"), None);
    assert_eq!(reply.found(), made);
    // 1.0.0 did not keep what a change has replaced.
    let file = database(&server.data().join("tenants/1.db"));
    file.execute("UPDATE changes SET before_version = NULL, before_updated_at = NULL", []).unwrap();
    let unknown = json!({"name": "Eins", "updated_at": null, "etag": null,
        "created_at": made["created_at"]});
    let found = api.get(moment).found();
    for (name, value) in unknown.as_object().unwrap() {
        assert_eq!(found[name], *value, "{name}");
    }
    for (query, ids) in [
        ("sort=updated_at", [1, 2, 3].as_slice()),
        ("sort=-updated_at", &[3, 2, 1]),
        ("updated_at=null", &[1]),
        ("updated_at_from=2020-01-01", &[2, 3]),
    ] {
        let target = format!("/customers.php?limit=1&at=2030-05-01T10:00:00Z&{query}");
        assert_eq!(api.ids(&target), ids, "{query}");
    }
}

#[test]
fn the_pages_of_a_moment_are_one_state_whatever_others_write() {
    let (server, api) = served();
    for n in 1..=6 {
        api.customer(&format!("Name {n}"));
    }
    server.advance(10);
    let expected = api.all("/customers.php?sort=name");
    let list = "/customers.php?sort=name&limit=2";
    let spelled = ["2030-05-01T10:00:05Z", "2030-05-01T12:00:05.5%2B02:00"];
    let first = api.get(&format!("{list}&at={}", spelled[0])).found();
    let cursor = first["next_cursor"].as_str().unwrap();
    api.put("/customers.php?id=3", json!({"name": "Aaa"})).found();
    api.delete("/customers.php?id=6").is(204);
    api.customer("Name 4");
    // It waited for its commit: it is dated before the moment.
    let file = database(&server.data().join("tenants/1.db"));
    let late = "UPDATE changes SET at = '2030-05-01T10:00:04Z' WHERE action = 'deleted'";
    file.execute(late, []).unwrap();
    let mut found = first["data"].as_array().unwrap().clone();
    let mut next = Some(cursor.to_owned());
    while let Some(cursor) = next {
        let page = api.get(&format!("{list}&at={}&cursor={cursor}", spelled[1])).found();
        found.extend(page["data"].as_array().unwrap().iter().cloned());
        next = page["next_cursor"].as_str().map(str::to_owned);
    }
    assert_eq!(found, expected);
    for other in ["", "&at=2030-05-01T10:00:06Z"] {
        let reply = api.get(&format!("{list}{other}&cursor={cursor}"));
        reply.fails_with(400, "bad_request").saying("another list");
    }
    let present = api.get(list).found();
    let present = present["next_cursor"].as_str().unwrap();
    let reply = api.get(&format!("{list}&at={}&cursor={present}", spelled[0]));
    reply.fails_with(400, "bad_request").saying("another list");
}

#[test]
fn the_past_begins_with_the_tenant_or_after_the_last_entry_that_was_removed() {
    let (server, api) = served();
    api.customer("Eins");
    server.advance(100);
    let created: String = database(&server.registry_file())
        .query_row("SELECT created_at FROM tenants", [], |row| row.get(0))
        .unwrap();
    for target in ["/customers.php?", "/customers.php?id=1&", "/customers.php?id=99&"] {
        let reply = api.get(&format!("{target}at=2020-01-01"));
        reply.fails_with(410, "changes_gone").saying(&created);
        let first = format!("{target}at={created}");
        assert_ne!(api.get(&first).status, 410, "{first}");
    }
    api.put("/customers.php?id=1", json!({"city": "Bonn"})).found();
    server.advance(100);
    let file = database(&server.data().join("tenants/1.db"));
    file.execute_batch(
        "INSERT INTO changes_removed (resource, seq, at)
           SELECT resource, seq, at FROM changes WHERE action = 'created';
         DELETE FROM changes WHERE action = 'created'",
    )
    .unwrap();
    let reply = api.get("/customers.php?id=1&at=2030-05-01T09:59:59Z");
    reply.fails_with(410, "changes_gone").saying(START);
    let found = api.get(&format!("/customers.php?id=1&at={START}")).found();
    assert_eq!(found["city"], Value::Null);
}

#[test]
fn a_list_takes_twenty_thousand_changed_records_and_one_record_any_number() {
    let (server, api) = served();
    api.customer("Eins");
    server.advance(10);
    api.put("/customers.php?id=1", json!({"name": "Uno"})).found();
    let file = database(&server.data().join("tenants/1.db"));
    file.execute_batch(
        "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n LIMIT 20000)
         INSERT INTO changes (at, resource, record_id, action, fields, by_name)
         SELECT '2030-05-01T10:00:10Z', 'customers', n, 'created', '[]', 'import' FROM n",
    )
    .unwrap();
    server.advance(10);
    let moment = format!("at={START}");
    for filter in ["", "&name=Eins", "&limit=1"] {
        let reply = api.get(&format!("/customers.php?{moment}{filter}"));
        let reply = reply.fails_with(400, "bad_request").saying("20,001");
        reply.saying("export --at");
    }
    let one = api.get(&format!("/customers.php?id=1&{moment}")).found();
    assert_eq!(one["name"], "Eins");
    assert_eq!(api.ids(&format!("/employees.php?{moment}")), [0_i64; 0]);
}

/// An entry belongs to a moment if a later one does.
#[test]
fn a_moment_ends_with_its_last_entry_if_the_clock_was_wrong() {
    let (server, api) = served();
    api.customer("Eins");
    let file = database(&server.data().join("tenants/1.db"));
    file.execute("UPDATE changes SET at = '2099-01-01T00:00:00Z'", []).unwrap();
    server.advance(60);
    api.customer("Zwei");
    server.advance(60);
    api.customer("Drei");
    server.advance(60);
    for (moment, ids) in
        [("10:00:59", &[] as &[i64]), ("10:01:00", &[1, 2]), ("10:02:00", &[1, 2, 3])]
    {
        assert_eq!(api.ids(&format!("/customers.php?at=2030-05-01T{moment}Z")), ids, "{moment}");
    }
}

/// The records of each resource by id.
type State = [BTreeMap<i64, Value>; 3];

fn state(api: &Api) -> State {
    RESOURCES.each_ref().map(|resource| {
        let records = api.all(&format!("{}?limit=200", resource.path)).into_iter();
        records.map(|record| (record["id"].as_i64().unwrap(), record)).collect()
    })
}

/// The moments of a random history, each a second, and the states at their ends.
struct History {
    server: TestServer,
    tenant: Tenant,
    api: Api,
    states: Vec<State>,
}

impl History {
    fn new() -> History {
        let server = TestServer::without_rate_limit();
        let tenant = server.tenant("acme");
        let registry = database(&server.registry_file());
        let sql =
            "UPDATE tenants SET created_at = strftime('%Y-%m-%dT12:00:00Z', 'now', '-60 days')";
        registry.execute(sql, []).unwrap();
        let api = tenant.with_scopes(ALL);
        History { server, tenant, api, states: Vec::new() }
    }

    /// The end of the round: a second on one of the last days.
    fn moment(round: usize) -> String {
        let day = round as i64 - 40;
        let sql = "SELECT strftime('%Y-%m-%dT12:00:00Z', 'now', ? || ' days')";
        let memory = rusqlite::Connection::open_in_memory().unwrap();
        memory.query_row(sql, [day], |row| row.get(0)).unwrap()
    }

    /// Dates the entries since the last round, and keeps the state.
    fn end_round(&mut self) {
        let moment = History::moment(self.states.len());
        let sql = "UPDATE changes SET at = ? WHERE at > strftime('%Y-%m-%d', 'now', '-1 day')";
        database(&self.tenant.file()).execute(sql, [&moment]).unwrap();
        self.states.push(state(&self.api));
    }

    fn change(&self, rng: &mut Random) {
        let resource = *rng.pick(&RESOURCES);
        let id = i64::try_from(rng.below(12)).unwrap() + 1;
        let (path, api) = (at(resource, id), &self.api);
        match rng.below(8) {
            0..=2 => _ = api.post(resource.path, Value::Object(body(rng, resource, true))),
            3..=4 => _ = api.put(&path, Value::Object(body(rng, resource, false))),
            5 => _ = api.delete(&path),
            6 => {
                let put = json!({"method": "PUT", "path": path, "body": {"notes": uuid()}});
                let post = json!({"method": "POST", "path": "/customers.php",
                    "body": {"name": "Batch", "custom": {"room": uuid()}}});
                _ = api.post("/batch.php", json!({"operations": [put, post]}));
            }
            _ => {
                let file = self.server.home().join("rows.csv");
                fs::write(&file, format!("name,city\nRow,{}\nRow two,Bonn\n", uuid())).unwrap();
                let file = file.to_str().unwrap();
                self.server.cli(&["import", "acme", "customers", file]).done();
            }
        }
    }

    /// Compares a random list of a random moment.
    fn compare(&self, rng: &mut Random) {
        let round = rng.below(self.states.len());
        let state = &self.states[round];
        let place = rng.below(RESOURCES.len());
        let resource = RESOURCES[place];
        let mut expected: Vec<Value> = state[place].values().cloned().collect();
        let mut query = format!("limit={}&at={}", rng.below(7) + 1, History::moment(round));
        let indexed: Vec<&Field> = fields(resource).filter(|field| field.name != "notes").collect();
        if rng.below(2) == 0 && !expected.is_empty() {
            let field = *rng.pick(&indexed);
            let wanted = rng.pick(&expected)[field.name].clone();
            let text = wanted.as_str().map_or(wanted.to_string(), str::to_owned);
            let is_range = field.kind == Kind::Date && !wanted.is_null();
            query +=
                &format!("&{}{}={}", field.name, if is_range { "_to" } else { "" }, encoded(&text));
            expected.retain(|record| match is_range {
                true => record[field.name].as_str().is_some_and(|date| date <= text.as_str()),
                false => record[field.name] == wanted,
            });
        }
        let field = rng.pick(&indexed).name;
        let sort = *rng.pick(&[field, "updated_at", "id"]);
        let descending = rng.below(2) == 0;
        query += &format!("&sort={}{sort}", if descending { "-" } else { "" });
        expected.sort_by(|a, b| {
            let order = compare(&a[sort], &b[sort]).then(compare(&a["id"], &b["id"]));
            if descending { order.reverse() } else { order }
        });
        if rng.below(2) == 0 && place > 0 {
            include(resource, state, &mut expected);
            query += if place == 1 { "&include=customer" } else { "&include=employee,customer" };
        }
        let target = format!("{}?{query}", resource.path);
        let found = self.api.all(&target);
        assert_eq!(found, expected, "{target}");
        let total = self.api.get(&format!("{target}&total=true")).found()["total"].as_u64();
        assert_eq!(total, Some(expected.len() as u64), "{target}");
        for (id, record) in &state[place] {
            let one = format!("{}&at={}", at(resource, *id), History::moment(round));
            assert_eq!(self.api.get(&one).found(), *record, "{one}");
        }
    }

    fn compare_export(&self, round: usize, resource: &Resource) {
        let moment = History::moment(round);
        let export = ["export", "acme", resource.plural, "--format", "jsonl", "--at", &moment];
        let exported = self.server.cli(&export).done().stdout;
        let found = exported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let place = RESOURCES.iter().position(|other| *other == resource).unwrap();
        let expected = self.states[round][place].values().map(|record| {
            let mut record = record.clone();
            record.as_object_mut().unwrap().remove("etag");
            record
        });
        assert!(found.eq(expected), "{moment}: {exported}");
    }
}

/// Adds the records to which these refer.
fn include(resource: &Resource, state: &State, records: &mut [Value]) {
    for record in records {
        for field in fields(resource).filter(|field| field.references.is_some()) {
            let name = field.name.strip_suffix("_id").unwrap();
            let place = RESOURCES.iter().position(|other| Some(*other) == field.references);
            let id = record[field.name].as_i64();
            let referred = id.map(|id| state[place.unwrap()][&id].clone());
            record[name] = referred.unwrap_or_default();
        }
    }
}

/// `MODEL_SEED` repeats a run.
#[test]
fn every_state_of_a_history_can_be_read_again() {
    let mut rng = Random::new(seed("MODEL_SEED"));
    let mut history = History::new();
    let backups = history.server.home().join("backups");
    let backups = backups.to_str().unwrap();
    let mut saved = None;
    for round in 0..14 {
        (0..8).for_each(|_| history.change(&mut rng));
        match (round, saved) {
            (4, _) => {
                history.end_round();
                history.server.cli(&["backup", backups]).done();
                saved = Some(history.states.len());
                continue;
            }
            (6 | 11, _) => {
                // The undo of the round before: its state is that of the moment before.
                history.end_round();
                let since = History::moment(history.states.len() - 1);
                let undo = ["undo", "acme", "--since", &since, "--yes"];
                history.server.cli(&undo).done();
                let earlier = &history.states[history.states.len() - 2];
                assert_eq!(without_versions(&state(&history.api)), without_versions(earlier));
            }
            (9, Some(saved)) => {
                history.server.cli(&["restore", backups, "acme", "--force"]).done();
                let kept = history.states[saved - 1].clone();
                history.states.iter_mut().skip(saved).for_each(|state| *state = kept.clone());
            }
            _ => {}
        }
        history.end_round();
    }
    (0..20).for_each(|_| history.compare(&mut rng));
    for resource in RESOURCES {
        history.compare_export(rng.below(history.states.len()), resource);
    }
    let early = history.server.cli(&["export", "acme", "customers", "--at", "2020-01-01"]);
    early.fails_saying("the first one that can be read");
    let late = history.server.cli(&["export", "acme", "customers", "--at", "9999-12-31"]);
    late.fails_saying("not over yet");
    history.server.cli(&["check"]).done();
}

fn without_versions(state: &State) -> State {
    let mut state = state.clone();
    for record in state.iter_mut().flat_map(BTreeMap::values_mut) {
        let members = record.as_object_mut().unwrap();
        members.remove("updated_at");
        members.remove("etag");
    }
    state
}
