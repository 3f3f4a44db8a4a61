//! `paths`: the operations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::components::{Components, EXAMPLE_ETAG};
use super::records::{example_body, of_filter};
use super::schema::{reference, schema_ref};
use crate::api::changes;
use crate::api::errors::missing_reference_code;
use crate::api::list::{self, Filter, filters};
use crate::api::query::QueryParameter;
use crate::api::routes::{self, Endpoint, PATHS, PublicPage, Route};
use crate::http::ErrorCode as Code;
use crate::model::{ALL, Access, CUSTOMER, EMPLOYEE, Field, HARDWARE, Resource, Scope};
use crate::words::capitalize;

/// The headers of responses to requests that passed the scope check.
const COUNTED: [&str; 4] =
    ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-Key-Expires"];

pub(super) fn paths(components: &mut Components) -> Value {
    let mut paths = json!({});
    for resource in ALL {
        paths[resource.path] = records(components, resource);
    }
    for (path, route) in PATHS {
        match route {
            Route::Api(Endpoint::Changes) => paths[path]["get"] = changes(components),
            Route::Api(Endpoint::Whoami) => paths[path]["get"] = whoami(),
            Route::Api(Endpoint::Batch) => paths[path]["post"] = batch(),
            Route::Page(page) => paths[path]["get"] = self::page(page),
            Route::Api(Endpoint::Records { .. }) | Route::Panel => continue,
        }
        if !route.is_prefixed() {
            paths[path]["servers"] = json!([{ "url": "/", "description": "At the root only." }]);
        }
    }
    for (path, item) in paths.as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            if operation.is_object() {
                add_errors(components, path, method, operation);
            }
        }
        item["parameters"] = json!([reference("parameters", "RequestId")]);
        if let Some(get) = item.get("get").cloned() {
            item["head"] = head(components, get);
        }
    }
    paths
}

/// HEAD: as GET, without the bodies.
fn head(components: &mut Components, mut get: Value) -> Value {
    let id = get["operationId"].as_str().unwrap_or_default().replacen("get", "head", 1);
    get["operationId"] = json!(id.replacen("list", "head", 1));
    get["description"] = json!("As with GET, without the body.");
    if let Some(responses) = get["responses"].as_object_mut() {
        responses.retain(|status, _| status.starts_with(['2', '3']));
        for bare in responses.values_mut().filter_map(Value::as_object_mut) {
            bare.remove("content");
        }
    }
    let failure = with_headers(json!({ "description": "An error, without the body." }), true, &[]);
    get["responses"]["default"] = components.share("responses", "head_error", failure);
    get
}

fn records(components: &mut Components, resource: &'static Resource) -> Value {
    let mut item = operations_of_records(resource, list_of_records(components, resource));
    for (method, operation) in item.as_object_mut().into_iter().flatten() {
        let access = if method == "get" { Access::Read } else { Access::Write };
        operation["tags"] = json!([resource.plural]);
        operation["security"] = any_of([Scope { resource, access }].into_iter());
    }
    item
}

fn list_of_records(components: &mut Components, resource: &'static Resource) -> Value {
    let title = capitalize(resource.name);
    let either = json!({ "oneOf": [schema_ref(&title), schema_ref(&format!("{title}Page"))] });
    let unchanged = json!({ "description": "The record has the version of `If-None-Match`." });
    json!({
        "operationId": format!("get{}", capitalize(resource.plural)),
        "summary": format!("Read {}", resource.plural),
        "description": "With `id` the record, otherwise a page of the records that match every \
            filter and contain every word of `q`.",
        "parameters": list_parameters(components, resource),
        "responses": {
            "200": answer("The record, or a page of them.", either, &["Link", "ETag"]),
            "304": with_headers(unchanged, true, &["ETag"]),
        },
    })
}

