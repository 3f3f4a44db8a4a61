//! `paths`: the operations.

use serde_json::{Map, Value, json};

use super::components::{Components, reference, with_headers};
use super::errors;
use super::examples;
use super::records::of_filter;
use super::schemas::schema_ref;
use crate::api::list::{self, Filter, filters};
use crate::api::query::QueryParameter;
use crate::api::routes::{
    BATCH_PATH, CHANGES_PATH, OPERATIONS, Operation, PAGES, PublicPage, WHOAMI_PATH,
};
use crate::api::{batch, changes};
use crate::capitalize::capitalize;
use crate::http::Method;
use crate::model::{ALL, Column, Resource, Scope};

pub(super) fn paths(components: &mut Components) -> Value {
    let mut paths = json!({});
    for resource in ALL {
        paths[resource.path] = records(components, resource);
    }
    let (mut changes, mut whoami, mut batch) = (changes(components), whoami(), batch());
    errors::add(components, &mut changes, &["changes"], &[]);
    errors::add(components, &mut whoami, &[], &[]);
    errors::add(components, &mut batch, &["create", "update", "delete"], &ALL);
    paths[CHANGES_PATH]["get"] = changes;
    paths[WHOAMI_PATH]["get"] = whoami;
    paths[BATCH_PATH]["post"] = batch;
    for (path, page) in PAGES {
        paths[path]["get"] = self::page(components, page);
        if !page.is_prefixed() {
            paths[path]["servers"] = json!([{ "url": "/", "description": "At the root only." }]);
        }
    }
    for item in paths.as_object_mut().into_iter().flat_map(Map::values_mut) {
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
    let (title, one) = (capitalize(resource.name), one(resource));
    let record = schema_ref(&title);
    let either = json!({ "oneOf": [record, schema_ref(&format!("{title}Page"))] });
    let unchanged = json!({ "description": "The record has the version of `If-None-Match`." });
    let deleted = json!({ "description": "The record is deleted." });
    let of_new = ["Location", "ETag", "Idempotent-Replayed"];
    let mut item = json!({
        "get": {
            "operationId": format!("get{}", capitalize(resource.plural)),
            "summary": format!("Read {one}, or a list"),
            "description": "With `id` the record, otherwise a page of the records that match every \
                filter and contain every word of `q`.",
            "parameters": list_parameters(components, resource),
            "responses": {
                "200": answer("The record, or a page of them.", either, &["Link", "ETag"]),
                "304": with_headers(unchanged, true, &["ETag"]),
            },
        },
        "post": {
            "operationId": format!("create{title}"),
            "summary": format!("Create {one}"),
            "description": "The response is the new record; `Location` is its path.",
            "parameters": shared(&["IdempotencyKey"]),
            "requestBody": body(&format!("{title}Create"), "64 KiB", examples::create(resource)),
            "responses": { "201": answer("The new record.", record.clone(), &of_new) },
        },
        "put": {
            "operationId": format!("update{title}"),
            "summary": format!("Change {one}"),
            "description": "Only the fields that the body names change. The response is the whole \
                record after the change.",
            "parameters": shared(&["Id", "IfMatch", "IdempotencyKey"]),
            "requestBody": body(&format!("{title}Update"), "64 KiB", examples::update(resource)),
            "responses": {
                "200": answer("The changed record.", record, &["ETag", "Idempotent-Replayed"]),
            },
        },
        "delete": {
            "operationId": format!("delete{title}"),
            "summary": format!("Delete {one}"),
            "description": "The response has no body. A record that others refer to is not deleted.",
            "parameters": shared(&["Id", "IfMatch", "IdempotencyKey"]),
            "responses": { "204": with_headers(deleted, true, &["Idempotent-Replayed"]) },
        },
    });
    for (method, operation, access) in OPERATIONS {
        let group = match operation {
            _ if method == Method::HEAD => continue,
            Operation::Read => "read",
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
        };
        let own = &mut item[method.as_str().to_lowercase()];
        own["tags"] = json!([resource.plural]);
        own["security"] = any_of(&[Scope { resource, access }]);
        errors::add(components, own, &[group], &[resource]);
    }
    item
}

/// `a customer`, `an employee`, `a piece of hardware`.
fn one(resource: &Resource) -> String {
    match resource.name {
        "hardware" => "a piece of hardware".to_owned(),
        name if name.starts_with(['a', 'e', 'i', 'o', 'u']) => format!("an {name}"),
        name => format!("a {name}"),
    }
}

/// One of these scopes is enough to be let in.
fn any_of(scopes: &[Scope]) -> Value {
    scopes.iter().map(|scope| json!({ "apiKey": [scope.to_string()] })).collect()
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
    let about = format!("{} Values: {}.", declared.about, (declared.values)());
    let mut parameter = json!({ "name": declared.name, "in": "query", "description": about,
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
    if let Column::Referenced { resource: Resource { name, .. }, .. } = filter.column {
        let about = format!("Only records of this {name}; `null` finds those of no {name}.");
        parameter["description"] = json!(about);
    }
    parameter
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
        "security": any_of(&changes::scopes()),
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
    json!({
        "operationId": "runBatch",
        "tags": ["batch"],
        "summary": "Run a batch",
        "description": "Up to 100 operations on records in one transaction. If one of them fails, \
            nothing is changed, and the response is its error with the number of the operation as \
            `operation`. Each operation needs its own scope, and only the scopes of the \
            operations in the batch are needed. The batch counts as one request against the rate \
            limit, and one `Idempotency-Key` covers all of it.",
        "security": any_of(&batch::scopes()),
        "parameters": shared(&["IdempotencyKey"]),
        "requestBody": body("Batch", "1 MiB", examples::batch()),
        "responses": { "200": results },
    })
}

fn page(components: &mut Components, page: PublicPage) -> Value {
    let html = json!({ "text/html": { "schema": { "type": "string" } } });
    let json = |schema: Value| json!({ "application/json": { "schema": schema } });
    let (object, state) = (json(json!({ "type": "object" })), json(schema_ref("State")));
    let (id, about, content, groups) = match page {
        PublicPage::OpenApi => ("getDescription", "This document", object, &["page"][..]),
        PublicPage::Docs => ("getDocs", "The documentation page", html, &["page"][..]),
        PublicPage::Health => ("getHealth", "Whether the process responds", state, &[][..]),
        PublicPage::Ready => {
            ("getReadiness", "Whether requests can be served", state, &["page", "ready"][..])
        }
        PublicPage::Root => {
            ("getRoot", "Redirect to the documentation page", Value::Null, &["page"][..])
        }
    };
    let responses = match page {
        PublicPage::Root => {
            json!({ "302": with_headers(json!({ "description": about }), false, &["Location"]) })
        }
        _ => json!({ "200": { "description": about, "content": content } }),
    };
    let mut page = json!({ "operationId": id, "tags": ["service"], "summary": about,
        "security": [], "responses": responses });
    errors::add(components, &mut page, groups, &[]);
    page
}
