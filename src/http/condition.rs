//! The catalogue of error conditions (contract section 6 and later ones).
//!
//! [`CATALOGUE`] is the one table of codes and statuses. OpenAPI, the documentation page, the contract document and the tests read
//! it. [`ApiError`](super::ApiError) is one occurrence of a condition.

/// A condition that a client can meet, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// `missing_authorization`
    MissingAuthorization,
    /// `malformed_api_key`
    MalformedApiKey,
    /// `invalid_api_key`
    InvalidApiKey,
    /// `revoked_api_key`
    RevokedApiKey,
    /// `expired_api_key`
    ExpiredApiKey,
    /// `tenant_inactive`
    TenantInactive,
    /// `tenant_unavailable`
    TenantUnavailable,
    /// `insufficient_scope`
    InsufficientScope,
    /// `rate_limited`
    RateLimited,
    /// `method_not_allowed`
    MethodNotAllowed,
    /// `invalid_json`
    InvalidJson,
    /// `not_found`
    NotFound,
    /// `missing_id`
    MissingId,
    /// `no_updatable_fields`
    NoUpdatableFields,
    /// `bad_request`
    BadRequest,
    /// `validation_failed`
    ValidationFailed,
    /// `customer_not_found`
    CustomerNotFound,
    /// `employee_not_found`
    EmployeeNotFound,
    /// `has_dependents`
    HasDependents,
    /// `endpoint_not_found`
    EndpointNotFound,
    /// `unsupported_media_type`
    UnsupportedMediaType,
    /// `payload_too_large`
    PayloadTooLarge,
    /// `malformed_request`
    MalformedRequest,
    /// `invalid_idempotency_key`
    InvalidIdempotencyKey,
    /// `idempotency_key_reused`
    IdempotencyKeyReused,
    /// `internal_error`
    InternalError,
    /// `overloaded`
    Overloaded,
    /// `not_ready`
    NotReady,
    /// `changes_gone`
    ChangesGone,
    /// `precondition_failed`
    PreconditionFailed,
}

/// The properties of a condition that are the same for every occurrence.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Which condition this describes.
    pub condition: Condition,
    /// The machine-readable `code` of the envelope.
    pub code: &'static str,
    /// The HTTP status. `malformed_request` may have another one, see [`ProtocolViolation`].
    pub status: u16,
    /// What happened, for the reference.
    pub meaning: &'static str,
    /// What the client does about it, for the reference.
    pub remedy: &'static str,
}