fn operations_of_records(resource: &'static Resource, get: Value) -> Value {
    let title = capitalize(resource.name);
    let record = schema_ref(&title);
    let deleted = json!({ "description": "The record is deleted." });
    let of_new = ["Location", "ETag", "Idempotent-Replayed"];
    let (required, optional): (Vec<&Field>, Vec<&Field>) =
        resource.fields.iter().partition(|field| field.required);
    let create = example_body(required.into_iter());
    let update = example_body(optional.into_iter().take(2));
    json!({
        "get": get,
        "post": {
            "operationId": format!("create{title}"),
            "summary": format!("Create {}", resource.name),
            "description": "The response is the new record; `Location` is its path.",
            "parameters": shared(&["IdempotencyKey"]),
            "requestBody": body(&format!("{title}Create"), "64 KiB", create),
            "responses": { "201": answer("The new record.", record.clone(), &of_new) },
        },
        "put": {
            "operationId": format!("update{title}"),
            "summary": format!("Change {}", resource.name),
            "description": "Only the fields that the body names change. The response is the whole \
                record after the change.",
            "parameters": shared(&["Id", "IfMatch", "IdempotencyKey"]),
            "requestBody": body(&format!("{title}Update"), "64 KiB", update),
            "responses": {
                "200": answer("The changed record.", record, &["ETag", "Idempotent-Replayed"]),
            },
        },
        "delete": {
            "operationId": format!("delete{title}"),
            "summary": format!("Delete {}", resource.name),
            "description": "The response has no body. A record that others refer to is not \
                            deleted.",
            "parameters": shared(&["Id", "IfMatch", "IdempotencyKey"]),
            "responses": { "204": with_headers(deleted, true, &["Idempotent-Replayed"]) },
        },
    })
}

/// One of these scopes is enough to be let in.
fn any_of(scopes: impl Iterator<Item = Scope>) -> Value {
    scopes.map(|scope| json!({ "apiKey": [scope.to_string()] })).collect()
}

/// The scopes of this access to every resource.
fn every(access: Access) -> impl Iterator<Item = Scope> {
    Scope::all().filter(move |scope| scope.access == access)
}

fn shared(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| reference("parameters", name)).collect()
}

fn list_parameters(components: &mut Components, resource: &'static Resource) -> Vec<Value> {
    let mut parameters = shared(&["OptionalId", "IfNoneMatch"]);
    for parameter in list::parameters(resource) {
        parameters.push(declared(components, parameter, resource));
    }
    for filter in filters(resource) {
        let parameter = filter_parameter(resource, filter);
        parameters.push(components.share("parameters", &filter.name, parameter));
    }
    parameters
}

fn declared<Subject>(
    components: &mut Components,
    declared: &QueryParameter<Subject>,
    subject: Subject,
) -> Value {
    let mut parameter = json!({ "name": declared.name, "in": "query", "description": declared.about,
        "schema": (declared.schema)(subject), "example": (declared.example)() });
    if parameter["schema"]["type"] == "array" {
        // With commas between, in place of a parameter for each item.
        parameter["explode"] = json!(false);
    }
    components.share("parameters", declared.name, parameter)
}

