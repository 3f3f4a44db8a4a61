//! The OpenAPI 3.1 document, generated from the declarations of fields, routes, list parameters and errors.
//!
//! Descriptions state what JSON Schema cannot express. The schemas of bodies describe what a client should send. The service
//! also accepts an empty text for null and 1 for true; only the introduction says so, to keep the types of generated clients.

mod examples;
mod operations;
mod responses;
mod schemas;

use std::fmt::Write;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

pub use examples::{
    batch_example, batch_results_example, changes_example, error_example, example_of, page_example, record_example,
    update_example,
};
pub use operations::{BATCH_OPERATION_ID, article, changes_operation_id, operation_id};
pub use responses::Target;

use crate::http::{API_VERSION, Condition};
use crate::model::FieldCode;
use crate::model::{ALL, Scope};

/// The document on one line, as it is served.
pub static JSON: LazyLock<String> = LazyLock::new(|| document().to_string());

/// The document with indentation and a line break at the end.
pub fn pretty() -> String {
    format!("{:#}\n", document())
}

/// The document. Its members are always in the same order.
pub fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "TenantDesk",
            "version": API_VERSION,
            "summary": "Customers, employees and hardware of one tenant, as JSON.",
            "description": introduction(),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [
            { "url": "/", "description": "The host's root." },
            { "url": "/v1", "description": "The same, with the version as prefix." },
        ],
        "tags": tags(),
        "paths": operations::paths(),
        "components": {
            "securitySchemes": {
                "apiKey": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "tdk_ and 43 characters",
                    "description": "An API key of the tenant. The panel creates it and shows it once. Its scopes determine what \
                        it may do; an operation names the scope that it needs. Write does not imply read.",
                },
            },
            "schemas": components(
                ALL.into_iter()
                    .flat_map(schemas::of_resource)
                    .chain(schemas::of_changes())
                    .chain(schemas::of_whoami())
                    .chain(schemas::of_batches())
                    .chain(responses::schemas()),
            ),
            "responses": components(responses::responses()),
            "parameters": components(operations::parameters()),
            "headers": components(responses::headers()),
        },
    })
}

fn components(named: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(named.into_iter().collect::<Map<String, Value>>())
}

fn tags() -> Value {
    let mut tags: Vec<Value> =
        ALL.into_iter().map(|resource| json!({ "name": resource.plural, "description": resource.about })).collect();
    tags.push(json!({ "name": "changes", "description": "What was changed in the tenant." }));
    tags.push(json!({ "name": "key", "description": "About the API key of the request." }));
    tags.push(json!({ "name": "batch", "description": "Several changes at once, all or none." }));
    tags.push(json!({ "name": "service", "description": "About the service itself. No key is needed." }));
    Value::Array(tags)
}

/// The general rules, the scopes and the tables of errors.
fn introduction() -> String {
    let mut text = String::new();
    for (_, title, paragraph) in SECTIONS {
        let _ = writeln!(text, "## {title}\n\n{paragraph}\n");
    }
    text.push_str("## Scopes\n\n");
    for scope in Scope::all() {
        let _ = writeln!(text, "- `{scope}`");
    }
    text.push_str("\n## Errors\n\n| status | code | meaning | remedy |\n|---|---|---|---|\n");
    for condition in Condition::all() {
        let about = condition.describe();
        let _ = writeln!(text, "| {} | `{}` | {} | {} |", about.status, about.code, about.meaning, about.remedy);
    }
    text.push_str("\n## Codes of single fields\n\nIn `errors` of a `validation_failed` response.\n\n");
    text.push_str("| code | meaning |\n|---|---|\n");
    for (code, meaning) in FieldCode::ALL {
        let _ = writeln!(text, "| `{}` | {meaning} |", code.as_str());
    }
    text
}

/// The general rules: an anchor, a heading, and a paragraph with code between back quotes.
pub const SECTIONS: [(&str, &str, &str); 8] = [
    (
        "keys",
        "Keys",
        "A key belongs to one tenant and gives access to the records of that tenant only. The panel at `/api_keys.php` creates it. \
         Send it with every request to a record path, as `Authorization: Bearer tdk_…`. Use it in servers, not in web pages: \
         there are no CORS headers. `/whoami.php` describes the key; it needs no scope. A key may have an end: during its last 14 \
         days `X-Key-Expires` gives it, and the panel replaces the key by a new one, with an overlap.",
    ),
    (
        "values",
        "Values",
        "Types are strict: `12` is an integer, `\"12\"` and `12.0` are not. Dates are `YYYY-MM-DD`, timestamps RFC 3339 in UTC \
         with whole seconds. Lengths count Unicode characters. Null, an empty text and white space are empty for every type: \
         an error on a required field, otherwise the default of the field, or null. A boolean may also be `1` or `0`. Unknown and read-only members of a body are ignored. A PUT changes only the fields that it names.",
    ),
    (
        "lists",
        "Lists",
        "A GET without `id` is a list. Pages follow the sort order: send the `next_cursor` of one page as `cursor` for the \
         next, or follow the `Link` header; null is the end. Filters compare exactly, `null` finds empty fields, and dates \
         and timestamps also have `_from` and `_to`, both inclusive. `q` finds words in any text.",
    ),
    (
        "retries",
        "Safe retries",
        "Send a new UUID as `Idempotency-Key` with a POST, PUT or DELETE. A repeat within 24 hours gets the first response \
         again, with `Idempotent-Replayed: true`, and changes nothing. Only successes are stored: a failed request changed \
         nothing and runs again.",
    ),
    (
        "versions",
        "Versions",
        "A response with one record has its version in the header `ETag`. Send it as `If-Match` with a PUT or DELETE, and the change \
         is made only if nobody has changed the record since; otherwise the response is 412 `precondition_failed`. With \
         `If-None-Match`, a GET of a record that has not changed is 304 without a body.",
    ),
    (
        "changes",
        "Changes",
        "`/changes.php` is the journal of the tenant. To keep a copy up to date, ask with `cursor=now`, keep `next_cursor`, read the \
         lists, and ask from that cursor on. Entries applied in their order give the present state. After 410 `changes_gone` begin \
         anew.",
    ),
    (
        "batches",
        "Batches",
        "`/batch.php` makes up to 100 changes in one transaction, all or none. In a body, `{\"result\": 0}` in place of a reference \
         stands for the record that operation 0, an earlier POST, creates. If an operation fails, the response is its error, with its \
         number as `operation`.",
    ),
    (
        "rate-limit",
        "Rate limit",
        "A key has a fixed number of requests a minute, the server's or its own. `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` \
         give the number, the rest and the end of the minute. Beyond the limit the response is 429 with `Retry-After`.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_the_document_has_a_target() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(members) => {
                    for (name, member) in members {
                        if let ("$ref", Some(target)) = (name.as_str(), member.as_str()) {
                            let pointer = target.strip_prefix('#').unwrap();
                            assert!(document.pointer(pointer).is_some(), "{target}");
                        }
                        walk(member, document);
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, document)),
                _ => (),
            }
        }
        let document = document();
        walk(&document, &document);
    }

    #[test]
    fn every_condition_has_an_example() {
        let text = JSON.as_str();
        for condition in Condition::all() {
            let code = condition.describe().code;
            assert!(text.contains(&format!("\"error\":{{\"code\":\"{code}\"")), "{code}");
        }
    }
}
