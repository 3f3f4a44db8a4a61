//! `paths`: the operations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::operations::{Operation, Parameter, errors};
use super::schema::{reference, schema_ref};
use crate::api::routes::{Action, PublicPage, ROUTES, Route};
use crate::http::ErrorCode;
use crate::http::error_code::{Description, OperationGroup};
use crate::words::capitalize;

/// The headers of responses to requests that passed the scope check.
const COUNTED: [&str; 6] = [
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-Key-Expires",
    "X-Ignored-Fields",
    "Preference-Applied",
];

/// The media type of all bodies except the documentation page.
const JSON: &str = "application/json";

/// The responses that operations share, by name.
pub(super) type Responses = Map<String, Value>;

pub(super) fn paths(shared: &mut Responses) -> Value {
    let mut paths = json!({});
    for operation in Operation::all() {
        let mut document = of_operation(&operation);
        add_errors(shared, &mut document, &operation.errors, true);
        paths[operation.path][operation.method] = document;
    }
    for (path, route) in ROUTES {
        let Route::Page(page, id, about) = route else { continue };
        let (responses, groups) = of_page(page, about);
        let mut document = json!({ "operationId": id, "tags": ["service"], "summary": about,
            "security": [], "responses": responses });
        add_errors(shared, &mut document, &errors(|group| groups.contains(&group)), false);
        paths[path]["get"] = document;
        if !route.is_prefixed() {
            paths[path]["servers"] = json!([{ "url": "/", "description": "At the root only." }]);
        }
    }
    for item in paths.as_object_mut().into_iter().flat_map(Map::values_mut) {
        item["parameters"] = json!([reference("parameters", "RequestId")]);
        if let Some(get) = item.get("get").cloned() {
            item["head"] = head(shared, get);
        }
    }
    paths
}

fn of_operation(operation: &Operation) -> Value {
    let schemes = operation.scopes.iter().map(|scope| json!({ "apiKey": [scope.to_string()] }));
    let mut security: Vec<Value> = schemes.collect();
    if security.is_empty() {
        security.push(json!({ "apiKey": [] }));
    }
    let title = operation.resource.map(|resource| capitalize(resource.name)).unwrap_or_default();
    let mut document = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.title,
        "description": operation.about,
        "security": security,
        "parameters": operation.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "responses": success(operation.action, &title),
    });
    let (body, limit) = match operation.action {
        Action::Create(_) => (format!("{title}Create"), "64 KiB"),
        Action::Update(_) => (format!("{title}Update"), "64 KiB"),
        Action::Batch => ("Batch".to_owned(), "1 MiB"),
        Action::Read(_) | Action::Delete(_) | Action::Changes | Action::Whoami => return document,
    };
    document["requestBody"] = json!({
        "required": true,
        "description": format!("One JSON object in UTF-8, at most {limit}."),
        "content": { JSON: { "schema": schema_ref(&body) } },
    });
    document
}

