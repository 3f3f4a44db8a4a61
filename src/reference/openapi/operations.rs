//! Paths, operations and parameters.

use serde_json::{Map, Value, json};

use super::examples::{
    ETAG, UUID, batch_example, batch_results_example, changes_example, create_example, page_example, record_example,
    update_example, whoami_example,
};
use super::responses::{COUNTED, Target, references};
use super::schemas::{ENTITY_TAGS, filter_schema, schema_ref};
use crate::api::batch;
use crate::api::changes;
use crate::api::list::{self, Bound, Filter, filters};
use crate::api::query::QueryParameter;
use crate::api::routes::{BATCH_PATH, CHANGES_PATH, OPERATIONS, Operation, PAGES, PublicPage, WHOAMI_PATH};
use crate::capitalize::capitalize;
use crate::html;
use crate::http::Method;
use crate::model::{ALL, Access, Column, Field, Resource, Scope};

/// The headers of every response.
const ALWAYS: [&str; 3] = ["X-Request-Id", "X-API-Version", "Cache-Control"];

const UUID_PATTERN: &str = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$";

/// `paths`.
pub fn paths() -> Value {
    let records = ALL.into_iter().map(|resource| (resource.path.to_owned(), record_path(resource)));
    let pages = PAGES.into_iter().map(|(path, page)| (path.to_owned(), page_path(page)));
    let changes = (CHANGES_PATH.to_owned(), changes_path());
    let whoami = (WHOAMI_PATH.to_owned(), whoami_path());
    let batch = (BATCH_PATH.to_owned(), batch_path());
    Value::Object(records.chain([changes, whoami, batch]).chain(pages).collect())
}

/// The parameters that several operations share.
pub fn parameters() -> impl Iterator<Item = (String, Value)> {
    let id = |required: bool, about: &str| {
        json!({
            "name": "id",
            "in": "query",
            "required": required,
            "description": about,
            "schema": { "type": "integer", "format": "int64", "minimum": 1 },
            "example": 1,
        })
    };
    let header = |name: &str, about: &str, schema: Value, example: &str| json!({ "name": name, "in": "header", "description": about, "schema": schema, "example": example });
    [
        ("Id", id(true, "The record. It excludes every other parameter.")),
        ("OptionalId", id(false, "One record instead of a list. It excludes every other parameter.")),
        (
            "IdempotencyKey",
            header(
                "Idempotency-Key",
                "A new UUID for every new request. A repeat of the request uses the same UUID.",
                // Not the format `uuid`: generated clients would use an object of their own, but a header needs a text.
                json!({ "type": "string", "pattern": UUID_PATTERN }),
                UUID,
            ),
        ),
        (
            "RequestId",
            header(
                "X-Request-Id",
                "A UUID chosen by the client for this request. Any other value is ignored.",
                json!({ "type": "string" }),
                UUID,
            ),
        ),
        (
            "IfMatch",
            header(
                "If-Match",
                "The `ETag` of the record as the client knows it, or several with commas between, or `*`. The change is made only \
                 if the record has this version. Without the header the last change wins.",
                json!({ "type": "string", "pattern": ENTITY_TAGS }),
                ETAG,
            ),
        ),
        (
            "IfNoneMatch",
            header(
                "If-None-Match",
                "With `id`: the `ETag` of the record as the client knows it. If the record still has this version, the response is \
                 304 without a body.",
                json!({ "type": "string" }),
                "\"8412350016\"",
            ),
        ),
    ]
    .into_iter()
    .map(|(name, parameter)| (name.to_owned(), parameter))
}

fn shared(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect()
}

fn record_path(resource: &'static Resource) -> Value {
    let operation = |(method, operation, access): (Method, Operation, Access)| {
        let scope = Scope { resource, access };
        (method.as_str().to_lowercase(), record_operation(resource, &method, operation, scope))
    };
    Value::Object(OPERATIONS.into_iter().map(operation).collect())
}

