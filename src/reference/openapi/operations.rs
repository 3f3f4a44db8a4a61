//! `paths`: the operations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::components::EXAMPLE_ETAG;
use super::records::{example_body, of_filter};
use super::schema::{reference, schema_ref};
use crate::api::changes;
use crate::api::list::{self, Filter, filters};
use crate::api::query::QueryParameter;
use crate::api::routes::{Endpoint, PATHS, PublicPage, Route};
use crate::http::ErrorCode;
use crate::http::error_code::OperationGroup::{
    self, All, Changes, Create, Delete, Key, Page, Ready, Referenced, RefersTo, Update,
};
use crate::model::{ALL, Access, CUSTOMER, EMPLOYEE, HARDWARE, Resource, Scope};
use crate::words::capitalize;

/// The headers of responses to requests that passed the scope check.
const COUNTED: [&str; 4] =
    ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-Key-Expires"];

/// The responses that operations share, by name.
pub(super) type Responses = Map<String, Value>;

pub(super) fn paths(shared: &mut Responses) -> Value {
    let mut paths = json!({});
    for resource in ALL {
        for (method, group, mut operation) in records(resource) {
            let is_read = group == OperationGroup::Read;
            let access = if is_read { Access::Read } else { Access::Write };
            operation["tags"] = json!([resource.plural]);
            operation["security"] = any_of(|scope| *scope == Scope { resource, access });
            add_errors(shared, &mut operation, &groups(resource, group));
            paths[resource.path][method] = operation;
        }
    }
    for (path, route) in PATHS {
        let (method, mut operation, groups) = match route {
            Route::Api(Endpoint::Changes) => {
                ("get", changes(), vec![Key, OperationGroup::Scope, Changes])
            }
            Route::Api(Endpoint::Whoami) => ("get", whoami(), vec![Key]),
            Route::Api(Endpoint::Batch) => ("post", batch(), groups_of_batch()),
            Route::Page(page) => ("get", self::page(page), groups_of_page(page)),
            Route::Api(Endpoint::Records { .. }) | Route::Panel => continue,
        };
        add_errors(shared, &mut operation, &groups);
        paths[path][method] = operation;
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

fn list_of_records(resource: &'static Resource) -> Value {
    let title = capitalize(resource.name);
    let either = json!({ "oneOf": [schema_ref(&title), schema_ref(&format!("{title}Page"))] });
    let unchanged = json!({ "description": "The record has the version of `If-None-Match`." });
    let mut parameters = parameters(&["OptionalId", "IfNoneMatch"]);
    parameters.extend(list::parameters(resource).map(|each| declared(each, resource)));
    parameters.extend(filters(resource).iter().map(|filter| filter_parameter(resource, filter)));
    json!({
        "operationId": format!("get{}", capitalize(resource.plural)),
        "summary": format!("Read {}", resource.plural),
        "description": "With `id` the record, otherwise a page of the records that match every \
            filter and contain every word of `q`.",
        "parameters": parameters,
        "responses": {
            "200": answer("The record, or a page of them.", either, &["Link", "ETag"]),
            "304": with_headers(unchanged, true, &["ETag"]),
        },
    })
}

/// The operations on the records of a resource: method, group of error codes, and document.
fn records(resource: &'static Resource) -> [(&'static str, OperationGroup, Value); 4] {
    let title = capitalize(resource.name);
    let deleted = json!({ "description": "The record is deleted." });
    let delete = json!({
        "operationId": format!("delete{title}"),
        "summary": format!("Delete {}", resource.name),
        "description": "The response has no body. A record that others refer to is not deleted.",
        "parameters": parameters(&["Id", "IfMatch", "IdempotencyKey"]),
        "responses": { "204": with_headers(deleted, true, &["Idempotent-Replayed"]) },
    });
    [
        ("get", OperationGroup::Read, list_of_records(resource)),
        ("post", Create, create_record(resource, &title)),
        ("put", Update, update_record(resource, &title)),
        ("delete", Delete, delete),
    ]
}

fn create_record(resource: &Resource, title: &str) -> Value {
    let required = resource.fields.iter().filter(|field| field.required);
    let headers = ["Location", "ETag", "Idempotent-Replayed"];
    let keys: Vec<&str> = resource.lookup_fields().map(|field| field.name).collect();
    let mut parameters = parameters(&["IfMatch", "IdempotencyKey"]);
    parameters.push(json!({ "name": "update_by", "in": "query",
        "description": "Changes the one record that has the body's value in this field, as PUT \
            does. Without such a record, the record is created. If several records have the \
            value, the response is 409 `ambiguous_record`.",
        "schema": { "type": "string", "enum": keys } }));
    json!({
        "operationId": format!("create{title}"),
        "summary": format!("Create {}", resource.name),
        "description": "The response is the new record; `Location` is its path. With `update_by`, \
            the request changes the record that is there already.",
        "parameters": parameters,
        "requestBody": body(&format!("{title}Create"), "64 KiB", example_body(required)),
        "responses": {
            "200": answer("The record that `update_by` found, after the change.",
                schema_ref(title), &["ETag", "Idempotent-Replayed"]),
            "201": answer("The new record.", schema_ref(title), &headers),
        },
    })
}

fn update_record(resource: &Resource, title: &str) -> Value {
    let optional = resource.fields.iter().filter(|field| !field.required).take(2);
    let headers = ["ETag", "Idempotent-Replayed"];
    json!({
        "operationId": format!("update{title}"),
        "summary": format!("Change {}", resource.name),
        "description": "Only the fields that the body names change. The response is the whole \
            record after the change.",
        "parameters": parameters(&["Id", "IfMatch", "IdempotencyKey"]),
        "requestBody": body(&format!("{title}Update"), "64 KiB", example_body(optional)),
        "responses": { "200": answer("The changed record.", schema_ref(title), &headers) },
    })
}

/// One of these scopes is enough to be let in.
fn any_of(scopes: impl Fn(&Scope) -> bool) -> Value {
    Scope::all().filter(scopes).map(|scope| json!({ "apiKey": [scope.to_string()] })).collect()
}

fn parameters(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| reference("parameters", name)).collect()
}