/// Every condition, in the order of the enum.
pub static CATALOGUE: [Description; 30] = [
    Description {
        condition: Condition::MissingAuthorization,
        code: "missing_authorization",
        status: 401,
        meaning: "The header `Authorization: Bearer <API key>` is missing or names another scheme.",
        remedy: "Send the header with every request.",
    },
    Description {
        condition: Condition::MalformedApiKey,
        code: "malformed_api_key",
        status: 401,
        meaning: "The token does not start with `tdk_` or is shorter than 40 characters.",
        remedy: "Send the complete key, as it was shown when it was made.",
    },
    Description {
        condition: Condition::InvalidApiKey,
        code: "invalid_api_key",
        status: 401,
        meaning: "No key like this exists. It was mistyped or has been deleted.",
        remedy: "Check the key. A deleted key cannot come back; make a new one in the panel.",
    },
    Description {
        condition: Condition::RevokedApiKey,
        code: "revoked_api_key",
        status: 401,
        meaning: "The key has been revoked by an admin.",
        remedy: "Make a new key in the panel.",
    },
    Description {
        condition: Condition::ExpiredApiKey,
        code: "expired_api_key",
        status: 401,
        meaning: "The end of the key has come.",
        remedy: "Make a new key in the panel. Replace a key before its end: `X-Key-Expires` announces it for 14 days.",
    },
    Description {
        condition: Condition::TenantInactive,
        code: "tenant_inactive",
        status: 403,
        meaning: "The tenant's trial is over or the operator has suspended it; the message says which.",
        remedy: "Ask the operator to activate the tenant.",
    },
    Description {
        condition: Condition::TenantUnavailable,
        code: "tenant_unavailable",
        status: 503,
        meaning: "The tenant's database cannot be used at the moment. Nothing was changed.",
        remedy: "Repeat the request, with the same `Idempotency-Key`, after the seconds in `Retry-After`.",
    },
    Description {
        condition: Condition::InsufficientScope,
        code: "insufficient_scope",
        status: 403,
        meaning: "The key lacks the scope that this operation needs; `WWW-Authenticate` names it.",
        remedy: "Use a key that was made with that scope.",
    },
    Description {
        condition: Condition::RateLimited,
        code: "rate_limited",
        status: 429,
        meaning: "The key has used up the requests of this minute.",
        remedy: "Wait the seconds in `Retry-After`, or until the moment in `X-RateLimit-Reset`.",
    },
    Description {
        condition: Condition::MethodNotAllowed,
        code: "method_not_allowed",
        status: 405,
        meaning: "The endpoint does not support this HTTP method.",
        remedy: "Use one of the methods in the header `Allow`.",
    },
    Description {
        condition: Condition::InvalidJson,
        code: "invalid_json",
        status: 400,
        meaning: "The body is not one JSON object in UTF-8; the message says where.",
        remedy: "Send one JSON object, with double quotes and without trailing commas.",
    },
    Description {
        condition: Condition::NotFound,
        code: "not_found",
        status: 404,
        meaning: "The tenant has no record with this id. It never had, or the record was deleted.",
        remedy: "Check the id.",
    },
    Description {
        condition: Condition::MissingId,
        code: "missing_id",
        status: 400,
        meaning: "PUT or DELETE came without the query parameter `id`.",
        remedy: "Add `?id=<integer>`.",
    },
    Description {
        condition: Condition::NoUpdatableFields,
        code: "no_updatable_fields",
        status: 400,
        meaning: "The body of a PUT names no field that can be changed.",
        remedy: "Include at least one field of the resource other than `id`, `created_at` and `updated_at`.",
    },
    Description {
        condition: Condition::BadRequest,
        code: "bad_request",
        status: 400,
        meaning: "A parameter, header or text field is missing, unknown or unusable.",
        remedy: "Read the message: it names the parameter or field and says what would be right.",
    },
    Description {
        condition: Condition::ValidationFailed,
        code: "validation_failed",
        status: 422,
        meaning: "One or more fields break their rules; `errors` has all of them.",
        remedy: "Correct every field in `errors` and send the request again.",
    },
    Description {
        condition: Condition::CustomerNotFound,
        code: "customer_not_found",
        status: 422,
        meaning: "The customer that `customer_id` names does not exist.",
        remedy: "Create the customer first, then the employee.",
    },
    Description {
        condition: Condition::EmployeeNotFound,
        code: "employee_not_found",
        status: 422,
        meaning: "The employee that `employee_id` names does not exist.",
        remedy: "Create the employee first, or leave `employee_id` null.",
    },
    Description {
        condition: Condition::HasDependents,
        code: "has_dependents",
        status: 409,
        meaning: "Other records refer to this one, so it was not deleted; `details` has the database's message.",
        remedy: "Delete or reassign the records that depend on it first.",
    },
    Description {
        condition: Condition::EndpointNotFound,
        code: "endpoint_not_found",
        status: 404,
        meaning: "There is no endpoint at this path.",
        remedy: "Check the path against the reference.",
    },
    Description {
        condition: Condition::UnsupportedMediaType,
        code: "unsupported_media_type",
        status: 415,
        meaning: "The body is not declared as plain JSON.",
        remedy: "Send `Content-Type: application/json` and no `Content-Encoding`.",
    },
    Description {
        condition: Condition::PayloadTooLarge,
        code: "payload_too_large",
        status: 413,
        meaning: "The body is larger than 64 KiB, or that of a batch larger than 1 MiB.",
        remedy: "Send a smaller body.",
    },
    Description {
        condition: Condition::MalformedRequest,
        code: "malformed_request",
        status: 400,
        meaning: "The message is not HTTP/1.0 or 1.1, or could be read in two ways. The connection closes. Where the message cannot be \
                  read at all, the status comes alone.",
        remedy: "Use an HTTP client library; check what stands between client and server.",
    },
    Description {
        condition: Condition::InvalidIdempotencyKey,
        code: "invalid_idempotency_key",
        status: 400,
        meaning: "The header `Idempotency-Key` is not a UUID, or was given twice.",
        remedy: "Send one UUID, such as `6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d`.",
    },
    Description {
        condition: Condition::IdempotencyKeyReused,
        code: "idempotency_key_reused",
        status: 422,
        meaning: "This idempotency key came with another request within 24 hours. Nothing was changed.",
        remedy: "Make a new UUID for every new request; keep it only for repeats of the same one.",
    },
    Description {
        condition: Condition::InternalError,
        code: "internal_error",
        status: 500,
        meaning: "The service failed. The log has the cause under the request id.",
        remedy: "Report the value of the header `X-Request-Id` to the operator.",
    },
    Description {
        condition: Condition::Overloaded,
        code: "overloaded",
        status: 503,
        meaning: "The server has more requests than it can hold at the moment.",
        remedy: "Repeat the request after the seconds in `Retry-After`.",
    },
    Description {
        condition: Condition::NotReady,
        code: "not_ready",
        status: 503,
        meaning: "The registry does not answer or the data directory takes no write; `/readyz` alone says this.",
        remedy: "Look at the message and the log, then ask again after the seconds in `Retry-After`.",
    },
    Description {
        condition: Condition::ChangesGone,
        code: "changes_gone",
        status: 410,
        meaning: "Entries of the journal after this cursor are no longer kept, or the tenant was restored.",
        remedy: "Ask with `cursor=now`, read the lists again, and go on from the new cursor.",
    },
    Description {
        condition: Condition::PreconditionFailed,
        code: "precondition_failed",
        status: 412,
        meaning: "The record has another version than those in `If-Match`. Nothing was changed.",
        remedy: "Read the record, decide again, and send the `ETag` that came with it.",
    },
];