/// `getCustomer`, `createCustomer` …
pub fn operation_id(method: &Method, operation: Operation, resource: &Resource) -> String {
    let verb = match (operation, method) {
        (Operation::Read, &Method::HEAD) => "head",
        (Operation::Read, _) => "get",
        (Operation::Create, _) => "create",
        (Operation::Update, _) => "update",
        (Operation::Delete, _) => "delete",
    };
    let noun = if operation == Operation::Read { resource.plural } else { resource.name };
    format!("{verb}{}", capitalize(noun))
}

fn record_operation(resource: &'static Resource, method: &Method, operation: Operation, scope: Scope) -> Value {
    let name = resource.name;
    let (summary, description) = match (operation, method) {
        (Operation::Read, &Method::HEAD) => {
            (format!("Check for one {name}, or a list"), "Returns the same as GET, without the body.".to_owned())
        }
        (Operation::Read, _) => (
            format!("Read one {name}, or a list"),
            "With `id` the record, otherwise a page of the records that match every filter and contain every word of `q`."
                .to_owned(),
        ),
        (Operation::Create, _) => (format!("Create {} {name}", article(name)), resource.about.to_owned()),
        (Operation::Update, _) => (
            format!("Change {} {name}", article(name)),
            "Only the fields that the body names change. The response is the whole record after the change.".to_owned(),
        ),
        (Operation::Delete, _) => {
            (format!("Delete {} {name}", article(name)), "A record that others refer to is not deleted.".to_owned())
        }
    };
    let mut members = Map::new();
    members.insert("operationId".to_owned(), json!(operation_id(method, operation, resource)));
    members.insert("tags".to_owned(), json!([resource.plural]));
    members.insert("summary".to_owned(), json!(summary));
    members.insert("description".to_owned(), json!(format!("{description} Needs the scope `{scope}`.")));
    members.insert("security".to_owned(), json!([{ "apiKey": [scope.to_string()] }]));
    members.insert("parameters".to_owned(), Value::Array(record_parameters(resource, operation)));
    if let Some(body) = request_body(resource, operation) {
        members.insert("requestBody".to_owned(), body);
    }
    members.insert("responses".to_owned(), record_responses(resource, method, operation));
    Value::Object(members)
}

/// `a`, `an` or `a piece of`.
pub fn article(noun: &str) -> &'static str {
    match noun {
        "hardware" => "a piece of",
        _ if noun.starts_with(['a', 'e', 'i', 'o', 'u']) => "an",
        _ => "a",
    }
}

fn record_parameters(resource: &'static Resource, operation: Operation) -> Vec<Value> {
    match operation {
        Operation::Create => shared(&["IdempotencyKey", "RequestId"]),
        Operation::Update | Operation::Delete => shared(&["Id", "IfMatch", "IdempotencyKey", "RequestId"]),
        Operation::Read => {
            let mut parameters = shared(&["OptionalId"]);
            parameters.extend(list_parameters(resource));
            parameters.extend(filters(resource).iter().map(|filter| filter_parameter(resource, filter)));
            parameters.extend(shared(&["IfNoneMatch", "RequestId"]));
            parameters
        }
    }
}

fn query(name: &str, about: &str, schema: Value, example: Value) -> Value {
    json!({ "name": name, "in": "query", "description": about, "schema": schema, "example": example })
}

fn declared<Subject>(parameter: &QueryParameter<Subject>, subject: Subject) -> Value {
    let about = format!("{} Values: {}.", parameter.about, (parameter.values)());
    query(parameter.name, &about, (parameter.schema)(subject), (parameter.example)())
}

fn list_parameters(resource: &'static Resource) -> impl Iterator<Item = Value> {
    list::PARAMETERS.iter().map(move |parameter| declared(parameter, resource))
}

