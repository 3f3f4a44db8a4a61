//! Contract section 14: ends, limits, names, changes and replacements of keys on the command line.

use serde_json::{Value, json};

use crate::support::{ALL, DataDir, TestServer};

const RECORDS: &str = "/customers.php";

fn keys(data_dir: &DataDir) -> Vec<Value> {
    data_dir.cli_json(&["key", "list", "acme"]).as_array().unwrap().clone()
}

#[test]
fn an_end_is_a_date_a_timestamp_or_a_time_from_now() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    for (given, end) in [
        ("2999-06-30", "2999-06-30T23:59:59Z"),
        ("2999-06-30T12:00:00Z", "2999-06-30T12:00:00Z"),
        ("2999-06-30T12:00:00.9+02:00", "2999-06-30T10:00:00Z"),
    ] {
        tenant.key_with(ALL, &["--expires", given]);
        assert_eq!(keys(&data_dir).last().unwrap()["expires_at"], end, "{given}");
    }
    tenant.key_with(ALL, &["--expires", "30d"]);
    let row = keys(&data_dir).last().unwrap().clone();
    let time = |name: &str| row[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    // A second may begin between the two times.
    let seconds = time("expires_at").duration_since(time("created_at")).as_secs();
    assert!((0..=10).contains(&(30 * 24 * 3600 - seconds)), "{row}");
    tenant.key(ALL);
    let row = keys(&data_dir).last().unwrap().clone();
    assert_eq!([&row["expires_at"], &row["rate_limit"]], [&Value::Null; 2]);
    let table = data_dir.cli(&["key", "list", "acme"]).done().stdout;
    assert!(table.contains("2999-06-30T23:59:59Z") && table.contains(" - "), "{table}");
}

#[test]
fn an_end_in_the_past_fails_and_one_that_is_none_is_wrong_usage() {
    let data_dir = DataDir::acme();
    let create = |end: &str| {
        let end = format!("--expires={end}");
        data_dir.cli(&["key", "create", "acme", "--name", "late", "--scope", "all", &end])
    };
    for past in ["2020-02-29", "2020-02-29T12:00:00Z", "0d"] {
        create(past).fails_saying("must be in the future");
    }
    for wrong in ["", "tomorrow", "30", "2026-02-30", "9999-12-31", "999999999d"] {
        create(wrong).ends_with(2);
    }
    // A duration has one whole number and one of the four units.
    for wrong in ["30y", "1h30m", "30s", "-1d", "+1d", "1.5h", "1 d", "1d ago", "P1D", "1mo", "d"] {
        create(wrong).ends_with(2);
        let overlap = format!("--overlap={wrong}");
        data_dir.cli(&["key", "replace", "acme", "1", &overlap]).ends_with(2);
        data_dir.cli(&["serve", &format!("--keep-changes={wrong}")]).ends_with(2);
    }
    let message = "not never, a date such as 2026-12-31, a timestamp such as";
    assert!(create("31.12.2026").ends_with(2).stderr.contains(message));
    assert!(keys(&data_dir).is_empty());
}

#[test]
fn a_key_has_a_limit_of_its_own_until_it_is_taken_back() {
    let (mut server, tenant) = TestServer::with_tenant();
    let key = tenant.key_with(ALL, &["--rate-limit", "3"]);
    let other = tenant.key(ALL);
    let expect = |server: &TestServer, limit: i64, remaining: i64| {
        let reply = server.with_key(&key.key).get(RECORDS).is(200);
        assert_eq!((reply.limit("Limit"), reply.limit("Remaining")), (limit, remaining));
    };
    let change =
        |server: &TestServer, limit: &str| server.cli_json(&["key", "limit", "acme", "1", limit]);
    expect(&server, 3, 2);
    expect(&server, 3, 1);
    let done = change(&server, "5");
    assert_eq!((&done["done"], &done["rate_limit"]), (&json!("limit set"), &json!(5)));
    assert_eq!((&done["tenant"], &done["name"]), (&json!("acme"), &json!("a test's")));
    // The change holds from the next window on.
    expect(&server, 3, 0);
    let refused = server.with_key(&key.key).get(RECORDS).fails_with(429, "rate_limited");
    assert_eq!((refused.limit("Limit"), refused.limit("Remaining")), (3, 0));
    assert!(refused.message().contains("its 3 requests"), "{refused}");
    // A restart begins new windows.
    server.restart();
    expect(&server, 5, 4);
    assert_eq!(change(&server, "default")["rate_limit"], Value::Null);
    server.restart();
    expect(&server, 100, 99);
    assert_eq!(server.with_key(&other.key).get(RECORDS).is(200).limit("Limit"), 100);
    let listed = keys(&server);
    assert_eq!((&listed[0]["rate_limit"], &listed[1]["rate_limit"]), (&Value::Null, &Value::Null));
    change(&server, "100000");
    assert_eq!(keys(&server)[0]["rate_limit"], 100_000);
    for (limit, text) in [("7", "7 requests a minute"), ("1", "1 request a minute")] {
        let said = server.cli(&["key", "limit", "acme", "1", limit]).done().stdout;
        assert_eq!(said, format!("key 1 (a test's) of acme has {text}\n"));
    }
}

