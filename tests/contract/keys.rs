//! Contract section 5 except the order of checks: authentication and scopes. Section 14:
//! `/whoami.php`, and the end of a key.

use std::thread;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::contract::{RESOURCES, scopes};
use crate::support::{ALL, Api, DataDir, InProcess, Setup, TestServer, database, until, uuid};

const RECORDS: &str = "/customers.php";

#[test]
fn only_the_hash_of_a_key_is_stored() {
    let (mut server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL);
    server.with_key(&key.key).get(RECORDS).is(200);
    server.stop();
    let stored = std::fs::read(server.registry_file()).unwrap();
    let has = |wanted: &[u8]| stored.windows(wanted.len()).any(|window| window == wanted);
    let hash = Sha256::digest(key.key.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(has(&hash) || has(hex.as_bytes()), "the SHA-256 of the whole key is stored");
    assert!(has(key.prefix.as_bytes()), "and its first 8 characters");
    assert!(!has(&key.key.as_bytes()[..12]), "but nothing more of it");
    assert!(!has(tenant.password.as_bytes()), "and nothing of the password");
}

#[test]
fn a_key_has_at_least_40_characters() {
    let server = TestServer::start();
    let of = |length: usize| format!("tdk_{}", "a".repeat(length - 4));
    server.with_key(&of(39)).get(RECORDS).fails_with(401, "malformed_api_key");
    for length in [40, 47, 48, 400] {
        server.with_key(&of(length)).get(RECORDS).fails_with(401, "invalid_api_key");
    }
    let long = "a".repeat(43);
    for key in [
        "tdk_",
        "x",
        &format!("tdk-{long}"),
        &format!("TDK_{long}"),
        &format!("sk_{long}"),
        &format!("xtdk_{long}"),
    ] {
        server.with_key(key).get(RECORDS).fails_with(401, "malformed_api_key");
    }
}

#[test]
fn the_scheme_is_bearer_in_any_case_with_any_spaces_or_tabs() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL).key;
    let by = |value: String| server.anonymous().authorized_by(&value).get(RECORDS);
    for good in ["Bearer ", "bearer ", "BEARER ", "bEaReR    ", "Bearer\t", "Bearer \t  \t"] {
        by(format!("{good}{key}")).is(200);
    }
    for bad in ["Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Token abc", "", "tdk_"] {
        by(bad.to_owned()).fails_with(401, "missing_authorization");
    }
    for other in [
        format!("Basic {key}"),
        format!("Token {key}"),
        key.clone(),
        format!("Bearer{key}"),
        format!("Bearerx {key}"),
    ] {
        by(other).fails_with(401, "missing_authorization");
    }
    for more in [
        format!("Bearer {key} x"),
        format!("Bearer {key},"),
        format!("Bearer \"{key}\""),
        format!("Bearer x{key}"),
    ] {
        let code = by(more).is(401).code();
        assert!(["malformed_api_key", "invalid_api_key"].contains(&&*code), "{code}");
    }
}

#[test]
fn a_key_is_read_from_nowhere_else() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL).key;
    let anyone = server.anonymous();
    for name in ["X-API-Key", "Api-Key", "Proxy-Authorization", "Cookie", "X-Authorization"] {
        let reply = anyone.call("GET", RECORDS).header(name, &format!("Bearer {key}")).send();
        reply.fails_with(401, "missing_authorization");
    }
    for name in ["api_key", "key", "access_token", "token"] {
        anyone.get(&format!("{RECORDS}?{name}={key}")).fails_with(401, "missing_authorization");
    }
}

#[test]
fn each_scope_opens_its_own_operations_and_no_others() {
    let (_server, tenant) = TestServer::with_tenant();
    let all = tenant.with_scopes(ALL);
    let customer = all.customer("Needed");
    let employee = all.employee(customer);
    all.create("/hardware.php", json!({"name": "Laptop", "employee_id": employee}));
    for scope in scopes() {
        let api = tenant.with_scopes(&[&scope]);
        for &resource in RESOURCES.iter() {
            for method in ["GET", "HEAD", "POST", "PUT", "DELETE"] {
                let access = if ["GET", "HEAD"].contains(&method) { "read" } else { "write" };
                let reply = api.call(method, resource.path).send();
                let needed = format!("{}:{access}", resource.plural);
                if scope == needed {
                    assert!([200, 400, 415].contains(&reply.status), "{scope}: {reply}");
                } else {
                    let challenge =
                        format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\"");
                    let reply = reply.is(403);
                    assert_eq!(reply.header("WWW-Authenticate"), Some(&*challenge), "{reply}");
                }
            }
            // A method that no endpoint supports needs no scope.
            api.call("PATCH", resource.path).send().fails_with(405, "method_not_allowed");
        }
    }
}

#[test]
fn a_key_that_was_revoked_or_deleted_is_refused_from_the_next_request_on() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL);
    let api = server.with_key(&key.key);
    let other = tenant.with_scopes(ALL);
    api.get(RECORDS).is(200);
    tenant.key_command("revoke", &key);
    api.get(RECORDS).fails_with(401, "revoked_api_key");
    tenant.key_command("revoke", &key);
    api.get(RECORDS).fails_with(401, "revoked_api_key");
    tenant.key_command("delete", &key);
    api.get(RECORDS).fails_with(401, "invalid_api_key");
    other.get(RECORDS).is(200);
}

