//! Contract section 3, `update_by`: a POST that creates a record, or updates the record with the
//! client's own number.

use serde_json::{Value, json};

use crate::support::{Api, Reply, TestServer, uuid};

const BY_SERIAL: &str = "/hardware.php?update_by=serial_number";

/// Sends the laptop with the serial number `S-1` under a name.
fn send(api: &Api, name: &str) -> Reply {
    api.post(BY_SERIAL, json!({"name": name, "serial_number": "S-1"}))
}

fn etag(reply: &Reply) -> String {
    reply.header("ETag").unwrap().to_owned()
}

#[test]
fn text_and_email_fields_can_find_a_record() {
    let (_server, api) = TestServer::with_unlimited_api();
    let customer = api.customer("Needed");
    for (path, body, fields) in [
        ("/customers.php", json!({"name": "Eva"}), "customer_number email name phone city"),
        ("/employees.php", json!({"customer_id": customer, "email": "e@x.example"}), "email phone"),
        ("/hardware.php", json!({"name": "PC"}), "serial_number asset_tag model name"),
    ] {
        for field in fields.split(' ') {
            let mut body = body.clone();
            body[field] = json!(format!("{field}@shop.example"));
            let target = format!("{path}?update_by={field}");
            let id = api.post(&target, body.clone()).created()["id"].clone();
            assert_eq!(api.post(&target, body).found()["id"], id, "{target}");
        }
        for field in ["id", "notes", "created_at", "customer_id", "type", "", "serial"] {
            let refused = api.post(&format!("{path}?update_by={field}"), json!({}));
            refused.fails_with(400, "bad_request").saying("send one of");
        }
    }
    api.put("/hardware.php?id=1&update_by=name", json!({"name": "PC"}))
        .fails_with(400, "bad_request");
}

#[test]
fn the_body_is_that_of_a_post_and_has_the_named_field() {
    let (_server, api) = TestServer::with_unlimited_api();
    let both = [("name", "required"), ("serial_number", "required")];
    api.post(BY_SERIAL, json!({})).fails_on(&both);
    send(&api, "Laptop").is(201);
    for empty in [json!(null), json!(""), json!(" ")] {
        let body = json!({"name": "Laptop", "serial_number": empty});
        api.post(BY_SERIAL, body).fails_on(&both[1..]);
    }
    api.post(BY_SERIAL, json!({"serial_number": "S-1"})).fails_on(&both[..1]);
    let body = json!({"name": "Laptop", "serial_number": "S-1", "employee_id": 9});
    api.post(BY_SERIAL, body).fails_with(422, "employee_not_found");
}

#[test]
fn one_record_is_changed_as_by_put() {
    let (_server, api) = TestServer::with_unlimited_api();
    let body = json!({"name": "Laptop", "serial_number": "S-1", "status": "in_use", "model": "A"});
    let first = api.post(BY_SERIAL, body).is(201);
    assert_eq!(first.header("Location"), Some("/hardware.php?id=1"));
    let body = json!({"name": "Eva's", "serial_number": "S-1", "model": null});
    let second = api.post(BY_SERIAL, body).is(200);
    assert_eq!(second.header("Location"), None);
    let record = second.json();
    assert_eq!(record, api.get("/hardware.php?id=1").found());
    assert_eq!([&record["name"], &record["status"]], ["Eva's", "in_use"], "it was not named");
    assert_eq!(record["model"], Value::Null);
    let same = send(&api, "Eva's").is(200);
    assert_eq!(etag(&same), etag(&second), "no value differs");
    let log = api.get("/changes.php").found();
    let actions: Vec<&Value> =
        log["data"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["created", "updated"]);
    let other = json!({"name": "Laptop", "serial_number": "s-1"});
    api.post(BY_SERIAL, other).is(201);
}

#[test]
fn several_records_are_ambiguous() {
    let (_server, api) = TestServer::with_unlimited_api();
    let body = json!({"name": "Laptop", "serial_number": "S-1"});
    for _ in 0..12 {
        api.create("/hardware.php", body.clone());
    }
    let refused = send(&api, "New").fails_with(409, "ambiguous_record");
    let refused = refused.saying("the ids 1, 2, 3, 4, 5, 6, 7, 8, 9, 10.");
    assert_eq!(api.total("/hardware.php?name=New"), 0, "{refused}");
}