/// The responses to requests that succeed. `title` is the schema of the resource's records.
fn success(action: Action, title: &str) -> Value {
    const CHANGE: [&str; 2] = ["ETag", "Idempotent-Replayed"];
    let ok = |about: &str, schema: Value, headers: &[&str]| {
        with_headers(content(JSON, about, schema), true, headers)
    };
    let record = || schema_ref(title);
    match action {
        Action::Create(_) => json!({
            "201": ok("The new record.", record(), &["Location", "ETag", "Idempotent-Replayed"]),
            "200": ok("The record that `update_by` found, after the change.", record(), &CHANGE),
        }),
        Action::Read(_) => {
            let either = json!({ "oneOf": [record(), schema_ref(&format!("{title}Page"))] });
            json!({ "200": ok("The record, or a page of them.", either, &["Link", "ETag"]),
                "304": unchanged("record", true) })
        }
        Action::Update(_) => json!({ "200": ok("The changed record.", record(), &CHANGE) }),
        Action::Delete(_) => {
            let about = json!({ "description": "The record is deleted." });
            json!({ "204": with_headers(about, true, &["Idempotent-Replayed"]) })
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

/// The response to a request whose `If-None-Match` names the version.
fn unchanged(what: &str, counted: bool) -> Value {
    let about = format!("The {what} has the version of `If-None-Match`.");
    with_headers(json!({ "description": about }), counted, &["ETag"])
}

/// A response with a body.
fn content(media_type: &str, about: &str, schema: Value) -> Value {
    json!({ "description": about, "content": { media_type: { "schema": schema } } })
}

/// HEAD: as GET, without the bodies.
fn head(shared: &mut Responses, mut get: Value) -> Value {
    let id = get["operationId"].as_str().unwrap_or_default();
    get["operationId"] = json!(format!("head{}", id.trim_start_matches(char::is_lowercase)));
    get["description"] = json!("As with GET, without the body.");
    if let Some(responses) = get["responses"].as_object_mut() {
        responses.retain(|status, _| status.starts_with(['2', '3']));
        for bare in responses.values_mut().filter_map(Value::as_object_mut) {
            bare.remove("content");
        }
    }
    let failure = with_headers(json!({ "description": "An error, without the body." }), true, &[]);
    get["responses"]["default"] = share(shared, "head_error", failure);
    get
}

fn parameter(parameter: &Parameter) -> Value {
    match parameter.shared_as {
        Some(name) => reference("parameters", name),
        None => described(parameter),
    }
}

/// A parameter with its schema.
pub(super) fn described(parameter: &Parameter) -> Value {
    let place = if parameter.is_header() { "header" } else { "query" };
    let mut document = json!({ "name": parameter.name, "in": place });
    if parameter.is_required {
        document["required"] = json!(true);
    }
    if !parameter.about.is_empty() {
        document["description"] = json!(parameter.about);
    }
    document["schema"] = parameter.schema.clone();
    if !parameter.example.is_null() {
        document["example"] = parameter.example.clone();
    }
    if parameter.schema["type"] == "array" {
        // With commas between, in place of a parameter for each item.
        document["explode"] = json!(false);
    }
    document
}

/// Adds the headers `others` to a response. If the request counts against the limit, adds
/// [`COUNTED`]. The introduction describes the headers of every response.
fn with_headers(mut response: Value, counted: bool, others: &[&str]) -> Value {
    let counted = if counted { COUNTED.as_slice() } else { &[] };
    for name in counted.iter().chain(others) {
        response["headers"][name] = reference("headers", name);
    }
    response
}

/// The responses of a page without a key, and the groups of its errors.
fn of_page(page: PublicPage, about: &str) -> (Value, &'static [OperationGroup]) {
    use OperationGroup::{All, Page, Ready};
    let document = |media_type: &str, kind: &str| {
        let whole = content(media_type, about, json!({ "type": kind }));
        json!({ "200": with_headers(whole, false, &["ETag"]), "304": unchanged("document", false) })
    };
    let state = || json!({ "200": content(JSON, about, schema_ref("State")) });
    let redirect = || with_headers(json!({ "description": about }), false, &["Location"]);
    match page {
        PublicPage::OpenApi => (document(JSON, "object"), &[All, Page]),
        PublicPage::Docs => (document("text/html", "string"), &[All, Page]),
        PublicPage::Health => (state(), &[All]),
        PublicPage::Ready => (state(), &[All, Page, Ready]),
        PublicPage::Root => (json!({ "302": redirect() }), &[All, Page]),
    }
}

/// Adds to the operation the responses of its errors, by status.
fn add_errors(
    shared: &mut Responses,
    operation: &mut Value,
    errors: &[Description],
    has_key: bool,
) {
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for error in errors {
        by_status.entry(error.status).or_default().push(error.code);
    }
    for (status, codes) in by_status {
        let headers: &[&str] = match status {
            401 | 403 => &["WWW-Authenticate"],
            412 => &["ETag"],
            429 | 503 => &["Retry-After"],
            _ => &[],
        };
        let response = with_headers(failure(&codes), has_key && status != 401, headers);
        let name = format!("status_{status}");
        let name = if let [code] = *codes { code } else { &name };
        operation["responses"][status.to_string()] = share(shared, name, response);
    }
    // Statuses that HTTP has for single faults of a message.
    let violation = ErrorCode::MalformedRequest.describe().code;
    operation["responses"]["default"] = share(shared, violation, failure(&[violation]));
}

fn failure(codes: &[&str]) -> Value {
    let examples = codes.iter().map(|code| ((*code).to_owned(), reference("examples", code)));
    json!({
        "description": format!("`{}`", codes.join("`, `")),
        "content": { JSON: {
            "schema": schema_ref("Error"),
            "examples": examples.collect::<Map<_, _>>(),
        } },
    })
}

/// A reference to a response, which gets this name, with a number if another one has it.
fn share(shared: &mut Responses, name: &str, response: Value) -> Value {
    let (mut unique, mut number) = (name.to_owned(), 1);
    while shared.get(&unique).is_some_and(|other| *other != response) {
        number += 1;
        unique = format!("{name}_{number}");
    }
    shared.insert(unique.clone(), response);
    reference("responses", &unique)
}