fn declared<Subject>(declared: &QueryParameter<Subject>, subject: Subject) -> Value {
    let mut parameter = json!({ "name": declared.name, "in": "query", "description": declared.about,
        "schema": (declared.schema)(subject), "example": (declared.example)() });
    if parameter["schema"]["type"] == "array" {
        // With commas between, in place of a parameter for each item.
        parameter["explode"] = json!(false);
    }
    parameter
}

/// The schema says what a filter does, unless it is about a record that is referred to.
fn filter_parameter(resource: &Resource, filter: &Filter) -> Value {
    let schema = of_filter(resource, filter);
    let mut parameter = json!({ "name": filter.name, "in": "query", "schema": schema });
    if let Some(Resource { name, .. }) = filter.column.behind.and_then(|field| field.references) {
        let about = format!("Only records of this {name}; `null` finds those of no {name}.");
        parameter["description"] = json!(about);
    }
    parameter
}

/// Adds the headers `others` to a response, and those of requests that count against the limit.
/// The introduction describes the headers of every response.
fn with_headers(mut response: Value, counted: bool, others: &[&str]) -> Value {
    let counted = if counted { COUNTED.as_slice() } else { &[] };
    for name in counted.iter().chain(others) {
        response["headers"][name] = reference("headers", name);
    }
    response
}

/// A response with a JSON body to a counted request.
fn answer(about: &str, schema: Value, headers: &[&str]) -> Value {
    let content = json!({ "application/json": { "schema": schema } });
    with_headers(json!({ "description": about, "content": content }), true, headers)
}

fn body(schema: &str, limit: &str, example: Value) -> Value {
    json!({
        "required": true,
        "description": format!("One JSON object in UTF-8, at most {limit}."),
        "content": { "application/json": { "schema": schema_ref(schema), "example": example } },
    })
}

fn changes() -> Value {
    let parameters: Vec<Value> =
        changes::PARAMETERS.iter().map(|each| declared(each, ())).collect();
    let page = answer("The entries, the oldest first.", schema_ref("ChangePage"), &["Link"]);
    json!({
        "operationId": "listChanges",
        "tags": ["changes"],
        "summary": "Follow changes",
        "description": "One entry for each record that was created, changed or deleted, in the \
            order of the commits. To follow a tenant: ask with `cursor=now` and keep \
            `next_cursor`, read the lists, then ask with the kept cursor again and again. Entries \
            of resources that the key may not read are left out.",
        "security": any_of(|scope| scope.access == Access::Read),
        "parameters": parameters,
        "responses": { "200": page },
    })
}

