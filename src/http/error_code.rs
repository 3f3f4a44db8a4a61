//! The table of error codes (contract section 6 and later ones).
//!
//! The OpenAPI document, the contract and the tests read it. [`ApiError`](super::ApiError) is one
//! occurrence of a code.

use crate::model::{Resource, ResourceKind};

/// The properties of a code that are the same for every occurrence.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The machine-readable `code` of the envelope.
    pub code: &'static str,
    /// The HTTP status. `malformed_request` may have another one.
    pub status: u16,
    /// The event, in a sentence for the reference.
    pub meaning: &'static str,
    /// The client's next step, in a sentence for the reference.
    pub remedy: &'static str,
}

/// Declares each code once.
macro_rules! error_codes {
    ($($variant:ident = ($code:literal, $status:literal):
        $meaning:literal, $remedy:literal;)*) => {
        /// A code that a client can meet, in the order of the checks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ErrorCode {
            $(#[doc = $code] $variant,)*
        }

        impl ErrorCode {
            /// The properties that every occurrence shares.
            pub const fn describe(self) -> Description {
                let (code, status, meaning, remedy) = match self {
                    $(ErrorCode::$variant => ($code, $status, $meaning, $remedy),)*
                };
                Description { code, status, meaning, remedy }
            }

            pub fn all() -> impl Iterator<Item = ErrorCode> {
                [$(ErrorCode::$variant),*].into_iter()
            }
        }
    };
}

