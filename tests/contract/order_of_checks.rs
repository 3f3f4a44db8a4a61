//! Contract section 5, the order of checks: a request that fails two neighbouring checks gets the
//! error of the earlier one.
//!
//! One request cannot fail three of the pairs: a key is unknown or revoked, a body has no updatable
//! field or has one of a wrong type, and a request has references or dependents.

use serde_json::json;

use crate::support::client::{exchange, parse};
use crate::support::{ALL, Api, TestServer, uuid};

const RECORDS: &str = "/customers.php";

/// A body one byte too large that is no JSON either.
fn too_large() -> String {
    "x".repeat(64 * 1024 + 1)
}

fn json_call<'a>(
    api: &'a Api,
    method: &str,
    target: &str,
    body: &str,
) -> crate::support::client::Call<'a> {
    api.call(method, target).header("Content-Type", "application/json").body(body)
}

#[test]
fn framing_before_the_endpoint() {
    let server = TestServer::start();
    let bytes =
        b"GET /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\nConnection: close\r\n\r\n";
    let answer = exchange(server.address(), bytes);
    // Where the message cannot be read at all, the status comes alone.
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{:?}", String::from_utf8_lossy(&answer));
    let two_hosts = b"GET /nowhere HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    parse(&exchange(server.address(), two_hosts), "GET", "/nowhere")
        .fails_with(400, "malformed_request")
        .check();
}

#[test]
fn the_endpoint_before_the_header() {
    let server = TestServer::start();
    server.anonymous().post("/nowhere", json!({})).fails_with(404, "endpoint_not_found");
    server
        .with_key("nonsense")
        .call("BREW", "/v1/nowhere")
        .send()
        .fails_with(404, "endpoint_not_found");
}

#[test]
fn the_header_before_the_keys_form() {
    let server = TestServer::start();
    let twice = server.with_key("nonsense");
    let reply = twice.call("GET", RECORDS).header("Authorization", "Bearer nonsense").send();
    reply.fails_with(400, "bad_request");
    server
        .anonymous()
        .authorized_by("Basic nonsense")
        .get(RECORDS)
        .fails_with(401, "missing_authorization");
}

#[test]
fn the_keys_form_before_whether_it_is_known() {
    let server = TestServer::start();
    server.with_key("tdk_unknown").get(RECORDS).fails_with(401, "malformed_api_key");
}

#[test]
fn a_deleted_key_is_unknown_also_when_it_was_revoked() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    let key = tenant.key(ALL);
    tenant.key_command("revoke", &key);
    tenant.key_command("delete", &key);
    server.with_key(&key.key).get(RECORDS).fails_with(401, "invalid_api_key");
}

#[test]
fn a_revoked_key_before_an_inactive_tenant() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    let key = tenant.key(ALL);
    tenant.key_command("revoke", &key);
    tenant.ask("suspend", &[]);
    server.with_key(&key.key).get(RECORDS).fails_with(401, "revoked_api_key");
}

#[test]
fn an_inactive_tenant_before_its_database_before_the_scope() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    let reader = tenant.with_scopes(&["hardware:read"]);
    std::fs::remove_file(tenant.file()).unwrap();
    reader.get(RECORDS).fails_with(503, "tenant_unavailable");
    tenant.ask("suspend", &[]);
    reader.get(RECORDS).fails_with(403, "tenant_inactive");
}

#[test]
fn the_scope_before_the_rate_limit_before_the_method() {
    let server = crate::support::Setup::plain().option("--rate-limit").option("2").start();
    let reader = server.tenant("acme").with_scopes(&["customers:read"]);
    for _ in 0..2 {
        reader.delete(RECORDS).fails_with(403, "insufficient_scope");
        reader.get("/hardware.php").fails_with(403, "insufficient_scope");
    }
    assert_eq!(
        reader.get(RECORDS).is(200).limit("Remaining"),
        1,
        "what was refused before did not count"
    );
    reader.get(RECORDS).is(200);
    reader.get(RECORDS).fails_with(429, "rate_limited");
    reader.delete(RECORDS).fails_with(403, "insufficient_scope");
    reader.call("PATCH", RECORDS).send().fails_with(429, "rate_limited");
}

#[test]
fn the_method_before_the_idempotency_keys_form() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    api.call("PATCH", RECORDS).key("nonsense").send().fails_with(405, "method_not_allowed");
}

#[test]
fn the_idempotency_keys_form_before_the_content_type() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    let call =
        api.call("POST", RECORDS).key("nonsense").header("Content-Type", "text/plain").body("x");
    call.send().fails_with(400, "invalid_idempotency_key");
}

#[test]
fn the_content_type_before_the_bodys_size() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    let call = api.call("POST", RECORDS).header("Content-Type", "text/plain").body(too_large());
    call.send().fails_with(415, "unsupported_media_type");
}

#[test]
fn the_bodys_size_before_its_json() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    json_call(&api, "POST", RECORDS, &too_large()).send().fails_with(413, "payload_too_large");
}

