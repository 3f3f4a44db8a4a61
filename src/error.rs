//! Every way a request can fail, and how each looks to the client (contract section 6).
//!
//! [`Condition`] is the outside of a failure: code, status, meaning, remedy, the same for every request. [`Error`] is one
//! failure with what this request needs to know about it. A status code is written here and at the three success shapes
//! of the operations, nowhere else.

use serde_json::{Map, Value, json};

use crate::api::rate_limit::Allowance;
use crate::http::response::Response;
use crate::model::Scope;

/// The conditions of contract section 6, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    MissingAuthorization,
    MalformedApiKey,
    InvalidApiKey,
    RevokedApiKey,
    TenantInactive,
    TenantUnavailable,
    InsufficientScope,
    RateLimited,
    MethodNotAllowed,
    InvalidJson,
    NotFound,
    MissingId,
    NoUpdatableFields,
    BadRequest,
    ValidationFailed,
    CustomerNotFound,
    EmployeeNotFound,
    HasDependents,
    EndpointNotFound,
    UnsupportedMediaType,
    PayloadTooLarge,
    MalformedRequest,
    InvalidIdempotencyKey,
    IdempotencyKeyReused,
    InternalError,
    Overloaded,
    NotReady,
}

/// What is true of a condition whatever the request.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The machine-readable `code` of the envelope.
    pub code: &'static str,
    /// The HTTP status. `malformed_request` may have a better one, see [`Framing`].
    pub status: u16,
    /// What happened, for the reference.
    pub meaning: &'static str,
    /// What the client does about it, for the reference.
    pub remedy: &'static str,
}

impl Condition {
    /// Every condition, for the reference and for the test that each is reached.
    pub const ALL: [Condition; 27] = [
        Condition::MissingAuthorization,
        Condition::MalformedApiKey,
        Condition::InvalidApiKey,
        Condition::RevokedApiKey,
        Condition::TenantInactive,
        Condition::TenantUnavailable,
        Condition::InsufficientScope,
        Condition::RateLimited,
        Condition::MethodNotAllowed,
        Condition::InvalidJson,
        Condition::NotFound,
        Condition::MissingId,
        Condition::NoUpdatableFields,
        Condition::BadRequest,
        Condition::ValidationFailed,
        Condition::CustomerNotFound,
        Condition::EmployeeNotFound,
        Condition::HasDependents,
        Condition::EndpointNotFound,
        Condition::UnsupportedMediaType,
        Condition::PayloadTooLarge,
        Condition::MalformedRequest,
        Condition::InvalidIdempotencyKey,
        Condition::IdempotencyKeyReused,
        Condition::InternalError,
        Condition::Overloaded,
        Condition::NotReady,
    ];

