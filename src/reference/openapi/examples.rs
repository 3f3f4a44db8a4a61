//! Examples of bodies, built from the examples of the fields, and one error of every condition.

use serde_json::{Map, Value, json};

use crate::api::errors;
use crate::api::list::EXAMPLE_CURSOR;
use crate::api::query::Query;
use crate::api::rate_limit::RateLimitStatus;
use crate::api::routes::RECORD_METHODS;
use crate::http::request::MAX_BODY;
use crate::http::{API_VERSION, ApiError, Condition, ProtocolViolation, Response};
use crate::model::FieldError;
use crate::model::{Access, CUSTOMER, EMPLOYEE, Field, HARDWARE, JsonObject, Resource, Scope};
use crate::store::registry::Inactive;

/// The time of every example.
pub const NOW: &str = "2026-11-20T19:30:00Z";
/// The end of its rate limit window in Unix seconds.
pub const RESET: i64 = 1_795_203_060;
/// The version of a record.
pub const ETAG: &str = "\"8412350017\"";
/// A cursor of the journal.
pub const CHANGES_CURSOR: &str = "gWwKjN3nS1CHoVnUMpMXPLkAAAAB9WngkdI9qv3kPs0l";
/// The end of the example's key.
pub const EXPIRES: &str = "2026-11-30T23:59:59Z";
/// A UUID.
pub const UUID: &str = "6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d";

/// The field's example as JSON.
pub fn example_of(field: &Field) -> Value {
    serde_json::from_str(field.example).unwrap_or_default()
}

/// A body that creates a record.
pub fn create_example(resource: &'static Resource) -> Value {
    Value::Object(resource.fields.iter().map(|field| (field.name.to_owned(), example_of(field))).collect())
}

/// A body that changes a record: the last two fields.
pub fn update_example(resource: &'static Resource) -> Value {
    let from = resource.fields.len().saturating_sub(2);
    let last = resource.fields.iter().skip(from);
    Value::Object(last.map(|field| (field.name.to_owned(), example_of(field))).collect())
}

/// The record that results from `create_example`.
pub fn record_example(resource: &'static Resource) -> Value {
    let mut record = Map::new();
    record.insert("id".to_owned(), json!(1));
    if let Value::Object(fields) = create_example(resource) {
        record.extend(fields);
    }
    record.insert("created_at".to_owned(), json!(NOW));
    record.insert("updated_at".to_owned(), json!(NOW));
    Value::Object(record)
}

/// The response of `/whoami.php`.
pub fn whoami_example() -> Value {
    json!({
        "tenant": "acme",
        "key": {
            "id": 1,
            "name": "Web shop",
            "prefix": "tdk_Ab3d",
            "scopes": ["customers:read", "customers:write"],
            "created_at": NOW,
            "expires_at": EXPIRES,
        },
        "rate_limit": 100,
        "api_version": API_VERSION,
        "server": env!("CARGO_PKG_VERSION"),
    })
}

/// A page that is not the last one.
pub fn page_example(resource: &'static Resource) -> Value {
    json!({ "data": [record_example(resource)], "next_cursor": EXAMPLE_CURSOR, "total": 2 })
}

/// A page of the journal: one entry, of a change of the example customer.
pub fn changes_example() -> Value {
    json!({ "data": [change_example()], "next_cursor": CHANGES_CURSOR, "more": false })
}

/// An entry of the journal.
pub fn change_example() -> Value {
    json!({
        "seq": 8_412_350_017_u64,
        "at": NOW,
        "resource": CUSTOMER.plural,
        "id": 1,
        "action": "updated",
        "fields": ["city"],
        "before": { "city": "Bremen" },
        "by": { "kind": "key", "id": 7, "name": "website", "prefix": "tdk_Ab12" },
        "request_id": UUID,
        "record": record_example(&CUSTOMER),
    })
}

/// A batch with every kind of operation.
pub fn batch_example() -> Value {
    let name = example_of_named(&CUSTOMER, "name");
    let email = example_of_named(&EMPLOYEE, "email");
    let hardware = HARDWARE.path;
    json!({ "operations": [
        { "method": "POST", "path": CUSTOMER.path, "body": { "name": name } },
        { "method": "POST", "path": EMPLOYEE.path, "body": { "customer_id": { "result": 0 }, "email": email } },
        {
            "method": "PUT",
            "path": format!("{hardware}?id=7"),
            "body": { "employee_id": { "result": 1 } },
            "if_match": ETAG,
        },
        { "method": "DELETE", "path": format!("{hardware}?id=8") },
    ] })
}

fn example_of_named(resource: &Resource, name: &str) -> Value {
    resource.field(name).map(example_of).unwrap_or_default()
}

