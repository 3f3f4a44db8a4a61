//! Contract section 7: the rate limit of each key.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::support::{ALL, InProcess, Setup, TestServer, uuid};

const RECORDS: &str = "/customers.php";

#[test]
fn a_window_opens_with_the_first_request_and_lasts_a_minute() {
    let (server, tenant) = InProcess::at("2026-11-20T19:30:17Z");
    let api = tenant.with_scopes(ALL);
    server.advance(5);
    for window in 0..3 {
        let opened = server.unix_seconds();
        for n in 1..=100 {
            let reply = api.get(RECORDS).is(200);
            assert_eq!(
                (reply.limit("Remaining"), reply.limit("Reset")),
                (100 - n, opened + 60),
                "window {window}"
            );
            if n % 50 == 0 {
                server.advance_millis(20_000);
            }
        }
        api.get(RECORDS).fails_with(429, "rate_limited");
        server.advance_millis(19_999);
        let reply = api.get(RECORDS).fails_with(429, "rate_limited");
        assert_eq!(reply.limit("Reset"), opened + 60);
        server.advance_millis(1);
    }
    assert_eq!(api.get(RECORDS).is(200).limit("Remaining"), 99);
}

#[test]
fn sixteen_threads_at_once_let_exactly_a_hundred_through() {
    let (_server, tenant) = InProcess::at("2026-11-20T19:30:00Z");
    for round in 0..3 {
        let api = tenant.with_scopes(ALL);
        let (passed, start) = (AtomicUsize::new(0), Barrier::new(16));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                let (api, passed, start) = (api.clone(), &passed, &start);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..20 {
                        match api.get("/customers.php?limit=1").status {
                            200 => passed.fetch_add(1, Ordering::SeqCst),
                            status => {
                                assert_eq!(status, 429);
                                0
                            }
                        };
                    }
                });
            }
        });
        assert_eq!(passed.into_inner(), 100, "round {round}");
    }
}

#[test]
fn what_is_refused_before_does_not_count_and_what_fails_after_does() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(&["customers:read", "customers:write"]);
    let api = server.with_key(&key.key);
    assert_eq!(api.get(RECORDS).limit("Remaining"), 99);
    api.get("/nowhere").is(404);
    api.get("/hardware.php").is(403);
    api.call("GET", RECORDS).header("Authorization", "Bearer x").send().is(400);
    tenant.ask("suspend", &[]);
    api.get(RECORDS).is(403);
    tenant.ask("activate", &[]);
    server.anonymous().get(RECORDS).is(401);
    api.get("/healthz").is(200);
    assert_eq!(api.get(RECORDS).limit("Remaining"), 98, "none of these counted");
    api.call("PATCH", RECORDS).send().is(405);
    api.get("/customers.php?id=9").is(404);
    api.get("/customers.php?x=9").is(400);
    api.post(RECORDS, json!({})).is(422);
    api.post_bytes(RECORDS, "{").is(400);
    api.call("POST", RECORDS).body("{}").send().is(415);
    api.call("POST", RECORDS).key("x").send().is(400);
    api.delete(RECORDS).is(400);
    assert_eq!(api.get(RECORDS).limit("Remaining"), 89, "all of these did");
    let (post, key) = (json!({"name": "Once"}), uuid());
    for remaining in [88, 87] {
        let reply = api.call("POST", RECORDS).key(&key).json(&post).send().is(201);
        assert_eq!(reply.limit("Remaining"), remaining, "a replay counts, too");
    }
}

#[test]
fn each_key_has_a_window_of_its_own() {
    let (_server, tenant) = Setup::plain().option("--rate-limit").option("3").start_with_tenant();
    let (one, two) = (tenant.with_scopes(ALL), tenant.with_scopes(ALL));
    for _ in 0..3 {
        assert_eq!(one.get(RECORDS).is(200).limit("Limit"), 3);
    }
    one.get(RECORDS).fails_with(429, "rate_limited");
    // The same window at every path, with and without /v1.
    one.get("/hardware.php").fails_with(429, "rate_limited");
    one.get("/changes.php").fails_with(429, "rate_limited");
    one.below_v1().get(RECORDS).fails_with(429, "rate_limited");
    assert_eq!(two.get(RECORDS).is(200).limit("Remaining"), 2);
}
