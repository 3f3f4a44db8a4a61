//! Constructors of the API's errors: one for each code that arises in more than one place or that
//! has headers.

use serde_json::{Map, Value, json};

use crate::http::{ApiError, ErrorCode};
use crate::model::{Field, FieldError, JsonError, Resource, Scope};
use crate::store::StoreError;
use crate::store::registry::{Inactive, RegistryError};

/// An error of the key, with the challenge of RFC 6750 section 3.
pub fn unauthorized(code: ErrorCode) -> ApiError {
    let is_absent = code == ErrorCode::MissingAuthorization;
    let challenge = if is_absent { "Bearer" } else { "Bearer error=\"invalid_token\"" };
    ApiError::from(code).header("WWW-Authenticate", challenge)
}

pub fn tenant_inactive(reason: Inactive) -> ApiError {
    let message = match reason {
        Inactive::Suspended => {
            "The tenant has been suspended by the operator. Ask the operator to activate it."
        }
        Inactive::TrialOver => {
            "The tenant's trial is over. Ask the operator to activate the tenant."
        }
    };
    ApiError::new(ErrorCode::TenantInactive, message)
}

pub fn tenant_unavailable() -> ApiError {
    let message = "The tenant's database cannot be used at the moment, and nothing was changed. \
                   Try again in 5 seconds.";
    ApiError::new(ErrorCode::TenantUnavailable, message).header("Retry-After", "5")
}

/// `tenant_unavailable`: there is no space for a change.
fn no_space(reason: &str) -> ApiError {
    let message = format!(
        "{reason}, so nothing was changed. Delete records, or ask the operator for more space."
    );
    ApiError::new(ErrorCode::TenantUnavailable, message).header("Retry-After", "5")
}

/// `bad_request`: a read has run into its deadline.
fn read_timed_out() -> ApiError {
    ApiError::bad_request(
        "The list took longer than 5 seconds and was ended. Ask for less: leave out \"total\", \
         use a \
         filter, sort by \"id\", or search for longer words.",
    )
}

/// `insufficient_scope`: the request needs all of `scopes`, and the key has none of them.
pub fn insufficient_scope(scopes: &[Scope]) -> ApiError {
    lacks_scopes(scopes, "lacks", "with them")
}

/// `insufficient_scope`: the request needs any of `scopes`.
pub fn insufficient_scope_of_any(scopes: &[Scope]) -> ApiError {
    lacks_scopes(scopes, "has none of", "with one of them")
}

fn lacks_scopes(scopes: &[Scope], lacks: &str, with: &str) -> ApiError {
    let names: Vec<String> = scopes.iter().map(Scope::to_string).collect();
    let message = match names.as_slice() {
        [name] => {
            format!("This API key lacks the scope \"{name}\". Use a key that was made with it.")
        }
        names => {
            let names = names.join("\", \"");
            format!("This API key {lacks} the scopes \"{names}\". Use a key that was made {with}.")
        }
    };
    let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", names.join(" "));
    ApiError::new(ErrorCode::InsufficientScope, message).header("WWW-Authenticate", challenge)
}

/// `not_found`; `id` is the id as it was sent.
pub fn not_found(resource: &Resource, id: &str) -> ApiError {
    ApiError::new(
        ErrorCode::NotFound,
        format!("There is no {} with the id {id}. Check the id.", resource.name),
    )
}

/// `invalid_json`; the message names line and column.
pub fn invalid_json(error: &JsonError) -> ApiError {
    let message = format!("The body is not valid JSON {error}. Send one JSON object in UTF-8.");
    ApiError::new(ErrorCode::InvalidJson, message)
}

pub fn no_updatable_fields(resource: &Resource) -> ApiError {
    let names: Vec<&str> = resource.fields.iter().map(|field| field.name).collect();
    let message = format!(
        "The body names no field that can be changed. Include at least one of: {}.",
        names.join(", ")
    );
    ApiError::new(ErrorCode::NoUpdatableFields, message)
}

/// `validation_failed` with the members `errors` and `fields`.
pub fn validation_failed(faults: &[FieldError]) -> ApiError {
    let names: Vec<&str> = faults.iter().map(|fault| fault.field).collect();
    let errors: Map<String, Value> = faults
        .iter()
        .map(|fault| {
            (fault.field.to_owned(), json!({"code": fault.code.as_str(), "message": fault.message}))
        })
        .collect();
    let message = format!(
        "These fields are not valid: {}. Correct what \"errors\" says of each.",
        names.join(", ")
    );
    ApiError::new(ErrorCode::ValidationFailed, message)
        .member("errors", errors)
        .member("fields", names)
}

/// `customer_not_found` or `employee_not_found`: `field` refers to the record `id` of `target`,
/// which does not exist.
pub fn missing_reference(field: &Field, target: &Resource, id: i64) -> ApiError {
    match missing_reference_code(target) {
        Some(code) => ApiError::new(code, target.missing_message(field, id)),
        // Unreachable: a unit test checks that every referenced resource has a code.
        None => ApiError::internal(),
    }
}

/// The code of a reference to a record of `target` that does not exist.
pub fn missing_reference_code(target: &Resource) -> Option<ErrorCode> {
    ErrorCode::all().find(|code| Some(code.describe().code) == target.missing_code)
}

/// `has_dependents`; `details` is the message of the database.
pub fn has_dependents(details: String) -> ApiError {
    let message =
        "Other records refer to this one, so it was not deleted. Delete or reassign them first.";
    ApiError::new(ErrorCode::HasDependents, message).member("details", details)
}

/// `precondition_failed`; `etag` is the record's present one.
pub fn precondition_failed(etag: String) -> ApiError {
    let message = "The record has changed: its version is none of those in \"If-Match\". Read it \
                   again and send its \"ETag\".";
    ApiError::new(ErrorCode::PreconditionFailed, message).header("ETag", etag)
}

pub fn invalid_idempotency_key(message: &'static str) -> ApiError {
    ApiError::new(ErrorCode::InvalidIdempotencyKey, message)
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match error {
            StoreError::Unavailable => tenant_unavailable(),
            StoreError::SizeLimit => no_space("The tenant has reached its size limit"),
            StoreError::DiskFull => no_space("The disk has too little free space"),
            StoreError::TimedOut => read_timed_out(),
            StoreError::Internal => ApiError::internal(),
        }
    }
}

impl From<RegistryError> for ApiError {
    /// Every error of the registry is an `internal_error`. The cause goes to the log, not to the
    /// client.
    fn from(error: RegistryError) -> ApiError {
        tracing::error!(%error, "the registry failed");
        ApiError::internal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ALL;

    #[test]
    fn every_reference_has_its_error_code() {
        for field in ALL.into_iter().flat_map(|resource| resource.fields) {
            if let Some(target) = Resource::referenced(field) {
                assert!(missing_reference_code(target).is_some(), "{}", field.name);
            }
        }
    }
}
