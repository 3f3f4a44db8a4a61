//! Contract section 3: the five operations, their queries and their bodies. Module `json` tests the
//! JSON syntax. Module `model` tests that a PUT changes only the fields that it names, and that only
//! ids are unique.

use serde_json::{Value, json};

use crate::support::contract::{RESOURCES, at};
use crate::support::{ALL, TestServer};

#[test]
fn put_and_delete_need_an_id() {
    let (_server, api) = TestServer::with_api();
    for &resource in RESOURCES.iter() {
        api.put(resource.path, json!({"notes": "x"})).fails_with(400, "missing_id");
        api.delete(resource.path).fails_with(400, "missing_id");
        api.put(&format!("{}?", resource.path), json!({"notes": "x"}))
            .fails_with(400, "missing_id");
    }
}

#[test]
fn an_id_is_decimal_digits_without_sign_or_leading_zero() {
    let (_server, api) = TestServer::with_unlimited_api();
    let id = api.customer("The first");
    assert_eq!(id, 1);
    let wrong = [
        "0", "-1", "%2B1", "+1", "01", "1.0", "1e0", "abc", "", "%201", "1%20", "0x1", "1,2",
        "%D9%A1", "null", "-0",
    ];
    for id in wrong {
        let address = format!("/customers.php?id={id}");
        api.get(&address).fails_with(400, "bad_request").saying("id");
        api.put(&address, json!({"name": "Other"})).fails_with(400, "bad_request");
        api.delete(&address).fails_with(400, "bad_request");
    }
    api.get("/customers.php?id").fails_with(400, "bad_request");
    assert_eq!(api.get("/customers.php?id=1").found()["name"], "The first");
}

#[test]
fn an_id_beyond_64_bits_is_no_records() {
    let (_server, api) = TestServer::with_api();
    for id in [
        "2",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551617",
        &"9".repeat(100),
    ] {
        let address = format!("/customers.php?id={id}");
        api.get(&address).fails_with(404, "not_found");
        api.put(&address, json!({"name": "Other"})).fails_with(404, "not_found");
        api.delete(&address).fails_with(404, "not_found");
    }
}

#[test]
fn the_query_is_decoded_as_forms_are() {
    let (_server, api) = TestServer::with_api();
    api.customer("Two words");
    assert_eq!(api.get("/customers.php?%69d=%31").found()["id"], 1);
    assert_eq!(api.total("/customers.php?name=Two+words"), 1);
    assert_eq!(api.total("/customers.php?name=Two%20words"), 1);
    assert_eq!(api.total("/customers.php?name=Two%2Bwords"), 0);
    for query in ["name=%FF", "name=%C3%28", "%FF=1", "q=%ED%A0%80", "id=%FF"] {
        api.get(&format!("/customers.php?{query}")).fails_with(400, "bad_request");
    }
}

#[test]
fn a_parameter_that_is_not_known_is_named_and_so_is_the_one_that_was_meant() {
    let (_server, api) = TestServer::with_unlimited_api();
    api.customer("One");
    let typos = [
        ("lmit", "limit"),
        ("Limit", "limit"),
        ("curser", "cursor"),
        ("custmer_number", "customer_number"),
        ("statuss", "status"),
        ("sorting", "sort"),
        ("created_at_form", "created_at_from"),
    ];
    for (typo, meant) in typos {
        let reply = api.get(&format!("/customers.php?{typo}=1")).fails_with(400, "bad_request");
        reply.saying(typo).saying(meant);
    }
    for query in [
        "bogus=1",
        "notes=x",
        "notes_from=2024-01-01",
        "status_from=a",
        "name_to=b",
        "id_from=1",
        "=1",
    ] {
        let name = query.split('=').next().unwrap();
        api.get(&format!("/customers.php?{query}")).fails_with(400, "bad_request").saying(name);
    }
}

#[test]
fn a_parameter_is_given_once() {
    let (_server, api) = TestServer::with_api();
    api.customer("One");
    for query in [
        "id=1&id=1",
        "id=1&%69d=2",
        "limit=1&limit=1",
        "status=active&status=inactive",
        "q=a&q=a",
        "sort=id&sort=id",
    ] {
        api.get(&format!("/customers.php?{query}")).fails_with(400, "bad_request");
    }
    api.delete("/customers.php?id=1&id=1").fails_with(400, "bad_request").saying("id");
    api.put("/customers.php?id=1&id=1", json!({"name": "Other"}))
        .fails_with(400, "bad_request")
        .saying("id");
}

