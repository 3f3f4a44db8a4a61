//! Contract section 13: entity tags of records, and requests that depend on them.

use serde_json::{Value, json};

use crate::support::{ALL, Api, DataDir, Reply, Setup, TestServer, database, uuid};

const ONE: &str = "/customers.php?id=1";

/// The entity tag of a reply.
#[track_caller]
fn etag(reply: &Reply) -> String {
    reply.header("ETag").unwrap_or_else(|| panic!("no ETag: {reply}")).to_owned()
}

fn put(api: &Api, if_match: &str, name: &str) -> Reply {
    api.call("PUT", ONE).header("If-Match", if_match).json(&json!({"name": name})).send()
}

fn delete(api: &Api, if_match: &str) -> Reply {
    api.call("DELETE", ONE).header("If-Match", if_match).send()
}

fn read(api: &Api, if_none_match: &str) -> Reply {
    api.call("GET", ONE).header("If-None-Match", if_none_match).send()
}

#[test]
fn every_change_gives_a_record_another_version() {
    let (_server, api) = TestServer::with_api();
    let created = etag(&api.post("/customers.php", json!({"name": "Eins"})).is(201));
    assert_eq!(etag(&api.get(ONE)), created);
    let changed = etag(&api.put(ONE, json!({"name": "Zwei"})).is(200));
    assert_ne!(changed, created);
    assert_eq!(etag(&api.put(ONE, json!({"name": "Zwei"})).is(200)), changed, "no new value");
    api.customer("Another");
    assert_eq!(etag(&api.get(ONE)), changed, "a change of another record is none of this one");
    let last = api.get("/changes.php").found()["data"][1]["seq"].clone();
    assert_eq!(changed, format!("\"{last}\""));
    assert_eq!(api.get("/customers.php").found()["data"][0]["etag"], changed);
}

#[test]
fn a_change_is_made_only_if_the_version_matches() {
    let (_server, api) = TestServer::with_api();
    api.customer("Eins");
    let first = etag(&api.get(ONE));
    let second = etag(&put(&api, &first, "Zwei").is(200));
    let before = api.get(ONE).found();
    for (stale, why) in [
        (first.clone(), "another version"),
        ("\"x\"".to_owned(), "another version"),
        (format!("{first}, W/{second}"), "another version"),
        (format!("W/{second}"), "member \"etag\""),
        (format!("W/{first},W/{second}"), "proxy"),
    ] {
        let refused = put(&api, &stale, "Drei").fails_with(412, "precondition_failed").saying(why);
        assert!(!refused.message().contains("update_by"), "a PUT has none");
        assert_eq!(etag(&refused), second, "the present version");
        assert_eq!(etag(&delete(&api, &stale).fails_with(412, "precondition_failed")), second);
    }
    assert_eq!(api.get(ONE).found(), before, "nothing changed");
    let third = etag(&put(&api, &format!(" ,\"x\" , {second},"), "Vier").is(200));
    let fourth = etag(&put(&api, "*", "Fünf").is(200));
    assert_ne!(third, fourth);
    put(&api, &third, "Sechs").fails_with(412, "precondition_failed");
    delete(&api, &fourth).is(204);
    delete(&api, "*").fails_with(404, "not_found");
}

#[test]
fn a_condition_that_cannot_be_read_is_refused() {
    let (_server, api) = TestServer::with_api();
    api.customer("Eins");
    let etag = etag(&api.get(ONE));
    let unquoted = etag.trim_matches('"');
    for malformed in
        ["", ",", unquoted, "\"1", "1\"", "*, \"1\"", "\"1\"x", "W/1", "\"a b\"", "'1'"]
    {
        put(&api, malformed, "Zwei").fails_with(400, "bad_request").saying("If-Match");
        delete(&api, malformed).fails_with(400, "bad_request").saying("If-Match");
    }
    assert_eq!(api.get(ONE).found()["name"], "Eins");
}

