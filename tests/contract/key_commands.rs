//! Contract section 14: ends and limits on the command line.

use serde_json::{Value, json};

use crate::support::{ALL, DataDir, TestServer};

const RECORDS: &str = "/customers.php";

fn keys(data_dir: &DataDir) -> Vec<Value> {
    data_dir.cli(&["--json", "key", "list", "acme"]).done().json().as_array().unwrap().clone()
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
    assert_eq!(
        time("expires_at").duration_since(time("created_at")),
        jiff::SignedDuration::from_hours(30 * 24)
    );
    tenant.key(ALL);
    let row = keys(&data_dir).last().unwrap().clone();
    assert_eq!(
        (&row["expires_at"], &row["rate_limit"], &row["state"]),
        (&Value::Null, &Value::Null, &json!("active"))
    );
    let table = data_dir.cli(&["key", "list", "acme"]).done().stdout;
    assert!(table.contains("2999-06-30T23:59:59Z") && table.contains(" - "), "{table}");
}

#[test]
fn an_end_in_the_past_fails_and_one_that_is_none_is_wrong_usage() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let create = |end: &str| {
        let end = format!("--expires={end}");
        data_dir.cli(&["key", "create", "acme", "--name", "late", "--scope", "all", &end])
    };
    for past in ["2020-02-29", "2020-02-29T12:00:00Z", "0s", "-1d", "1d ago"] {
        create(past).fails_saying("must be in the future");
    }
    for wrong in ["", "tomorrow", "30", "2026-02-30", "2026-02-28T12:00:00", "9999-12-31", "9000y"]
    {
        create(wrong).ends_with(2);
    }
    assert!(keys(&data_dir).is_empty());
}

#[test]
fn a_key_has_a_limit_of_its_own_until_it_is_taken_back() {
    let mut server = TestServer::start();
    let tenant = server.tenant("acme");
    let key = tenant.key_with(ALL, &["--rate-limit", "3"]);
    let other = tenant.key(ALL);
    let expect = |server: &TestServer, limit: i64, remaining: i64| {
        let reply = server.with_key(&key.key).get(RECORDS).is(200);
        assert_eq!((reply.limit("Limit"), reply.limit("Remaining")), (limit, remaining));
    };
    let change = |server: &TestServer, limit: &str| {
        server.cli(&["--json", "key", "limit", "acme", "1", limit]).done().json()
    };
    expect(&server, 3, 2);
    expect(&server, 3, 1);
    let done = change(&server, "5");
    assert_eq!(
        done,
        json!({"done": "limit set", "tenant": "acme", "id": 1, "name": "a test's", "rate_limit": 5})
    );
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
    let text = server.cli(&["key", "limit", "acme", "1", "7"]).done().stdout;
    assert_eq!(text, "key 1 (a test's) of acme has 7 requests a minute\n");
}

#[test]
fn a_limit_is_1_to_100000() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    tenant.key(ALL);
    for wrong in ["0", "100001", "x", "", "-1", "1.5", "Default"] {
        data_dir.cli(&["key", "limit", "acme", "1", "--", wrong]).ends_with(2);
        let option = format!("--rate-limit={wrong}");
        data_dir
            .cli(&["key", "create", "acme", "--name", "x", "--scope", "all", &option])
            .ends_with(2);
    }
    data_dir.cli(&["key", "limit", "acme", "2", "5"]).fails_saying("no key 2");
    assert_eq!(keys(&data_dir).len(), 1);
}
