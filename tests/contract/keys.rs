//! Contract section 5 except the order of checks: authentication and scopes.

use std::thread;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::contract::{RESOURCES, scopes};
use crate::support::{ALL, DataDir, TestServer, database, until};

const RECORDS: &str = "/customers.php";

#[test]
fn only_the_hash_of_a_key_is_stored() {
    let (mut server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL);
    server.with_key(&key.key).get(RECORDS).is(200);
    server.stop();
    let mut stored = Vec::new();
    for file in std::fs::read_dir(server.data())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
    {
        stored.extend(std::fs::read(file).unwrap());
    }
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
        let reply = by(more).is(401);
        assert!(
            ["malformed_api_key", "invalid_api_key"].contains(&reply.code().as_str()),
            "{reply}"
        );
    }
}

#[test]
fn two_authorization_headers_are_a_bad_request() {
    let (server, api) = TestServer::with_api();
    let key = server.tenant("other").key(ALL).key;
    let call = api.call("GET", RECORDS).header("Authorization", &format!("Bearer {key}"));
    call.send().fails_with(400, "bad_request").saying("Authorization");
    api.call("GET", RECORDS)
        .header("authorization", "Basic x")
        .send()
        .fails_with(400, "bad_request");
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
                if scope == format!("{}:{access}", resource.plural) {
                    assert!(
                        [200, 400, 415].contains(&reply.status),
                        "{scope} permits the request: {reply}"
                    );
                } else {
                    assert_eq!(reply.status, 403, "{scope} does not permit the request: {reply}");
                    assert!(method == "HEAD" || reply.code() == "insufficient_scope", "{reply}");
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