/// The schema says what a filter does, unless it is about a record that is referred to.
fn filter_parameter(resource: &Resource, filter: &Filter) -> Value {
    let schema = of_filter(resource, filter);
    let mut parameter = json!({ "name": filter.name, "in": "query", "schema": schema });
    if let Some(Resource { name, .. }) = filter.column.behind.and_then(Resource::referenced) {
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

fn changes(components: &mut Components) -> Value {
    let parameters: Vec<Value> =
        changes::PARAMETERS.iter().map(|each| declared(components, each, ())).collect();
    let page = answer("The entries, the oldest first.", schema_ref("ChangePage"), &["Link"]);
    json!({
        "operationId": "listChanges",
        "tags": ["changes"],
        "summary": "Follow changes",
        "description": "One entry for each record that was created, changed or deleted, in the \
            order of the commits. To follow a tenant: ask with `cursor=now` and keep \
            `next_cursor`, read the lists, then ask with the kept cursor again and again. Needs \
            any of the scopes for reading; entries of other resources are left out.",
        "security": any_of(every(Access::Read)),
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
        "security": any_of(every(Access::Write)),
        "parameters": shared(&["IdempotencyKey"]),
        "requestBody": body("Batch", "1 MiB", example),
        "responses": { "200": results },
    })
}

fn page(page: PublicPage) -> Value {
    let (id, about, media, schema) = match page {
        PublicPage::OpenApi => {
            ("getDescription", "This document", "application/json", json!({ "type": "object" }))
        }
        PublicPage::Docs => {
            ("getDocs", "The documentation page", "text/html", json!({ "type": "string" }))
        }
        PublicPage::Health => {
            ("getHealth", "Whether the process responds", "application/json", schema_ref("State"))
        }
        PublicPage::Ready => (
            "getReadiness",
            "Whether requests can be served",
            "application/json",
            schema_ref("State"),
        ),
        PublicPage::Root => ("getRoot", "Redirect to the documentation page", "", Value::Null),
    };
    let responses = match page {
        PublicPage::Root => {
            json!({ "302": with_headers(json!({ "description": about }), false, &["Location"]) })
        }
        _ => json!({ "200": { "description": about, "content": { media: { "schema": schema } } } }),
    };
    json!({ "operationId": id, "tags": ["service"], "summary": about, "security": [],
        "responses": responses })
}

/// Adds to the operation references to the responses of all errors that it can have, by status.
fn add_errors(components: &mut Components, path: &str, method: &str, operation: &mut Value) {
    let (groups, resources) = groups(path, method);
    let scopes = operation["security"][0]["apiKey"].as_array();
    let can_have = |code: &Code| {
        let mut of_code = code.describe().groups.split(' ');
        of_code.any(|group| match group {
            "all" => true,
            "key" => scopes.is_some(),
            "scope" => scopes.is_some_and(|scopes| !scopes.is_empty()),
            group => groups.contains(&group),
        }) && concerns(*code, &resources)
    };
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in Code::all().filter(can_have) {
        by_status.entry(code.describe().status).or_default().push(code);
    }
    for (status, codes) in by_status {
        operation["responses"][status.to_string()] = share_errors(components, &codes, status);
    }
    // Statuses that HTTP has for single faults of a message.
    let violation = share_errors(components, &[Code::MalformedRequest], 400);
    operation["responses"]["default"] = violation;
}

/// The groups of error codes that an operation can have, and the resources that it changes.
fn groups(path: &str, method: &str) -> (&'static [&'static str], Vec<&'static Resource>) {
    match routes::find(path).map(|(_, route)| route) {
        Some(Route::Api(Endpoint::Records { resource, .. })) => {
            let group: &[&str] = match method {
                "post" => &["create"],
                "put" => &["update"],
                "delete" => &["delete"],
                _ => &["read"],
            };
            (group, vec![resource])
        }
        Some(Route::Api(Endpoint::Batch)) => (&["create", "update", "delete"], ALL.to_vec()),
        Some(Route::Api(Endpoint::Changes)) => (&["changes"], Vec::new()),
        Some(Route::Page(PublicPage::Ready)) => (&["page", "ready"], Vec::new()),
        Some(Route::Page(PublicPage::Health) | Route::Api(Endpoint::Whoami) | Route::Panel)
        | None => (&[], Vec::new()),
        Some(Route::Page(_)) => (&["page"], Vec::new()),
    }
}

/// Whether the code is not about a reference that these resources lack.
fn concerns(code: Code, resources: &[&'static Resource]) -> bool {
    let targets =
        |resource: &'static Resource| resource.fields.iter().filter_map(Resource::referenced);
    match code {
        Code::CustomerNotFound | Code::EmployeeNotFound => {
            let mut all = resources.iter().copied().flat_map(targets);
            all.any(|target| missing_reference_code(target) == Some(code))
        }
        Code::HasDependents => {
            ALL.into_iter().flat_map(targets).any(|target| resources.contains(&target))
        }
        _ => true,
    }
}

fn share_errors(components: &mut Components, codes: &[Code], status: u16) -> Value {
    let names = codes.iter().map(|code| code.describe().code);
    let description = names.clone().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", ");
    let examples = names.map(|code| (code.to_owned(), reference("examples", code)));
    let response = json!({
        "description": description,
        "content": { "application/json": {
            "schema": schema_ref("Error"),
            "examples": examples.collect::<Map<_, _>>(),
        } },
    });
    let before_the_key = [Code::MalformedRequest, Code::Overloaded, Code::NotReady];
    let counted = status != 401 && codes.iter().any(|code| !before_the_key.contains(code));
    let headers: &[&str] = match status {
        401 | 403 => &["WWW-Authenticate"],
        412 => &["ETag"],
        429 | 503 => &["Retry-After"],
        _ => &[],
    };
    let name = match codes {
        [code] => code.describe().code.to_owned(),
        _ => format!("status_{status}"),
    };
    components.share("responses", &name, with_headers(response, counted, headers))
}
