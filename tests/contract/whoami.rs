//! Contract section 14: `/whoami.php`, and the end of a key.

use serde_json::json;

use crate::support::{ALL, Api, InProcess, Setup, uuid};

const WHOAMI: &str = "/whoami.php";

#[test]
fn it_describes_the_key_of_the_request() {
    let (server, tenant) = InProcess::at("2026-11-20T19:30:42Z");
    let scopes = ["customers:read", "hardware:write"];
    let key = tenant.key_with(&scopes, &["--expires", "2999-06-30", "--rate-limit", "7"]);
    let listed = server.cli_json(&["key", "list", "acme"])[0].clone();
    let mut expected = json!({
        "tenant": "acme",
        "key": {
            "id": key.id,
            "name": "a test's",
            "prefix": key.prefix,
            "scopes": scopes,
            "created_at": listed["created_at"],
            "expires_at": "2999-06-30T23:59:59Z",
        },
        "rate_limit": 7,
        "api_version": "v1",
        "server": env!("CARGO_PKG_VERSION"),
    });
    let api = server.with_key(&key.key);
    let reply = api.get(WHOAMI).is(200);
    assert_eq!(reply.text(), expected.to_string(), "the members in this order");
    assert_eq!(reply.header("Content-Type"), Some("application/json; charset=utf-8"));
    assert_eq!(api.below_v1().get(WHOAMI).found(), expected);
    let head = api.head(WHOAMI).is(200);
    assert_eq!(
        (head.body.len(), head.header("Content-Length")),
        (0, reply.header("Content-Length"))
    );
    let other = tenant.key(ALL);
    let found = server.with_key(&other.key).get(WHOAMI).found();
    expected = json!({"expires_at": null, "rate_limit": 100, "id": other.id});
    assert_eq!(
        json!({"expires_at": found["key"]["expires_at"], "rate_limit": found["rate_limit"], "id": found["key"]["id"]}),
        expected
    );
}

const RECORDS: &str = "/customers.php";

#[test]
fn a_date_stands_for_its_last_second_and_from_then_on_the_key_is_expired() {
    let (server, tenant) = InProcess::at("2999-06-29T12:00:00Z");
    let key = tenant.key_with(ALL, &["--expires", "2999-06-30"]);
    assert_eq!(server.listed_key(key.id)["expires_at"], "2999-06-30T23:59:59Z");
    let api = server.with_key(&key.key);
    server.advance(36 * 3600 - 2);
    api.get(RECORDS).is(200);
    server.advance_millis(999);
    api.get(RECORDS).is(200);
    server.advance_millis(1);
    let refused = api.get(RECORDS).fails_with(401, "expired_api_key").saying("expired");
    assert_eq!(refused.header("WWW-Authenticate"), Some("Bearer error=\"invalid_token\""));
    api.below_v1().delete("/hardware.php?id=1").fails_with(401, "expired_api_key");
    api.get("/whoami.php").fails_with(401, "expired_api_key");
    tenant.with_scopes(ALL).get(RECORDS).is(200);
}

/// The value of `X-Key-Expires` on every kind of response after the scope check.
fn announcements(api: &Api) -> Vec<Option<String>> {
    let record = || api.call("POST", RECORDS).json(&json!({"name": "Once"}));
    let key = uuid();
    let replies = [
        api.get(RECORDS).is(200),
        api.head(RECORDS).is(200),
        api.below_v1().get(RECORDS).is(200),
        api.get("/customers.php?id=99").is(404),
        api.get("/customers.php?x=1").is(400),
        api.call("PATCH", RECORDS).send().is(405),
        record().key(&key).send().is(201),
        record().key(&key).send().is(201),
        api.post(RECORDS, json!({})).is(422),
        api.get("/whoami.php").is(200),
    ];
    assert!(replies[7].was_replayed());
    replies.iter().map(|reply| reply.header("X-Key-Expires").map(str::to_owned)).collect()
}

#[test]
fn the_last_14_days_are_announced_after_the_scope_check() {
    let (server, tenant) = InProcess::at("2999-06-01T00:00:00Z");
    let ends = server.with_key(&tenant.key_with(ALL, &["--expires", "2999-06-30"]).key);
    let lasts = tenant.with_scopes(ALL);
    let reader =
        server.with_key(&tenant.key_with(&["hardware:read"], &["--expires", "2999-06-30"]).key);
    let announced = Some("2999-06-30T23:59:59Z".to_owned());
    // One second before 14 days.
    server.advance(16 * 86_400 - 2);
    assert!(announcements(&ends).iter().all(Option::is_none));
    server.advance(1);
    let found = announcements(&ends);
    assert!(found.iter().all(|end| *end == announced), "{found:?}");
    assert!(announcements(&lasts).iter().all(Option::is_none));
    assert_eq!(
        reader.get(RECORDS).fails_with(403, "insufficient_scope").header("X-Key-Expires"),
        None
    );
    server.advance(14 * 86_400 - 1);
    assert!(announcements(&ends).iter().all(|end| *end == announced));
    server.advance(1);
    assert_eq!(ends.get(RECORDS).fails_with(401, "expired_api_key").header("X-Key-Expires"), None);
}

#[test]
fn a_refusal_by_the_rate_limit_announces_the_end_too() {
    let (server, tenant) = Setup::plain().option("--rate-limit").option("1").start_with_tenant();
    let key = tenant.key_with(ALL, &["--expires", "14d"]);
    let row = server.listed_key(key.id);
    let end = row["expires_at"].as_str();
    let api = server.with_key(&key.key);
    assert_eq!(api.get(RECORDS).is(200).header("X-Key-Expires"), end);
    let refused = api.get(RECORDS).fails_with(429, "rate_limited");
    assert_eq!(refused.header("X-Key-Expires"), end);
}
