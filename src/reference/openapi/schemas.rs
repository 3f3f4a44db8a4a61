//! `components.schemas`: of everything that is sent but the records, and what schemas consist of.

use serde_json::{Map, Value, json};

use super::components::{ENTITY_TAGS, reference};
use super::examples::{ETAG, NOW, UUID};
use super::records;
use crate::api::batch::MAX_OPERATIONS;
use crate::capitalize::capitalize;
use crate::http::{API_VERSION, ErrorCode};
use crate::model::{ALL, FieldCode, Scope};

const CHANGES_CURSOR: &str = "gWwKjN3nS1CHoVnUMpMXPLkAAAAB9WngkdI9qv3kPs0l";

pub(super) fn all() -> Map<String, Value> {
    let mut all = records::schemas();
    for schemas in [changes(), keys(), batches(), errors()] {
        all.extend(schemas.as_object().cloned().unwrap_or_default());
    }
    all
}

fn changes() -> Value {
    json!({
        "ChangePage": object("A page of the change log.", json!({
            "data": list(schema_ref("Change"), "The entries, the oldest first."),
            "next_cursor": text("The `cursor` for what comes after this page, now or later.",
                CHANGES_CURSOR),
            "more": { "type": "boolean", "example": false,
                "description": "Whether further entries are there already." },
        })),
        "Change": object("An entry of the change log: one change of one record.", json!({
            "seq": number("The number of the entry. Later entries have higher ones.", 8_412_350_017),
            "at": time("When the change was made."),
            "resource": one_of(&ALL.map(|resource| resource.plural), "The resource."),
            "id": number("The record.", 1),
            "action": one_of(&["updated", "created", "deleted"], "What was done."),
            "fields": list(json!({ "type": "string", "example": "city" }),
                "The fields whose values changed; of a new record those that are not null."),
            "before": { "type": ["object", "null"], "additionalProperties": true,
                "description": "The former values of these fields; the whole record if it was \
                    deleted; null for a new record.", "example": { "city": "Bremen" } },
            "by": { "oneOf": [schema_ref("KeyActor"), schema_ref("CommandActor")],
                "description": "Who made the change." },
            "request_id": nullable(text("The request's `X-Request-Id`; null for a command.", UUID)),
            "record": any_record("The record as it is now; null once it is deleted."),
        })),
        "KeyActor": object("An API key, as it was when it made the change.", json!({
            "kind": { "type": "string", "const": "key" },
            "id": number("The number of the key.", 7),
            "name": text("The name of the key.", "Web shop"),
            "prefix": text("The first 8 characters of the key.", "tdk_Ab3d"),
        })),
        "CommandActor": object("A command of the operator.", json!({
            "kind": { "type": "string", "const": "command" },
            "name": one_of(&["import"], "The name of the command."),
        })),
    })
}

fn keys() -> Value {
    let scopes: Vec<String> = Scope::all().map(|scope| scope.to_string()).collect();
    json!({
        "Whoami": object("The tenant, the key and its limit.", json!({
            "tenant": text("The name of the tenant.", "acme"),
            "key": schema_ref("WhoamiKey"),
            "rate_limit": number("Requests that the key may make in a minute.", 100),
            "api_version": text("The version of the API.", API_VERSION),
            "server": text("The version of the service.", env!("CARGO_PKG_VERSION")),
        })),
        "WhoamiKey": object("The key of the request.", json!({
            "id": number("The number of the key.", 7),
            "name": text("The name of the key.", "Web shop"),
            "prefix": text("The first 8 characters of the key.", "tdk_Ab3d"),
            "scopes": list(json!({ "type": "string", "enum": scopes }), "What the key permits."),
            "created_at": time("The time of creation."),
            "expires_at": nullable(time("From this second on it is refused; null: it has no end.")),
        })),
    })
}