/// The results of `batch_example`.
pub fn batch_results_example() -> Value {
    let made = |resource: &'static Resource, etag: &str| {
        let location = format!("{}?id=1", resource.path);
        json!({ "status": 201, "location": location, "etag": etag, "body": record_example(resource) })
    };
    let mut assigned = record_example(&HARDWARE);
    if let Some(fields) = assigned.as_object_mut() {
        fields.extend([("id".to_owned(), json!(7)), ("employee_id".to_owned(), json!(1))]);
    }
    json!({ "results": [
        made(&CUSTOMER, "\"8412350018\""),
        made(&EMPLOYEE, "\"8412350019\""),
        { "status": 200, "location": null, "etag": "\"8412350020\"", "body": assigned },
        { "status": 204, "location": null, "etag": null, "body": null },
    ] })
}

/// The body of an error of this condition.
pub fn error_example(condition: Condition, violation: ProtocolViolation, resource: &'static Resource) -> Value {
    let response = Response::from(error(condition, violation, resource));
    serde_json::from_slice(response.body()).unwrap_or_default()
}

/// An error of this condition, as a request for `resource` could cause it.
fn error(condition: Condition, violation: ProtocolViolation, resource: &'static Resource) -> ApiError {
    match condition {
        Condition::MissingAuthorization => errors::missing_authorization(),
        Condition::MalformedApiKey => errors::malformed_api_key(),
        Condition::InvalidApiKey => errors::invalid_api_key(),
        Condition::RevokedApiKey => errors::revoked_api_key(),
        Condition::ExpiredApiKey => errors::expired_api_key(),
        Condition::TenantInactive => errors::tenant_inactive(Inactive::TrialOver),
        Condition::TenantUnavailable => errors::tenant_unavailable(),
        Condition::InsufficientScope => {
            errors::insufficient_scope(&[Scope { resource: &CUSTOMER, access: Access::Write }])
        }
        Condition::RateLimited => RateLimitStatus { limit: 100, remaining: 0, reset: RESET }.error(),
        Condition::MethodNotAllowed => ApiError::method_not_allowed(RECORD_METHODS),
        Condition::InvalidJson => JsonObject::parse(b"{\"name\": \"Eva\",}")
            .err()
            .map_or_else(ApiError::internal, |error| errors::invalid_json(&error)),
        Condition::NotFound => errors::not_found(&CUSTOMER, "7"),
        Condition::MissingId => errors::missing_id(),
        Condition::NoUpdatableFields => errors::no_updatable_fields(&CUSTOMER),
        Condition::BadRequest => failure(
            Query::parse(Some("cutsomer_id=7")).and_then(|query| query.only(["limit", "customer_id"].into_iter())),
        ),
        Condition::ValidationFailed => errors::validation_failed(&invalid_fields(resource)),
        Condition::CustomerNotFound => missing_reference(&EMPLOYEE),
        Condition::EmployeeNotFound => missing_reference(&HARDWARE),
        Condition::HasDependents => errors::has_dependents("FOREIGN KEY constraint failed".to_owned()),
        Condition::EndpointNotFound => ApiError::endpoint_not_found(),
        Condition::UnsupportedMediaType => {
            ApiError::new(condition, "The body's type is \"text/plain\". Send \"Content-Type: application/json\".")
        }
        Condition::PayloadTooLarge => ApiError::payload_too_large(MAX_BODY),
        Condition::MalformedRequest => ApiError::malformed_request(
            violation,
            "The request could not be read as one HTTP/1.1 message. Use an HTTP client library.",
        ),
        Condition::InvalidIdempotencyKey => errors::invalid_idempotency_key(
            "The header \"Idempotency-Key\" is not a UUID. Send 32 hexadecimal digits in the form 8-4-4-4-12.",
        ),
        Condition::IdempotencyKeyReused => errors::idempotency_key_reused(),
        Condition::InternalError => ApiError::internal(),
        Condition::Overloaded => ApiError::overloaded(),
        Condition::NotReady => ApiError::not_ready("the data directory is not writable"),
        Condition::ChangesGone => errors::changes_gone(),
        Condition::PreconditionFailed => errors::precondition_failed(ETAG.to_owned()),
    }
}

/// The error for a record of `resource` with a reference to a missing record.
fn missing_reference(resource: &'static Resource) -> ApiError {
    let referenced = resource.fields.iter().find_map(|field| Some((field, Resource::referenced(field)?)));
    referenced.map_or_else(ApiError::internal, |(field, target)| errors::missing_reference(field, target, 7))
}

/// The errors for every required field being absent.
fn invalid_fields(resource: &'static Resource) -> Vec<FieldError> {
    let required = resource.fields.iter().filter(|field| field.required);
    required.map(Field::missing).collect()
}

/// The error of a call that fails.
fn failure<T>(outcome: Result<T, ApiError>) -> ApiError {
    outcome.err().unwrap_or_else(ApiError::internal)
}
