//! Contract section 12: the change log.

use serde_json::{Value, json};

use crate::imports::write_rows;
use crate::support::{ALL, Api, Setup, TestServer, database, until, uuid};

const CHANGES: &str = "/changes.php";

/// The entries of a page.
#[track_caller]
fn entries(api: &Api, query: &str) -> Vec<Value> {
    api.get(&format!("{CHANGES}{query}")).found()["data"].as_array().unwrap().clone()
}

/// The cursor of a page.
#[track_caller]
fn cursor(api: &Api, query: &str) -> String {
    api.get(&format!("{CHANGES}{query}")).found()["next_cursor"].as_str().unwrap().to_owned()
}

/// Action, resource and id of each entry.
fn outline(entries: &[Value]) -> Vec<String> {
    let text = |entry: &Value| {
        format!(
            "{} {} {}",
            entry["action"].as_str().unwrap(),
            entry["resource"].as_str().unwrap(),
            entry["id"]
        )
    };
    entries.iter().map(text).collect()
}

#[test]
fn each_change_has_an_entry() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL);
    let api = server.with_key(&key.key);
    let id = uuid();
    let call = api.call("POST", "/customers.php").header("X-Request-Id", &id);
    let created =
        call.json(&json!({"name": "Eins \"&\" Söhne", "city": "Bremen"})).send().created();
    let change = json!({"notes": "x\ny", "city": "Köln", "name": created["name"]});
    let mut changed = api.put("/customers.php?id=1", change).found();
    let unchanged = api.put("/customers.php?id=1", json!({"city": "Köln"})).found();
    assert_eq!(unchanged, changed, "a PUT that changes no value has no entry");
    let by = json!({"kind": "key", "id": key.id, "name": "a test's", "prefix": key.prefix});
    let found = entries(&api, "");
    assert_eq!(outline(&found), ["created customers 1", "updated customers 1"]);
    let parts = |n: usize| (found[n]["fields"].clone(), found[n]["before"].clone());
    let (not_null, of_two) = (json!(["name", "city", "status"]), json!(["city", "notes"]));
    assert_eq!(parts(0), (not_null, Value::Null));
    assert_eq!(parts(1), (of_two, json!({"city": "Bremen", "notes": null})));
    assert_eq!(found[0]["request_id"], id);
    assert_eq!(found[1]["at"], changed["updated_at"]);
    assert!(found.iter().all(|entry| entry["by"] == by));
    assert!(found.iter().all(|entry| entry["record"] == changed), "the record as it is now");
    api.delete("/customers.php?id=1").is(204);
    let found = entries(&api, "");
    assert_eq!(found.len(), 3);
    let last = &found[2];
    changed.as_object_mut().unwrap().remove("etag");
    assert_eq!((&last["action"], &last["fields"]), (&json!("deleted"), &json!([])));
    assert_eq!(last["before"], changed);
    assert!(found.iter().all(|entry| entry["record"].is_null()), "null once it is deleted");
}

#[test]
fn what_changes_nothing_has_no_entry() {
    let (_server, api) = TestServer::with_api();
    let key = uuid();
    for _ in 0..3 {
        api.call("POST", "/customers.php").key(&key).json(&json!({"name": "Once"})).send().is(201);
    }
    api.employee(1);
    api.delete("/customers.php?id=1").fails_with(409, "has_dependents");
    api.put("/employees.php?id=1", json!({"customer_id": 9})).is(422);
    api.put("/customers.php?id=9", json!({"name": "Nobody"})).is(404);
    api.post("/customers.php", json!({"name": ""})).is(422);
    let stale = api.call("PUT", "/customers.php?id=1").header("If-Match", "\"1\"");
    stale.json(&json!({"name": "Lost"})).send().is(412);
    let found = entries(&api, "");
    assert_eq!(outline(&found), ["created customers 1", "created employees 1"]);
}

