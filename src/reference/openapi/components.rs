//! `components`: what several operations share.

use serde_json::{Map, Value, json};

use super::examples::{self, ETAG, NOW, RESET, UUID};
use super::schemas;
use crate::api::list::EXAMPLE_CURSOR;
use crate::model::CUSTOMER;

/// The headers of responses to requests that passed the scope check.
const COUNTED: [&str; 4] =
    ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-Key-Expires"];

const UUID_PATTERN: &str = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$";

/// Entity tags with commas between, or `*`. The service also takes tags beyond ASCII and empty
/// elements (RFC 9110 section 5.6.1).
pub(super) const ENTITY_TAGS: &str = r#"^(\*|(W/)?"[!#-~]*"(, ?(W/)?"[!#-~]*")*)$"#;

/// The components of each kind by name, such as `schemas`.
pub(super) struct Components(Map<String, Value>);

impl Components {
    pub(super) fn new() -> Components {
        let kinds = [
            ("securitySchemes", json!({ "apiKey": security_scheme() })),
            ("schemas", json!(schemas::all())),
            ("examples", json!(examples::errors())),
            ("parameters", parameters()),
            ("headers", headers()),
            ("responses", json!({})),
        ];
        Components(kinds.into_iter().map(|(kind, named)| (kind.to_owned(), named)).collect())
    }

    /// A reference to `value`, which gets this name, with a number if another value has it.
    pub(super) fn share(&mut self, kind: &str, name: &str, value: Value) -> Value {
        let Some(Value::Object(known)) = self.0.get_mut(kind) else { return value };
        let same = known.iter().find(|(_, other)| **other == value).map(|(name, _)| name.clone());
        let mut unique = same.unwrap_or_else(|| name.to_owned());
        let mut number = 1;
        while known.get(&unique).is_some_and(|other| *other != value) {
            number += 1;
            unique = format!("{name}_{number}");
        }
        let shared = reference(kind, &unique);
        known.insert(unique, value);
        shared
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

/// A reference to a component.
pub(super) fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

/// Adds the headers `others` to a response, and those of requests that count against the limit.
/// The introduction describes the headers of every response.
pub(super) fn with_headers(mut response: Value, counted: bool, others: &[&str]) -> Value {
    let names = if counted { COUNTED.as_slice() } else { &[] }.iter().chain(others);
    let headers: Map<_, _> =
        names.map(|name| ((*name).to_owned(), reference("headers", name))).collect();
    if !headers.is_empty() {
        response["headers"] = Value::Object(headers);
    }
    response
}

fn security_scheme() -> Value {
    json!({
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "tdk_ and 43 characters",
        "description": "An API key of the tenant. The panel creates it and shows it once. Its \
            scopes determine what it may do; an operation names the scope that it needs.",
    })
}

fn parameters() -> Value {
    let id = |required: bool, about: &str| {
        json!({ "name": "id", "in": "query", "required": required, "description": about,
            "schema": { "type": "integer", "format": "int64", "minimum": 1 }, "example": 1 })
    };
    let header = |name: &str, schema: Value, example: &str, about: &str| {
        json!({ "name": name, "in": "header", "description": about, "schema": schema,
            "example": example })
    };
    let text = || json!({ "type": "string" });
    let of_form = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    json!({
        "Id": id(true, "The record. It excludes every other parameter."),
        "OptionalId": id(false, "One record instead of a list. It excludes every other parameter but `include`."),
        // A pattern and not the format `uuid`: generated clients would use an object of their own,
        // but a header needs a text.
        "IdempotencyKey": header("Idempotency-Key", of_form(UUID_PATTERN), UUID,
            "A new UUID for every new request. A repeat of the request uses the same UUID."),
        "RequestId": header("X-Request-Id", text(), UUID,
            "A UUID chosen by the client for this request. Any other value is ignored."),
        "IfMatch": header("If-Match", of_form(ENTITY_TAGS), ETAG,
            "The `ETag` of the record as the client knows it, or several with commas between, or \
             `*`. The change is made only if the record has this version. Without the header the \
             last change wins."),
        "IfNoneMatch": header("If-None-Match", text(), "\"8412350016\"",
            "With `id`: the `ETag` of the record as the client knows it. If the record still has \
             this version, the response is 304 without a body."),
    })
}

fn header(required: bool, schema: Value, example: impl Into<Value>, about: &str) -> Value {
    let example: Value = example.into();
    json!({ "description": about, "required": required, "schema": schema, "example": example })
}

fn headers() -> Value {
    let text = || json!({ "type": "string" });
    let constant = |text: &str| json!({ "type": "string", "const": text });
    let number = || json!({ "type": "integer", "minimum": 0 });
    let path = CUSTOMER.path;
    let next_page = format!("<{path}?limit=1&cursor={EXAMPLE_CURSOR}>; rel=\"next\"");
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"customers:write\"";
    json!({
        "X-RateLimit-Limit": header(false, number(), 100,
            "Requests that the key may make in a minute."),
        "X-RateLimit-Remaining": header(false, number(), 99, "Requests left in the current minute."),
        "X-RateLimit-Reset": header(false, number(), RESET, "The end of the minute in Unix seconds."),
        "X-Key-Expires": header(false, json!({ "type": "string", "format": "date-time" }), NOW,
            "The end of the key, during its last 14 days. From this second on it is refused."),
        "Retry-After": header(true, number(), 5, "Seconds to wait before the next attempt."),
        "Location": header(true, text(), format!("{path}?id=1"), "The path of the new record."),
        "Link": header(false, text(), next_page, "The address of the next page, if there is one."),
        "ETag": header(false, text(), ETAG,
            "The version of the record, in quotes. Absent from lists. Send it in `If-Match` or \
             `If-None-Match`."),
        "Idempotent-Replayed": header(false, constant("true"), "true",
            "The response is a replay of the first response. Nothing was changed."),
        "WWW-Authenticate": header(false, text(), challenge,
            "What is missing or wrong about the key. Absent if the tenant is inactive."),
    })
}