    /// Code, status, meaning and remedy.
    pub const fn describe(self) -> Description {
        const fn of(code: &'static str, status: u16, meaning: &'static str, remedy: &'static str) -> Description {
            Description { code, status, meaning, remedy }
        }
        match self {
            Condition::MissingAuthorization => of(
                "missing_authorization",
                401,
                "The header `Authorization: Bearer <API key>` is missing or names another scheme.",
                "Send the header with every request.",
            ),
            Condition::MalformedApiKey => of(
                "malformed_api_key",
                401,
                "The token does not start with `tdk_` or is shorter than 40 characters.",
                "Send the complete key, as it was shown when it was made.",
            ),
            Condition::InvalidApiKey => of(
                "invalid_api_key",
                401,
                "No key like this exists. It was mistyped or has been deleted.",
                "Check the key. A deleted key cannot come back; make a new one in the panel.",
            ),
            Condition::RevokedApiKey => {
                of("revoked_api_key", 401, "The key has been revoked by an admin.", "Make a new key in the panel.")
            }
            Condition::TenantInactive => of(
                "tenant_inactive",
                403,
                "The tenant's trial is over or the operator has suspended it; the message says which.",
                "Ask the operator to activate the tenant.",
            ),
            Condition::TenantUnavailable => of(
                "tenant_unavailable",
                503,
                "The tenant's database cannot be used at the moment. Nothing was changed.",
                "Repeat the request after the seconds in `Retry-After`.",
            ),
            Condition::InsufficientScope => of(
                "insufficient_scope",
                403,
                "The key lacks the scope that this operation needs; `WWW-Authenticate` names it.",
                "Use a key that was made with that scope.",
            ),
            Condition::RateLimited => of(
                "rate_limited",
                429,
                "The key has used up the requests of this minute.",
                "Wait the seconds in `Retry-After`, or until the moment in `X-RateLimit-Reset`.",
            ),
            Condition::MethodNotAllowed => of(
                "method_not_allowed",
                405,
                "The endpoint does not support this HTTP method.",
                "Use one of the methods in the header `Allow`.",
            ),
            Condition::InvalidJson => of(
                "invalid_json",
                400,
                "The body is not one JSON object in UTF-8; the message says where.",
                "Send one JSON object, with double quotes and without trailing commas.",
            ),
            Condition::NotFound => of(
                "not_found",
                404,
                "The tenant has no record with this id. It never had, or the record was deleted.",
                "Check the id.",
            ),
            Condition::MissingId => {
                of("missing_id", 400, "PUT or DELETE came without the query parameter `id`.", "Add `?id=<integer>`.")
            }
            Condition::NoUpdatableFields => of(
                "no_updatable_fields",
                400,
                "The body of a PUT names no field that can be changed.",
                "Include at least one field of the resource other than `id`, `created_at` and `updated_at`.",
            ),
            Condition::BadRequest => of(
                "bad_request",
                400,
                "A parameter, header or text field is missing, unknown or unusable.",
                "Read the message: it names the parameter or field and says what would be right.",
            ),
            Condition::ValidationFailed => of(
                "validation_failed",
                422,
                "One or more fields break their rules; `errors` has all of them.",
                "Correct every field in `errors` and send the request again.",
            ),
            Condition::CustomerNotFound => of(
                "customer_not_found",
                422,
                "The customer that `customer_id` names does not exist.",
                "Create the customer first, then the employee.",
            ),
            Condition::EmployeeNotFound => of(
                "employee_not_found",
                422,
                "The employee that `employee_id` names does not exist.",
                "Create the employee first, or leave `employee_id` null.",
            ),
            Condition::HasDependents => of(
                "has_dependents",
                409,
                "Other records refer to this one, so it was not deleted; `details` has the database's message.",
                "Delete or reassign the records that depend on it first.",
            ),
            Condition::EndpointNotFound => of(
                "endpoint_not_found",
                404,
                "There is no endpoint at this path.",
                "Check the path against the reference.",
            ),
            Condition::UnsupportedMediaType => of(
                "unsupported_media_type",
                415,
                "The body is not declared as plain JSON.",
                "Send `Content-Type: application/json` and no `Content-Encoding`.",
            ),
            Condition::PayloadTooLarge => {
                of("payload_too_large", 413, "The body is larger than 64 KiB.", "Send a smaller body.")
            }
            Condition::MalformedRequest => of(
                "malformed_request",
                400,
                "The message is not HTTP/1.0 or 1.1, or could be read in two ways. The connection closes.",
                "Use an HTTP client library; check what stands between client and server.",
            ),
            Condition::InvalidIdempotencyKey => of(
                "invalid_idempotency_key",
                400,
                "The header `Idempotency-Key` is not a UUID, or was given twice.",
                "Send one UUID, such as `6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d`.",
            ),
            Condition::IdempotencyKeyReused => of(
                "idempotency_key_reused",
                422,
                "This idempotency key came with another request within 24 hours. Nothing was changed.",
                "Make a new UUID for every new request; keep it only for repeats of the same one.",
            ),
            Condition::InternalError => of(
                "internal_error",
                500,
                "The service failed. The log has the cause under the request id.",
                "Report the value of the header `X-Request-Id` to the operator.",
            ),
            Condition::Overloaded => of(
                "overloaded",
                503,
                "The server has more requests than it can hold at the moment.",
                "Repeat the request after the seconds in `Retry-After`.",
            ),
            Condition::NotReady => of(
                "not_ready",
                503,
                "The registry does not answer or the data directory takes no write; `/readyz` alone says this.",
                "Look at the message and the log, then ask again after the seconds in `Retry-After`.",
            ),
        }
    }
}

