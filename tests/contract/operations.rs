//! Contract section 3: the five operations, their queries and their bodies, and bodies that are no
//! JSON. Module `model` tests that a PUT changes only the fields that it names, and that only ids are
//! unique.

use serde_json::{Value, json};

use crate::support::contract::{RESOURCES, at};
use crate::support::{ALL, Api, Reply, TestServer};

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
    for id in ["2", "9223372036854775807", "9223372036854775808", &"9".repeat(100)] {
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
fn a_parameter_that_no_list_has_is_refused() {
    let (_server, api) = TestServer::with_api();
    for name in ["bogus", "Limit", "notes", "notes_from", "status_from", "name_to", "id_from", ""] {
        let reply = api.get(&format!("/customers.php?{name}=1")).fails_with(400, "bad_request");
        reply.saying(name);
    }
}

#[test]
fn a_parameter_is_given_once() {
    let (_server, api) = TestServer::with_api();
    api.customer("One");
    for query in ["id=1&%69d=2", "limit=1&limit=1", "status=active&status=inactive", "q=a&q=a"] {
        api.get(&format!("/customers.php?{query}")).fails_with(400, "bad_request");
    }
    let twice = "/customers.php?id=1&id=1";
    api.delete(twice).fails_with(400, "bad_request");
    api.put(twice, json!({"name": "Other"})).fails_with(400, "bad_request");
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
    for good in ["Application/JSON", "application/json;charset=utf-8;x=y", "application/json ; a=b"]
    {
        post(good).is(201);
    }
    for bad in [
        "text/plain",
        "application/jsonx",
        "application/vnd.api+json",
        "application/json, text/plain",
        "",
    ] {
        post(bad).fails_with(415, "unsupported_media_type");
        let put =
            api.call("PUT", "/customers.php?id=1").header("Content-Type", bad).body(body.as_str());
        put.send().fails_with(415, "unsupported_media_type");
    }
    let untyped = api.call("POST", "/customers.php").body(body.as_str());
    untyped.send().fails_with(415, "unsupported_media_type");
    api.call("PUT", "/customers.php?id=1").send().fails_with(415, "unsupported_media_type");
    for encoding in ["gzip", "identity", "br"] {
        let packed = api.call("POST", "/customers.php").json(&json!({"name": "Packed"}));
        let packed = packed.header("Content-Encoding", encoding);
        packed.send().fails_with(415, "unsupported_media_type");
    }
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
    for body in ["{\"name\":", "\u{fffd}", &"x".repeat(70_000)] {
        api.call("GET", "/customers.php?id=1").body(body).send().is(200);
        api.call("HEAD", "/customers.php?id=1").body(body).send().is(200);
    }
    let delete = api.call("DELETE", "/customers.php?id=1").header("Content-Type", "text/plain");
    delete.body("x".repeat(70_000)).send().is(204);
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
    for address in
        [format!("/customers.php?id={customer}"), format!("/employees.php?id={employee}")]
    {
        let reply = api.delete(&address).fails_with(409, "has_dependents");
        assert_eq!(reply.json()["details"], "FOREIGN KEY constraint failed");
        api.get(&address).is(200);
    }
    api.delete(&format!("/employees.php?id={other}")).is(204);
    assert_eq!(api.total("/hardware.php?employee_id=1"), 1);
    api.put(&format!("/hardware.php?id={hardware}"), json!({"employee_id": null})).is(200);
    api.delete(&format!("/employees.php?id={employee}")).is(204);
    let customer = format!("/customers.php?id={customer}");
    api.delete(&customer).fails_with(409, "has_dependents");
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
    for _ in 0..3 {
        let employee = ours.employee(ours.customer("Ours"));
        ours.create("/hardware.php", json!({"name": "Ours", "employee_id": employee}));
    }
    for resource in RESOURCES {
        let address = at(resource, 3);
        let before = ours.get(&address).found();
        theirs.get(&address).fails_with(404, "not_found");
        theirs.head(&address).is(404);
        theirs.put(&address, json!({"notes": "Taken"})).fails_with(404, "not_found");
        theirs.delete(&address).fails_with(404, "not_found");
        assert_eq!(theirs.total(resource.path), 1);
        assert_eq!(ours.get(&address).found(), before);
    }
    for (path, body, code) in [
        ("/employees.php", json!({"customer_id": 3, "email": "a@b.example"}), "customer_not_found"),
        ("/hardware.php", json!({"name": "X1", "employee_id": 3}), "employee_not_found"),
    ] {
        theirs.post(path, body.clone()).fails_with(422, code);
        theirs.put(&format!("{path}?id=1"), body).fails_with(422, code);
    }
}

fn post(api: &Api, body: impl Into<Vec<u8>>) -> Reply {
    api.post_bytes("/customers.php", body)
}

/// `levels` arrays, one in the other, as the value of an unknown member: with the body's own object
/// one level more.
fn nested(levels: usize) -> String {
    format!("{{\"name\":\"Deep\",\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn what_is_not_one_json_object_is_invalid() {
    let (_server, api) = TestServer::with_unlimited_api();
    let bodies: &[&[u8]] = &[
        b"",
        b"{\"name\":\"Comment\"/**/}",
        b"{\"name\":\"NUL \0\"}",
        b"{\"name\":\"Number\",\"x\":NaN}",
        b"{\"name\":\"Overlong \xC0\xAF\"}",
        b"{\"name\":\"Surrogate \xED\xA0\x80\"}",
        b"{\"x\xFF\":1,\"name\":\"Name\"}",
        b"\xEF\xBB\xBF\xEF\xBB\xBF{\"name\":\"Two marks\"}",
        b"\xEF\xBB\xBF",
        b" \xEF\xBB\xBF{\"name\":\"A late mark\"}",
        b"\xFF\xFE{\0}\0",
        b"\xC2\xA0{\"name\":\"No-break space\"}",
    ];
    for body in bodies {
        post(&api, *body).fails_with(400, "invalid_json");
    }
    assert_eq!(api.total("/customers.php"), 0);
    api.customer("There");
    for body in ["", "[]", "{\"name\":"] {
        let put = api.call("PUT", "/customers.php?id=1").header("Content-Type", "application/json");
        put.body(body).send().fails_with(400, "invalid_json");
    }
}

#[test]
fn a_lone_surrogate_is_invalid_wherever_it_stands() {
    let (_server, api) = TestServer::with_api();
    let bodies = [
        r#"{"name":"\ud800"}"#,
        r#"{"name":"\udc00"}"#,
        r#"{"name":"x \udbff y"}"#,
        r#"{"name":"\ud800A"}"#,
        r#"{"name":"Fine","unknown":"\ud800"}"#,
        r#"{"name":"Fine","\ud800":1}"#,
        r#"{"name":"Fine","x":[{"y":["\udfff"]}]}"#,
        r#"{"name":"\ud800","name":"Fine"}"#,
        r#"{"name":"Fine","id":"\ud800"}"#,
    ];
    for body in bodies {
        post(&api, body).fails_with(400, "invalid_json");
    }
    assert_eq!(api.total("/customers.php"), 0);
    assert_eq!(post(&api, r#"{"name":"\ud83d\ude00 \uD83D\uDE00"}"#).created()["name"], "😀 😀");
    assert_eq!(post(&api, r#"{"name":"\\ud800 \\\\udfff"}"#).created()["name"], r"\ud800 \\udfff");
}

#[test]
fn a_body_has_at_most_127_levels_of_nesting() {
    let (server, api) = TestServer::with_api();
    post(&api, nested(126)).is(201);
    for levels in [127, 128, 1_000, 30_000] {
        post(&api, nested(levels)).fails_with(400, "invalid_json");
    }
    post(&api, "[".repeat(60_000)).fails_with(400, "invalid_json");
    post(&api, format!("{{\"name\":\"Deep\",\"x\":{}", "{\"a\":".repeat(10_000)))
        .fails_with(400, "invalid_json");
    post(&api, nested(100_000)).fails_with(413, "payload_too_large");
    server.anonymous().get("/healthz").is(200);
}

#[test]
fn one_leading_byte_order_mark_is_ignored() {
    let (_server, api) = TestServer::with_api();
    assert_eq!(post(&api, "\u{feff}{\"name\":\"Marked\"}").created()["name"], "Marked");
    let within = post(&api, "{\"name\":\"Within\",\"notes\":\"\u{feff}Within\"}").created();
    assert_eq!(within["notes"], "\u{feff}Within");
}

#[test]
fn of_a_member_given_twice_the_last_counts() {
    let (_server, api) = TestServer::with_api();
    assert_eq!(post(&api, r#"{"name":"First","name":"Last"}"#).created()["name"], "Last");
    assert_eq!(post(&api, r#"{"name":7,"name":"Last"}"#).created()["name"], "Last");
    assert_eq!(post(&api, r#"{"name":"First","n\u0061me":"Last"}"#).created()["name"], "Last");
    post(&api, r#"{"name":"First","name":7}"#).fails_with(400, "bad_request").saying("name");
    let put = api.call("PUT", "/customers.php?id=1").header("Content-Type", "application/json");
    let changed = put.body(r#"{"phone":"1","name":"A last one","phone":"2"}"#).send().found();
    assert_eq!([&changed["phone"], &changed["name"]], ["2", "A last one"]);
}

#[test]
fn answers_are_json_that_any_reader_reads() {
    let (_server, api) = TestServer::with_api();
    let awkward: String = (1..=0x2f).chain(0x7f..=0xa0).filter_map(char::from_u32).collect();
    let notes = format!("{awkward}\u{2028}\u{2029}\u{fffe}\u{10ffff}\"\\/</script>");
    let made = post(&api, json!({"name": "Awkward", "notes": notes}).to_string()).created();
    assert_eq!(made["notes"], Value::String(notes));
}