fn batches() -> Value {
    let paths = ALL.map(|resource| resource.path.replace('.', "\\.")).join("|");
    let pattern = format!("^(/v1)?({paths})(\\?id=[1-9][0-9]*)?$");
    json!({
        "Batch": {
            "type": "object",
            "description": "Operations that are run in their order, all or none.",
            "required": ["operations"],
            "additionalProperties": false,
            "properties": { "operations": { "type": "array", "minItems": 1,
                "maxItems": MAX_OPERATIONS, "items": schema_ref("BatchOperation") } },
        },
        "BatchOperation": {
            "type": "object",
            "description": "A change of one record, as a request of its own would make it.",
            "required": ["method", "path"],
            "additionalProperties": false,
            "properties": {
                "method": one_of(&["POST", "PUT", "DELETE"], "The method."),
                "path": { "type": "string", "pattern": pattern,
                    "description": "A record path, with `id` for PUT and DELETE. `location` in \
                        the result begins as it does." },
                "body": { "type": ["object", "null"], "additionalProperties": true,
                    "description": "The body of the request. POST and PUT need it. In place of \
                        the value of a reference, `{\"result\": N}` stands for the id that \
                        operation N gave, an earlier POST, counted from 0." },
                "if_match": { "type": ["string", "null"], "pattern": ENTITY_TAGS,
                    "description": "The header `If-Match` of the request, for PUT and DELETE." },
            },
        },
        "BatchResults": object("The results of a batch.", json!({
            "results": list(schema_ref("BatchResult"), "In the order of the operations."),
        })),
        "BatchResult": object("The response that a request of its own would have had.", json!({
            "status": { "type": "integer", "enum": [201, 200, 204] },
            "location": nullable(text("The path of a new record, or null.", "/customers.php?id=1")),
            "etag": nullable(text("The version of the record; null if it is deleted.", ETAG)),
            "body": any_record("The record after the operation; null if it is deleted."),
        })),
    })
}

fn errors() -> Value {
    let codes: Vec<&str> = ErrorCode::all().map(|code| code.describe().code).collect();
    let about = "The fault and the remedy, for people.";
    let message = json!({ "type": "string", "description": about });
    json!({
        "Error": {
            "type": "object",
            "description": "A request that failed has changed nothing.",
            "required": ["error"],
            "properties": {
                "error": object("What went wrong.", json!({
                    "code": schema_ref("ErrorCode"),
                    "message": message,
                    "status": { "type": "integer", "description": "The HTTP status." },
                })),
                "errors": { "type": "object", "additionalProperties": schema_ref("FieldError"),
                    "description": "Every invalid field. Only with `validation_failed`." },
                "fields": list(json!({ "type": "string" }),
                    "The names of the invalid fields. Only with `validation_failed`."),
                "details": { "type": "string",
                    "description": "The message of the database. Only with `has_dependents`." },
                "operation": { "type": "integer", "minimum": 0,
                    "description": "The number of the operation that failed, from 0. Only from a \
                        batch, unless the batch itself is at fault." },
            },
        },
        "ErrorCode": { "type": "string", "enum": codes,
            "description": "For programs. `components.examples` has the meaning of each." },
        "FieldError": object("The error of one field.", json!({
            "code": { "type": "string", "enum": FieldCode::ALL.map(|(code, _)| code.as_str()),
                "x-enum-descriptions": FieldCode::ALL.map(|(_, meaning)| meaning) },
            "message": message,
        })),
        "State": object("The state of the service.", json!({
            "status": { "type": "string", "const": "ok" },
        })),
    })
}

pub(super) fn schema_ref(name: &str) -> Value {
    reference("schemas", name)
}

/// An object that always has all of these members.
pub(super) fn object(about: &str, properties: Value) -> Value {
    let names: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({ "type": "object", "description": about, "required": names, "properties": properties })
}

pub(super) fn text(about: &str, example: &str) -> Value {
    json!({ "type": "string", "description": about, "example": example })
}

/// A number from 1 on.
pub(super) fn number(about: &str, example: u64) -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": 1, "description": about,
        "example": example })
}

pub(super) fn time(about: &str) -> Value {
    json!({ "type": "string", "format": "date-time", "description": about, "example": NOW })
}

fn one_of(values: &[&str], about: &str) -> Value {
    json!({ "type": "string", "enum": values, "description": about })
}

pub(super) fn list(items: Value, about: &str) -> Value {
    json!({ "type": "array", "items": items, "description": about })
}

/// A record of any resource, or null.
fn any_record(about: &str) -> Value {
    let records = ALL.map(|resource| schema_ref(&capitalize(resource.name)));
    let alternatives = records.into_iter().chain([json!({ "type": "null" })]).collect::<Vec<_>>();
    json!({ "anyOf": alternatives, "description": about })
}

/// `schema` or null.
pub(super) fn nullable(mut schema: Value) -> Value {
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
        return schema;
    }
    json!({ "anyOf": [schema, { "type": "null" }] })
}
