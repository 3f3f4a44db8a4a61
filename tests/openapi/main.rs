//! The OpenAPI document in `docs/openapi.json` follows from the declarations. Its diff is the
//! change that clients see.
//!
//! Descriptions state what JSON Schema cannot express. The schemas of bodies describe what a client
//! should send. The service also accepts an empty text for null and 1 for true; only `docs/api.md`
//! says so, to keep the types of generated clients.

mod components;
mod operations;
mod paths;
mod records;
mod schema;

use std::path::Path;

use serde_json::{Value, json};
use tenantdesk::http::API_VERSION;
use tenantdesk::model::{ALL, Scope};

use components::components;
use paths::paths;

/// `make openapi` sets `UPDATE_GOLDEN=1`, which writes the file anew.
#[test]
fn the_document_in_the_repository_follows_from_the_declarations() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
    let generated = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    let differ = stored.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert_eq!(differ, None, "run `make openapi`, and look at the diff of docs/openapi.json");
    assert_eq!(stored, generated, "run `make openapi`, and look at the diff of docs/openapi.json");
}

/// PCRE and Go know no `\u`, so a generated client would fail.
#[test]
fn no_pattern_has_an_escape_of_javascript_alone() {
    let text = document().to_string();
    let patterns: Vec<&str> = text.split("\"pattern\":\"").skip(1).collect();
    assert!(patterns.len() > 50);
    for pattern in patterns {
        let pattern = pattern.split("\",").next().unwrap();
        assert!(!pattern.contains("\\u"), "{pattern}");
    }
}

fn document() -> Value {
    let tags = [
        ("customers", "Customers", "Organisations that the shop works for."),
        ("employees", "Employees", "People who work for a customer."),
        ("hardware", "Hardware", "Devices, with or without an employee who has them."),
        ("changes", "Change log", "What was changed in the tenant."),
        ("batch", "Batches", "Several changes at once, all or none."),
        ("key", "API key", "About the API key of the request."),
    ];
    let tag = |(name, title, about)| json!({ "name": name, "x-displayName": title, "description": about });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "TenantDesk API",
            "version": API_VERSION,
            "summary": "Customers, employees and hardware of one tenant, as JSON over HTTP.",
            "description": guide(),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [
            { "url": "/", "description": "The host's root." },
            { "url": "/v1", "description": "The same, with the version as prefix." },
        ],
        "security": [{ "apiKey": [] }],
        "tags": tags.map(tag),
        "paths": paths(),
        "components": components(),
    })
}

/// The guide without its title, which is that of the document.
fn guide() -> String {
    let text = include_str!("../../docs/guide.md");
    let (_, text) = text.split_once("\n\n").unwrap();
    let scopes: Vec<String> = Scope::all().map(|scope| format!("`{scope}`")).collect();
    for scope in scopes {
        assert!(text.contains(&scope), "the guide lacks the scope {scope}");
    }
    let fields = ALL.into_iter().flat_map(|resource| resource.fields);
    for field in fields.map(|field| field.name) {
        assert!(text.contains(&format!("`{field}`")), "the guide lacks the field {field}");
    }
    text.trim_end().to_owned()
}
