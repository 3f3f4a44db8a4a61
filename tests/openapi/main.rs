//! The OpenAPI document: `golden/interface.txt` shows each change since the last release, and no
//! promise of that release is gone.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod interface;

use std::collections::BTreeSet;
use std::path::Path;

use interface::lines;
use serde_json::{Value, json};
use tenantdesk::reference::openapi;

/// The lines that are gone since the last release, and why each of them may be.
const ANNOUNCED: [(&str, &str); 5] = [
    ("GET /changes.php query cursor: string, maxLength 2048, minLength 1", "may be empty"),
    ("GET /customers.php query cursor: string, maxLength 2048, minLength 1", "may be empty"),
    ("GET /employees.php query cursor: string, maxLength 2048, minLength 1", "may be empty"),
    ("GET /hardware.php query cursor: string, maxLength 2048, minLength 1", "may be empty"),
    (
        r#"BatchOperation.path: string, pattern "^(/v1)?(/customers\\.php|/employees\\.php|/hardware\\.php)(\\?id=[1-9][0-9]*)?$""#,
        "may have `update_by`",
    ),
];

/// Renewed by `UPDATE_GOLDEN=1 cargo test --test openapi`. A line with `+` is new since the last
/// release, and a line with `-` is gone.
#[test]
fn the_golden_file_shows_the_changes_since_the_last_release() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/interface.txt");
    let golden = std::fs::read_to_string(&path).unwrap();
    let released = golden.lines().filter(|line| !line.starts_with('+'));
    let released: BTreeSet<String> = released.map(|line| line[2..].to_owned()).collect();
    let current = lines(&document());
    let mark = |line: &String| match (released.contains(line), current.contains(line)) {
        (true, true) => ' ',
        (true, false) => '-',
        (false, _) => '+',
    };
    let all = released.union(&current).map(|line| format!("{} {line}\n", mark(line)));
    let now = all.collect::<String>();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &now).unwrap();
    } else if let Some((old, new)) = golden.lines().zip(now.lines()).find(|(old, new)| old != new) {
        panic!(
            "tests/golden/interface.txt has {old:?} in place of {new:?}. \
             UPDATE_GOLDEN=1 cargo test --test openapi renews the file. \
             Its diff is the change of the interface."
        );
    } else {
        assert_eq!(golden, now);
    }
    let gone: BTreeSet<&str> = released.difference(&current).map(String::as_str).collect();
    let announced = BTreeSet::from(ANNOUNCED.map(|(line, _)| line));
    assert_eq!(gone, announced, "section 16 of the contract lets nothing else go");
}

fn document() -> Value {
    serde_json::from_str(&openapi::JSON).unwrap()
}

/// The promises that are gone if the document has `value` at a JSON pointer, or lacks what is
/// there now.
fn gone_after(pointer: &str, value: Option<Value>) -> Vec<String> {
    let mut changed = document();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let name = name.replace("~1", "/");
    match (changed.pointer_mut(parent).expect(pointer), value) {
        (Value::Object(members), Some(value)) => _ = members.insert(name, value),
        (Value::Object(members), None) => _ = members.shift_remove(&name).expect(pointer),
        (Value::Array(items), None) => _ = items.remove(name.parse().unwrap()),
        (Value::Array(items), Some(value)) => items.insert(name.parse().unwrap(), value),
        _ => panic!("{pointer}"),
    }
    lines(&document()).difference(&lines(&changed)).cloned().collect()
}

#[test]
fn each_thing_that_is_removed_is_found() {
    for (pointer, expected) in [
        ("/paths/~1customers.php/put", "PUT /customers.php 200"),
        ("/paths/~1customers.php/head", "HEAD /customers.php"),
        (
            "/paths/~1customers.php/get/parameters/2",
            "GET /customers.php query limit: integer, maximum 200, minimum 1",
        ),
        ("/paths/~1customers.php/delete/responses/204", "DELETE /customers.php 204"),
        ("/paths/~1customers.php/delete/responses/409", "DELETE /customers.php 409 has_dependents"),
        (
            "/components/schemas/CustomerUpdate/properties/notes",
            r#"CustomerUpdate.notes: string or null, maxLength 5000, pattern "^[^\\u0000]*$""#,
        ),
        (
            "/components/schemas/Customer/properties/id",
            "Customer.id: integer, int64, minimum 1, always",
        ),
        (
            "/components/schemas/CustomerPage/properties/total",
            "CustomerPage.total: integer, int64, minimum 0",
        ),
    ] {
        let gone = gone_after(pointer, None);
        assert!(gone.iter().any(|line| line == expected), "{expected} is not among {gone:#?}");
    }
}

#[test]
fn each_thing_that_is_changed_is_found() {
    for (pointer, value) in [
        ("/paths/~1customers.php/get/security", json!([{ "apiKey": ["customers:write"] }])),
        ("/paths/~1customers.php/get/parameters/2/schema/maximum", json!(100)),
        ("/components/parameters/IfMatch/required", json!(true)),
        ("/components/headers/Location/required", json!(false)),
        ("/components/schemas/Customer/properties/city/type", json!("string")),
        ("/components/schemas/Customer/properties/customer_since/format", json!("date-time")),
        ("/components/schemas/CustomerCreate/properties/city/maxLength", json!(99)),
        ("/components/schemas/CustomerCreate/properties/status/default", json!("prospect")),
        ("/components/schemas/CustomerCreate/required", json!(["name", "city"])),
        ("/components/schemas/CustomerStatus/enum", json!(["prospect", "active"])),
        ("/components/schemas/CustomerUpdate/properties/name/minLength", json!(3)),
        ("/components/schemas/Whoami/required", json!([])),
    ] {
        assert!(!gone_after(pointer, Some(value)).is_empty(), "{pointer}");
    }
}

#[test]
fn what_is_added_breaks_no_promise() {
    let text = json!({ "type": "string" });
    for (pointer, value) in [
        ("/paths/~1printers.php", json!({ "get": { "responses": {} } })),
        ("/paths/~1customers.php/patch", json!({ "responses": {} })),
        ("/components/schemas/Customer/properties/colour", text.clone()),
        ("/components/schemas/CustomerUpdate/properties/colour", text),
        ("/components/schemas/CommandActor/properties/name/enum/0", json!("repair")),
        ("/components/schemas/Change/properties/by/oneOf/0", json!({ "type": "null" })),
        ("/components/schemas/Customer/required/0", json!("total")),
        ("/paths/~1customers.php/get/responses/410", json!({ "description": "Gone." })),
    ] {
        let gone = gone_after(pointer, Some(value));
        assert!(gone.is_empty(), "{pointer}: {gone:?}");
    }
}
