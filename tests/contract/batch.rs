//! Contract section 15: several changes at once, all or none.

use serde_json::{Value, json};

use crate::support::client::Call;
use crate::support::{ALL, Api, Reply, Setup, TestServer, uuid};

const BATCH: &str = "/batch.php";
const LISTS: [&str; 4] = ["/customers.php", "/employees.php", "/hardware.php", "/changes.php"];

fn operation(method: &str, path: &str, body: Value) -> Value {
    json!({"method": method, "path": path, "body": body})
}

fn post_customer(name: &str) -> Value {
    operation("POST", "/customers.php", json!({"name": name}))
}

/// A POST of an employee of this customer, which may be the result of an earlier operation.
fn post_employee(customer: Value) -> Value {
    operation("POST", "/employees.php", json!({"customer_id": customer, "email": "a@shop.example"}))
}

fn delete(path: &str) -> Value {
    json!({"method": "DELETE", "path": path})
}

fn call<'a>(api: &'a Api, operations: &[Value]) -> Call<'a> {
    api.call("POST", BATCH).json(&json!({"operations": operations}))
}

#[track_caller]
fn run(api: &Api, operations: &[Value]) -> Reply {
    call(api, operations).send()
}

#[track_caller]
fn results(reply: Reply) -> Vec<Value> {
    reply.found()["results"].as_array().unwrap().clone()
}

#[test]
fn a_strict_batch_has_no_unknown_members() {
    let (_server, api) = TestServer::with_api();
    let odd = operation("POST", "/customers.php", json!({"name": "Zwei", "nmae": "x"}));
    let operations = [post_customer("Eins"), odd];
    let reply = call(&api, &operations).header("Prefer", "handling=strict").send();
    assert_eq!(reply.header("Preference-Applied"), Some("handling=strict"));
    let reply = reply.fails_with(400, "bad_request").saying("(did you mean \"name\"?)");
    assert_eq!(reply.json()["operation"], 1);
    assert_eq!(api.total("/customers.php"), 0);
    assert_eq!(results(run(&api, &operations)).len(), 2);
}

/// The first page of every list and of the change log.
fn state(api: &Api) -> [Value; 4] {
    LISTS.map(|list| api.get(&format!("{list}?limit=200")).found()["data"].clone())
}

/// The batch fails as its operation `number`, and changes nothing.
#[track_caller]
fn fails_at(api: &Api, number: usize, operations: &[Value], status: u16, code: &str) -> Reply {
    let before = state(api);
    let reply = run(api, operations).fails_with(status, code);
    assert_eq!(reply.json()["operation"], number, "{reply}");
    assert!(reply.message().starts_with(&format!("Operation {number}: ")), "{reply}");
    assert_eq!(state(api), before, "nothing is changed: {reply}");
    reply
}

/// The batch itself is refused, saying `what`.
#[track_caller]
fn refused(api: &Api, body: &str, what: &str) {
    let before = state(api);
    let reply = api.post_bytes(BATCH, body).fails_with(400, "bad_request").saying(what);
    assert_eq!(reply.json().get("operation"), None, "{reply}");
    assert_eq!(state(api), before);
}

#[test]
fn every_kind_of_operation_answers_as_a_request_of_its_own() {
    let (_server, api) = TestServer::with_unlimited_api();
    api.customer("The first");
    api.customer("The second");
    let operations = [
        post_customer("The third"),
        operation("PUT", "/customers.php?id=1", json!({"city": "Berlin"})),
        delete("/v1/customers.php?id=2"),
        operation("POST", "/v1/hardware.php", json!({"name": "Laptop"})),
    ];
    let done = results(run(&api, &operations));
    let statuses: Vec<&Value> = done.iter().map(|result| &result["status"]).collect();
    assert_eq!(statuses, [201, 200, 204, 201]);
    for (result, path) in [
        (&done[0], "/customers.php?id=3"),
        (&done[1], "/customers.php?id=1"),
        (&done[3], "/hardware.php?id=1"),
    ] {
        let present = api.get(path).is(200);
        assert_eq!(result["body"], present.json());
        assert_eq!(result["etag"].as_str(), present.header("ETag"));
    }
    assert_eq!(done[1]["body"]["city"], "Berlin");
    api.get("/customers.php?id=2").fails_with(404, "not_found");
    // The path of the operation decides the location, not the path of the batch.
    for api in [&api, &api.below_v1()] {
        let done = results(run(api, &operations[..1]));
        assert!(done[0]["location"].as_str().unwrap().starts_with("/customers.php?"));
        let done = results(run(api, &operations[3..]));
        assert!(done[0]["location"].as_str().unwrap().starts_with("/v1/hardware.php?"));
    }
}

