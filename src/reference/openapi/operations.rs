//! `paths`: the operations.

use serde_json::{Map, Value, json};

use super::components::{Components, reference, with_headers};
use super::errors::{self, Target};
use super::examples;
use super::records::of_filter;
use super::schemas::schema_ref;
use crate::api::list::{self, Filter, filters};
use crate::api::query::QueryParameter;
use crate::api::routes::{BATCH_PATH, CHANGES_PATH, Operation, PAGES, PublicPage, WHOAMI_PATH};
use crate::api::{batch, changes};
use crate::capitalize::capitalize;
use crate::html;
use crate::model::{ALL, Access, Column, Resource, Scope};

pub(super) fn paths(components: &mut Components) -> Value {
    let mut paths = json!({});
    for resource in ALL {
        paths[resource.path] = records(components, resource);
    }
    paths[CHANGES_PATH] = changes(components);
    paths[WHOAMI_PATH] = whoami(components);
    paths[BATCH_PATH] = batch(components);
    for (path, page) in PAGES {
        paths[path] = self::page(components, page);
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
    let id = get["operationId"].as_str().unwrap_or_default();
    let id = format!("head{}", id.trim_start_matches(char::is_lowercase));
    let about = "As with GET, without the body.";
    let failure = with_headers(json!({ "description": format!("An error. {about}") }), true, &[]);
    let failure = components.share("responses", "head_error", failure);
    let mut responses = json!({ "default": failure });
    for (status, response) in get["responses"].as_object().cloned().unwrap_or_default() {
        if status.starts_with(['2', '3']) {
            responses[&status] = response;
        }
    }
    if let Some(success) = responses.get_mut("200") {
        let headers = success["headers"].take();
        let mut bare = json!({ "description": about });
        if !headers.is_null() {
            bare["headers"] = headers;
        }
        *success = components.share("responses", "head", bare);
    }
    get["operationId"] = json!(id);
    get["description"] = json!(about);
    get["responses"] = responses;
    get
}

fn records(components: &mut Components, resource: &'static Resource) -> Value {
    json!({
        "get": read(components, resource),
        "post": create(components, resource),
        "put": update(components, resource),
        "delete": delete(components, resource),
    })
}

fn read(components: &mut Components, resource: &'static Resource) -> Value {
    let title = capitalize(resource.name);
    let either = json!({ "oneOf": [schema_ref(&title), schema_ref(&format!("{title}Page"))] });
    let unchanged = json!({ "description": "The record has the version of `If-None-Match`." });
    let unchanged = with_headers(unchanged, true, &["ETag"]);
    let responses = json!({
        "200": answer("The record, or a page of them.", either, &["Link", "ETag"]),
        "304": components.share("responses", "not_modified", unchanged),
    });
    json!({
        "operationId": format!("get{}", capitalize(resource.plural)),
        "tags": [resource.plural],
        "summary": format!("Read {}, or a list", one(resource)),
        "description": "With `id` the record, otherwise a page of the records that match every \
            filter and contain every word of `q`.",
        "security": needs(resource, Access::Read),
        "parameters": list_parameters(components, resource),
        "responses": errors::add(components, Target::Records(Operation::Read, resource), responses),
    })
}

fn create(components: &mut Components, resource: &'static Resource) -> Value {
    let title = capitalize(resource.name);
    let headers = ["Location", "ETag", "Idempotent-Replayed"];
    let responses = json!({ "201": answer("The new record.", schema_ref(&title), &headers) });
    json!({
        "operationId": format!("create{title}"),
        "tags": [resource.plural],
        "summary": format!("Create {}", one(resource)),
        "description": "The response is the new record; `Location` is its path.",
        "security": needs(resource, Access::Write),
        "parameters": shared(&["IdempotencyKey"]),
        "requestBody": body(&format!("{title}Create"), "64 KiB", examples::create(resource)),
        "responses": errors::add(components, Target::Records(Operation::Create, resource), responses),
    })
}

fn update(components: &mut Components, resource: &'static Resource) -> Value {
    let title = capitalize(resource.name);
    let headers = ["ETag", "Idempotent-Replayed"];
    let responses = json!({ "200": answer("The changed record.", schema_ref(&title), &headers) });
    json!({
        "operationId": format!("update{title}"),
        "tags": [resource.plural],
        "summary": format!("Change {}", one(resource)),
        "description": "Only the fields that the body names change. The response is the whole \
            record after the change.",
        "security": needs(resource, Access::Write),
        "parameters": shared(&["Id", "IfMatch", "IdempotencyKey"]),
        "requestBody": body(&format!("{title}Update"), "64 KiB", examples::update(resource)),
        "responses": errors::add(components, Target::Records(Operation::Update, resource), responses),
    })
}

fn delete(components: &mut Components, resource: &'static Resource) -> Value {
    let deleted = json!({ "description": "The record is deleted." });
    let deleted = with_headers(deleted, true, &["Idempotent-Replayed"]);
    let responses = json!({ "204": components.share("responses", "deleted", deleted) });
    json!({
        "operationId": format!("delete{}", capitalize(resource.name)),
        "tags": [resource.plural],
        "summary": format!("Delete {}", one(resource)),
        "description": "The response has no body. A record that others refer to is not deleted.",
        "security": needs(resource, Access::Write),
        "parameters": shared(&["Id", "IfMatch", "IdempotencyKey"]),
        "responses": errors::add(components, Target::Records(Operation::Delete, resource), responses),
    })
}

/// `a customer`, `an employee`, `a piece of hardware`.
fn one(resource: &Resource) -> String {
    match resource.name {
        "hardware" => "a piece of hardware".to_owned(),
        name if name.starts_with(['a', 'e', 'i', 'o', 'u']) => format!("an {name}"),
        name => format!("a {name}"),
    }
}

fn needs(resource: &'static Resource, access: Access) -> Value {
    any_of(&[Scope { resource, access }])
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
    for parameter in &list::PARAMETERS {
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
    let parameter = json!({ "name": declared.name, "in": "query", "description": about,
        "schema": (declared.schema)(subject), "example": (declared.example)() });
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
    let parameters = changes::PARAMETERS.iter();
    let parameters: Vec<Value> =
        parameters.map(|parameter| declared(components, parameter, ())).collect();
    let page = answer("The entries, the oldest first.", schema_ref("ChangePage"), &["Link"]);
    json!({ "get": {
        "operationId": "listChanges",
        "tags": ["changes"],
        "summary": "Follow changes",
        "description": "One entry for each record that was created, changed or deleted, in the \
            order of the commits. To follow a tenant: ask with `cursor=now` and keep \
            `next_cursor`, read the lists, then ask with the kept cursor again and again. Needs \
            any of the scopes for reading; entries of other resources are left out.",
        "security": any_of(&changes::scopes()),
        "parameters": parameters,
        "responses": errors::add(components, Target::Changes, json!({ "200": page })),
    } })
}

fn whoami(components: &mut Components) -> Value {
    let key = answer("The key.", schema_ref("Whoami"), &[]);
    json!({ "get": {
        "operationId": "getWhoami",
        "tags": ["key"],
        "summary": "Describe the API key of the request",
        "description": "The tenant, the key and its limit. Needs no scope.",
        "security": [{ "apiKey": [] }],
        "responses": errors::add(components, Target::Whoami, json!({ "200": key })),
    } })
}

fn batch(components: &mut Components) -> Value {
    let about = "The results, in the order of the operations.";
    let results = answer(about, schema_ref("BatchResults"), &["Idempotent-Replayed"]);
    json!({ "post": {
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
        "responses": errors::add(components, Target::Batch, json!({ "200": results })),
    } })
}

fn page(components: &mut Components, page: PublicPage) -> Value {
    let json = |schema: Value| json!({ "application/json": { "schema": schema } });
    let text = json!({ "text/html": { "schema": { "type": "string" } } });
    let (id, summary, status, content, headers) = match page {
        PublicPage::OpenApi => {
            ("getDescription", "This document", "200", json(json!({ "type": "object" })), &[][..])
        }
        PublicPage::Docs => ("getDocs", "The documentation page", "200", text, &html::HEADERS[..]),
        PublicPage::Health => {
            ("getHealth", "Whether the process responds", "200", json(schema_ref("State")), &[][..])
        }
        PublicPage::Ready => {
            let state = json(schema_ref("State"));
            ("getReadiness", "Whether requests can be served", "200", state, &[][..])
        }
        PublicPage::Root => {
            ("getRoot", "Redirect to the documentation page", "302", json!({}), &["Location"][..])
        }
    };
    let mut response = json!({ "description": summary });
    if page != PublicPage::Root {
        response["content"] = content;
    }
    let response = json!({ status: with_headers(response, false, headers) });
    let mut item = json!({ "get": {
        "operationId": id,
        "tags": ["service"],
        "summary": summary,
        "security": [],
        "responses": errors::add(components, Target::Page(page), response),
    } });
    if !page.is_prefixed() {
        item["servers"] = json!([{ "url": "/", "description": "At the root only." }]);
    }
    item
}
