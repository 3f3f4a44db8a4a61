//! Contract section 14: a key is replaced by another one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use crate::support::{ALL, TestServer, until};

const RECORDS: &str = "/customers.php";

#[test]
fn a_key_is_replaced_under_load_and_no_request_fails() {
    let server = TestServer::without_rate_limit();
    let tenant = server.tenant("acme");
    let mut key = tenant.key(ALL);
    let current = Mutex::new(key.key.clone());
    let (finished, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !finished.load(Ordering::Relaxed) {
                    let used = current.lock().unwrap().clone();
                    server.with_key(&used).get(RECORDS).is(200);
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..4 {
            let replaced = tenant.replace_key(&key, "1h");
            let answered = requests.load(Ordering::Relaxed);
            // Some requests come with the old key while both are accepted, then all with the new
            // one.
            until("requests come with the old key", || {
                (requests.load(Ordering::Relaxed) > answered + 10).then_some(())
            });
            *current.lock().unwrap() = replaced.key.clone();
            until("requests come with the new key", || {
                (requests.load(Ordering::Relaxed) > answered + 20).then_some(())
            });
            key = replaced;
        }
        finished.store(true, Ordering::Relaxed);
    });
    assert_eq!(server.cli_json(&["key", "list", "acme"]).as_array().unwrap().len(), 5);
}

#[test]
fn without_an_overlap_the_old_key_is_expired_at_once() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    let old = tenant.key(ALL);
    let new = tenant.replace_key(&old, "0");
    server.with_key(&old.key).get(RECORDS).fails_with(401, "expired_api_key");
    server.with_key(&new.key).get(RECORDS).is(200);
    assert_eq!(server.listed_key(old.id)["state"], "expired");
}

#[test]
fn the_new_key_has_the_name_scopes_limit_and_end_of_the_old_one() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
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

#[test]
fn a_key_that_is_revoked_or_expired_or_somebody_elses_is_not_replaced() {
    let server = TestServer::start();
    let (tenant, other) = (server.tenant("acme"), server.tenant("other"));
    let (revoked, expired) = (tenant.key(ALL), tenant.key(ALL));
    tenant.key_command("revoke", &revoked);
    tenant.replace_key(&expired, "0");
    let theirs = other.key(ALL);
    for (key, why) in [(revoked, "revoked"), (expired, "expired"), (theirs, "no key")] {
        server.cli(&["key", "replace", "acme", &key.id.to_string()]).fails_saying(why);
    }
    for overlap in ["", "-1h", "1h ago", "soon", "24"] {
        server.cli(&["key", "replace", "acme", "1", &format!("--overlap={overlap}")]).ends_with(2);
    }
}

#[test]
fn a_new_key_that_cannot_be_printed_fails_and_the_old_one_lasts_for_the_overlap() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    let old = tenant.key(ALL);
    let mut command = server.command();
    command.arg("--data-dir").arg(server.data()).args(["key", "replace", "acme", "1"]);
    command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    server.with_key(&old.key).get(RECORDS).is(200);
    let new = server.cli(&["key", "replace", "acme", "2"]).done();
    server.with_key(new.stdout.trim()).get(RECORDS).is(200);
}