fn whoami() -> Value {
    json!({
        "operationId": "getWhoami",
        "tags": ["key"],
        "summary": "Describe the API key of the request",
        "description": "The tenant, the key and its limit. Needs no scope.",
        "security": [{ "apiKey": [] }],
        "responses": { "200": answer("The key.", schema_ref("Whoami"), &[]) },
    })
}

fn batch() -> Value {
    let about = "The results, in the order of the operations.";
    let results = answer(about, schema_ref("BatchResults"), &["Idempotent-Replayed"]);
    let hardware = HARDWARE.path;
    let example = json!({ "operations": [
        { "method": "POST", "path": CUSTOMER.path, "body": { "name": "Müller & Söhne GmbH" } },
        { "method": "POST", "path": EMPLOYEE.path,
            "body": { "customer_id": { "result": 0 }, "email": "eva@mueller.example" } },
        { "method": "PUT", "path": format!("{hardware}?id=7"),
            "body": { "employee_id": { "result": 1 } }, "if_match": EXAMPLE_ETAG },
        { "method": "DELETE", "path": format!("{hardware}?id=8") },
    ] });
    json!({
        "operationId": "runBatch",
        "tags": ["batch"],
        "summary": "Run a batch",
        "description": "Up to 100 operations on records in one transaction. If one of them fails, \
            nothing is changed, and the response is its error with the number of the operation as \
            `operation`. Each operation needs its own scope, and only the scopes of the \
            operations in the batch are needed. The batch counts as one request against the rate \
            limit, and one `Idempotency-Key` covers all of it.",
        "security": any_of(|scope| scope.access == Access::Write),
        "parameters": parameters(&["IdempotencyKey"]),
        "requestBody": body("Batch", "1 MiB", example),
        "responses": { "200": results },
    })
}

fn page(page: PublicPage) -> Value {
    let ok = |media: &str, schema| ("200", json!({ "content": { media: { "schema": schema } } }));
    let document = ok("application/json", json!({ "type": "object" }));
    let state = ok("application/json", schema_ref("State"));
    let html = ok("text/html", json!({ "type": "string" }));
    let redirect = ("302", with_headers(json!({}), false, &["Location"]));
    let (id, about, (status, mut response)) = match page {
        PublicPage::OpenApi => ("getDescription", "This document", document),
        PublicPage::Docs => ("getDocs", "The documentation page", html),
        PublicPage::Health => ("getHealth", "Whether the process responds", state),
        PublicPage::Ready => ("getReadiness", "Whether requests can be served", state),
        PublicPage::Root => ("getRoot", "Redirect to the documentation page", redirect),
    };
    response["description"] = json!(about);
    json!({ "operationId": id, "tags": ["service"], "summary": about, "security": [],
        "responses": { status: response } })
}

/// The groups of error codes of an operation on records, of which `group` is one.
fn groups(resource: &'static Resource, group: OperationGroup) -> Vec<OperationGroup> {
    let targets =
        |resource: &'static Resource| resource.fields.iter().filter_map(|field| field.references);
    let mut groups = vec![Key, OperationGroup::Scope, group];
    if matches!(group, Create | Update) {
        groups.extend(targets(resource).map(|target| RefersTo(target.kind)));
    }
    if group == Delete && ALL.into_iter().flat_map(targets).any(|target| target == resource) {
        groups.push(Referenced);
    }
    groups
}

fn groups_of_batch() -> Vec<OperationGroup> {
    let of = |resource| [Create, Update, Delete].map(|group| groups(resource, group));
    ALL.into_iter().flat_map(of).flatten().collect()
}

fn groups_of_page(page: PublicPage) -> Vec<OperationGroup> {
    match page {
        PublicPage::Health => vec![],
        PublicPage::Ready => vec![Page, Ready],
        _ => vec![Page],
    }
}

/// Adds to the operation the responses of all error codes of its groups, by status.
fn add_errors(shared: &mut Responses, operation: &mut Value, groups: &[OperationGroup]) {
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in ErrorCode::all().map(ErrorCode::describe) {
        if code.groups.iter().any(|group| *group == All || groups.contains(group)) {
            by_status.entry(code.status).or_default().push(code.code);
        }
    }
    let has_key = groups.contains(&Key);
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
        "content": { "application/json": {
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