#[test]
fn if_match_applies_to_the_found_record() {
    let (_server, api) = TestServer::with_unlimited_api();
    let conditional = |if_match: &str, name: &str| {
        let call = api.call("POST", BY_SERIAL).header("If-Match", if_match);
        call.json(&json!({"name": name, "serial_number": "S-1"})).send()
    };
    for condition in ["*", "\"1\""] {
        let refused = conditional(condition, "Laptop").fails_with(412, "precondition_failed");
        assert_eq!(refused.header("ETag"), None, "no record is found");
    }
    conditional("1", "Laptop").fails_with(400, "bad_request");
    assert_eq!(api.total("/hardware.php"), 0);
    let first = etag(&send(&api, "Laptop").is(201));
    let second = etag(&conditional(&first, "Eva's").is(200));
    let refused = conditional(&first, "Karl's").fails_with(412, "precondition_failed");
    assert_eq!(etag(&refused), second);
    conditional("*", "Karl's").is(200);
    let plain = api.call("POST", "/hardware.php").header("If-Match", "\"1\"");
    plain.json(&json!({"name": "PC"})).send().is(201);
}

#[test]
fn a_repeated_key_is_compared_with_update_by_too() {
    let (_server, api) = TestServer::with_unlimited_api();
    let key = uuid();
    let post = |target: &str| {
        let body = json!({"name": "Laptop", "serial_number": "S-1", "asset_tag": "S-1"});
        api.call("POST", target).key(&key).json(&body).send()
    };
    let first = post(BY_SERIAL).is(201);
    send(&api, "Changed since").is(200);
    let again = post(&format!("/v1{BY_SERIAL}")).is(201);
    assert!(again.was_replayed() && again.body == first.body);
    for target in ["/hardware.php", "/hardware.php?update_by=asset_tag"] {
        post(target).fails_with(422, "idempotency_key_reused");
    }
}

#[test]
fn an_empty_value_of_a_field_with_a_default_is_an_error() {
    let (_server, api) = TestServer::with_unlimited_api();
    let body = json!({"name": "Laptop", "serial_number": "S-1", "status": "", "is_leased": null});
    for _ in ["no record", "one record"] {
        let faults = [("status", "required"), ("is_leased", "required")];
        api.post(BY_SERIAL, body.clone()).fails_on(&faults);
        send(&api, "Laptop");
    }
    api.post("/hardware.php", body).is(201);
}

#[test]
fn the_write_scope_is_enough() {
    let (server, _) = TestServer::with_unlimited_api();
    let agent = server.tenant("b").with_scopes(&["hardware:write"]);
    send(&agent, "Laptop").is(201);
    assert_eq!(send(&agent, "Eva's").found()["name"], "Eva's");
}

/// An agent on a computer sends the customer, the employee and the laptop by their own numbers.
#[test]
fn an_inventory_that_is_sent_twice_has_no_doubles() {
    let (_server, api) = TestServer::with_unlimited_api();
    let post = |path: &str, body: Value| json!({"method": "POST", "path": path, "body": body});
    let employee = json!({"customer_id": {"result": 0}, "email": "eva@shop.example"});
    let laptop = json!({"name": "PC", "serial_number": "S-1", "employee_id": {"result": 1}});
    let operations = json!({"operations": [
        post("/customers.php?update_by=name", json!({"name": "Shop"})),
        post("/v1/employees.php?update_by=email", employee),
        post(BY_SERIAL, laptop),
    ]});
    for status in [201, 200] {
        let results = api.post("/batch.php", operations.clone()).found()["results"].clone();
        for result in results.as_array().unwrap() {
            assert_eq!((&result["status"], &result["body"]["id"]), (&json!(status), &json!(1)));
            assert_eq!(result["location"].is_string(), status == 201);
        }
    }
    let lists = ["/customers.php", "/employees.php", "/hardware.php"];
    assert_eq!(lists.map(|list| api.total(list)), [1, 1, 1]);
}