/// The codes of single fields in a `validation_failed` answer: exactly these (contract section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCode {
    Required,
    InvalidEmail,
    InvalidInt,
    InvalidDate,
    InvalidBool,
    TooLong,
    TooShort,
    NotInList,
}

impl FieldCode {
    /// Every code with its meaning, for the reference.
    pub const ALL: [(FieldCode, &'static str); 8] = [
        (FieldCode::Required, "A required field is empty."),
        (FieldCode::InvalidEmail, "The value is not an e-mail address."),
        (FieldCode::InvalidInt, "The value is not a 64-bit integer."),
        (FieldCode::InvalidDate, "The value is not an existing date in the form YYYY-MM-DD."),
        (FieldCode::InvalidBool, "The value is none of true, false, 1 and 0."),
        (FieldCode::TooLong, "The value has more characters than the field takes."),
        (FieldCode::TooShort, "The value has fewer characters than the field needs."),
        (FieldCode::NotInList, "The value is not one of the allowed ones."),
    ];

    /// The code as the answer spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            FieldCode::Required => "required",
            FieldCode::InvalidEmail => "invalid_email",
            FieldCode::InvalidInt => "invalid_int",
            FieldCode::InvalidDate => "invalid_date",
            FieldCode::InvalidBool => "invalid_bool",
            FieldCode::TooLong => "too_long",
            FieldCode::TooShort => "too_short",
            FieldCode::NotInList => "not_in_list",
        }
    }
}

/// One field that broke its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub field: &'static str,
    pub code: FieldCode,
    pub message: String,
}

/// Why a tenant is inactive; a suspension is named before a trial that is over (contract section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inactive {
    Suspended,
    TrialOver,
}

/// What HTTP calls a message that the gate refuses (contract section 6, `malformed_request`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
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

impl Framing {
    /// Every one, for the reference.
    pub const ALL: [Framing; 7] = [
        Framing::Malformed,
        Framing::TooSlow,
        Framing::TargetTooLong,
        Framing::Expectation,
        Framing::HeadTooLarge,
        Framing::NotImplemented,
        Framing::Version,
    ];

    /// The HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Framing::Malformed => 400,
            Framing::TooSlow => 408,
            Framing::TargetTooLong => 414,
            Framing::Expectation => 417,
            Framing::HeadTooLarge => 431,
            Framing::NotImplemented => 501,
            Framing::Version => 505,
        }
    }
}

