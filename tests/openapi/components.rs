//! `components`: what several operations share, and the schemas of everything but the records.

use serde_json::{Map, Value, json};

use tenantdesk::api::batch::MAX_OPERATIONS;
use tenantdesk::http::{API_VERSION, ErrorCode};
use tenantdesk::model::{ALL, FieldCode, Scope};

use super::schema::{
    ENTITY_TAGS, EXAMPLE_ETAG, EXAMPLE_UUID, any_record, closed, list, nullable, number, object,
    one_of, schema_ref, text, time,
};
use super::{operations, paths, records};

const EXAMPLE_CHANGE_CURSOR: &str = "gWwKjN3nS1CHoVnUMpMXPLkAAAAB9WngkdI9qv3kPs0l";

/// The components of each kind by name, such as `schemas`.
pub(crate) fn components() -> Value {
    let mut schemas = records::schemas();
    for others in [changes(), keys(), batches(), errors()] {
        schemas.extend(others.as_object().cloned().unwrap());
    }
    json!({
        "securitySchemes": { "apiKey": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key of the tenant: `tdk_` and 43 characters. The panel at \
                `/api_keys.php` creates keys, and shows each once.",
        } },
        "schemas": schemas,
        "examples": operations::errors().map(error_example).collect::<Map<_, _>>(),
        "parameters": operations::components(),
        "headers": headers(),
        "responses": { "Failure": paths::common_failure() },
    })
}

/// An example of an error, with its meaning and its remedy.
fn error_example(code: ErrorCode) -> (String, Value) {
    let about = code.describe();
    let error = json!({ "code": about.code, "message": about.meaning, "status": about.status });
    let example = json!({ "description": about.remedy, "value": { "error": error } });
    (about.code.to_owned(), example)
}

/// A text with these values today. No enum: a generated client would refuse an answer with a value
/// that comes within v1 (contract section 16).
fn known(about: &str, values: &[&str]) -> Value {
    let names: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
    text(&format!("{about}: {}. Others may come.", names.join(", ")), values[0])
}

/// The headers of responses. Every response that may have the last one has it.
fn headers() -> Map<String, Value> {
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "integer", "minimum": 0 }));
    let time = json!({ "type": "string", "format": "date-time" });
    let replayed = json!({ "type": "string", "const": "true" });
    [
        ("X-RateLimit-Limit", &number, "Requests that the key may make in a minute."),
        ("X-RateLimit-Remaining", &number, "Requests left in the current minute."),
        ("X-RateLimit-Reset", &number, "The end of the minute in Unix seconds."),
        ("X-Key-Expires", &time, "The end of the key, during its last 14 days."),
        ("X-Ignored-Fields", &text, "At most ten unknown members of a body, which were ignored."),
        ("Preference-Applied", &text, "`handling=strict` if the request has asked for it."),
        ("Link", &text, "The address of the next page, if there is one."),
        ("ETag", &text, "The version, for `If-Match` and `If-None-Match`. Absent from lists."),
        ("Idempotent-Replayed", &replayed, "The response is a replay of the first response."),
        ("WWW-Authenticate", &text, "What is missing or wrong about the key."),
        ("Retry-After", &number, "Seconds to wait before the next attempt. With 429 and 503."),
        ("Location", &text, "The path of the new record."),
    ]
    .into_iter()
    .map(|(name, schema, about)| {
        let is_required = name == "Location";
        let header = json!({ "description": about, "required": is_required, "schema": schema });
        (name.to_owned(), header)
    })
    .collect()
}

fn changes() -> Value {
    json!({
        "ChangePage": object("A page of the change log.", json!({
            "data": list(schema_ref("Change"), "The entries, the oldest first."),
            "next_cursor": text("The `cursor` for what comes after this page, now or later.",
                EXAMPLE_CHANGE_CURSOR),
            "more": { "type": "boolean", "example": false,
                "description": "Whether further entries are there already." },
        })),
        "Change": object("An entry of the change log: one change of one record.", json!({
            "seq": number("The number of the entry. Later ones have higher ones.", 8_412_350_017),
            "at": time("When the change was made."),
            "resource": one_of(&ALL.map(|resource| resource.plural), "The resource."),
            "id": number("The record.", 1),
            "action": text("`created`, `updated` or `deleted`. Others may come.", "updated"),
            "fields": list(json!({ "type": "string", "example": "city" }),
                "The fields whose values changed; of a new record those that are not null."),
            "before": { "type": ["object", "null"], "additionalProperties": true,
                "description": "The former values of these fields; the whole record if it was \
                    deleted; null for a new record.", "example": { "city": "Bremen" } },
            "by": schema_ref("Actor"),
            "request_id": nullable(text("The request's `X-Request-Id`, or the id of the command's run.",
                EXAMPLE_UUID)),
            "record": any_record("The record as it is now; null once it is deleted."),
        })),
        "Actor": { "type": "object",
            "description": "Who made the change: an API key, as it was then, or a command of the operator.",
            "required": ["kind", "name"],
            "properties": {
                "kind": text("`key` or `command`. Others may come.", "key"),
                "id": nullable(number("The number of the key. Null in entries from before a move to \
                    another data directory. A command has none.", 7)),
                "name": text("The name of the key, or of the command, such as `import customers.csv`.", "Web shop"),
                "prefix": text("The first 8 characters of the key. A command has none.", "tdk_Ab3d"),
            },
        },
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
            "scopes": list(json!({ "type": "string", "example": scopes[0] }),
                "What the key permits. Others may come."),
            "created_at": time("The time of creation."),
            "expires_at": nullable(time("From this second on it is refused; null: it has no end.")),
        })),
    })
}