#[test]
fn beside_the_id_no_other_parameter_is_known() {
    let (_server, api) = TestServer::with_api();
    api.customer("One");
    for other in ["limit=1", "sort=id", "q=One", "status=active", "total=true", "x=1"] {
        let address = format!("/customers.php?id=1&{other}");
        api.get(&address).fails_with(400, "bad_request");
        api.put(&address, json!({"name": "Other"})).fails_with(400, "bad_request");
        api.delete(&address).fails_with(400, "bad_request");
    }
    for query in ["id=1", "limit=1", "x=1", "name=x"] {
        let name = query.split('=').next().unwrap();
        let reply = api.post(&format!("/customers.php?{query}"), json!({"name": "Another"}));
        reply.fails_with(400, "bad_request").saying(name);
    }
    assert_eq!(api.total("/customers.php"), 1);
}

#[test]
fn a_body_needs_the_content_type_of_json() {
    let (_server, api) = TestServer::with_api();
    let body = json!({"name": "Typed"}).to_string();
    let post = |content_type: &str| {
        api.call("POST", "/customers.php")
            .header("Content-Type", content_type)
            .body(body.as_str())
            .send()
    };
    for good in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=utf-8;x=y",
        "application/json ; a=b",
    ] {
        post(good).is(201);
    }
    for bad in [
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/json-patch+json",
        "application/vnd.api+json",
        "application",
        "json",
        "*/*",
        "",
        "application/json, text/plain",
    ] {
        post(bad).fails_with(415, "unsupported_media_type");
        let put =
            api.call("PUT", "/customers.php?id=1").header("Content-Type", bad).body(body.as_str());
        put.send().fails_with(415, "unsupported_media_type");
    }
    api.call("POST", "/customers.php")
        .body(body.as_str())
        .send()
        .fails_with(415, "unsupported_media_type");
    api.call("POST", "/customers.php").send().fails_with(415, "unsupported_media_type");
    api.call("PUT", "/customers.php?id=1").send().fails_with(415, "unsupported_media_type");
}

#[test]
fn any_content_encoding_is_refused() {
    let (_server, api) = TestServer::with_api();
    for encoding in ["gzip", "identity", "br"] {
        let post = api.call("POST", "/customers.php").json(&json!({"name": "Packed"}));
        post.header("Content-Encoding", encoding).send().fails_with(415, "unsupported_media_type");
    }
    assert_eq!(api.total("/customers.php"), 0);
}

#[test]
fn a_body_has_at_most_64_kib() {
    let (_server, api) = TestServer::with_api();
    let padded = |length: usize| {
        let mut body = br#"{"name":"As long as can be"}"#.to_vec();
        body.resize(length, b' ');
        body
    };
    api.post_bytes("/customers.php", padded(64 * 1024)).is(201);
    api.post_bytes("/customers.php", padded(64 * 1024 + 1)).fails_with(413, "payload_too_large");
    api.post_bytes("/customers.php", padded(300 * 1024)).fails_with(413, "payload_too_large");
    let put = api.call("PUT", "/customers.php?id=1").header("Content-Type", "application/json");
    put.body(padded(64 * 1024 + 1)).send().fails_with(413, "payload_too_large");
    assert_eq!(api.total("/customers.php"), 1, "the connection is in step and nothing was made");
}

#[test]
fn a_body_with_get_head_or_delete_is_ignored() {
    let (_server, api) = TestServer::with_api();
    api.customer("One");
    api.customer("Two");
    for body in ["{\"name\":", "\u{fffd}", &"x".repeat(70_000)] {
        api.call("GET", "/customers.php?id=1").body(body).send().is(200);
        api.call("HEAD", "/customers.php?id=1").body(body).send().is(200);
    }
    api.call("DELETE", "/customers.php?id=1")
        .header("Content-Type", "text/plain")
        .body("{")
        .send()
        .is(204);
    api.call("DELETE", "/customers.php?id=2").body("x".repeat(70_000)).send().is(204);
}

