//! Contract section 8: a repeat gets the first response again and changes nothing.

use std::sync::{Barrier, Mutex};

use serde_json::json;

use crate::support::{ALL, Api, InProcess, Reply, TestServer, uuid};

const RECORDS: &str = "/customers.php";

fn post(api: &Api, key: &str, name: &str) -> Reply {
    api.call("POST", RECORDS).key(key).json(&json!({"name": name})).send()
}

/// The parts of a response that a repeat gives again, byte for byte.
fn essence(reply: &Reply) -> (u16, Vec<u8>, [Option<String>; 3]) {
    let headers =
        ["Location", "ETag", "Content-Type"].map(|name| reply.header(name).map(str::to_owned));
    (reply.status, reply.body.clone(), headers)
}

/// A repeat of `first`.
#[track_caller]
fn assert_repeats(repeat: &Reply, first: &Reply) {
    assert_eq!(essence(repeat), essence(first));
    assert_eq!(
        (first.header("Idempotent-Replayed"), repeat.header("Idempotent-Replayed")),
        (None, Some("true"))
    );
    assert_ne!(repeat.header("X-Request-Id"), first.header("X-Request-Id"));
}

#[test]
fn the_answer_is_the_first_ones_also_when_the_record_has_changed_since() {
    let (_server, api) = TestServer::with_api();
    let keys = [uuid(), uuid(), uuid()];
    let first = post(&api, &keys[0], "First");
    let second = json!({"name": "Second"});
    let put = || api.call("PUT", "/customers.php?id=1").key(&keys[1]).json(&second).send();
    let delete = || api.call("DELETE", "/customers.php?id=1").key(&keys[2]).send();
    let changed = put().is(200);
    assert_repeats(&post(&api, &keys[0], "First"), &first);
    api.put("/customers.php?id=1", json!({"name": "Third"})).is(200);
    assert_repeats(&put(), &changed);
    assert_eq!(api.get("/customers.php?id=1").found()["name"], "Third");
    let deleted = delete().is(204);
    assert_repeats(&delete(), &deleted);
    assert_repeats(&post(&api, &keys[0], "First"), &first);
    assert_repeats(&put(), &changed);
    assert_eq!(api.total(RECORDS), 0);
}

#[test]
fn the_forms_of_a_key() {
    let (_server, api) = TestServer::with_api();
    let key = "6F1C1D5E-0f4b-1c0e-0a52-3b9d6a1f2c7d";
    post(&api, key, "One").is(201);
    for same in [key.to_lowercase(), key.to_uppercase(), format!("\"{key}\"")] {
        assert!(post(&api, &same, "One").is(201).was_replayed(), "{same}");
    }
    for any in ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"] {
        assert!(!post(&api, any, any).is(201).was_replayed());
    }
    let plain = uuid();
    for bad in [
        String::new(),
        plain.replace('-', ""),
        format!("{{{plain}}}"),
        format!("urn:uuid:{plain}"),
        format!("\"\"{plain}\"\""),
        format!("\"{plain}"),
        format!("{plain},{plain}"),
        plain[1..].to_owned(),
    ] {
        post(&api, &bad, "Bad").fails_with(400, "invalid_idempotency_key");
        let deletion = api.call("DELETE", "/customers.php?id=1").key(&bad);
        deletion.send().fails_with(400, "invalid_idempotency_key");
    }
    let twice = api.call("POST", RECORDS).key(&plain).key(&plain).json(&json!({"name": "Twice"}));
    twice.send().fails_with(400, "invalid_idempotency_key");
    assert_eq!(api.total(RECORDS), 3);
}

#[test]
fn on_get_and_head_the_key_is_ignored() {
    let (_server, api) = TestServer::with_api();
    let key = uuid();
    post(&api, &key, "One").is(201);
    for key in [key.as_str(), "nonsense", ""] {
        assert!(!api.call("GET", "/customers.php?id=1").key(key).send().is(200).was_replayed());
        assert!(!api.call("HEAD", RECORDS).key(key).key(key).send().is(200).was_replayed());
    }
}

#[test]
fn another_request_under_the_same_key_is_refused() {
    let (_server, api) = TestServer::with_api();
    let key = uuid();
    api.customer("One");
    api.customer("Two");
    let first = post(&api, &key, "Three").is(201);
    let put = |target: &str, key: &str| {
        api.call("PUT", target).key(key).json(&json!({"name": "Three"})).send()
    };
    let spaced = api.call("POST", RECORDS).key(&key).header("Content-Type", "application/json");
    let others = [
        post(&api, &key, "Four"),
        spaced.body("{\"name\": \"Three\"}").send(),
        put("/customers.php?id=1", &key),
        api.call("DELETE", "/customers.php?id=1").key(&key).send(),
        api.call("POST", "/hardware.php").key(&key).json(&json!({"name": "Three"})).send(),
    ];
    for other in others {
        other.fails_with(422, "idempotency_key_reused");
    }
    assert_repeats(&post(&api, &key, "Three"), &first);
    assert_eq!((api.total(RECORDS), api.total("/hardware.php")), (3, 0));
    let key = uuid();
    put("/customers.php?id=1", &key).is(200);
    put("/customers.php?id=2", &key).fails_with(422, "idempotency_key_reused");
    assert_eq!(api.get("/customers.php?id=2").found()["name"], "Two");
}

