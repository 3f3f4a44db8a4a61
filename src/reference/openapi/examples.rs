//! Worked examples, made of the declarations' own, and one error of every condition.

use serde_json::{Map, Value, json};

use crate::api::json::Object;
use crate::api::query::Query;
use crate::api::rate_limit::Allowance;
use crate::api::routes::RECORD_METHODS;
use crate::error::{Condition, Error, FieldError, Framing, Inactive};
use crate::http::Response;
use crate::model::{Access, CUSTOMER, Field, Resource, Scope};

/// The moment that every example happens.
pub const NOW: &str = "2026-11-20T19:30:00Z";
/// Its minute's end, in Unix seconds.
pub const RESET: i64 = 1_795_203_060;
/// A UUID.
pub const UUID: &str = "6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d";
/// A cursor as a list of customers by id gives it; opaque.
pub const CURSOR: &str = "AXJ0ZW5hbnRkZQAAAAAAAAABaQAAAAAAAAABJ3y5cPzGmQ4";

/// The field's example as JSON.
pub fn example_of(field: &Field) -> Value {
    serde_json::from_str(field.example).unwrap_or_default()
}

/// A body that creates a record.
pub fn create_example(resource: &'static Resource) -> Value {
    Value::Object(resource.fields.iter().map(|field| (field.name.to_owned(), example_of(field))).collect())
}

/// A body that changes a record: its last two fields.
pub fn update_example(resource: &'static Resource) -> Value {
    let from = resource.fields.len().saturating_sub(2);
    let last = resource.fields.iter().skip(from);
    Value::Object(last.map(|field| (field.name.to_owned(), example_of(field))).collect())
}

/// The record that the example of a POST makes.
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

/// A page that another follows.
pub fn page_example(resource: &'static Resource) -> Value {
    json!({ "data": [record_example(resource)], "next_cursor": CURSOR, "total": 2 })
}

/// The body of an error of this condition, as the service writes it.
pub fn error_example(condition: Condition, framing: Framing, resource: &'static Resource) -> Value {
    let response = Response::from(error(condition, framing, resource));
    serde_json::from_slice(response.body()).unwrap_or_default()
}

/// One error of every condition, as a request about `resource` might meet it.
fn error(condition: Condition, framing: Framing, resource: &'static Resource) -> Error {
    match condition {
        Condition::MissingAuthorization => Error::MissingAuthorization,
        Condition::MalformedApiKey => Error::MalformedApiKey,
        Condition::InvalidApiKey => Error::InvalidApiKey,
        Condition::RevokedApiKey => Error::RevokedApiKey,
        Condition::TenantInactive => Error::TenantInactive(Inactive::TrialOver),
        Condition::TenantUnavailable => Error::TenantUnavailable,
        Condition::InsufficientScope => Error::InsufficientScope(Scope { resource: &CUSTOMER, access: Access::Write }),
        Condition::RateLimited => Error::RateLimited(Allowance { limit: 100, remaining: 0, reset: RESET }),
        Condition::MethodNotAllowed => Error::MethodNotAllowed(RECORD_METHODS),
        Condition::InvalidJson => failure(Object::parse(b"{\"name\": \"Eva\",}")),
        Condition::NotFound => Error::NotFound(CUSTOMER.name, "7".to_owned()),
        Condition::MissingId => Error::MissingId,
        Condition::NoUpdatableFields => {
            Error::NoUpdatableFields(CUSTOMER.fields.iter().map(|field| field.name).collect())
        }
        Condition::BadRequest => failure(
            Query::parse(Some("cutsomer_id=7")).and_then(|query| query.only(["limit", "customer_id"].into_iter())),
        ),
        Condition::ValidationFailed => Error::ValidationFailed(invalid_fields(resource)),
        Condition::CustomerNotFound => Error::CustomerNotFound(7),
        Condition::EmployeeNotFound => Error::EmployeeNotFound(7),
        Condition::HasDependents => Error::HasDependents("FOREIGN KEY constraint failed".to_owned()),
        Condition::EndpointNotFound => Error::EndpointNotFound,
        Condition::UnsupportedMediaType => Error::UnsupportedMediaType(
            "The body's type is \"text/plain\". Send \"Content-Type: application/json\".".to_owned(),
        ),
        Condition::PayloadTooLarge => Error::PayloadTooLarge,
        Condition::MalformedRequest => Error::MalformedRequest(
            framing,
            "The request could not be read as one HTTP/1.1 message. Use an HTTP client library.".to_owned(),
        ),
        Condition::InvalidIdempotencyKey => Error::InvalidIdempotencyKey(
            "The header \"Idempotency-Key\" is not a UUID. Send 32 hexadecimal digits in the form 8-4-4-4-12."
                .to_owned(),
        ),
        Condition::IdempotencyKeyReused => Error::IdempotencyKeyReused,
        Condition::InternalError => Error::InternalError,
        Condition::Overloaded => Error::Overloaded,
        Condition::NotReady => Error::NotReady("the data directory is not writable".to_owned()),
    }
}

/// Every required field, not sent.
fn invalid_fields(resource: &'static Resource) -> Vec<FieldError> {
    let required = resource.fields.iter().filter(|field| field.required);
    required.map(Field::missing).collect()
}

/// The error of what was made to fail.
fn failure<T>(outcome: Result<T, Error>) -> Error {
    outcome.err().unwrap_or(Error::InternalError)
}