#[test]
fn the_form_of_a_condition_is_checked_before_the_fields_and_its_tags_after_not_found() {
    let (_server, api) = TestServer::with_api();
    api.employee(api.customer("Eins"));
    let put = |id: i64, tags: &str, body: &Value| {
        let call = api.call("PUT", &format!("/employees.php?id={id}"));
        call.header("If-Match", tags).json(body).send()
    };
    let (invalid, none, dangling) = (json!({"email": "x"}), json!({}), json!({"customer_id": 9}));
    for (id, body) in [(1, &invalid), (1, &none), (9, &dangling)] {
        put(id, "nonsense", body).fails_with(400, "bad_request").saying("If-Match");
    }
    put(1, "\"1\"", &invalid).fails_with(422, "validation_failed");
    put(1, "\"1\"", &none).fails_with(400, "no_updatable_fields");
    put(9, "\"1\"", &dangling).fails_with(404, "not_found");
    put(1, "\"1\"", &dangling).fails_with(412, "precondition_failed");
    let delete =
        |target: &str, tags: &str| api.call("DELETE", target).header("If-Match", tags).send();
    delete("/employees.php", "nonsense").fails_with(400, "missing_id");
    delete("/employees.php?id=9", "nonsense").fails_with(400, "bad_request");
    delete("/employees.php?id=9", "\"1\"").fails_with(404, "not_found");
    delete(ONE, "\"1\"").fails_with(412, "precondition_failed");
    let post = api.call("POST", "/customers.php").json(&json!({"name": "POST ignores it"}));
    post.header("If-Match", "nonsense").send().is(201);
    api.call("GET", ONE).header("If-Match", "nonsense").send().is(200);
}

#[test]
fn a_repeat_is_replayed_whichever_version_the_condition_names() {
    let (_server, api) = TestServer::with_api();
    let keys = [uuid(), uuid(), uuid()];
    let post =
        || api.call("POST", "/customers.php").key(&keys[0]).json(&json!({"name": "Eins"})).send();
    let put = |if_match: &str| {
        api.call("PUT", ONE)
            .key(&keys[1])
            .header("If-Match", if_match)
            .json(&json!({"name": "Zwei"}))
            .send()
    };
    let delete =
        |if_match: &str| api.call("DELETE", ONE).key(&keys[2]).header("If-Match", if_match).send();
    let created = post().is(201);
    put("\"1\"").fails_with(412, "precondition_failed");
    let changed = put(&etag(&created)).is(200);
    assert!(!changed.was_replayed(), "only successes are remembered");
    put("nonsense").fails_with(400, "bad_request");
    for if_match in [etag(&created), "\"1\"".to_owned()] {
        let repeat = put(&if_match).is(200);
        assert!(repeat.was_replayed());
        assert_eq!((etag(&repeat), &repeat.body), (etag(&changed), &changed.body));
    }
    api.put(ONE, json!({"name": "Drei"})).is(200);
    let repeat = post().is(201);
    assert_eq!((etag(&repeat), repeat.was_replayed()), (etag(&created), true));
    assert_eq!(delete("*").is(204).header("ETag"), None);
    assert!(delete("\"1\"").is(204).was_replayed());
}

#[test]
fn a_record_that_has_not_changed_is_not_sent_again() {
    let (_server, api) = TestServer::with_api();
    api.customer("Eins");
    let tag = etag(&api.get(ONE));
    for known in [tag.clone(), format!("W/{tag}"), "*".to_owned(), format!("\"x\", W/\"y\",{tag}")]
    {
        for method in ["GET", "HEAD"] {
            let reply = api.call(method, ONE).header("If-None-Match", &known).send().is(304);
            assert_eq!(etag(&reply), tag);
            assert!(reply.body.is_empty() && reply.limit("Remaining") < 100, "the limit counts it");
        }
    }
    for ignored in ["\"x\"", "", "nonsense", "*, \"x\"", tag.trim_matches('"')] {
        assert_eq!(read(&api, ignored).found()["name"], "Eins", "{ignored}");
    }
    api.put(ONE, json!({"name": "Zwei"})).is(200);
    assert_eq!(read(&api, &tag).found()["name"], "Zwei");
    for (target, status) in [("/customers.php?id=9", 404), ("/customers.php", 200)] {
        api.call("GET", target).header("If-None-Match", "*").send().is(status);
    }
}

const BY_NUMBER: &str = "/customers.php?update_by=customer_number";