/// One failure of one request. `String`s are what this request needs to hear.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    MissingAuthorization,
    MalformedApiKey,
    InvalidApiKey,
    RevokedApiKey,
    TenantInactive(Inactive),
    TenantUnavailable,
    InsufficientScope(Scope),
    RateLimited(Allowance),
    /// The methods that the endpoint has, as `Allow` lists them.
    MethodNotAllowed(&'static str),
    /// What is wrong and where.
    InvalidJson(String),
    /// The resource's name and the id that was asked for.
    NotFound(&'static str, String),
    MissingId,
    /// The fields that the resource has.
    NoUpdatableFields(Vec<&'static str>),
    BadRequest(String),
    ValidationFailed(Vec<FieldError>),
    CustomerNotFound(i64),
    EmployeeNotFound(i64),
    /// The database's own message.
    HasDependents(String),
    EndpointNotFound,
    UnsupportedMediaType(String),
    PayloadTooLarge,
    MalformedRequest(Framing, String),
    InvalidIdempotencyKey(String),
    IdempotencyKeyReused,
    InternalError,
    Overloaded,
    /// What failed.
    NotReady(String),
}

/// A failure in the three parts an answer is made of.
struct Answer {
    condition: Condition,
    message: String,
    headers: Vec<(&'static str, String)>,
    /// Members beside `error`.
    extra: Map<String, Value>,
}

impl Answer {
    fn new(condition: Condition, message: String) -> Answer {
        Answer { condition, message, headers: Vec::new(), extra: Map::new() }
    }

    fn header(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    fn with(mut self, headers: impl IntoIterator<Item = (&'static str, String)>) -> Answer {
        self.headers.extend(headers);
        self
    }

    fn extra(mut self, name: &str, value: Value) -> Answer {
        self.extra.insert(name.to_owned(), value);
        self
    }
}

const INVALID_TOKEN: &str = "Bearer error=\"invalid_token\"";

impl Error {
    /// Which condition this is.
    pub fn condition(&self) -> Condition {
        self.answer().condition
    }

    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Error::MalformedRequest(framing, _) => framing.status(),
            other => other.condition().describe().status,
        }
    }

    /// The text for people that the answer carries.
    pub fn message(&self) -> String {
        self.answer().message
    }

    fn answer(&self) -> Answer {
        let new = Answer::new;
        match self {
            Error::MissingAuthorization => new(
                Condition::MissingAuthorization,
                "The header \"Authorization\" is missing or has no Bearer token. Send \"Authorization: Bearer <API key>\".".into(),
            )
            .header("WWW-Authenticate", "Bearer"),
            Error::MalformedApiKey => new(
                Condition::MalformedApiKey,
                "The API key is malformed: it must start with \"tdk_\" and have at least 40 characters. Send the complete key.".into(),
            )
            .header("WWW-Authenticate", INVALID_TOKEN),
            Error::InvalidApiKey => new(
                Condition::InvalidApiKey,
                "This API key does not exist. Check it, or make a new one in the panel if it was deleted.".into(),
            )
            .header("WWW-Authenticate", INVALID_TOKEN),
            Error::RevokedApiKey => new(
                Condition::RevokedApiKey,
                "This API key has been revoked. Make a new one in the panel.".into(),
            )
            .header("WWW-Authenticate", INVALID_TOKEN),
            Error::TenantInactive(Inactive::Suspended) => new(
                Condition::TenantInactive,
                "The tenant has been suspended by the operator. Ask the operator to activate it.".into(),
            ),
            Error::TenantInactive(Inactive::TrialOver) => new(
                Condition::TenantInactive,
                "The tenant's trial is over. Ask the operator to activate the tenant.".into(),
            ),
            Error::TenantUnavailable => new(
                Condition::TenantUnavailable,
                "The tenant's database cannot be used at the moment, and nothing was changed. Try again in 5 seconds.".into(),
            )
            .header("Retry-After", "5"),
            Error::InsufficientScope(scope) => new(
                Condition::InsufficientScope,
                format!("This API key lacks the scope \"{scope}\". Use a key that was made with it."),
            )
            .header("WWW-Authenticate", format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"")),
            Error::RateLimited(allowance) => new(
                Condition::RateLimited,
                format!("This API key has used its {} requests of this minute. Wait 60 seconds, or until the moment in X-RateLimit-Reset.", allowance.limit),
            )
            .header("Retry-After", "60")
            .with(allowance.headers()),
            Error::MethodNotAllowed(allow) => new(
                Condition::MethodNotAllowed,
                format!("This endpoint does not support the request's method. Use one of: {allow}."),
            )
            .header("Allow", *allow),
            Error::InvalidJson(what) => new(Condition::InvalidJson, what.clone()),
            Error::NotFound(resource, id) => {
                new(Condition::NotFound, format!("There is no {resource} with the id {id}. Check the id."))
            }
            Error::MissingId => {
                new(Condition::MissingId, "The query parameter \"id\" is missing. Add \"?id=<integer>\".".into())
            }
            Error::NoUpdatableFields(fields) => new(
                Condition::NoUpdatableFields,
                format!("The body names no field that can be changed. Include at least one of: {}.", fields.join(", ")),
            ),
            Error::BadRequest(hint) => new(Condition::BadRequest, hint.clone()),
            Error::ValidationFailed(faults) => validation_failed(faults),
            Error::CustomerNotFound(id) => new(
                Condition::CustomerNotFound,
                format!("There is no customer with the id {id} for \"customer_id\". Create the customer first."),
            ),
            Error::EmployeeNotFound(id) => new(
                Condition::EmployeeNotFound,
                format!("There is no employee with the id {id} for \"employee_id\". Create the employee first, or send null."),
            ),
            Error::HasDependents(details) => new(
                Condition::HasDependents,
                "Other records refer to this one, so it was not deleted. Delete or reassign them first.".into(),
            )
            .extra("details", json!(details)),
            Error::EndpointNotFound => new(
                Condition::EndpointNotFound,
                "There is no endpoint at this path. Paths are compared exactly; /docs lists them.".into(),
            ),
            Error::UnsupportedMediaType(what) => new(Condition::UnsupportedMediaType, what.clone()),
            Error::PayloadTooLarge => new(
                Condition::PayloadTooLarge,
                "The body is larger than this endpoint takes. A JSON body may have at most 64 KiB (65536 bytes).".into(),
            ),
            Error::MalformedRequest(_, what) => new(Condition::MalformedRequest, what.clone()),
            Error::InvalidIdempotencyKey(what) => new(Condition::InvalidIdempotencyKey, what.clone()),
            Error::IdempotencyKeyReused => new(
                Condition::IdempotencyKeyReused,
                "This \"Idempotency-Key\" was used for another request in the last 24 hours. Make a new UUID for a new request.".into(),
            ),
            Error::InternalError => new(
                Condition::InternalError,
                "The service failed. Report the value of the header X-Request-Id to the operator.".into(),
            ),
            Error::Overloaded => new(
                Condition::Overloaded,
                "The server has too many requests at the moment. Try again in a second.".into(),
            )
            .header("Retry-After", "1"),
            Error::NotReady(what) => {
                new(Condition::NotReady, format!("The service is not ready: {what}. Ask again in 5 seconds.")).header("Retry-After", "5")
            }
        }
    }
}

fn validation_failed(faults: &[FieldError]) -> Answer {
    let names: Vec<&str> = faults.iter().map(|fault| fault.field).collect();
    let errors: Map<String, Value> = faults
        .iter()
        .map(|fault| (fault.field.to_owned(), json!({"code": fault.code.as_str(), "message": fault.message})))
        .collect();
    Answer::new(
        Condition::ValidationFailed,
        format!("These fields are not valid: {}. Correct what \"errors\" says of each.", names.join(", ")),
    )
    .extra("errors", Value::Object(errors))
    .extra("fields", json!(names))
}

impl From<Error> for Response {
    /// The envelope `{"error": {"code", "message", "status"}}` with the condition's headers and extra members. No failure is
    /// worth keeping in a cache, wherever it comes from.
    fn from(error: Error) -> Response {
        let status = error.status();
        let answer = error.answer();
        let code = answer.condition.describe().code;
        let mut body = Map::new();
        body.insert("error".to_owned(), json!({"code": code, "message": answer.message, "status": status}));
        body.extend(answer.extra);
        Response::json(status, &Value::Object(body)).header("Cache-Control", "no-store").with(answer.headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_has_every_condition_once_and_no_code_twice() {
        let codes: std::collections::BTreeSet<_> = Condition::ALL.iter().map(|c| c.describe().code).collect();
        assert_eq!(codes.len(), Condition::ALL.len());
        assert!(Condition::ALL.is_sorted());
        assert_eq!(Condition::ALL.last().copied(), Some(Condition::NotReady), "the last of the enum");
        assert_eq!(Condition::NotReady as usize + 1, Condition::ALL.len());
    }
}