// `Condition::describe` uses a condition's discriminant as its index into the catalogue.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const _: () = {
    let mut index = 0;
    while index < CATALOGUE.len() {
        assert!(CATALOGUE[index].condition as usize == index, "the catalogue is in the order of the enum");
        index += 1;
    }
};

impl Condition {
    /// Code, status, meaning and remedy.
    #[expect(clippy::indexing_slicing, reason = "the assertion above proves that every index exists")]
    pub const fn describe(self) -> &'static Description {
        &CATALOGUE[self as usize]
    }

    /// Every condition.
    pub fn all() -> impl Iterator<Item = Condition> {
        CATALOGUE.iter().map(|description| description.condition)
    }
}

/// Why the edge rejects a message as `malformed_request` (contract section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolViolation {
    /// 400: it breaks the grammar or could be read in two ways.
    Malformed,
    /// 408: it did not come in time.
    TooSlow,
    /// 414: the target is over 8 KiB.
    TargetTooLong,
    /// 417: an `Expect` other than `100-continue`.
    Expectation,
    /// 431: the head is over 16 KiB or has too many fields.
    HeadTooLarge,
    /// 501: a transfer encoding or method that is not implemented.
    NotImplemented,
    /// 505: neither HTTP/1.0 nor 1.1.
    Version,
}

impl ProtocolViolation {
    /// Every violation, for the reference.
    pub const ALL: [ProtocolViolation; 7] = [
        ProtocolViolation::Malformed,
        ProtocolViolation::TooSlow,
        ProtocolViolation::TargetTooLong,
        ProtocolViolation::Expectation,
        ProtocolViolation::HeadTooLarge,
        ProtocolViolation::NotImplemented,
        ProtocolViolation::Version,
    ];

    /// The HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            ProtocolViolation::Malformed => 400,
            ProtocolViolation::TooSlow => 408,
            ProtocolViolation::TargetTooLong => 414,
            ProtocolViolation::Expectation => 417,
            ProtocolViolation::HeadTooLarge => 431,
            ProtocolViolation::NotImplemented => 501,
            ProtocolViolation::Version => 505,
        }
    }
}
