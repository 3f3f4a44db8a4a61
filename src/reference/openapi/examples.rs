//! Examples: of the fields' values, of bodies, and of each error.

use serde_json::{Map, Value, json};

use crate::api::errors;
use crate::api::query::Query;
use crate::api::rate_limit::RateLimitStatus;
use crate::api::routes::RECORD_METHODS;
use crate::http::request::MAX_BODY;
use crate::http::{ApiError, Condition, ProtocolViolation, Response};
use crate::model::{Access, CUSTOMER, EMPLOYEE, Field, FieldError, HARDWARE, JsonObject, Resource, Scope};
use crate::store::registry::Inactive;

/// The time of every example.
pub(super) const NOW: &str = "2026-11-20T19:30:00Z";
/// The end of its rate limit window in Unix seconds.
pub(super) const RESET: i64 = 1_795_203_060;
/// The version of a record.
pub(super) const ETAG: &str = "\"8412350017\"";
pub(super) const UUID: &str = "6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d";

const TEXT_PLAIN: &str = "The body's type is \"text/plain\". Send \"Content-Type: application/json\".";
const UNREADABLE: &str = "The request could not be read as one HTTP/1.1 message. Use an HTTP client library.";
const NO_UUID: &str = "The header \"Idempotency-Key\" is not a UUID. Send 32 hexadecimal digits in the \
    form 8-4-4-4-12.";

pub(super) fn example_of(field: &Field) -> Value {
    serde_json::from_str(field.example).unwrap_or_default()
}

fn body<'a>(fields: impl Iterator<Item = &'a Field>) -> Map<String, Value> {
    fields.map(|field| (field.name.to_owned(), example_of(field))).collect()
}

/// A body that creates a record: the required fields and two others.
pub(super) fn create(resource: &'static Resource) -> Value {
    let (required, others): (Vec<_>, Vec<_>) = resource.fields.iter().partition(|field| field.required);
    json!(body(required.into_iter().chain(others.into_iter().take(2))))
}

/// A body that changes the last two fields of a record.
pub(super) fn update(resource: &'static Resource) -> Value {
    json!(body(resource.fields.iter().skip(resource.fields.len().saturating_sub(2))))
}

/// A batch with every kind of operation.
pub(super) fn batch() -> Value {
    let named = |resource: &Resource, name: &str| resource.field(name).map(example_of);
    let path = HARDWARE.path;
    json!({ "operations": [
        { "method": "POST", "path": CUSTOMER.path, "body": { "name": named(&CUSTOMER, "name") } },
        { "method": "POST", "path": EMPLOYEE.path,
            "body": { "customer_id": { "result": 0 }, "email": named(&EMPLOYEE, "email") } },
        { "method": "PUT", "path": format!("{path}?id=7"),
            "body": { "employee_id": { "result": 1 } }, "if_match": ETAG },
        { "method": "DELETE", "path": format!("{path}?id=8") },
    ] })
}

/// One error of each code, with its meaning and remedy.
pub(super) fn errors() -> Map<String, Value> {
    let example = |code: Condition| {
        let about = code.describe();
        let example = json!({ "summary": about.meaning, "description": about.remedy, "value": error_example(code) });
        (about.code.to_owned(), example)
    };
    Condition::all().map(example).collect()
}

/// The body of an error with this code.
pub(crate) fn error_example(code: Condition) -> Value {
    serde_json::from_slice(Response::from(error(code)).body()).unwrap_or_default()
}

/// An error as a request for customers could cause it.
fn error(condition: Condition) -> ApiError {
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
        Condition::InvalidJson => {
            failure(JsonObject::parse(b"{\"name\": \"Eva\",}").map_err(|error| errors::invalid_json(&error)))
        }
        Condition::NotFound => errors::not_found(&CUSTOMER, "7"),
        Condition::MissingId => errors::missing_id(),
        Condition::NoUpdatableFields => errors::no_updatable_fields(&CUSTOMER),
        Condition::BadRequest => unknown_parameter(),
        Condition::ValidationFailed => errors::validation_failed(&invalid_fields(&CUSTOMER)),
        Condition::CustomerNotFound => missing_reference(&EMPLOYEE),
        Condition::EmployeeNotFound => missing_reference(&HARDWARE),
        Condition::HasDependents => errors::has_dependents("FOREIGN KEY constraint failed".to_owned()),
        Condition::EndpointNotFound => ApiError::endpoint_not_found(),
        Condition::UnsupportedMediaType => ApiError::new(condition, TEXT_PLAIN),
        Condition::PayloadTooLarge => ApiError::payload_too_large(MAX_BODY),
        Condition::MalformedRequest => ApiError::malformed_request(ProtocolViolation::Malformed, UNREADABLE),
        Condition::InvalidIdempotencyKey => errors::invalid_idempotency_key(NO_UUID),
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

fn unknown_parameter() -> ApiError {
    let query = Query::parse(Some("cutsomer_id=7"));
    failure(query.and_then(|query| query.only(["limit", "customer_id"].into_iter())))
}

/// The error of a call that fails.
fn failure<T>(outcome: Result<T, ApiError>) -> ApiError {
    outcome.err().unwrap_or_else(ApiError::internal)
}
