//! `paths`: the operations with their bodies and responses.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenantdesk::api::routes::{Action, Endpoint, ROUTES, Route};
use tenantdesk::http::ErrorCode;

use super::operations::{common_errors, parameters, special_errors, texts};
use super::records::example_of;
use super::schema::{reference, schema_ref, title};

/// The headers of responses to requests that passed the scope check.
const COUNTED: [&str; 6] = [
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-Key-Expires",
    "X-Ignored-Fields",
    "Preference-Applied",
];

const JSON: &str = "application/json";

/// The paths that need a key. The others are for browsers and operators. HEAD answers as GET does,
/// so that the methods of a generated client need not double.
pub(crate) fn paths() -> Value {
    let mut paths = json!({});
    for (path, route) in ROUTES {
        let Route::Api(operations) = route else { continue };
        for operation in operations {
            paths[path][operation.method.as_str().to_lowercase()] = of_operation(operation);
        }
    }
    paths
}

fn of_operation(operation: &Endpoint) -> Value {
    let (id, summary, description) = texts(operation);
    let mut document = json!({
        "operationId": id,
        "tags": [tag(operation.action)],
        "summary": summary,
        "description": description,
        "parameters": parameters(operation.action),
    });
    if let Some(body) = body(operation.action) {
        document["requestBody"] = body;
    }
    let mut responses = success(operation.action);
    let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    for error in special_errors(operation.action) {
        by_status.entry(error.describe().status).or_default().push(error);
    }
    for (status, codes) in by_status {
        let headers: &[&str] = match status {
            401 => &["WWW-Authenticate"],
            412 => &["ETag"],
            _ => &[],
        };
        responses[status.to_string()] = with_headers(failure(&codes), headers);
    }
    responses["default"] = reference("responses", "Failure");
    document["responses"] = responses;
    document
}

fn tag(action: Action) -> &'static str {
    match action {
        Action::Changes => "changes",
        Action::Whoami => "key",
        Action::Batch => "batch",
        Action::Create(of) | Action::Read(of) | Action::Update(of) | Action::Delete(of) => {
            of.plural
        }
    }
}

fn body(action: Action) -> Option<Value> {
    let (schema, limit, example) = match action {
        Action::Create(of) => (format!("{}Create", title(of)), "64 KiB", example_of(of).0),
        Action::Update(of) => (format!("{}Update", title(of)), "64 KiB", example_of(of).1),
        Action::Batch => ("Batch".to_owned(), "1 MiB", batch_example()),
        Action::Read(_) | Action::Delete(_) | Action::Changes | Action::Whoami => return None,
    };
    Some(json!({
        "required": true,
        "description": format!("One JSON object in UTF-8, at most {limit}."),
        "content": { JSON: { "schema": schema_ref(&schema), "example": example } },
    }))
}

/// A customer, an employee and a device, each created or changed by its own number.
fn batch_example() -> Value {
    let operation = |(path, body): (&str, &str)| {
        let body: Value = serde_json::from_str(body).unwrap();
        json!({ "method": "POST", "path": path, "body": body })
    };
    let operations = [
        (
            "/customers.php?update_by=customer_number",
            r#"{"customer_number": "C-1042", "name": "Nordlicht Energie eG"}"#,
        ),
        (
            "/employees.php?update_by=email",
            r#"{"email": "eva@nordlicht.example", "customer_id": {"result": 0}}"#,
        ),
        (
            "/hardware.php?update_by=serial_number",
            r#"{"serial_number": "PF-3X9Q7", "name": "ThinkPad T14", "employee_id": {"result": 1}}"#,
        ),
    ];
    json!({ "operations": operations.map(operation) })
}

/// The responses to requests that succeed.
fn success(action: Action) -> Value {
    const CHANGE: [&str; 2] = ["ETag", "Idempotent-Replayed"];
    let ok = |about: &str, schema: Value, headers: &[&str]| {
        with_headers(
            json!({ "description": about, "content": { JSON: { "schema": schema } } }),
            headers,
        )
    };
    match action {
        Action::Create(of) => json!({
            "201": ok("The new record.", schema_ref(&title(of)),
                &["Location", "ETag", "Idempotent-Replayed"]),
            "200": ok("The record that `update_by` found, after the change.",
                schema_ref(&title(of)), &CHANGE),
        }),
        Action::Read(of) => {
            let page = schema_ref(&format!("{}Page", title(of)));
            let either = json!({ "oneOf": [page, schema_ref(&title(of))] });
            let about = "The record has the version of `If-None-Match`.";
            json!({ "200": ok("A page of records, or the record with this `id`.", either, &["Link", "ETag"]),
                "304": with_headers(json!({ "description": about }), &["ETag"]) })
        }
        Action::Update(of) => {
            json!({ "200": ok("The changed record.", schema_ref(&title(of)), &CHANGE) })
        }
        Action::Delete(_) => {
            let about = json!({ "description": "The record is deleted." });
            json!({ "204": with_headers(about, &["Idempotent-Replayed"]) })
        }
        Action::Changes => {
            let about = "The entries, the oldest first.";
            json!({ "200": ok(about, schema_ref("ChangePage"), &["Link"]) })
        }
        Action::Whoami => json!({ "200": ok("The key.", schema_ref("Whoami"), &[]) }),
        Action::Batch => {
            let about = "The results, in the order of the operations.";
            json!({ "200": ok(about, schema_ref("BatchResults"), &["Idempotent-Replayed"]) })
        }
    }
}

/// Adds the headers of counted requests and `others`. The guide describes the headers of every
/// response.
fn with_headers(mut response: Value, others: &[&str]) -> Value {
    for name in COUNTED.iter().chain(others) {
        response["headers"][name] = reference("headers", name);
    }
    response
}

/// The response for every error that is not special to the operation.
pub(crate) fn common_failure() -> Value {
    let mut response =
        with_headers(failure(&common_errors()), &["WWW-Authenticate", "Retry-After"]);
    let about = "Any other error. The guide explains those that every program can meet.";
    response["description"] = json!(about);
    response
}

/// Each code is an example. The description has the codes with their meanings.
fn failure(codes: &[ErrorCode]) -> Value {
    let (mut examples, mut lines) = (Map::new(), Vec::new());
    for code in codes.iter().map(|code| code.describe()) {
        examples.insert(code.code.to_owned(), reference("examples", code.code));
        lines.push(format!("`{}`: {}", code.code, code.meaning));
    }
    json!({
        "description": lines.join("\n\n"),
        "content": { JSON: { "schema": schema_ref("Failure"), "examples": examples } },
    })
}
