//! The interface description: a change of the interface is seen as a change of its golden copy, and
//! nothing is taken away that the last release promised.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod compatibility;

use std::path::Path;

use compatibility::broken_promises;
use serde_json::{Value, json};
use tenantdesk::reference::openapi;

/// The document of the last release. At a release: `tenantdesk openapi --json` of the new one.
const LAST_RELEASE: &str = include_str!("../fixtures/openapi-0.2.0.json");

/// The changes since the last release that break a promise: the end of their description, and why.
const ANNOUNCED: [(&str, &str); 5] = [
    (r#""q": maxLength was None and is Some(200.0)"#, "in the CHANGELOG"),
    // The document alone has changed: the service still takes null in a POST.
    (r#"body.status: type was ["string","null"] and is "string""#, "null is an error in a PUT"),
    (r#"body.type: type was ["string","null"] and is "string""#, "null is an error in a PUT"),
    (
        r#"body.is_active: type was ["boolean","null"] and is "boolean""#,
        "null is an error in a PUT",
    ),
    (
        r#"body.is_leased: type was ["boolean","null"] and is "boolean""#,
        "null is an error in a PUT",
    ),
];

/// Renewed by `UPDATE_GOLDEN=1 cargo test --test openapi`.
#[test]
fn the_document_is_its_golden_copy() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/openapi.json");
    let now = format!("{:#}\n", current());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let line = golden.lines().zip(now.lines()).position(|(old, new)| old != new);
    assert!(
        golden == now,
        "the interface differs from tests/golden/openapi.json (first at line {:?}); \
         UPDATE_GOLDEN=1 cargo test --test openapi renews it, and its diff is the change of the interface",
        line.map(|line| line + 1)
    );
}

fn current() -> Value {
    serde_json::from_str(&openapi::JSON).unwrap()
}

#[test]
fn nothing_is_taken_away_that_the_last_release_promised() {
    let broken = broken_promises(&serde_json::from_str(LAST_RELEASE).unwrap(), &current());
    for (announced, reason) in ANNOUNCED {
        assert!(broken.iter().any(|one| one.ends_with(announced)), "{announced} ({reason})");
    }
    let is_announced = |one: &String| ANNOUNCED.iter().any(|(known, _)| one.ends_with(known));
    let others: Vec<_> = broken.into_iter().filter(|one| !is_announced(one)).collect();
    assert!(others.is_empty(), "contract section 16 rules this out: {others:#?}");
}

/// The current document with `value` at a JSON pointer, or without what is there.
fn changed(pointer: &str, value: Option<Value>) -> Value {
    let mut document = current();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).expect(pointer);
    match (parent, value) {
        (Value::Object(members), Some(value)) => _ = members.insert(name.replace("~1", "/"), value),
        (Value::Object(members), None) => {
            members.shift_remove(&name.replace("~1", "/")).expect(pointer);
        }
        (Value::Array(items), None) => _ = items.remove(name.parse().unwrap()),
        (Value::Array(items), Some(value)) => items.insert(name.parse().unwrap(), value),
        _ => panic!("{pointer}"),
    }
    document
}

fn assert_found(new: &Value, expected: &str) {
    let broken = broken_promises(&current(), new);
    assert!(broken.iter().any(|one| one == expected), "{expected} is not among {broken:#?}");
}

#[test]
fn each_thing_that_is_removed_is_found() {
    let customers = "/paths/~1customers.php";
    for (pointer, expected) in [
        ("", "PUT /customers.php: gone"),
        ("/delete", "DELETE /customers.php: gone"),
        ("/put/parameters/1", r#"PUT /customers.php: "header" "If-Match" is gone"#),
        ("/delete/responses/204", "DELETE /customers.php: 204 is gone"),
        ("/delete/responses/409", "DELETE /customers.php: the error 409 has_dependents is gone"),
    ] {
        assert_found(&changed(&format!("{customers}{pointer}"), None), expected);
    }
    for (pointer, expected) in [
        ("CustomerUpdate/properties/city", "PUT /customers.php: body.city is gone"),
        ("Customer/properties/city", "PUT /customers.php: 200.city is gone"),
        ("Customer/properties/id", "PUT /customers.php: 200.id is gone"),
        ("CustomerPage/properties/total", "GET /customers.php: 200: the alternative 1 is gone"),
        ("Change/properties/before", "GET /changes.php: 200.data[].before is gone"),
    ] {
        assert_found(&changed(&format!("/components/schemas/{pointer}"), None), expected);
    }
}

#[test]
fn each_thing_that_is_changed_is_found() {
    let status = json!({ "$ref": "#/components/responses/has_dependents" });
    let mut moved = changed("/paths/~1customers.php/delete/responses/410", Some(status));
    moved["paths"]["/customers.php"]["delete"]["responses"]["409"] = json!({});
    assert_found(&moved, "DELETE /customers.php: the error 409 has_dependents is gone");
    for (pointer, value, expected) in [
        (
            "/paths/~1customers.php/get/security",
            json!([{ "apiKey": ["customers:write"] }]),
            r#"GET /customers.php: the scopes were [{"apiKey":["customers:read"]}]"#,
        ),
        (
            "/components/parameters/IfMatch/required",
            json!(true),
            r#"PUT /customers.php: "header" "If-Match" is required"#,
        ),
        (
            "/paths/~1customers.php/get/parameters/2/schema/maximum",
            json!(100),
            r#"GET /customers.php: "query" "limit": maximum was Some(200.0) and is Some(100.0)"#,
        ),
        (
            "/components/schemas/CustomerCreate/properties/city/maxLength",
            json!(99),
            "POST /customers.php: body.city: maxLength was Some(100.0) and is Some(99.0)",
        ),
        (
            "/components/schemas/CustomerUpdate/properties/name/minLength",
            json!(3),
            "PUT /customers.php: body.name: minLength was Some(2.0) and is Some(3.0)",
        ),
        (
            "/components/schemas/Customer/properties/city/type",
            json!("string"),
            r#"POST /customers.php: 201.city: type was ["string","null"] and is "string""#,
        ),
        (
            "/components/schemas/Customer/properties/customer_since/format",
            json!("date-time"),
            r#"PUT /customers.php: 200.customer_since: format was "date" and is "date-time""#,
        ),
        (
            "/components/schemas/CustomerStatus/enum",
            json!(["prospect", "active"]),
            r#"POST /customers.php: body.status: a value of ["prospect","active","inactive"]null is gone"#,
        ),
        (
            "/components/schemas/CustomerCreate/properties/status/default",
            json!("prospect"),
            r#"POST /customers.php: body.status: default was "active" and is "prospect""#,
        ),
        (
            "/components/schemas/CustomerCreate/required",
            json!(["name", "city"]),
            r#"POST /customers.php: body: whether "city" is required has changed"#,
        ),
        (
            "/components/schemas/Whoami/required",
            json!([]),
            r#"GET /whoami.php: 200: whether "server" is required has changed"#,
        ),
    ] {
        assert_found(&changed(pointer, Some(value)), expected);
    }
}

#[test]
fn what_is_added_breaks_no_promise() {
    for (pointer, value) in [
        ("/paths/~1printers.php", json!({ "get": { "responses": {} } })),
        ("/paths/~1customers.php/patch", json!({ "responses": {} })),
        ("/components/schemas/Customer/properties/colour", json!({ "type": "string" })),
        ("/components/schemas/CustomerUpdate/properties/colour", json!({ "type": "string" })),
        ("/components/schemas/CustomerUpdate/properties/city/maxLength", json!(101)),
        ("/paths/~1customers.php/get/parameters/2/schema/maximum", json!(500)),
        ("/components/schemas/CommandActor/properties/name/enum", json!(["import", "restore"])),
        ("/components/schemas/Change/properties/by/oneOf/0", json!({ "type": "null" })),
        ("/paths/~1changes.php/get/security/0", json!({ "apiKey": ["printers:read"] })),
        ("/paths/~1customers.php/get/responses/410", json!({ "description": "Gone." })),
    ] {
        let broken = broken_promises(&current(), &changed(pointer, Some(value)));
        assert!(broken.is_empty(), "{pointer}: {broken:?}");
    }
}
