//! Examples: of the fields' values, of bodies, and of each error.

use serde_json::{Map, Value, json};

use crate::api::errors;
use crate::api::query::Query;
use crate::api::rate_limit::RateLimitStatus;
use crate::api::routes::RECORD_METHODS;
use crate::http::request::MAX_BODY;
use crate::http::{ApiError, ErrorCode, Response, StatusCode};
use crate::model::json_object::parse_object;
use crate::model::{Access, CUSTOMER, EMPLOYEE, Field, FieldError, HARDWARE, Resource, Scope};
use crate::store::registry::Inactive;

/// The time of every example.
pub(super) const NOW: &str = "2026-11-20T19:30:00Z";
/// The end of its rate limit window in Unix seconds.
pub(super) const RESET: i64 = 1_795_203_060;
/// The version of a record.
pub(super) const ETAG: &str = "\"8412350017\"";
pub(super) const UUID: &str = "6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d";

const TEXT_PLAIN: &str =
    "The body's type is \"text/plain\". Send \"Content-Type: application/json\".";
const UNREADABLE: &str =
    "The request could not be read as one HTTP/1.1 message. Use an HTTP client library.";
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
    let (required, others): (Vec<_>, Vec<_>) =
        resource.fields.iter().partition(|field| field.required);
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
    let example = |code: ErrorCode| {
        let about = code.describe();
        let example = json!({ "summary": about.meaning, "description": about.remedy, "value": error_example(code) });
        (about.code.to_owned(), example)
    };
    ErrorCode::all().map(example).collect()
}

/// The body of an error with this code.
pub(crate) fn error_example(code: ErrorCode) -> Value {
    serde_json::from_slice(Response::from(error(code)).body()).unwrap_or_default()
}

/// An error as a request for customers could cause it.
fn error(code: ErrorCode) -> ApiError {
    match code {
        ErrorCode::MissingAuthorization => errors::missing_authorization(),
        ErrorCode::MalformedApiKey => errors::malformed_api_key(),
        ErrorCode::InvalidApiKey => errors::invalid_api_key(),
        ErrorCode::RevokedApiKey => errors::revoked_api_key(),
        ErrorCode::ExpiredApiKey => errors::expired_api_key(),
        ErrorCode::TenantInactive => errors::tenant_inactive(Inactive::TrialOver),
        ErrorCode::TenantUnavailable => errors::tenant_unavailable(),
        ErrorCode::InsufficientScope => {
            errors::insufficient_scope(&[Scope { resource: &CUSTOMER, access: Access::Write }])
        }
        ErrorCode::RateLimited => {
            RateLimitStatus { limit: 100, remaining: 0, reset: RESET }.error()
        }
        ErrorCode::MethodNotAllowed => ApiError::method_not_allowed(RECORD_METHODS),
        ErrorCode::InvalidJson => failure(
            parse_object(b"{\"name\": \"Eva\",}").map_err(|error| errors::invalid_json(&error)),
        ),
        ErrorCode::NotFound => errors::not_found(&CUSTOMER, "7"),
        ErrorCode::MissingId => errors::missing_id(),
        ErrorCode::NoUpdatableFields => errors::no_updatable_fields(&CUSTOMER),
        ErrorCode::BadRequest => unknown_parameter(),
        ErrorCode::ValidationFailed => errors::validation_failed(&invalid_fields(&CUSTOMER)),
        ErrorCode::CustomerNotFound => missing_reference(&EMPLOYEE),
        ErrorCode::EmployeeNotFound => missing_reference(&HARDWARE),
        ErrorCode::HasDependents => {
            errors::has_dependents("FOREIGN KEY constraint failed".to_owned())
        }
        ErrorCode::EndpointNotFound => ApiError::endpoint_not_found(),
        ErrorCode::UnsupportedMediaType => ApiError::new(code, TEXT_PLAIN),
        ErrorCode::PayloadTooLarge => ApiError::payload_too_large(MAX_BODY),
        ErrorCode::MalformedRequest => {
            ApiError::malformed_request(StatusCode::BAD_REQUEST, UNREADABLE)
        }
        ErrorCode::InvalidIdempotencyKey => errors::invalid_idempotency_key(NO_UUID),
        ErrorCode::IdempotencyKeyReused => errors::idempotency_key_reused(),
        ErrorCode::InternalError => ApiError::internal(),
        ErrorCode::Overloaded => ApiError::overloaded(),
        ErrorCode::NotReady => ApiError::not_ready("the data directory is not writable"),
        ErrorCode::ChangesGone => errors::changes_gone(),
        ErrorCode::PreconditionFailed => errors::precondition_failed(ETAG.to_owned()),
    }
}

/// The error for a record of `resource` with a reference to a missing record.
fn missing_reference(resource: &'static Resource) -> ApiError {
    let referenced =
        resource.fields.iter().find_map(|field| Some((field, Resource::referenced(field)?)));
    referenced.map_or_else(ApiError::internal, |(field, target)| {
        errors::missing_reference(field, target, 7)
    })
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
