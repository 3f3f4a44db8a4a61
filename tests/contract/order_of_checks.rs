//! Contract section 5, the order of checks: a request that fails two neighbouring checks gets the
//! error of the earlier one.
//!
//! No request can fail both checks of three pairs. A key is unknown or revoked. A body has no
//! updatable field, or has one of a wrong type. A request has references or dependents.

use serde_json::json;

use crate::support::raw::Client;
use crate::support::{ALL, Api, Reply, Setup, TestServer, uuid};

const RECORDS: &str = "/customers.php";

/// A body one byte too large that is no JSON either.
fn too_large() -> String {
    "x".repeat(64 * 1024 + 1)
}

fn post(api: &Api, target: &str, body: &str) -> Reply {
    api.post_bytes(target, body)
}

#[test]
fn framing_before_the_endpoint() {
    let server = TestServer::start();
    let mut client = Client::connect(server.address());
    client.send("GET /nowhere HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    client.answer().fails_with(400, "malformed_request");
}

#[test]
fn the_endpoint_before_the_header_before_the_key() {
    let server = TestServer::start();
    server.anonymous().post("/nowhere", json!({})).fails_with(404, "endpoint_not_found");
    let nonsense = server.with_key("nonsense");
    nonsense.call("BREW", "/v1/nowhere").send().fails_with(404, "endpoint_not_found");
    let twice = nonsense.call("GET", RECORDS).header("Authorization", "Bearer nonsense").send();
    twice.fails_with(400, "bad_request");
    let basic = server.anonymous().authorized_by("Basic nonsense");
    basic.get(RECORDS).fails_with(401, "missing_authorization");
    server.with_key("tdk_unknown").get(RECORDS).fails_with(401, "malformed_api_key");
}

#[test]
fn the_key_before_the_tenant_before_its_database_before_the_scope() {
    let (server, tenant) = TestServer::with_tenant();
    let reader = tenant.with_scopes(&["hardware:read"]);
    let [revoked, deleted, expired] = [(); 3].map(|()| tenant.key(ALL));
    tenant.replace_key(&expired, "0");
    tenant.replace_key(&revoked, "0");
    tenant.key_command("revoke", &revoked);
    tenant.key_command("revoke", &deleted);
    tenant.key_command("delete", &deleted);
    std::fs::remove_file(tenant.file()).unwrap();
    reader.get(RECORDS).fails_with(503, "tenant_unavailable");
    tenant.ask("suspend", &[]);
    reader.get(RECORDS).fails_with(403, "tenant_inactive");
    server.with_key(&expired.key).get(RECORDS).fails_with(401, "expired_api_key");
    server.with_key(&revoked.key).get(RECORDS).fails_with(401, "revoked_api_key");
    server.with_key(&deleted.key).get(RECORDS).fails_with(401, "invalid_api_key");
}

#[test]
fn the_scope_before_the_rate_limit_before_the_method() {
    let server = Setup::plain().option("--rate-limit").option("2").start();
    let reader = server.tenant("acme").with_scopes(&["customers:read"]);
    for _ in 0..2 {
        reader.delete(RECORDS).fails_with(403, "insufficient_scope");
        reader.get("/hardware.php").fails_with(403, "insufficient_scope");
    }
    let first = reader.get(RECORDS).is(200);
    assert_eq!(first.limit("Remaining"), 1, "the requests that were refused did not count");
    reader.get(RECORDS).is(200);
    reader.get(RECORDS).fails_with(429, "rate_limited");
    reader.delete(RECORDS).fails_with(403, "insufficient_scope");
    reader.call("PATCH", RECORDS).send().fails_with(429, "rate_limited");
}

#[test]
fn the_method_before_the_headers_before_the_body() {
    let (_server, api) = TestServer::with_api();
    api.call("PATCH", RECORDS).key("nonsense").send().fails_with(405, "method_not_allowed");
    let text = || api.call("POST", RECORDS).header("Content-Type", "text/plain").body(too_large());
    text().key("nonsense").send().fails_with(400, "invalid_idempotency_key");
    text().send().fails_with(415, "unsupported_media_type");
    post(&api, RECORDS, &too_large()).fails_with(413, "payload_too_large");
}

#[test]
fn json_before_the_query_before_the_fields_before_the_record() {
    let (_server, api) = TestServer::with_api();
    let wrong = r#"{"name": "", "email": "x", "city": 5}"#;
    for (method, target, body, code) in [
        ("POST", "/customers.php?bogus=1", "{", "invalid_json"),
        ("PUT", RECORDS, "{", "invalid_json"),
        ("PUT", "/customers.php?id=0", "[]", "invalid_json"),
        ("PUT", "/customers.php?id=0", "{}", "bad_request"),
        ("PUT", "/customers.php?id=1&x=1", "{}", "bad_request"),
        ("PUT", RECORDS, "{}", "missing_id"),
        ("PUT", "/customers.php?id=99", "{}", "no_updatable_fields"),
    ] {
        let call = api.call(method, target).header("Content-Type", "application/json");
        call.body(body).send().fails_with(400, code);
    }
    post(&api, RECORDS, wrong).fails_with(400, "bad_request").saying("city");
    post(&api, "/customers.php?x=1", wrong).fails_with(400, "bad_request").saying("x");
    let put = api.call("PUT", "/customers.php?id=99").header("Content-Type", "application/json");
    put.body(wrong).send().fails_with(400, "bad_request").saying("city");
    api.put("/employees.php?id=9", json!({"customer_id": 9})).fails_with(404, "not_found");
    api.put("/hardware.php?id=9", json!({"employee_id": 9})).fails_with(404, "not_found");
    let invalid = json!({"customer_id": 9, "email": "x"});
    api.post("/employees.php", invalid).fails_on(&[("email", "invalid_email")]);
}

#[test]
fn validation_before_a_known_idempotency_key_before_the_record() {
    let (_server, api) = TestServer::with_api();
    let [posted, changed] = [uuid(), uuid()];
    api.call("POST", RECORDS).key(&posted).json(&json!({"name": "Needed"})).send().is(201);
    api.employee(1);
    let again = |method: &str, target: &str, body: serde_json::Value| {
        api.call(method, target).key(&posted).json(&body).send()
    };
    again("POST", RECORDS, json!({"name": ""})).fails_on(&[("name", "required")]);
    again("PUT", "/customers.php?id=1", json!({})).fails_with(400, "no_updatable_fields");
    for reused in [
        again("PUT", "/customers.php?id=99", json!({"city": "Berlin"})),
        again("DELETE", "/customers.php?id=99", json!(null)),
        again("DELETE", "/customers.php?id=1", json!(null)),
        again("POST", "/employees.php", json!({"customer_id": 9, "email": "a@shop.example"})),
    ] {
        reused.fails_with(422, "idempotency_key_reused");
    }
    api.delete("/customers.php?id=1").fails_with(409, "has_dependents");
    let city = json!({"city": "Berlin"});
    let id = api.customer("Changed, then deleted");
    let change =
        || api.call("PUT", &format!("/customers.php?id={id}")).key(&changed).json(&city).send();
    change().is(200);
    api.delete(&format!("/customers.php?id={id}")).is(204);
    assert!(change().is(200).was_replayed());
}