#[test]
fn a_write_takes_if_none_match_only_to_create_a_record() {
    let (_server, api) = TestServer::with_api();
    api.customer("Eins");
    let body = json!({"name": "Zwei", "customer_number": "7"});
    let operations = json!({"operations": [{"method": "DELETE", "path": ONE}]});
    for value in ["*", "", "\"1\""] {
        for (method, target, body) in [
            ("PUT", ONE, &body),
            ("DELETE", ONE, &body),
            ("POST", "/customers.php", &body),
            ("POST", "/batch.php", &operations),
            ("POST", BY_NUMBER, &body),
        ] {
            let mut call = api.call(method, target).header("If-None-Match", value).json(body);
            if (target, value) == (BY_NUMBER, "*") {
                call = call.header("If-Match", "*");
            }
            call.send().fails_with(400, "bad_request").saying("If-None-Match");
        }
    }
    assert_eq!(api.all("/customers.php").len(), 1);
}

#[test]
fn a_record_is_created_only_if_there_is_none() {
    let (_server, api) = TestServer::with_api();
    let new = |name: &str| {
        let body = json!({"name": name, "customer_number": "7"});
        api.call("POST", BY_NUMBER).header("If-None-Match", "*").json(&body)
    };
    let first = new("Eins").send().is(201);
    let refused = new("Zwei").send().fails_with(412, "precondition_failed");
    assert_eq!(etag(&refused), etag(&first));
    assert_eq!(refused.json()["error"]["id"], first.json()["id"]);
    assert_eq!(api.get(ONE).found(), first.json());
    // A repeat of the request that has created the record is replayed.
    let key = uuid();
    api.delete(ONE).is(204);
    let again = new("Drei").key(&key).send().is(201);
    assert_eq!(new("Drei").key(&key).send().is(201).json(), again.json());
    let double = json!({"name": "Double", "customer_number": "7"});
    api.create("/customers.php", double);
    new("Vier").send().fails_with(409, "ambiguous_record");
}

#[test]
fn an_operation_of_a_batch_creates_a_record_only_if_there_is_none() {
    let (_server, api) = TestServer::with_api();
    let new = |number: &str, condition: Value| {
        json!({"method": "POST", "path": BY_NUMBER, "if_none_match": condition,
            "body": {"name": "Eins", "customer_number": number}})
    };
    let run = |operations: Value| api.post("/batch.php", json!({"operations": operations}));
    run(json!([new("1", json!("*")), new("2", json!(null))])).is(200);
    let refused = run(json!([new("3", json!("*")), new("2", json!("*"))]));
    let refused = refused.fails_with(412, "precondition_failed");
    let body = refused.json();
    assert_eq!([&body["operation"], &body["error"]["id"]], [1, 2]);
    run(json!([new("3", json!("\"1\""))])).fails_with(400, "bad_request").saying("If-None-Match");
    run(json!([new("3", json!(7))])).fails_with(400, "bad_request").saying("if_none_match");
    let delete = json!({"method": "DELETE", "path": ONE, "if_none_match": "*"});
    run(json!([delete])).fails_with(400, "bad_request").saying("If-None-Match");
    assert_eq!(api.all("/customers.php").len(), 2);
}

/// The versions and contents of all customers.
fn states(api: &Api) -> Vec<(String, Value)> {
    let ids = api.ids("/customers.php");
    ids.iter()
        .map(|id| api.get(&format!("/customers.php?id={id}")))
        .map(|reply| (etag(&reply), reply.json()))
        .collect()
}

#[test]
fn no_version_comes_twice_after_a_restore() {
    let (server, acme) = TestServer::with_tenant();
    let api = acme.with_scopes(ALL);
    api.customer("Eins");
    api.customer("Zwei");
    let mut seen = states(&api);
    server.cli(&["backup", "backups"]).done();
    let elsewhere = DataDir::new(false);
    let backups = server.home().join("backups");
    elsewhere.cli(&["restore", backups.to_str().unwrap()]).done();
    let other = Setup::plain().start_at(elsewhere);
    let there = other.with_key(&acme_key(&other));
    for (round, api) in [&api, &there, &api, &there].into_iter().enumerate() {
        api.put(ONE, json!({"name": format!("Round {round}")})).is(200);
        api.customer(&format!("New in round {round}"));
        seen.extend(states(api));
        if round == 1 {
            server.cli(&["restore", "backups", "acme", "--force"]).done();
            other.cli(&["restore", backups.to_str().unwrap(), "acme", "--force"]).done();
        }
    }
    for (at, (etag, record)) in seen.iter().enumerate() {
        let same = seen.iter().skip(at).filter(|(other, _)| other == etag);
        same.for_each(|(_, state)| assert_eq!(state, record, "two states have the version {etag}"));
    }
}