#[test]
fn pages_follow_each_other() {
    let (_server, api) = TestServer::with_api();
    for n in 1..=7 {
        api.customer(&format!("Customer {n}"));
    }
    let first = api.get("/changes.php?limit=3").is(200);
    let page = first.json();
    assert_eq!((page["data"].as_array().unwrap().len(), &page["more"]), (3, &json!(true)));
    let link = first.header("Link").unwrap().to_owned();
    let next = format!("/changes.php?limit=3&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(link, format!("<{next}>; rel=\"next\""));
    let second = api.get(&next).found();
    assert_eq!(outline(second["data"].as_array().unwrap())[0], "created customers 4");
    let rest = format!("?limit=200&cursor={}", second["next_cursor"].as_str().unwrap());
    let third = api.get(&format!("{CHANGES}{rest}")).found();
    assert_eq!((third["data"].as_array().unwrap().len(), &third["more"]), (1, &json!(false)));
    let end = third["next_cursor"].as_str().unwrap();
    assert_eq!(cursor(&api, &format!("?cursor={end}")), end, "nothing came since");
    api.below_v1().put("/customers.php?id=2", json!({"city": "Bremen"})).is(200);
    let since = api.below_v1().get(&format!("{CHANGES}?cursor={end}")).found();
    assert_eq!(outline(since["data"].as_array().unwrap()), ["updated customers 2"]);
    assert_eq!(entries(&api, "?limit=7").len(), 7);
    assert_eq!(api.get("/changes.php?limit=8").found()["more"], false);
}

#[test]
fn a_cursor_is_good_with_another_resource_and_record() {
    let (_server, api) = TestServer::with_api();
    api.customer("Before");
    let now = api.get("/changes.php?cursor=now").found();
    assert_eq!((&now["data"], &now["more"]), (&json!([]), &json!(false)));
    let now = now["next_cursor"].as_str().unwrap();
    let (two, three) = (api.customer("Two"), api.customer("Three"));
    api.employee(two);
    api.put(&format!("/customers.php?id={three}"), json!({"city": "Bremen"})).is(200);
    let seen = |query: &str| outline(&entries(&api, &format!("?cursor={now}{query}")));
    assert_eq!(seen("").len(), 4);
    assert_eq!(seen("&resource=employees"), ["created employees 1"]);
    assert_eq!(seen("&resource=hardware"), [""; 0]);
    assert_eq!(seen("&resource=customers&id=3"), ["created customers 3", "updated customers 3"]);
    assert_eq!(seen("&resource=customers&id=1"), [""; 0]);
    assert_eq!(seen("&resource=customers&id=99999999999999999999"), [""; 0]);
    assert_eq!(outline(&entries(&api, "?resource=customers&id=1")), ["created customers 1"]);
}

#[test]
fn parameters_are_checked() {
    let (server, api) = TestServer::with_unlimited_api();
    api.customer("Eins");
    let good = cursor(&api, "");
    assert_eq!(api.get("/changes.php?cursor=").found(), api.get(CHANGES).found());
    let changed: String = good.chars().rev().collect();
    for (query, said) in [
        ("limit=1&limit=1".to_owned(), "twice"),
        ("cursor=NOW".to_owned(), "cursor"),
        (format!("cursor={changed}"), "cursor"),
        (format!("cursor={}", "A".repeat(3_000)), "cursor"),
        ("resource=customers&id=0".to_owned(), "positive"),
        ("at_from=yesterday".to_owned(), "at_from"),
        ("at_to=".to_owned(), "at_to"),
        ("at_from=null".to_owned(), "at_from"),
        ("at_from=2026-11-20T20:30:00+01:00".to_owned(), "%2B"),
        ("key=".to_owned(), "number or the name of a key"),
        ("key=0".to_owned(), "number or the name of a key"),
        ("request_id=7".to_owned(), "UUID"),
        ("action=changed".to_owned(), "updated"),
    ] {
        api.get(&format!("{CHANGES}?{query}")).fails_with(400, "bad_request").saying(said);
    }
    api.get(&format!("/customers.php?cursor={good}")).fails_with(400, "bad_request");
    let head = api.head(CHANGES).is(200);
    assert_eq!(head.header("Content-Length").unwrap(), api.get(CHANGES).body.len().to_string());
    server.anonymous().get(CHANGES).fails_with(401, "missing_authorization");
}