#[test]
fn a_limit_is_1_to_100000() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    tenant.key(ALL);
    for wrong in ["0", "100001", "x", "", "-1", "+1", "1.5", "Default"] {
        data_dir.cli(&["key", "limit", "acme", "1", "--", wrong]).ends_with(2);
        let option = format!("--rate-limit={wrong}");
        let create = ["key", "create", "acme", "--name", "x", "--scope", "all", &option];
        data_dir.cli(&create).ends_with(2);
    }
    data_dir.cli(&["key", "limit", "acme", "2", "5"]).fails_saying("no key 2");
    assert_eq!(keys(&data_dir).len(), 1);
}

#[test]
fn an_active_key_gets_another_name_and_another_end() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    tenant.key(ALL);
    let change = |words: &[&str]| data_dir.cli(&[&["key"], words].concat());
    let text = change(&["rename", "acme", "1", "  Web shop "]).done().stdout;
    assert_eq!(text, "key 1 (Web shop) of acme has this name now\n");
    for (given, end) in [
        ("2999-06-30", json!("2999-06-30T23:59:59Z")),
        ("2999-06-30T12:00:00Z", json!("2999-06-30T12:00:00Z")),
        ("never", Value::Null),
    ] {
        let done = change(&["expire", "acme", "1", given, "--json"]).done().json();
        assert_eq!((&done["done"], &done["expires_at"]), (&json!("expiry set"), &end));
        assert_eq!((&keys(&data_dir)[0]["expires_at"], &done["name"]), (&end, &json!("Web shop")));
    }
    change(&["expire", "acme", "1", "2020-02-29"]).fails_saying("must be in the future");
    for wrong in [["expire", "acme", "1", "soon"], ["rename", "acme", "1", " "]] {
        change(&wrong).ends_with(2);
    }
    change(&["rename", "acme", "2", "x"]).fails_saying("no key 2");

    let before = keys(&data_dir);
    change(&["replace", "acme", "1", "--overlap", "0"]).done();
    change(&["revoke", "acme", "2"]).done();
    for (id, state) in [("1", "expired"), ("2", "revoked")] {
        let why = format!("the key {id} is {state} and cannot be changed");
        for (command, value) in [("rename", "x"), ("limit", "7"), ("expire", "never")] {
            change(&[command, "acme", id, value]).fails_saying(&why);
        }
        change(&["replace", "acme", id]).fails_saying(state);
    }
    assert_eq!(keys(&data_dir)[0]["name"], before[0]["name"]);
    data_dir.tenant("other");
    change(&["replace", "other", "1"]).fails_saying("no key");
}

#[test]
fn the_new_key_has_the_name_scopes_limit_and_end_of_the_old_one() {
    let (server, tenant) = TestServer::with_tenant();
    let options = ["--expires", "2999-06-30", "--rate-limit", "7"];
    let old = tenant.key_with(&["customers:read", "hardware:write"], &options);
    let made = server.cli_json(&["key", "replace", "acme", &old.id.to_string()]);
    let key = made["key"].as_str().unwrap().to_owned();
    server.keep_secret(&key);
    let old_end = server.listed_key(old.id)["expires_at"].clone();
    let expected = json!({
        "done": "replaced",
        "tenant": "acme",
        "id": made["id"],
        "name": "a test's",
        "prefix": key[..8],
        "scopes": ["customers:read", "hardware:write"],
        "created_at": made["created_at"],
        "last_used_at": null,
        "state": "active",
        "expires_at": "2999-06-30T23:59:59Z",
        "rate_limit": 7,
        "key": key,
        "replaced": {"id": old.id, "expires_at": old_end},
    });
    assert_eq!(made, expected);
    // The overlap is a day unless told.
    let ends = server.with_key(&old.key).get(RECORDS).is(200);
    assert_eq!(ends.header("X-Key-Expires"), old_end.as_str());
    let api = server.with_key(&key);
    let reply = api.get(RECORDS).is(200);
    assert_eq!((reply.limit("Limit"), reply.header("X-Key-Expires")), (7, None));
    api.get("/hardware.php").fails_with(403, "insufficient_scope");
}
