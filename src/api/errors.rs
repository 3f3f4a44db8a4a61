//! Constructors of the API's errors: one for each code that arises in more than one place or that
//! has headers.

use serde_json::{Map, Value, json};

use crate::http::{ApiError, ErrorCode};
use crate::model::validation::shorten;
use crate::model::{Field, FieldCode, FieldError, RecordId, Resource, Scopes};
use crate::store::registry::{Inactive, RegistryError};
use crate::store::{Rejection, StoreError};

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

fn tenant_unavailable(message: &'static str) -> ApiError {
    ApiError::new(ErrorCode::TenantUnavailable, message).header("Retry-After", "5")
}

/// `insufficient_scope`: the key has none of `scopes`.
pub fn insufficient_scope(scopes: Scopes) -> ApiError {
    let names = scopes.names();
    let message = format!(
        "This API key lacks \"{}\". Use a key with the scope that the request needs.",
        names.join("\", \"")
    );
    let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", names.join(" "));
    ApiError::new(ErrorCode::InsufficientScope, message).header("WWW-Authenticate", challenge)
}

/// `bad_request` for the value of a query parameter. `expectation` says what to send.
pub fn invalid_parameter(name: &str, sent: &str, expectation: &str) -> ApiError {
    ApiError::bad_request(format!(
        "The query parameter \"{name}\" was {:?}; {expectation}.",
        shorten(sent)
    ))
}

pub fn not_found(resource: &Resource, id: RecordId) -> ApiError {
    let message = format!("There is no {} with the id {}. Check the id.", resource.name, id.0);
    ApiError::new(ErrorCode::NotFound, message)
}

/// `ambiguous_record`: the records `ids` have the same value in `field`. There may be more.
pub fn ambiguous_record(resource: &Resource, field: &Field, ids: &[RecordId]) -> ApiError {
    let ids: Vec<String> = ids.iter().map(|RecordId(id)| id.to_string()).collect();
    let message = format!(
        "Several {} have this {}, such as those with the ids {}. Change one of them by its id.",
        resource.plural,
        field.name,
        ids.join(", ")
    );
    ApiError::new(ErrorCode::AmbiguousRecord, message)
}

/// `precondition_failed`. Without a record, `update_by` has found none.
fn precondition_failed(has_record: bool, has_only_weak_tags: bool) -> ApiError {
    let message = if !has_record {
        "\"update_by\" finds no record, so none has a version of \"If-Match\". Nothing was changed. \
         Send the request without \"If-Match\" to create the record."
    } else if has_only_weak_tags {
        "\"If-Match\" has only weak tags (W/\"…\"), which match no version. Nothing was changed. A \
         proxy that compresses responses may have weakened them. Read the record, and send its \
         member \"etag\", which is right."
    } else {
        "The record has another version than those in \"If-Match\". Nothing was changed. Read the \
         record, decide again, and send its \"etag\"."
    };
    ApiError::new(ErrorCode::PreconditionFailed, message)
}

/// `has_dependents`: records refer to the record of `resource`, as many of each kind as `counts`
/// says. `details` is the database's message.
pub fn has_dependents(
    resource: &Resource,
    details: String,
    counts: &[(&Resource, i64)],
) -> ApiError {
    let kind = |(of, count): &(&Resource, i64)| match count {
        1 if of.name == of.plural => format!("1 {} record", of.name),
        1 => format!("1 {}", of.name),
        _ if of.name == of.plural => format!("{count} {} records", of.name),
        _ => format!("{count} {}", of.plural),
    };
    let kinds: Vec<String> = counts.iter().map(kind).collect();
    let verb = if matches!(counts, [(_, 1)]) { "refers" } else { "refer" };
    let message = format!(
        "{} {verb} to this {}. Delete or reassign the records that refer to it first.",
        kinds.join(" and "),
        resource.name
    );
    ApiError::new(ErrorCode::HasDependents, message).member("details", details)
}

/// `invalid_json`; the message names line and column.
pub fn invalid_json(fault: &str) -> ApiError {
    let message = format!("The body is not one JSON object in UTF-8: {fault}.");
    ApiError::new(ErrorCode::InvalidJson, message)
}

/// The most messages about fields in one `bad_request`. Only a body with many custom fields has
/// more.
const MAX_MESSAGES: usize = 20;

/// One error for all fields. A text of the wrong type makes it `bad_request`, whose message names
/// every field that fails, those with a wrong type first.
fn invalid_fields(faults: Vec<FieldError>) -> ApiError {
    let (wrong_types, others): (Vec<FieldError>, Vec<FieldError>) =
        faults.into_iter().partition(|fault| fault.code == FieldCode::WrongType);
    if wrong_types.is_empty() {
        return validation_failed(&others);
    }
    let faults = wrong_types.into_iter().chain(others);
    let mut messages: Vec<String> = faults.map(|fault| fault.message).collect();
    let hidden = messages.len().saturating_sub(MAX_MESSAGES);
    messages.truncate(MAX_MESSAGES);
    if hidden > 0 {
        messages.push(format!("{hidden} more values are not valid."));
    }
    ApiError::bad_request(messages.join(" "))
}

/// `validation_failed` with the members `errors` and `fields`.
pub fn validation_failed(faults: &[FieldError]) -> ApiError {
    let names: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
    let errors: Map<String, Value> = faults
        .iter()
        .map(|fault| {
            (fault.field.clone(), json!({"code": fault.code.as_str(), "message": fault.message}))
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
    ApiError::new(ErrorCode::missing_reference(target), target.missing_message(field, id))
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> ApiError {
        match rejection {
            Rejection::InvalidFields(faults) => invalid_fields(faults),
            Rejection::NotFound { resource, id } => not_found(resource, id),
            Rejection::AmbiguousRecord { resource, field, ids } => {
                ambiguous_record(resource, field, &ids)
            }
            Rejection::UnreadablePrecondition(message) => ApiError::bad_request(message),
            Rejection::PreconditionFailed { id, present, has_only_weak_tags } => {
                let error = precondition_failed(id.is_some(), has_only_weak_tags);
                match present {
                    Some(version) => error.header("ETag", version.etag()),
                    None => error,
                }
            }
            Rejection::MissingReference { field, target, id } => {
                missing_reference(field, target, id)
            }
            Rejection::OtherCustomer(message) => ApiError::bad_request(message),
            Rejection::HasDependents { resource, details, counts } => {
                has_dependents(resource, details, &counts)
            }
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match error {
            StoreError::Unavailable => tenant_unavailable(
                "The tenant's database cannot be used at the moment, and nothing was changed. Try \
                 again in 5 seconds.",
            ),
            StoreError::SizeLimit => tenant_unavailable(
                "The tenant has reached its size limit, so nothing was changed. Delete records, \
                 or ask the operator for more space.",
            ),
            StoreError::DiskFull => tenant_unavailable(
                "The disk has too little free space, so nothing was changed. Delete records, or \
                 ask the operator for more space.",
            ),
            StoreError::TimedOut => ApiError::bad_request(
                "The list took longer than 5 seconds and was ended. Ask for less: leave out \
                 \"total\", use a filter, sort by \"id\", or search for longer words.",
            ),
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