#[test]
fn a_put_needs_a_field_that_can_be_changed() {
    let (_server, api) = TestServer::with_api();
    let made = api.post("/customers.php", json!({"name": "Unchanged"})).created();
    let empty: [Value; 4] = [
        json!({}),
        json!({"id": 7, "created_at": "2020-01-01T00:00:00Z", "updated_at": null}),
        json!({"Name": "Other", "nmae": "Other"}),
        json!({"first_name": "no field of a customer"}),
    ];
    for body in empty {
        api.put("/customers.php?id=1", body).fails_with(400, "no_updatable_fields");
    }
    assert_eq!(api.get("/customers.php?id=1").found(), made);
    api.put("/customers.php?id=1", json!({"nmae": "ignored", "phone": null})).is(200);
}

#[test]
fn a_customer_with_employees_and_an_employee_with_hardware_stay() {
    let (_server, api) = TestServer::with_api();
    let customer = api.customer("Needed");
    let employee = api.employee(customer);
    let hardware = api.create("/hardware.php", json!({"name": "Laptop", "employee_id": employee}));
    let other = api.employee(customer);
    for (address, said) in [
        (
            format!("/customers.php?id={customer}"),
            "2 employees and 1 hardware record refer to this",
        ),
        (format!("/employees.php?id={employee}"), "1 hardware record refers to this employee."),
    ] {
        let reply = api.delete(&address).fails_with(409, "has_dependents").saying(said);
        assert_eq!(reply.json()["details"], "FOREIGN KEY constraint failed");
        api.get(&address).is(200);
    }
    api.delete(&format!("/employees.php?id={other}")).is(204);
    assert_eq!(api.total("/hardware.php?employee_id=1"), 1);
    api.put(&format!("/hardware.php?id={hardware}"), json!({"employee_id": null})).is(200);
    api.delete(&format!("/employees.php?id={employee}")).is(204);
    let customer = format!("/customers.php?id={customer}");
    api.delete(&customer).fails_with(409, "has_dependents").saying("1 hardware record refers");
    api.delete(&format!("/hardware.php?id={hardware}")).is(204);
    api.delete(&customer).is(204);
}

#[test]
fn no_tenant_reaches_anothers_records() {
    let server = TestServer::without_rate_limit();
    let ours = server.tenant("ours").with_scopes(ALL);
    let theirs = server.tenant("theirs").with_scopes(ALL);
    // Ids that the other tenant does not have: theirs has one of each, ours three.
    let customer = theirs.customer("Theirs");
    let employee = theirs.employee(customer);
    theirs.create("/hardware.php", json!({"name": "Theirs", "employee_id": employee}));
    let mut last = (0, 0, 0);
    for n in 0..3 {
        let customer = ours.customer(&format!("Ours {n}"));
        let employee = ours.employee(customer);
        last = (
            customer,
            employee,
            ours.create("/hardware.php", json!({"name": "Ours", "employee_id": employee})),
        );
    }
    for (resource, id) in RESOURCES.iter().zip([last.0, last.1, last.2]) {
        let address = at(resource, id);
        let before = ours.get(&address).found();
        theirs.get(&address).fails_with(404, "not_found");
        theirs.head(&address).is(404);
        theirs.put(&address, json!({"notes": "Taken"})).fails_with(404, "not_found");
        theirs.delete(&address).fails_with(404, "not_found");
        assert_eq!(theirs.total(resource.path), 1);
        assert_eq!(ours.get(&address).found(), before);
    }
    let across = json!({"customer_id": last.0, "email": "a@shop.example"});
    theirs.post("/employees.php", across).fails_with(422, "customer_not_found");
    theirs
        .put("/employees.php?id=1", json!({"customer_id": last.0}))
        .fails_with(422, "customer_not_found");
    theirs
        .post("/hardware.php", json!({"name": "X1", "employee_id": last.1}))
        .fails_with(422, "employee_not_found");
    theirs
        .put("/hardware.php?id=1", json!({"employee_id": last.1}))
        .fails_with(422, "employee_not_found");
}