#[test]
fn filters_find_the_entries_of_a_key_a_request_an_action_and_a_time() {
    // The entries that are dated back must not be removed as too old.
    let (server, tenant) =
        Setup::plain().option("--keep-changes").option("3650d").start_with_tenant();
    let (office, script) = (tenant.key(ALL), tenant.key_named("script", ALL));
    let [api, other] = [&office, &script].map(|key| server.with_key(&key.key));
    let run = uuid();
    let new = |api: &Api| {
        let call = api.call("POST", "/customers.php").header("X-Request-Id", &run);
        call.json(&json!({"name": "New"})).send().created();
    };
    new(&api);
    new(&other);
    other.put("/customers.php?id=1", json!({"city": "Ulm"})).is(200);
    other.delete("/customers.php?id=2").is(204);
    let found = |query: &str| outline(&entries(&api, query));
    let all = found("");
    assert_eq!(found(&format!("?key={}", script.id)), all[1..]);
    assert_eq!(found("?key=script"), all[1..]);
    assert_eq!(found(&format!("?request_id={run}")), all[..2]);
    assert_eq!(found(&format!("?request_id={run}&key={}", office.id)), all[..1]);
    assert_eq!(found("?action=updated"), all[2..3]);
    assert_eq!(found("?action=updated&resource=customers&id=2"), [""; 0]);
    let unknown = format!("?request_id={}", uuid());
    for nobody in [&unknown, "?key=99", "?key=nobody", "?key=99999999999999999999"] {
        assert_eq!(found(nobody), [""; 0]);
    }

    let file = database(&tenant.file());
    for (seq, day) in [(0, "2026-03-01"), (1, "2026-03-02"), (2, "2026-03-03")] {
        let sql = "UPDATE changes SET at = ? WHERE seq = (SELECT seq FROM changes ORDER BY seq LIMIT 1 OFFSET ?)";
        file.execute(sql, rusqlite::params![format!("{day}T12:00:00Z"), seq]).unwrap();
    }
    assert_eq!(found("?at_to=2026-03-02"), all[..2]);
    assert_eq!(found("?at_from=2026-03-02T12:00:00Z&at_to=2026-03-02T13:00:00%2B01:00"), all[1..2]);
    assert_eq!(found("?at_from=2026-03-03"), all[2..]);
}

#[test]
fn filters_belong_to_the_cursor() {
    let (_server, api) = TestServer::with_api();
    for name in ["Eins", "Zwei", "Drei"] {
        api.customer(name);
    }
    let query = "?at_from=2026-01-01T01:00:00%2B01:00&action=created";
    let first = api.get(&format!("{CHANGES}{query}&limit=2")).found();
    let next = first["next_cursor"].as_str().unwrap();
    // The moment counts, and not its spelling.
    let same = "action=created&at_from=2026-01-01";
    let second = api.get(&format!("{CHANGES}?cursor={next}&{same}")).found();
    assert_eq!(outline(second["data"].as_array().unwrap()), ["created customers 3"]);
    let end = cursor(&api, "");
    for (cursor, query) in [(next, ""), (next, "&action=created"), (&end, "&action=created")] {
        api.get(&format!("{CHANGES}?cursor={cursor}{query}"))
            .fails_with(400, "bad_request")
            .saying("other filters");
    }
    // Whoever follows the deletions waits at the end, whatever comes before them.
    let deleted = "action=deleted";
    let now = cursor(&api, &format!("?cursor=now&{deleted}"));
    api.put("/customers.php?id=1", json!({"city": "Ulm"})).is(200);
    let page = api.get(&format!("{CHANGES}?cursor={now}&{deleted}")).found();
    assert_eq!((&page["data"], &page["more"]), (&json!([]), &json!(false)));
    let end = page["next_cursor"].as_str().unwrap();
    assert_eq!(end, cursor(&api, &format!("?cursor=now&{deleted}")));
    api.delete("/customers.php?id=1").is(204);
    let since = entries(&api, &format!("?cursor={end}&{deleted}"));
    assert_eq!(outline(&since), ["deleted customers 1"]);
}

#[test]
fn a_key_sees_entries_of_its_resources_alone() {
    let (_server, tenant) = TestServer::with_tenant();
    let all = tenant.with_scopes(ALL);
    let reader = tenant.with_scopes(&["hardware:read"]);
    let (now, page) = (cursor(&reader, "?cursor=now"), reader.get(CHANGES).body);
    all.employee(all.customer("Other"));
    assert_eq!(reader.get(CHANGES).body, page, "other resources make no difference to a page");
    assert_eq!(cursor(&reader, "?cursor=now"), now, "nor to a cursor");
    for query in [&format!("?cursor={now}&limit=1"), "?resource=customers"] {
        let found = reader.get(&format!("{CHANGES}{query}")).found();
        assert_eq!((&found["data"], &found["more"]), (&json!([]), &json!(false)), "{query}");
    }
    all.create("/hardware.php", json!({"name": "Own"}));
    all.customer("Another");
    let since = entries(&reader, &format!("?cursor={now}"));
    assert_eq!(outline(&since), ["created hardware 1"]);
    let two = tenant.with_scopes(&["customers:read", "hardware:read"]);
    let expected = ["created customers 1", "created hardware 1", "created customers 2"];
    assert_eq!(outline(&entries(&two, "")), expected, "in the order of the commits");
}

