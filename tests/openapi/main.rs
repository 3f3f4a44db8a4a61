//! The OpenAPI document in `docs/openapi.json` follows from the declarations. Its diff is the
//! change that clients see.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod components;
mod document;
mod operations;
mod paths;
mod records;
mod schema;

use std::path::Path;

use serde_json::Value;

/// `make openapi` sets `UPDATE_GOLDEN=1`, which writes the file anew.
#[test]
fn the_document_in_the_repository_follows_from_the_declarations() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
    let generated = serde_json::to_string_pretty(&document::document()).unwrap() + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    let differ = stored.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert_eq!(differ, None, "run `make openapi`, and look at the diff of docs/openapi.json");
    assert_eq!(stored, generated, "run `make openapi`, and look at the diff of docs/openapi.json");
}

#[test]
fn every_reference_of_the_document_has_a_target() {
    fn walk(value: &Value, document: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(target) = members.get("$ref").and_then(Value::as_str) {
                    let pointer = target.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{target}");
                }
                members.values().for_each(|member| walk(member, document));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, document)),
            _ => {}
        }
    }
    let document = document::document();
    walk(&document, &document);
}