fn filter_parameter(resource: &Resource, filter: &Filter) -> Value {
    let field = filter.column.name();
    let about = match filter.bound {
        Bound::Equal if let Column::Referenced { resource, .. } = filter.column => about_referenced(resource, field),
        Bound::Equal => format!("Only records whose `{field}` is this; `null` finds empty ones."),
        Bound::From => format!("Only records whose `{field}` is this or later."),
        Bound::To => format!("Only records whose `{field}` is this or earlier."),
    };
    let example = match filter.column {
        Column::Field(field) | Column::Referenced { field, .. } => {
            Some(super::examples::example_of(field)).filter(|value| !value.is_null())
        }
        Column::Id | Column::CreatedAt | Column::UpdatedAt => Some(json!(super::examples::NOW)),
    };
    query(&filter.name, &about, filter_schema(resource, filter), example.unwrap_or_else(|| json!("2026-11-20")))
}

fn about_referenced(referenced: &Resource, field: &str) -> String {
    let name = referenced.name;
    let any = article(name);
    format!("Only records of {any} {name} whose `{field}` is this; `null` finds records of no {name}.")
}

fn request_body(resource: &'static Resource, operation: Operation) -> Option<Value> {
    let (suffix, example) = match operation {
        Operation::Create => ("Create", create_example(resource)),
        Operation::Update => ("Update", update_example(resource)),
        Operation::Read | Operation::Delete => return None,
    };
    let schema = schema_ref(&format!("{}{suffix}", capitalize(resource.name)));
    Some(json!({
        "required": true,
        "description": "One JSON object in UTF-8, at most 64 KiB.",
        "content": { "application/json": { "schema": schema, "example": example } },
    }))
}

fn record_responses(resource: &'static Resource, method: &Method, operation: Operation) -> Value {
    let (status, success) = success(resource, operation);
    let mut responses = responses(Target::Records(operation, resource), method, status, success);
    if let (Operation::Read, Some(members)) = (operation, responses.as_object_mut()) {
        let headers = ALWAYS.into_iter().chain(COUNTED).chain(["ETag"]);
        let unchanged = json!({
            "description": "The record has the version that `If-None-Match` names. There is no body.",
            "headers": references("headers", headers),
        });
        members.insert("304".to_owned(), unchanged);
    }
    responses
}

/// The success and every error. For HEAD they have the same headers and no body.
fn responses(target: Target, method: &Method, status: &str, mut success: Value) -> Value {
    if *method == Method::HEAD {
        if let Some(members) = success.as_object_mut() {
            members.remove("content");
        }
        return Value::Object(
            [(status.to_owned(), success)].into_iter().chain(target.errors_without_bodies()).collect(),
        );
    }
    Value::Object([(status.to_owned(), success)].into_iter().chain(target.errors()).collect())
}

/// The status and the response of a successful operation.
fn success(resource: &'static Resource, operation: Operation) -> (&'static str, Value) {
    let title = capitalize(resource.name);
    let always = ALWAYS.into_iter().chain(COUNTED);
    let record = || json!({ "schema": schema_ref(&title), "example": record_example(resource) });
    match operation {
        Operation::Read => {
            let schema = json!({ "oneOf": [schema_ref(&title), schema_ref(&format!("{title}Page"))] });
            let examples = json!({
                "record": { "summary": "With `id`", "value": record_example(resource) },
                "page": { "summary": "A list", "value": page_example(resource) },
            });
            let response = json!({
                "description": "The record, or a page of them.",
                "headers": references("headers", always.chain(["Link", "ETag"])),
                "content": { "application/json": { "schema": schema, "examples": examples } },
            });
            ("200", response)
        }
        Operation::Create => {
            let response = json!({
                "description": "The new record.",
                "headers": references("headers", always.chain(["Location", "ETag", "Idempotent-Replayed"])),
                "content": { "application/json": record() },
                "links": links(resource),
            });
            ("201", response)
        }
        Operation::Update => {
            let response = json!({
                "description": "The whole record after the change.",
                "headers": references("headers", always.chain(["ETag", "Idempotent-Replayed"])),
                "content": { "application/json": record() },
            });
            ("200", response)
        }
        Operation::Delete => {
            let response = json!({
                "description": "The record is deleted.",
                "headers": references("headers", always.chain(["Idempotent-Replayed"])),
            });
            ("204", response)
        }
    }
}