#[test]
fn a_key_without_a_scope_for_reading_is_refused() {
    let (_server, tenant) = TestServer::with_tenant();
    let writer = tenant.with_scopes(&["customers:write", "hardware:write"]);
    let reply = writer.get(CHANGES).fails_with(403, "insufficient_scope");
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"customers:read employees:read hardware:read\"";
    assert_eq!(reply.header("WWW-Authenticate"), Some(challenge));
}

#[test]
fn the_command_prints_the_newest_entries_last() {
    let (server, api) = TestServer::with_api();
    let print = |options: &[&str]| server.cli_json(&[&["changes", "acme"], options].concat());
    assert_eq!(print(&[]), json!([]));
    server.cli(&["changes", "acme"]).done();
    let customer = api.customer("Eins");
    api.employee(customer);
    api.put("/customers.php?id=1", json!({"city": "Bremen"})).is(200);
    assert_eq!(print(&[]), json!(entries(&api, "")));
    assert_eq!(print(&["--last", "2"]), json!(entries(&api, "")[1..]));
    assert_eq!(print(&["--resource", "employees"]), json!(entries(&api, "?resource=employees")));
    let one = ["--resource", "customers", "--id", "1", "--last", "1"];
    assert_eq!(print(&one), json!(entries(&api, "")[2..]));
    let table = server.cli(&["changes", "acme"]).done().stdout;
    let last = table.trim_end().lines().last().unwrap().to_owned();
    for words in ["updated", "city", "key 1 a test's tdk_"] {
        assert!(last.contains(words), "{table}");
    }
    server.cli(&["changes", "acme", "--id", "1"]).ends_with(2);
    server.cli(&["changes", "acme", "--last", "0"]).ends_with(2);
    server.cli(&["changes", "acme", "--resource", "cars"]).ends_with(2);
    server.cli(&["changes", "nobody"]).fails_saying("nobody");
}

#[test]
fn the_command_selects_entries_as_undo_does() {
    let (server, tenant) = TestServer::with_tenant();
    let (office, script) = (tenant.key(ALL), tenant.key_named("script", ALL));
    let [api, other] = [&office, &script].map(|key| server.with_key(&key.key));
    for number in 0..60 {
        api.customer(&format!("Customer {number}"));
    }
    let batch = json!({"operations": [
        {"method": "POST", "path": "/customers.php", "body": {"name": "New"}},
        {"method": "POST", "path": "/hardware.php", "body": {"name": "PC", "customer_id": {"result": 0}}},
        {"method": "PUT", "path": "/customers.php?id=1", "body": {"city": "Ulm"}},
        {"method": "DELETE", "path": "/customers.php?id=2"},
    ]});
    let run = other.post("/batch.php", batch).is(200).header("X-Request-Id").unwrap().to_owned();
    let print = |options: &[&str]| server.cli_json(&[&["changes", "acme"], options].concat());
    let all = entries(&api, "?limit=200");
    assert_eq!(all.len(), 64);
    assert_eq!(print(&[]), json!(all[14..]));
    for selected in [["--since", "2h"], ["--since", "2026-01-01"], ["--until", "2099-01-01"]] {
        assert_eq!(print(&selected), json!(all), "{selected:?}");
    }
    assert_eq!(print(&["--since", "2h", "--last", "3"]), json!(all[61..]));
    assert_eq!(print(&["--until", "2h"]), json!([]));
    for selected in [["--key", "script"], ["--key", &script.id.to_string()], ["--request", &run]] {
        assert_eq!(print(&selected), json!(all[60..]), "{selected:?}");
    }
    assert_eq!(print(&["--key", "script", "--resource", "hardware"]).as_array().unwrap().len(), 1);
    let fails = |options: &[&str]| server.cli(&[&["changes", "acme"], options].concat());
    fails(&["--key", "nobody"]).fails_saying("no key named \"nobody\"");
    tenant.key_named("script", ALL);
    fails(&["--key", "script"]).fails_saying("several keys");
    fails(&["--since", "yesterday"]).ends_with(2);

    let runs = print(&["--runs", "--last", "2"]);
    let by = json!({"kind": "key", "id": script.id, "name": "script", "prefix": script.prefix});
    let newest = json!({"request_id": run, "at": all[63]["at"], "by": by,
        "created": {"customers": 1, "hardware": 1}, "changed": {"customers": 1},
        "deleted": {"customers": 1}});
    assert_eq!(runs[0], newest);
    assert_eq!(runs[1]["created"], json!({"customers": 1}));
    assert_eq!(runs.as_array().unwrap().len(), 2);
    assert_eq!(print(&["--runs"]).as_array().unwrap().len(), 50);
    assert_eq!(print(&["--runs", "--since", "2h"]).as_array().unwrap().len(), 61);
    let table = server.cli(&["changes", "acme", "--runs", "--request", &run]).done().stdout;
    assert!(table.contains("1 customers, 1 hardware") && table.contains(&run), "{table}");
}