#[test]
fn no_change_follows_a_suspension() {
    let (server, tenant) = TestServer::with_unlimited_tenant();
    let api = tenant.with_scopes(ALL);
    api.customer("Kept");
    let write = || api.call("POST", RECORDS).json(&json!({"name": "Late"})).start();
    let count = || -> i64 {
        let count = "SELECT count(*) FROM customers";
        database(&tenant.file()).query_row(count, [], |row| row.get(0)).unwrap()
    };

    // The changes wait for a lock. So does the command: it ends when nothing can follow.
    let locked = database(&tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting: Vec<_> = (0..4).map(|_| write()).collect();
    api.get(RECORDS).is(200);
    thread::scope(|scope| {
        let suspending = scope.spawn(|| tenant.ask("suspend", &[]));
        let state = || server.cli_json(&["tenant", "list"])[0]["state"].clone();
        until("acme is suspended", || (state() == "suspended").then_some(()));
        assert!(!suspending.is_finished());
        locked.execute_batch("COMMIT").unwrap();
    });
    for request in waiting {
        request.reply().fails_with(403, "tenant_inactive");
    }
    assert_eq!(count(), 1);

    // The server is stopped with a change on its way, and goes on after the suspension.
    tenant.ask("activate", &[]);
    until("the server is stopped outside of a transaction", || {
        server.signal("STOP");
        let is_outside = [tenant.file(), server.registry_file()].iter().all(|file| {
            let other = database(file);
            other.busy_timeout(Duration::ZERO).unwrap();
            other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
        });
        if !is_outside {
            // In a step of upkeep. The command would wait for its end.
            server.signal("CONT");
        }
        is_outside.then_some(())
    });
    let request = write();
    tenant.ask("suspend", &[]);
    server.signal("CONT");
    request.reply().fails_with(403, "tenant_inactive");
    assert_eq!(count(), 1);
}

#[test]
fn a_tenant_that_moves_lets_its_clients_wait_and_is_restored_as_suspended() {
    let (server, tenant) = TestServer::with_tenant();
    let api = tenant.with_scopes(ALL);
    tenant.ask("suspend", &["--moving"]);
    let refused = api.get(RECORDS).fails_with(503, "tenant_unavailable");
    assert_eq!(refused.header("retry-after"), Some("2"));
    let state = |server: &DataDir| server.cli_json(&["tenant", "list"])[0]["state"].clone();
    assert_eq!(state(&server), "moving");
    server.cli(&["backup", "backup"]).done();
    let other = DataDir::new(false);
    let backup = server.home().join("backup").display().to_string();
    let restored = other.cli(&["restore", &backup, "acme"]).done().stderr;
    let advice = "tenant acme is suspended: tenantdesk tenant activate acme\n";
    assert!(restored.ends_with(advice), "{restored}");
    assert_eq!(state(&other), "suspended");
    tenant.ask("activate", &[]);
    api.get(RECORDS).is(200);
}

#[test]
fn a_trial_that_is_over_takes_effect_at_the_next_request() {
    let (_server, tenant) = TestServer::with_tenant();
    let api = tenant.with_scopes(ALL);
    api.get(RECORDS).is(200);
    tenant.ask("trial", &["2020-01-31"]);
    api.get(RECORDS).fails_with(403, "tenant_inactive").saying("trial");
    tenant.ask("trial", &["2999-12-31"]);
    api.get(RECORDS).is(200);
    tenant.ask("suspend", &[]);
    tenant.ask("trial", &["2020-01-31"]);
    api.get(RECORDS).fails_with(403, "tenant_inactive").saying("suspended");
    tenant.ask("trial", &["2999-12-31"]);
    api.get(RECORDS).fails_with(403, "tenant_inactive").saying("suspended");
    tenant.ask("trial", &["2020-01-31"]);
    tenant.ask("activate", &[]);
    api.get(RECORDS).is(200);
}

#[test]
fn the_last_use_of_a_key_is_listed_at_once() {
    let (server, tenant) = TestServer::with_tenant();
    let used = tenant.key(&["customers:read"]);
    let refused = tenant.key(&["customers:read"]);
    let last_use = |id: i64| server.listed_key(id)["last_used_at"].clone();
    assert_eq!(last_use(used.id), json!(null));
    server.with_key(&used.key).get(RECORDS).is(200);
    server.with_key(&refused.key).get("/hardware.php").fails_with(403, "insufficient_scope");
    // The server runs on.
    until("a listed use", || last_use(used.id).is_string().then_some(()));
    let row = server.listed_key(used.id);
    assert!(row["last_used_at"].as_str() >= row["created_at"].as_str(), "{row}");
    assert_eq!(last_use(refused.id), json!(null), "only what passed the scope check is a use");
}

const WHOAMI: &str = "/whoami.php";

#[test]
fn it_describes_the_key_of_the_request() {
    let (server, tenant) = InProcess::at("2026-11-20T19:30:42Z");
    let scopes = ["customers:read", "hardware:write"];
    let key = tenant.key_with(&scopes, &["--expires", "2999-06-30", "--rate-limit", "7"]);
    let listed = server.cli_json(&["key", "list", "acme"])[0].clone();
    let expected = json!({
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
    api.head(WHOAMI).is(200);
    let found = tenant.with_scopes(ALL).get(WHOAMI).found();
    assert_eq!((&found["key"]["expires_at"], &found["rate_limit"]), (&json!(null), &json!(100)));
}

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
    api.get(RECORDS).fails_with(401, "expired_api_key");
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
    let refused = reader.get(RECORDS).fails_with(403, "insufficient_scope");
    assert_eq!(refused.header("X-Key-Expires"), None);
    server.advance(14 * 86_400 - 1);
    assert!(announcements(&ends).iter().all(|end| *end == announced));
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