#[test]
fn a_hundred_operations_are_taken_and_one_hundred_and_one_are_not() {
    let (_server, api) = TestServer::with_unlimited_api();
    let operations: Vec<Value> =
        (0..101).map(|n| post_customer(&format!("Customer {n}"))).collect();
    let done = results(run(&api, &operations[..100]));
    let ids: Vec<i64> = done.iter().map(|result| result["body"]["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, (1..=100).collect::<Vec<_>>());
    assert_eq!(api.total("/customers.php"), 100);
    assert_eq!(
        api.total("/customers.php?q=customer+99"),
        1,
        "what a batch made is found by search"
    );
    refused(&api, &json!({"operations": operations}).to_string(), "101 operations");
}

#[test]
fn where_the_last_of_a_hundred_fails_nothing_is_changed() {
    let (_server, api) = TestServer::with_unlimited_api();
    let customer = api.customer("There before");
    let mut operations: Vec<Value> =
        (0..98).map(|n| post_customer(&format!("Customer {n}"))).collect();
    operations.push(operation("PUT", "/customers.php?id=1", json!({"name": "Renamed"})));
    operations.push(delete("/customers.php?id=1000"));
    fails_at(&api, 99, &operations, 404, "not_found");
    assert_eq!(api.customer("The next"), customer + 1, "no id was used up");
    assert_eq!(api.total("/customers.php?q=customer"), 0, "nor is anything left in the search");
}

#[test]
fn an_operation_fails_as_a_request_of_its_own_would() {
    let (_server, api) = TestServer::with_unlimited_api();
    let customer = api.customer("Needed");
    api.employee(customer);
    let etag = api.get("/customers.php?id=1").header("ETag").unwrap().to_owned();
    let with = |if_match: &str| json!({"method": "PUT", "path": "/customers.php?id=1", "body": {"city": "Ulm"}, "if_match": if_match});
    for (failing, status, code) in [
        (operation("PUT", "/customers.php?id=9", json!({"city": "Ulm"})), 404, "not_found"),
        (operation("PUT", "/customers.php", json!({"city": "Ulm"})), 400, "missing_id"),
        (operation("PUT", "/customers.php?id=1&x=1", json!({"city": "Ulm"})), 400, "bad_request"),
        (operation("PUT", "/customers.php?id=1", json!({})), 400, "no_updatable_fields"),
        (operation("PUT", "/customers.php?id=1", json!({"city": 5})), 400, "bad_request"),
        (json!({"method": "POST", "path": "/customers.php"}), 400, "invalid_json"),
        (post_employee(json!(9)), 422, "customer_not_found"),
        (
            operation("POST", "/hardware.php", json!({"name": "Laptop", "employee_id": 9})),
            422,
            "employee_not_found",
        ),
        (delete("/customers.php?id=1"), 409, "has_dependents"),
        (with("\"1\""), 412, "precondition_failed"),
        (with("1"), 400, "bad_request"),
    ] {
        let reply = fails_at(&api, 1, &[post_customer("Before it"), failing], status, code);
        assert_eq!(reply.json()["details"].is_string(), code == "has_dependents");
        assert_eq!(reply.header("ETag"), None, "an earlier operation may have changed the record");
    }
    let changed_before =
        [operation("PUT", "/customers.php?id=1", json!({"city": "Bonn"})), with(&etag)];
    let reply = fails_at(&api, 1, &changed_before, 412, "precondition_failed");
    assert_eq!(reply.header("ETag"), None);
    results(run(&api, &[with(&etag)]));
    results(run(&api, &[with("*")]));
    let ignored = json!({"method": "POST", "path": "/customers.php", "body": {"name": "New"}, "if_match": "\"1\""});
    results(run(&api, &[ignored]));
    let deletion = json!({"method": "DELETE", "path": "/customers.php?id=2", "body": ["ignored"]});
    results(run(&api, &[deletion]));
}

#[test]
fn an_operation_sees_what_those_before_it_did() {
    let (_server, api) = TestServer::with_unlimited_api();
    let operations = [
        post_customer("The first name"),
        operation("PUT", "/customers.php?id=1", json!({"name": "The second name"})),
        delete("/customers.php?id=1"),
    ];
    let done = results(run(&api, &operations));
    assert_eq!(done[0]["body"]["name"], "The first name");
    assert_eq!(done[1]["body"]["name"], "The second name");
    assert_ne!(done[0]["etag"], done[1]["etag"]);
    let gone_again = [post_customer("Gone again"), delete("/customers.php?id=1")];
    fails_at(&api, 1, &gone_again, 404, "not_found");
    assert_eq!(api.total("/customers.php"), 0);
}

#[test]
fn a_reference_can_be_the_result_of_an_earlier_post() {
    let (_server, api) = TestServer::with_unlimited_api();
    api.customer("So that numbers and ids differ");
    api.post("/hardware.php", json!({"name": "Unassigned"})).is(201);
    let laptop = json!({"name": "Laptop", "employee_id": {"result": 1}});
    let operations = [
        post_customer("New"),
        post_employee(json!({"result": 0})),
        post_employee(json!(1)),
        operation("POST", "/hardware.php", laptop),
        operation("PUT", "/hardware.php?id=1", json!({"employee_id": {"result": 2}})),
        operation("PUT", "/employees.php?id=2", json!({"customer_id": {"result": 0}})),
    ];
    let done = results(run(&api, &operations));
    assert_eq!(done[1]["body"]["customer_id"], 2);
    assert_eq!(done[3]["body"]["employee_id"], 1);
    assert_eq!(done[4]["body"]["employee_id"], 2);
    assert_eq!(api.ids("/employees.php?customer_id=2"), [1, 2]);
}

#[test]
fn a_result_that_is_no_earlier_post_of_that_resource_is_refused() {
    let (_server, api) = TestServer::with_unlimited_api();
    api.customer("There");
    let employee = |result: Value| post_employee(json!({"result": result}));
    let refuse = |operations: &[Value], what: &str| {
        let reply = run(&api, operations).fails_with(400, "bad_request").saying(what);
        let at = operations.iter().position(|one| one["path"] == "/employees.php");
        assert_eq!(reply.json()["operation"], json!(at));
        assert_eq!(api.total("/customers.php"), 1);
    };
    refuse(&[employee(json!(1)), post_customer("Later")], "operation 1");
    refuse(&[post_customer("New"), employee(json!(7))], "operation 7");
    refuse(
        &[operation("PUT", "/customers.php?id=1", json!({"city": "Ulm"})), employee(json!(0))],
        "Operation 1",
    );
    refuse(&[delete("/customers.php?id=1"), employee(json!(0))], "earlier POST");
    refuse(
        &[operation("POST", "/hardware.php", json!({"name": "Laptop"})), employee(json!(0))],
        "/customers.php",
    );
    for result in [json!("0"), json!(-1), json!(0.0)] {
        refuse(&[post_customer("New"), employee(result)], "Operation 1");
    }
    // Elsewhere an object is a value of the wrong type.
    let in_text =
        operation("POST", "/customers.php", json!({"name": "New", "city": {"result": 0}}));
    fails_at(&api, 1, &[post_customer("New"), in_text], 400, "bad_request");
    api.post("/employees.php", json!({"customer_id": {"result": 0}, "email": "a@shop.example"}))
        .is(422);
}

#[test]
fn what_is_wrong_with_the_batch_itself_is_refused_before_anything_runs() {
    let (_server, api) = TestServer::with_unlimited_api();
    let after_a_good_one = |operation: &str| {
        format!(
            r#"{{"operations": [{{"method": "POST", "path": "/customers.php", "body": {{"name": "Good"}}}}, {operation}]}}"#
        )
    };
    for (operation, what) in [
        ("null", "Operation 1"),
        (r#"{"method": "post", "path": "/customers.php"}"#, "method"),
        (r#"{"method": "POST", "path": 1}"#, "path"),
        (r#"{"method": "POST", "path": "/batch.php", "body": {"operations": []}}"#, "/batch.php"),
        (r#"{"method": "POST", "path": "/v1/v1/customers.php"}"#, "/v1/v1"),
        (r#"{"method": "POST", "path": "http://desk.example/customers.php"}"#, "http"),
    ] {
        refused(&api, &after_a_good_one(operation), what);
    }
}

#[test]
fn every_operation_needs_its_scope_before_any_runs() {
    let (_server, tenant) = TestServer::with_unlimited_tenant();
    let all = tenant.with_scopes(ALL);
    let api = tenant.with_scopes(&["customers:write"]);
    let hardware = operation("POST", "/hardware.php", json!({"name": "Laptop"}));
    let employee = operation("POST", "/employees.php", json!({}));
    let reply = run(&api, &[post_customer("Good"), employee, hardware.clone()])
        .fails_with(403, "insufficient_scope");
    assert_eq!(reply.json()["operation"], 1);
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"employees:write\"";
    assert_eq!(reply.header("WWW-Authenticate"), Some(challenge));
    // Scopes come before the checks of the operations.
    let invalid_first = run(&api, &[post_customer(""), hardware.clone()]);
    assert_eq!(invalid_first.fails_with(403, "insufficient_scope").json()["operation"], 1);
    assert_eq!(all.total("/customers.php"), 0);
    results(run(&api, &[post_customer("Alone")]));
    run(&tenant.with_scopes(&["customers:read"]), &[post_customer("No")])
        .fails_with(403, "insufficient_scope");
    results(run(&tenant.with_scopes(&["hardware:write"]), &[hardware]));
}

#[test]
fn a_batch_counts_as_one_request() {
    let (_server, tenant) = Setup::plain().option("--rate-limit").option("3").start_with_tenant();
    let api = tenant.with_scopes(ALL);
    let operations: Vec<Value> =
        (0..100).map(|n| post_customer(&format!("Customer {n}"))).collect();
    assert_eq!(run(&api, &operations).is(200).limit("Remaining"), 2);
    assert_eq!(run(&api, &[]).is(400).limit("Remaining"), 1);
    assert_eq!(run(&api, &[delete("/customers.php?id=1000")]).is(404).limit("Remaining"), 0);
    run(&api, &operations).fails_with(429, "rate_limited");
}

#[test]
fn one_idempotency_key_covers_all_of_it() {
    let (_server, api) = TestServer::with_unlimited_api();
    let key = uuid();
    let operations = [post_customer("Once"), post_employee(json!({"result": 0}))];
    let first = call(&api, &operations).key(&key).send().is(200);
    assert!(!first.was_replayed());
    api.put("/customers.php?id=1", json!({"name": "Changed since"})).is(200);
    for api in [api.clone(), api.below_v1()] {
        let repeat = call(&api, &operations).key(&key).send().is(200);
        assert!(repeat.was_replayed());
        assert_eq!(repeat.body, first.body, "byte for byte");
        assert_eq!(repeat.header("Content-Type"), first.header("Content-Type"));
    }
    assert_eq!((api.total("/customers.php"), api.total("/employees.php")), (1, 1));
    call(&api, &operations[..1]).key(&key).send().fails_with(422, "idempotency_key_reused");
    let single = api.call("POST", "/customers.php").key(&key).json(&json!({"name": "Once"}));
    single.send().fails_with(422, "idempotency_key_reused");
}

#[test]
fn each_operation_has_its_entry_in_the_change_log() {
    let (_server, api) = TestServer::with_unlimited_api();
    let id = uuid();
    let operations = [
        post_customer("New"),
        operation("PUT", "/customers.php?id=1", json!({"city": "Ulm"})),
        post_employee(json!({"result": 0})),
        delete("/employees.php?id=1"),
    ];
    let done = results(call(&api, &operations).header("X-Request-Id", &id).send());
    let entries = api.get("/changes.php").found()["data"].as_array().unwrap().clone();
    let expected = [
        ["customers", "created"],
        ["customers", "updated"],
        ["employees", "created"],
        ["employees", "deleted"],
    ];
    let actions = entries.iter().map(|entry| [&entry["resource"], &entry["action"]]);
    assert!(actions.eq(expected), "{entries:?}");
    assert!(entries.iter().all(|entry| entry["request_id"] == id.as_str()));
    for (result, entry) in done.iter().zip(&entries).take(3) {
        assert_eq!(result["etag"], format!("\"{}\"", entry["seq"]));
    }
}

/// A batch of one operation with `length` bytes.
fn batch_of(length: usize) -> String {
    let body = json!({"operations": [post_customer("Large")]}).to_string();
    format!("{body}{}", " ".repeat(length - body.len()))
}

#[test]
fn a_body_has_at_most_one_mebibyte() {
    let (_server, api) = TestServer::with_unlimited_api();
    for api in [api.clone(), api.below_v1()] {
        api.post_bytes(BATCH, batch_of(1 << 20)).is(200);
        let large = batch_of((1 << 20) + 1);
        api.post_bytes(BATCH, large).fails_with(413, "payload_too_large");
    }
    let query = "/customers.php?x=/batch.php";
    api.post_bytes(query, batch_of(64 * 1024 + 1)).fails_with(413, "payload_too_large");
    assert_eq!(api.total("/customers.php"), 2);
}

#[test]
fn the_body_of_one_operation_may_exceed_the_limit_of_a_request() {
    let (_server, api) = TestServer::with_unlimited_api();
    let wide = json!({"name": "Wide", "ignored": "x".repeat(900_000)});
    results(run(&api, &[operation("POST", "/customers.php", wide)]));
}

#[test]
fn the_checks_of_a_batch_have_their_order() {
    let (server, tenant) = Setup::plain().option("--rate-limit").option("9").start_with_tenant();
    let reader = tenant.with_scopes(&["customers:read"]);
    let large = "x".repeat((1 << 20) + 1);
    let json = |api: &Api, target: &str, body: &str| api.post_bytes(target, body);
    json(&server.anonymous(), BATCH, &large).fails_with(401, "missing_authorization");
    json(&server.with_key("tdk_short"), BATCH, &large).fails_with(401, "malformed_api_key");
    reader.call("PUT", BATCH).key("nonsense").send().fails_with(405, "method_not_allowed");
    reader.get(BATCH).fails_with(405, "method_not_allowed");
    let call = || reader.call("POST", BATCH);
    call().key("nonsense").body("x").send().fails_with(400, "invalid_idempotency_key");
    let text = call().header("Content-Type", "text/plain").body(large.as_str());
    text.send().fails_with(415, "unsupported_media_type");
    json(&reader, BATCH, &large).fails_with(413, "payload_too_large");
    json(&reader, "/batch.php?x=1", "{").fails_with(400, "invalid_json");
    json(&reader, "/batch.php?x=1", "{}")
        .fails_with(400, "bad_request")
        .saying("query parameter \"x\"");
    let undeclared = json!({"operations": [post_customer(""), {"method": "BREW"}]}).to_string();
    json(&reader, BATCH, &undeclared).fails_with(400, "bad_request").saying("Operation 1");
    json(&reader, BATCH, &json!({"operations": [post_customer("")]}).to_string())
        .fails_with(403, "insufficient_scope");
    json(&reader, BATCH, &large).fails_with(429, "rate_limited");
    // A method that the path lacks is not in the interface description, so the answer is not
    // compared with it.
    reader.call("PUT", BATCH).try_send().unwrap().fails_with(429, "rate_limited");
    json(&server.anonymous(), "/batch.php/", &large).fails_with(404, "endpoint_not_found");

    let api = tenant.with_scopes(ALL);
    let key = uuid();
    api.call("POST", "/customers.php").key(&key).json(&json!({"name": "First"})).send().is(201);
    let with_key = |operation: Value| self::call(&api, &[operation]).key(&key).send();
    with_key(post_customer("")).fails_on(&[("name", "required")]);
    with_key(delete("/customers.php?id=99")).fails_with(422, "idempotency_key_reused");
    tenant.ask("suspend", &[]);
    json(&api, BATCH, &large).fails_with(403, "tenant_inactive");
}

#[test]
fn all_operations_are_checked_before_any_runs() {
    let (_server, api) = TestServer::with_unlimited_api();
    let operations = [
        delete("/customers.php?id=99"),
        post_employee(json!("x")),
        post_customer("Good"),
        operation("PUT", "/customers.php?id=1", json!({})),
        operation("POST", "/employees.php", json!({"customer_id": 1.0, "email": "x"})),
        operation("POST", "/customers.php", json!([])),
        post_employee(json!({"result": 7})),
    ];
    let reply = fails_at(&api, 1, &operations, 422, "validation_failed");
    let body = reply.fails_on(&[("customer_id", "invalid_int")]).json();
    let expected = [
        (1, "validation_failed"),
        (3, "no_updatable_fields"),
        (4, "validation_failed"),
        (5, "invalid_json"),
        (6, "bad_request"),
    ];
    let failed = body["operations"].as_array().unwrap();
    assert_eq!(failed.len(), expected.len());
    for (one, (number, code)) in failed.iter().zip(expected) {
        assert_eq!((&one["operation"], &one["error"]["code"]), (&json!(number), &json!(code)));
        let mut alone = run(&api, &operations[number..][..1]).json();
        let message = alone["error"]["message"].as_str().unwrap();
        alone["error"]["message"] = json!(message.trim_start_matches("Operation 0: "));
        for member in ["error", "errors", "fields"] {
            assert_eq!(alone[member], one[member], "as in a batch of its own");
        }
    }
    let corrected =
        fails_at(&api, 0, &[operations[0].clone(), operations[2].clone()], 404, "not_found");
    assert_eq!(corrected.json().get("operations"), None);
}