#[test]
fn a_local_time_is_shown_in_utc() {
    let (server, api) = TestServer::with_api();
    api.customer("Eins");
    let changes = server.cli(&["--json", "changes", "acme", "--since", "2026-01-02 14:00"]).done();
    assert_eq!(changes.json().as_array().unwrap().len(), 1);
    // The machine of a test may be anywhere.
    assert!(changes.stderr.starts_with("2026-01-02 14:00 is 2026-01-0"), "{}", changes.stderr);
    let undo = ["undo", "acme", "--since", "00:00:30", "--until", "2026-01-02T14:00:00Z"];
    let refused = server.cli(&undo).ends_with(2);
    assert!(refused.stderr.starts_with("00:00:30 is 20"), "{}", refused.stderr);
}

#[test]
fn an_import_has_the_name_of_its_file() {
    let (server, api) = TestServer::with_api();
    std::fs::create_dir(server.home().join("lists")).unwrap();
    std::fs::write(server.home().join("lists/of 2026.csv"), "name\nEins\n").unwrap();
    server.cli(&["import", "acme", "customers", "lists/of 2026.csv"]).done();
    let stdin = ["import", "acme", "customers", "-", "--format", "csv"];
    server.cli_with_input(&stdin, "name\nZwei\n").done();
    let names: Vec<Value> =
        entries(&api, "").iter().map(|entry| entry["by"]["name"].clone()).collect();
    assert_eq!(names, ["import of 2026.csv", "import"]);
}

/// The time of the server's clock, moved by SQLite's `modifier`.
fn clock(file: &std::path::Path, modifier: &str) -> String {
    let sql = "SELECT strftime('%Y-%m-%dT%H:%M:%SZ', 'now', ?)";
    database(file).query_row(sql, [modifier], |row| row.get(0)).unwrap()
}

/// Dates the last entry.
fn date_last(file: &std::path::Path, at: &str) {
    let sql = "UPDATE changes SET at = ? WHERE seq = (SELECT max(seq) FROM changes)";
    assert_eq!(database(file).execute(sql, [at]), Ok(1));
}