#[test]
fn a_large_body_comes_after_everything_before_it() {
    let server = crate::support::Setup::plain().option("--rate-limit").option("1").start();
    let tenant = server.tenant("acme");
    let body = too_large();
    json_call(&server.anonymous(), "POST", "/nowhere", &body)
        .send()
        .fails_with(404, "endpoint_not_found");
    json_call(&server.anonymous(), "POST", RECORDS, &body)
        .send()
        .fails_with(401, "missing_authorization");
    json_call(&tenant.with_scopes(&["customers:read"]), "POST", RECORDS, &body).send().is(403);
    let api = tenant.with_scopes(ALL);
    json_call(&api, "POST", RECORDS, &body).send().fails_with(413, "payload_too_large");
    json_call(&api, "POST", RECORDS, &body).send().fails_with(429, "rate_limited");
}

#[test]
fn json_before_the_query_and_the_id() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    json_call(&api, "POST", "/customers.php?bogus=1", "{").send().fails_with(400, "invalid_json");
    json_call(&api, "PUT", RECORDS, "{").send().fails_with(400, "invalid_json");
    json_call(&api, "PUT", "/customers.php?id=0", "[]").send().fails_with(400, "invalid_json");
}

#[test]
fn the_query_and_the_id_before_no_updatable_field() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    api.put("/customers.php?id=0", json!({})).fails_with(400, "bad_request");
    api.put("/customers.php?id=1&x=1", json!({})).fails_with(400, "bad_request");
    api.put(RECORDS, json!({})).fails_with(400, "missing_id");
}

#[test]
fn no_updatable_field_before_whether_the_record_is_there() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    api.put("/customers.php?id=99", json!({})).fails_with(400, "no_updatable_fields");
}

#[test]
fn text_of_a_wrong_type_before_validation() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    let body = json!({"name": "", "email": "x", "city": 5});
    api.post(RECORDS, body.clone()).fails_with(400, "bad_request").saying("city");
    api.put("/customers.php?id=99", body).fails_with(400, "bad_request").saying("city");
    api.post("/customers.php?x=1", json!({"name": 5})).fails_with(400, "bad_request").saying("x");
}

#[test]
fn validation_before_a_known_idempotency_key() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    let key = uuid();
    api.call("POST", RECORDS).key(&key).json(&json!({"name": "The first"})).send().is(201);
    let invalid = api.call("POST", RECORDS).key(&key).json(&json!({"name": ""}));
    invalid.send().fails_on(&[("name", "required")]);
    let nothing = api.call("PUT", "/customers.php?id=1").key(&key).json(&json!({}));
    nothing.send().fails_with(400, "no_updatable_fields");
}

#[test]
fn a_known_idempotency_key_before_whether_the_record_is_there() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    let key = uuid();
    let id = api.customer("Changed, then deleted");
    let change = || {
        api.call("PUT", &format!("/customers.php?id={id}"))
            .key(&key)
            .json(&json!({"city": "Berlin"}))
            .send()
    };
    change().is(200);
    let other = api.call("PUT", "/customers.php?id=99").key(&key).json(&json!({"city": "Berlin"}));
    other.send().fails_with(422, "idempotency_key_reused");
    api.delete(&format!("/customers.php?id={id}")).is(204);
    assert!(change().is(200).was_replayed());
    let deletion = api.call("DELETE", "/customers.php?id=99").key(&key);
    deletion.send().fails_with(422, "idempotency_key_reused");
}

#[test]
fn whether_the_record_is_there_before_its_references() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    api.put("/employees.php?id=9", json!({"customer_id": 9})).fails_with(404, "not_found");
    api.put("/hardware.php?id=9", json!({"employee_id": 9})).fails_with(404, "not_found");
}

#[test]
fn validation_and_a_known_idempotency_key_before_references() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    api.post("/employees.php", json!({"customer_id": 9, "email": "x"}))
        .fails_on(&[("email", "invalid_email")]);
    let key = uuid();
    api.call("POST", RECORDS).key(&key).json(&json!({"name": "The first"})).send().is(201);
    let dangling = api.call("POST", "/employees.php").key(&key);
    let dangling = dangling.json(&json!({"customer_id": 9, "email": "a@shop.example"}));
    dangling.send().fails_with(422, "idempotency_key_reused");
}

#[test]
fn a_known_idempotency_key_before_dependents() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    let key = uuid();
    api.call("POST", RECORDS).key(&key).json(&json!({"name": "Needed"})).send().is(201);
    api.employee(1);
    api.call("DELETE", "/customers.php?id=1")
        .key(&key)
        .send()
        .fails_with(422, "idempotency_key_reused");
    api.delete("/customers.php?id=1").fails_with(409, "has_dependents");
}

#[test]
fn a_wrong_parameter_of_a_list_comes_after_the_rate_limit() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    let reply = api.get("/customers.php?limit=0").fails_with(400, "bad_request");
    assert_eq!(reply.limit("Remaining"), 99);
}