/// A new key of the tenant acme.
fn acme_key(data_dir: &DataDir) -> String {
    let made =
        data_dir.cli(&["key", "create", "acme", "--name", "a test's", "--scope", "all"]).done();
    made.stdout.trim().to_owned()
}

#[test]
fn a_start_migrates_every_tenant_that_it_can_and_says_so() {
    let data_dir = DataDir::new(false);
    data_dir.place_fixture();
    let tenants = data_dir.data().join("tenants");
    std::fs::copy(tenants.join("1.db"), tenants.join("2.db")).unwrap();
    let table = "CREATE TABLE mine (id INTEGER)";
    database(&tenants.join("1.db")).execute_batch(table).unwrap();
    let row = "INSERT INTO tenants (name, password_hash, created_at)
               SELECT 'other', password_hash, created_at FROM tenants";
    database(&data_dir.registry_file()).execute(row, []).unwrap();
    let server = Setup::plain().start_at(data_dir.clone());
    let other = server.cli(&["key", "create", "other", "--name", "k", "--scope", "all"]).done();
    server.with_key(other.stdout.trim()).get(ONE).is(200);
    server.with_key(&acme_key(&server)).get(ONE).fails_with(503, "tenant_unavailable");
    let log = server.log();
    for line in ["1 of 2", "it has an added table mine", "2 of 2", "schema migrated"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    let checked = server.cli(&["check"]).ends_with(1).stdout;
    let cause = "migrating it from schema 6 to 7: it has an added table mine; run in sqlite3: DROP";
    let file = data_dir.data().join("tenants/1.db").display().to_string();
    assert!(checked.contains(cause) && checked.contains(&file), "{checked}");
}

#[test]
fn the_upgrade_trims_texts_of_one_line_and_changes_no_version() {
    let data_dir = DataDir::new(false);
    data_dir.place_fixture();
    let file = || database(&data_dir.data().join("tenants/1.db"));
    // As 1.0.0 kept what clients sent.
    let pad = "UPDATE customers SET name = char(160) || name || char(10),
          custom = '{\"os\":\" Debian 13\\n\",\"room\":\"2.14\"}', notes = ' as it is ' WHERE id = 1;
        UPDATE hardware SET serial_number = 'PF-1' || char(8232) WHERE id = 1";
    file().execute_batch(pad).unwrap();
    let sql = "SELECT group_concat(seq || coalesce(before, ''), ';' ORDER BY seq) FROM changes";
    let log = || -> String { file().query_row(sql, [], |row| row.get(0)).unwrap() };
    let sql = "SELECT version, trim(name, char(160, 10)) FROM customers WHERE id = 1";
    let (version, name): (i64, String) =
        file().query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let before = log();
    let server = Setup::plain().start_at(data_dir.clone());
    let api = server.with_key(&acme_key(&server));
    let record = api.get(ONE).found();
    assert_eq!((&record["name"], &record["notes"]), (&json!(name), &json!(" as it is ")));
    assert_eq!(record["custom"], json!({"os": "Debian 13", "room": "2.14"}));
    assert_eq!(record["etag"], json!(format!("\"{version}\"")));
    assert_eq!(api.ids("/hardware.php?serial_number=PF-1"), [1]);
    assert_eq!(api.total("/customers.php?custom.os=Debian+13"), 1);
    assert_eq!(log(), before, "the change log keeps what it has");
    assert_eq!(api.put(ONE, record.clone()).found(), record);
    let caretaker = api.create("/employees.php", json!({"customer_id": 1, "last_name": "Kurz"}));
    assert_eq!(api.ids("/employees.php?email=null"), [caretaker]);
    server.cli(&["check"]).done();
}

#[test]
fn data_from_before_1_0_0_is_refused_with_the_way_out() {
    const WAY_OUT: &str = "let tenantdesk 1.0.0 serve the data directory once";
    let data_dir = DataDir::new(false);
    data_dir.place_fixture();
    // The last byte of SQLite's `user_version`.
    let version = || std::fs::read(data_dir.registry_file()).unwrap()[63];
    let mut registry = std::fs::read(data_dir.registry_file()).unwrap();
    registry[63] = 4;
    std::fs::write(data_dir.registry_file(), registry).unwrap();
    for command in
        [&["serve", "--listen", "127.0.0.1:0"][..], &["tenant", "list"], &["backup", "backups"]]
    {
        data_dir.cli(command).fails_saying(WAY_OUT);
    }
    assert_eq!(version(), 4);
}