#[test]
fn a_clock_that_was_wrong_once_dates_no_later_change() {
    let (server, tenant) = TestServer::with_tenant();
    let (api, file) = (tenant.with_scopes(ALL), tenant.file());
    let start = clock(&file, "+0 seconds");
    let created = |name: &str| {
        let created = api.post("/customers.php", json!({"name": name})).created();
        assert_eq!(created["created_at"], created["updated_at"]);
        created["created_at"].as_str().unwrap().to_owned()
    };
    created("Eins");
    date_last(&file, "2099-01-01T00:00:00Z");
    let at = created("Zwei");
    assert!(start <= at && at <= clock(&file, "+0 seconds"), "{at}");
    // NTP has set the clock back a little, or a request has overtaken another one.
    let later = clock(&file, "+9 minutes");
    date_last(&file, &later);
    assert_eq!(created("Drei"), later);
    date_last(&file, "2099-01-01T00:00:00Z");
    std::fs::write(server.home().join("c.csv"), "name\nImported\n").unwrap();
    server.cli(&["import", "acme", "customers", "c.csv"]).done();
    let last = entries(&api, "").pop().unwrap();
    assert!(last["at"].as_str().unwrap() <= clock(&file, "+0 seconds").as_str(), "{last}");
    let ids: Vec<Value> = entries(&api, "").iter().map(|entry| entry["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3, 4], "the order is that of the numbers");
}

/// The number of entries in the tenant's file.
fn kept(file: &std::path::Path) -> i64 {
    database(file).query_row("SELECT count(*) FROM changes", [], |row| row.get(0)).unwrap()
}

/// A server that keeps entries for a day.
fn keeping_a_day() -> TestServer {
    Setup::plain().option("--keep-changes").option("1d").start()
}

/// Dates all entries to the day before yesterday.
fn make_old(file: &std::path::Path) {
    let sql = "UPDATE changes SET at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-49 hours')";
    database(file).execute(sql, []).unwrap();
}

#[test]
fn entries_are_removed_after_their_time() {
    let server = keeping_a_day();
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(ALL);
    let start = cursor(&api, "?cursor=now");
    // More than one step removes.
    write_rows(&server, "c.csv", 2_500);
    server.cli(&["import", "acme", "customers", "c.csv"]).done();
    let end = cursor(&api, "?cursor=now");
    make_old(&tenant.file());
    api.customer("New");
    until("the old entries are removed", || (kept(&tenant.file()) == 1).then_some(()));
    api.get(&format!("{CHANGES}?cursor={start}")).fails_with(410, "changes_gone");
    assert_eq!(entries(&api, &format!("?cursor={end}")).len(), 1);
    server.cli(&["check"]).done();
}

#[test]
fn a_cursor_misses_nothing_by_the_end_of_entries_that_its_key_may_not_see() {
    let server = keeping_a_day();
    let tenant = server.tenant("acme");
    let (all, reader) = (tenant.with_scopes(ALL), tenant.with_scopes(&["hardware:read"]));
    let old = cursor(&reader, "?cursor=now");
    for n in 0..5 {
        all.customer(&format!("Old {n}"));
    }
    make_old(&tenant.file());
    assert_eq!(entries(&reader, &format!("?cursor={old}")), [0; 0]);
    for n in 0..8 {
        all.create("/hardware.php", json!({"name": format!("New {n}")}));
    }
    until("the old entries are removed", || (kept(&tenant.file()) == 8).then_some(()));
    assert_eq!(entries(&reader, &format!("?cursor={old}")).len(), 8);
    assert_eq!(entries(&all, &format!("?cursor={old}&resource=hardware")).len(), 8);
    all.get(&format!("{CHANGES}?cursor={old}")).fails_with(410, "changes_gone");
}

#[test]
fn a_cursor_from_before_a_restore_is_gone() {
    let (server, tenant) = TestServer::with_tenant();
    let api = tenant.with_scopes(ALL);
    api.customer("Eins");
    server.cli(&["backup", "backups"]).done();
    let (start, end) = (cursor(&api, "?limit=1"), cursor(&api, "?cursor=now"));
    api.customer("Zwei");
    let last = entries(&api, "")[1]["seq"].as_i64();
    server.cli(&["restore", "backups", "acme", "--force"]).done();
    until("the tenant is served again", || (api.get(CHANGES).status == 200).then_some(()));
    for cursor in [&start, &end] {
        api.get(&format!("{CHANGES}?cursor={cursor}")).fails_with(410, "changes_gone");
        api.get(&format!("{CHANGES}?cursor={cursor}&resource=hardware"))
            .fails_with(410, "changes_gone");
    }
    let now = cursor(&api, "?cursor=now");
    api.customer("Drei");
    let since = entries(&api, &format!("?cursor={now}"));
    assert_eq!(outline(&since), ["created customers 3"]);
    assert!(since[0]["seq"].as_i64() > last, "numbers go on");
    assert_eq!(outline(&entries(&api, "")), ["created customers 1", "created customers 3"]);
    server.cli(&["check"]).done();
}

#[test]
fn names_are_those_of_the_moment_of_the_change() {
    let (server, tenant) = TestServer::with_tenant();
    let made =
        server.cli_json(&["key", "create", "acme", "--name", "Büro \"1\" \\", "--scope", "all"]);
    server.with_key(made["key"].as_str().unwrap()).customer("Eins");
    server.cli(&["key", "delete", "acme", &made["id"].to_string()]).done();
    let by = entries(&tenant.with_scopes(ALL), "")[0]["by"].clone();
    assert_eq!([&by["id"], &by["prefix"]], [&made["id"], &made["prefix"]]);
    assert_eq!([&by["kind"], &by["name"]], ["key", "Büro \"1\" \\"]);
}