/// The operations that can follow the creation of a record.
fn links(resource: &'static Resource) -> Value {
    const ID: &str = "$response.body#/id";
    let own = [
        (Method::GET, Operation::Read, "Read it."),
        (Method::PUT, Operation::Update, "Change it."),
        (Method::DELETE, Operation::Delete, "Delete it."),
    ];
    let mut links: Map<String, Value> = own
        .into_iter()
        .map(|(method, operation, about)| {
            let name = operation_id(&method, operation, resource);
            (name.clone(), json!({ "operationId": name, "parameters": { "query.id": ID }, "description": about }))
        })
        .collect();
    for (other, field) in referring(resource) {
        let name = operation_id(&Method::POST, Operation::Create, other);
        let about = format!("Create {} {} that refers to it.", article(other.name), other.name);
        links.insert(
            name.clone(),
            json!({ "operationId": name, "requestBody": { field.name: ID }, "description": about }),
        );
        let name = operation_id(&Method::GET, Operation::Read, other);
        let parameters = json!({ format!("query.{}", field.name): ID });
        let about = format!("List the {} that refer to it.", other.plural);
        links.insert(name.clone(), json!({ "operationId": name, "parameters": parameters, "description": about }));
    }
    Value::Object(links)
}

/// The fields of other resources that refer to this one.
fn referring(resource: &Resource) -> impl Iterator<Item = (&'static Resource, &'static Field)> {
    let fields = ALL.into_iter().flat_map(|other| other.fields.iter().map(move |field| (other, field)));
    fields.filter(move |(_, field)| field.references == Some(resource.name))
}

/// `listChanges`, `headChanges`
pub fn changes_operation_id(method: &Method) -> &'static str {
    if *method == Method::HEAD { "headChanges" } else { "listChanges" }
}

fn changes_path() -> Value {
    let operation = |method: Method| {
        let parameters = changes::PARAMETERS.iter().map(|parameter| declared(parameter, ()));
        let success = json!({
            "description": "The entries, the oldest first.",
            "headers": references("headers", ALWAYS.into_iter().chain(COUNTED).chain(["Link"])),
            "content": { "application/json": { "schema": schema_ref("ChangePage"), "example": changes_example() } },
        });
        json!({
            "operationId": changes_operation_id(&method),
            "tags": ["changes"],
            "summary": if method == Method::HEAD { "Check for changes" } else { "Read what was changed" },
            "description": CHANGES_ABOUT,
            "security": changes::scopes().map(|scope| json!({ "apiKey": [scope.to_string()] })),
            "parameters": parameters.chain(shared(&["RequestId"])).collect::<Vec<_>>(),
            "responses": responses(Target::Changes, &method, "200", success),
        })
    };
    json!({ "get": operation(Method::GET), "head": operation(Method::HEAD) })
}

/// What the journal is for.
const CHANGES_ABOUT: &str = "One entry for each record that was created, changed or deleted, in the order of the commits. To \
    follow a tenant: ask with `cursor=now` and keep `next_cursor`, read the lists, then ask with the kept cursor again and again. \
    Needs any of the scopes for reading; entries of other resources are left out.";

fn whoami_path() -> Value {
    let operation = |method: Method| {
        let verb = method.as_str().to_lowercase();
        let always = ALWAYS.into_iter().chain(COUNTED);
        let success = json!({
            "description": "The key.",
            "headers": references("headers", always),
            "content": { "application/json": { "schema": schema_ref("Whoami"), "example": whoami_example() } },
        });
        let operation = json!({
            "operationId": format!("{verb}Whoami"),
            "tags": ["key"],
            "summary": "Describe the API key of the request",
            "description": "The tenant, the key and its limit. Needs no scope.",
            "security": [{ "apiKey": [] }],
            "parameters": shared(&["RequestId"]),
            "responses": responses(Target::Whoami, &method, "200", success),
        });
        (verb, operation)
    };
    Value::Object([Method::GET, Method::HEAD].map(operation).into_iter().collect())
}

