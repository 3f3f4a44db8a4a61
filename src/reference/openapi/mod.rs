//! The OpenAPI 3.1 document, generated from the declarations of fields, routes, list parameters and
//! errors.
//!
//! Descriptions state what JSON Schema cannot express. The schemas of bodies describe what a client
//! should send. The service also accepts an empty text for null and 1 for true; only the
//! introduction says so, to keep the types of generated clients.

#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null; it is set on objects alone, in a \
              document that tests build"
)]

mod components;
pub(super) mod operations;
mod paths;
mod records;
mod schema;

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::compressed::Compressed;
use crate::http::response::JSON as MEDIA_TYPE;
use crate::http::{API_VERSION, Request, Response};
use crate::model::{ALL, Scope};
use paths::Responses;
pub(super) use records::ETAG;

/// The general rules as Markdown: headings of the second level, each with one paragraph.
const INTRODUCTION: &str = include_str!("introduction.md");

pub(crate) static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

/// The document on one line, as it is served.
pub static JSON: LazyLock<String> = LazyLock::new(|| DOCUMENT.to_string());

/// Returns the document.
pub fn respond(request: &Request) -> Response {
    static COMPRESSED: LazyLock<Compressed> =
        LazyLock::new(|| Compressed::new(MEDIA_TYPE, JSON.clone().into_bytes()));
    COMPRESSED.respond(request).header("X-Content-Type-Options", "nosniff")
}

fn document() -> Value {
    let mut responses = Responses::new();
    let paths = paths::paths(&mut responses);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "TenantDesk",
            "version": API_VERSION,
            "summary": "Customers, employees and hardware of one tenant, as JSON over HTTP.",
            "description": introduction().trim_end(),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [
            { "url": "/", "description": "The host's root." },
            { "url": "/v1", "description": "The same, with the version as prefix." },
        ],
        "tags": tags().map(|(name, about)| json!({ "name": name, "description": about }))
            .collect::<Vec<_>>(),
        "paths": paths,
        "components": components::components(responses),
    })
}

/// The general rules as Markdown.
pub(super) fn introduction() -> String {
    let scopes: Vec<String> = Scope::all().map(|scope| format!("`{scope}`")).collect();
    INTRODUCTION.replace("{scopes}", &scopes.join(", "))
}

/// The groups of operations with a description, in the order of the reference.
pub(super) fn tags() -> impl Iterator<Item = (&'static str, &'static str)> {
    let others = [
        ("changes", "What was changed in the tenant."),
        ("key", "About the API key of the request."),
        ("batch", "Several changes at once, all or none."),
        ("service", "About the service itself. No key is needed."),
    ];
    let resources = ALL.into_iter().map(|resource| (resource.plural, resource.about));
    resources.chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ErrorCode;

    #[test]
    fn every_reference_of_the_document_has_a_target() {
        fn walk(value: &Value) {
            match value {
                Value::Object(members) => {
                    for (name, member) in members {
                        if let ("$ref", Some(target)) = (name.as_str(), member.as_str()) {
                            let pointer = target.strip_prefix('#').unwrap();
                            assert!(DOCUMENT.pointer(pointer).is_some(), "{target}");
                        }
                        walk(member);
                    }
                }
                Value::Array(items) => items.iter().for_each(walk),
                _ => (),
            }
        }
        walk(&DOCUMENT);
    }

    #[test]
    fn every_error_code_has_an_example() {
        for code in ErrorCode::all() {
            let code = code.describe().code;
            let pointer = format!("/components/examples/{code}/value/error/code");
            assert_eq!(DOCUMENT.pointer(&pointer), Some(&json!(code)));
        }
    }

    #[test]
    fn every_error_code_of_an_operation_is_in_a_response() {
        let responses = DOCUMENT["components"]["responses"].to_string();
        for code in ErrorCode::all().map(ErrorCode::describe).filter(|of| !of.groups.is_empty()) {
            let example = format!("{{\"$ref\":\"#/components/examples/{}\"}}", code.code);
            assert!(responses.contains(&example), "{}", code.code);
        }
    }
}