error_codes! {
    MissingAuthorization = ("missing_authorization", 401):
        "The header `Authorization: Bearer <API key>` is missing or names another scheme.",
        "Send the header with every request.";
    MalformedApiKey = ("malformed_api_key", 401):
        "The token does not start with `tdk_` or is shorter than 40 characters.",
        "Send the complete key, as TenantDesk showed it once.";
    InvalidApiKey = ("invalid_api_key", 401):
        "No key like this exists. It was mistyped or has been deleted.",
        "Check the key. A deleted key cannot come back; make a new one in the panel.";
    RevokedApiKey = ("revoked_api_key", 401):
        "The key has been revoked by an admin.",
        "Make a new key in the panel.";
    ExpiredApiKey = ("expired_api_key", 401):
        "The key has expired.",
        "Make a new key in the panel. Replace a key before its end: `X-Key-Expires` announces it \
         for 14 days.";
    TenantInactive = ("tenant_inactive", 403):
        "The tenant's trial is over or the operator has suspended it; the message says which.",
        "Ask the operator to activate the tenant.";
    TenantUnavailable = ("tenant_unavailable", 503):
        "The tenant's database cannot be used at the moment. Nothing was changed.",
        "Repeat the request, with the same `Idempotency-Key`, after the seconds in \
         `Retry-After`.";
    InsufficientScope = ("insufficient_scope", 403):
        "The key lacks the scope that this operation needs; `WWW-Authenticate` names it.",
        "Use a key that was made with that scope.";
    RateLimited = ("rate_limited", 429):
        "The key has used up the requests of this minute.",
        "Wait the seconds in `Retry-After`, or until the moment in `X-RateLimit-Reset`.";
    MethodNotAllowed = ("method_not_allowed", 405):
        "The endpoint does not support this HTTP method.",
        "Use one of the methods in the header `Allow`.";
    InvalidJson = ("invalid_json", 400):
        "The body is not one JSON object in UTF-8; the message says where.",
        "Send one JSON object, with double quotes and without trailing commas.";
    NotFound = ("not_found", 404):
        "The tenant has no record with this id. It never had, or the record was deleted.",
        "Check the id.";
    MissingId = ("missing_id", 400):
        "PUT or DELETE came without the query parameter `id`.",
        "Add `?id=<integer>`.";
    NoUpdatableFields = ("no_updatable_fields", 400):
        "The body of a PUT names no field that can be changed.",
        "Include at least one field of the resource other than `id`, `created_at`, `updated_at` \
         and `etag`.";
    BadRequest = ("bad_request", 400):
        "A parameter, header or text field is missing, unknown or unusable.",
        "Read the message: it names the parameter or field and says what would be right.";
    ValidationFailed = ("validation_failed", 422):
        "One or more fields break their rules; `errors` has all of them.",
        "Correct every field in `errors` and send the request again.";
    CustomerNotFound = ("customer_not_found", 422):
        "The customer that `customer_id` names does not exist.",
        "Create the customer first.";
    EmployeeNotFound = ("employee_not_found", 422):
        "The employee that `employee_id` names does not exist.",
        "Create the employee first, or leave `employee_id` null.";
    HasDependents = ("has_dependents", 409):
        "Other records refer to this one, so it was not deleted; `details` has the database's \
         message.",
        "Delete or reassign the records that depend on it first.";
    AmbiguousRecord = ("ambiguous_record", 409):
        "Several records have the value of the field that `update_by` names. Nothing was changed.",
        "Look at the records in the message. Keep one, or change one of them with PUT.";
    EndpointNotFound = ("endpoint_not_found", 404):
        "There is no endpoint at this path.",
        "Check the path against the reference.";
    UnsupportedMediaType = ("unsupported_media_type", 415):
        "The body is not declared as plain JSON.",
        "Send `Content-Type: application/json` and no `Content-Encoding`.";
    PayloadTooLarge = ("payload_too_large", 413):
        "The body is larger than 64 KiB, or that of a batch larger than 1 MiB.",
        "Send a smaller body. Raw UTF-8 is shorter than escapes such as `\\ud83d`.";
    MalformedRequest = ("malformed_request", 400):
        "The message is not HTTP/1.0 or 1.1, or could be read in two ways. The connection \
         closes. Where the message cannot be read at all, the status comes alone.",
        "Use an HTTP client library; check what stands between client and server.";
    InvalidIdempotencyKey = ("invalid_idempotency_key", 400):
        "The header `Idempotency-Key` is not a UUID, or was given twice.",
        "Send one UUID, such as `6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d`.";
    IdempotencyKeyReused = ("idempotency_key_reused", 422):
        "This idempotency key came with another request within 24 hours. Nothing was changed.",
        "Make a new UUID for every new request; keep it only for repeats of the same one.";
    InternalError = ("internal_error", 500):
        "The service failed. The log has the cause under the request id.",
        "Report the value of the header `X-Request-Id` to the operator.";
    Overloaded = ("overloaded", 503):
        "The server has more requests than it can hold at the moment.",
        "Repeat the request after the seconds in `Retry-After`.";
    NotReady = ("not_ready", 503):
        "The registry does not answer or the data directory takes no write; `/readyz` alone says \
         this.",
        "Look at the message and the log, then ask again after the seconds in `Retry-After`.";
    ChangesGone = ("changes_gone", 410):
        "Entries of the change log after this cursor are no longer kept, or the tenant was \
         restored.",
        "Ask with `cursor=now`, read the lists again, and go on from the new cursor.";
    PreconditionFailed = ("precondition_failed", 412):
        "The record has another version than those in `If-Match`, or `update_by` finds no record. \
         Nothing was changed.",
        "Read the record, decide again, and send its `etag`.";
}

impl ErrorCode {
    /// The code of a reference to a record of `target` that does not exist.
    pub const fn missing_reference(target: &Resource) -> ErrorCode {
        match target.kind {
            ResourceKind::Customers => ErrorCode::CustomerNotFound,
            ResourceKind::Employees => ErrorCode::EmployeeNotFound,
            // No field refers to hardware; a test notices the first one.
            ResourceKind::Hardware => ErrorCode::InternalError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ALL;

    #[test]
    fn every_reference_has_its_error_code() {
        for target in ALL.iter().flat_map(|of| of.fields).filter_map(|field| field.references) {
            let code = ErrorCode::missing_reference(target);
            assert_ne!(code, ErrorCode::InternalError, "{}", target.name);
        }
    }
}