/// The operation of batches.
pub const BATCH_OPERATION_ID: &str = "runBatch";

fn batch_path() -> Value {
    let success = json!({
        "description": "The results, in the order of the operations.",
        "headers": references("headers", ALWAYS.into_iter().chain(COUNTED).chain(["Idempotent-Replayed"])),
        "content": { "application/json": { "schema": schema_ref("BatchResults"), "example": batch_results_example() } },
    });
    json!({
        "post": {
            "operationId": BATCH_OPERATION_ID,
            "tags": ["batch"],
            "summary": "Make several changes, all or none",
            "description": BATCH_ABOUT,
            "security": batch::scopes().map(|scope| json!({ "apiKey": [scope.to_string()] })),
            "parameters": shared(&["IdempotencyKey", "RequestId"]),
            "requestBody": {
                "required": true,
                "description": "One JSON object in UTF-8, at most 1 MiB.",
                "content": { "application/json": { "schema": schema_ref("Batch"), "example": batch_example() } },
            },
            "responses": responses(Target::Batch, &Method::POST, "200", success),
        },
    })
}

/// What a batch is.
const BATCH_ABOUT: &str = "Up to 100 operations on records in one transaction. If one of them fails, nothing is changed, and the \
    response is its error with the number of the operation as `operation`. Each operation needs its own scope, and only the scopes of \
    the operations in the batch are needed. The batch counts as one request against the rate limit, and one `Idempotency-Key` covers \
    all of it.";

fn page_path(page: PublicPage) -> Value {
    let operation = |method: Method| {
        let (id, summary, (status, response)) = page_operation(page);
        let responses = responses(Target::Page(page), &method, status, response);
        let verb = if method == Method::HEAD { "head" } else { "get" };
        json!({
            "operationId": format!("{verb}{}", capitalize(id)),
            "tags": ["service"],
            "summary": summary,
            "security": [],
            "parameters": shared(&["RequestId"]),
            "responses": responses,
        })
    };
    let mut path = Map::new();
    if !page.is_prefixed() {
        path.insert("servers".to_owned(), json!([{ "url": "/", "description": "At the root only." }]));
    }
    path.insert("get".to_owned(), operation(Method::GET));
    path.insert("head".to_owned(), operation(Method::HEAD));
    Value::Object(path)
}

/// Name, summary, status and response of a page.
fn page_operation(page: PublicPage) -> (&'static str, &'static str, (&'static str, Value)) {
    let always = ALWAYS;
    let html = |about: &str| {
        json!({
            "description": about,
            "headers": references("headers", always.into_iter().chain(html::HEADERS)),
            "content": { "text/html": { "schema": { "type": "string" }, "example": "<!doctype html>…" } },
        })
    };
    let state = |about: &str| {
        let schema = json!({
            "type": "object",
            "required": ["status"],
            "properties": { "status": { "type": "string", "const": "ok" } },
        });
        json!({
            "description": about,
            "headers": references("headers", always),
            "content": { "application/json": { "schema": schema, "example": { "status": "ok" } } },
        })
    };
    match page {
        PublicPage::OpenApi => {
            let document = json!({
                "description": "The document.",
                "headers": references("headers", always),
                "content": {
                    "application/json": {
                        "schema": { "type": "object", "additionalProperties": true },
                        "example": { "openapi": "3.1.0" },
                    },
                },
            });
            ("description", "This document", ("200", document))
        }
        PublicPage::Docs => ("docs", "The documentation page", ("200", html("The page."))),
        PublicPage::Health => ("health", "Whether the process responds", ("200", state("The process responds."))),
        PublicPage::Ready => (
            "readiness",
            "Whether requests can be served",
            ("200", state("The registry responds and the data directory is writable.")),
        ),
        PublicPage::Root => {
            let redirect = json!({
                "description": "To the documentation page.",
                "headers": references("headers", always.into_iter().chain(["Location"])),
            });
            ("root", "Redirect to the documentation page", ("302", redirect))
        }
    }
}