fn batches() -> Value {
    let paths = ALL.map(|resource| resource.path.replace('.', "\\.")).join("|");
    let pattern = format!("^(/v1)?({paths})(\\?(id=[1-9][0-9]*|update_by=[a-z_]+))?$");
    json!({
        "Batch": closed(&["operations"], "Operations that are run in their order, all or none.",
            json!({ "operations": { "type": "array", "minItems": 1,
                "maxItems": MAX_OPERATIONS, "items": schema_ref("BatchOperation") } })),
        "BatchOperation": closed(&["method", "path"],
            "A change of one record, as a request of its own would make it.", json!({
                "method": one_of(&["POST", "PUT", "DELETE"], "The method."),
                "path": { "type": "string", "pattern": pattern,
                    "description": "A record path, with `id` for PUT and DELETE. A POST can have \
                        `update_by`. `location` in the result begins as `path` does." },
                "body": { "type": ["object", "null"], "additionalProperties": true,
                    "description": "The body of the request. POST and PUT need it. In place of \
                        the value of a reference, `{\"result\": N}` stands for the id that \
                        operation N created or found, counted from 0. Operation N must be an \
                        earlier POST to the path that the field refers to." },
                "if_match": { "type": ["string", "null"], "pattern": ENTITY_TAGS,
                    "description": "The header `If-Match` of the request." },
                "if_none_match": { "type": ["string", "null"], "pattern": "^[*]$",
                    "description": "The header `If-None-Match` of the request: a POST with \
                        `update_by` creates the record only if there is none." },
            })),
        "BatchResults": object("The results of a batch.", json!({
            "results": list(schema_ref("BatchResult"), "In the order of the operations."),
        })),
        "BatchResult": object("The response that a request of its own would have had.", json!({
            "status": { "type": "integer", "enum": [201, 200, 204] },
            "location": nullable(text("The path of a new record, or null.", "/customers.php?id=1")),
            "etag": nullable(text("The record's version; null if it is deleted.", EXAMPLE_ETAG)),
            "body": any_record("The record after the operation; null if it is deleted."),
        })),
    })
}

fn errors() -> Value {
    let codes: Vec<&str> = ErrorCode::all().map(|code| code.describe().code).collect();
    let about = "The fault and the remedy, for people.";
    let message = json!({ "type": "string", "description": about });
    json!({
        "Failure": {
            "type": "object",
            "description": "A request that failed has changed nothing.",
            "required": ["error"],
            "properties": {
                "error": schema_ref("ErrorInfo"),
                "errors": { "type": "object", "additionalProperties": schema_ref("FieldError"),
                    "description": "Every invalid field. Only with `validation_failed`." },
                "fields": list(json!({ "type": "string" }),
                    "The names of the invalid fields. Only with `validation_failed`."),
                "details": { "type": "string",
                    "description": "The message of the database. Only with `has_dependents` of a DELETE." },
                "operation": { "type": "integer", "minimum": 0,
                    "description": "The number of the operation that failed, from 0. Only from a \
                        batch, unless the batch itself is at fault." },
                "operations": list(schema_ref("OperationError"),
                    "Every operation whose form or fields are wrong. Only from a batch."),
            },
        },
        "OperationError": {
            "type": "object",
            "description": "The error of one operation of a batch.",
            "required": ["operation", "error"],
            "properties": {
                "operation": { "type": "integer", "minimum": 0,
                    "description": "The number of the operation, from 0." },
                "error": schema_ref("ErrorInfo"),
                "errors": { "type": "object", "additionalProperties": schema_ref("FieldError"),
                    "description": "Every invalid field. Only with `validation_failed`." },
                "fields": list(json!({ "type": "string" }),
                    "The names of the invalid fields. Only with `validation_failed`."),
            },
        },
        "ErrorInfo": {
            "type": "object",
            "description": "What went wrong.",
            "required": ["code", "message", "status"],
            "properties": {
                "code": known("For programs", &codes),
                "message": message,
                "status": { "type": "integer", "description": "The HTTP status." },
                "id": { "type": "integer", "format": "int64", "minimum": 1,
                    "description": "The record that is there already. Only if `If-None-Match` \
                        keeps a POST from changing it." },
            },
        },
        "FieldError": object("The error of one field.", json!({
            "code": known("For programs", &FieldCode::ALL.map(FieldCode::as_str)),
            "message": message,
        })),
    })
}