#[test]
fn the_path_counts_without_v1_and_a_deletions_body_does_not() {
    let (_server, api) = TestServer::with_api();
    let keys = [uuid(), uuid()];
    let first = post(&api.below_v1(), &keys[0], "One");
    assert_eq!(first.header("Location"), Some("/v1/customers.php?id=1"));
    assert_repeats(&post(&api, &keys[0], "One"), &first);
    let deletion = |api: &Api, body: &str| {
        api.call("DELETE", "/customers.php?id=1").key(&keys[1]).body(body).send()
    };
    let first = deletion(&api, "").is(204);
    assert_repeats(&deletion(&api.below_v1(), "{\"other\":1}"), &first);
}

#[test]
fn a_key_belongs_to_the_tenant_with_any_of_its_api_keys() {
    let (server, tenant) = TestServer::with_tenant();
    let (one, two) = (tenant.with_scopes(ALL), tenant.with_scopes(ALL));
    let other = server.tenant("other").with_scopes(ALL);
    let key = uuid();
    let first = post(&one, &key, "Ours").is(201);
    assert_repeats(&post(&two, &key, "Ours"), &first);
    assert!(!post(&other, &key, "Theirs").is(201).was_replayed());
    assert_eq!((one.total(RECORDS), other.total(RECORDS)), (1, 1));
    post(&tenant.with_scopes(&["hardware:write"]), &key, "Ours")
        .fails_with(403, "insufficient_scope");
}

#[test]
fn only_successes_are_remembered() {
    let (_server, api) = TestServer::with_api();
    let key = uuid();
    post(&api, &key, "").fails_with(422, "validation_failed");
    api.call("PUT", "/customers.php?id=9").key(&key).json(&json!({"name": "None"})).send().is(404);
    let employee = || {
        let body = json!({"customer_id": 1, "email": "eva@shop.example"});
        api.call("POST", "/employees.php").key(&key).json(&body).send()
    };
    employee().fails_with(422, "customer_not_found");
    api.customer("There now");
    assert!(!employee().is(201).was_replayed(), "it runs anew");
    assert!(employee().is(201).was_replayed());
    let key = uuid();
    let delete = || api.call("DELETE", "/customers.php?id=1").key(&key).send();
    delete().fails_with(409, "has_dependents");
    api.delete("/employees.php?id=1").is(204);
    assert!(!delete().is(204).was_replayed());
    assert!(delete().is(204).was_replayed());
}

#[test]
fn after_24_hours_it_runs_anew() {
    // Later than the system's clock, by which stored responses are removed.
    let (server, tenant) = InProcess::at("2096-11-20T19:30:00Z");
    let api = tenant.with_scopes(ALL);
    let key = uuid();
    let first = post(&api, &key, "Daily").is(201);
    server.advance(12 * 3600);
    assert_repeats(&post(&api, &key, "Daily"), &first);
    // The window runs from the first request, not from the last repeat.
    server.advance(12 * 3600 - 1);
    assert_repeats(&post(&api, &key, "Daily"), &first);
    server.advance(2);
    let anew = post(&api, &key, "Daily").is(201);
    assert!(!anew.was_replayed());
    assert_ne!(anew.body, first.body);
    assert_repeats(&post(&api, &key, "Daily"), &anew);
    server.advance(24 * 3600 + 1);
    post(&api, &key, "Something else").is(201);
    assert_eq!(api.total(RECORDS), 3);
}

#[test]
fn twenty_threads_with_one_key_make_one_record() {
    let (_server, api) = TestServer::with_unlimited_api();
    for round in 0..5 {
        let (key, start) = (uuid(), Barrier::new(20));
        let replies = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..20 {
                let (api, key, start, replies) = (api.clone(), &key, &start, &replies);
                scope.spawn(move || {
                    start.wait();
                    let reply = post(&api, key, "Together").is(201);
                    replies.lock().unwrap().push(reply);
                });
            }
        });
        let replies = replies.into_inner().unwrap();
        let ran = replies.iter().filter(|reply| !reply.was_replayed());
        assert_eq!(ran.count(), 1, "one of them runs");
        assert!(replies.iter().all(|reply| essence(reply) == essence(&replies[0])));
        assert_eq!(api.total(RECORDS), round + 1);
    }
}
