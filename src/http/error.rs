//! Errors of the API: the table of codes (contract section 5), one occurrence as a value, and the
//! words for a failure of the store.

use std::borrow::Cow;

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::model::{FieldError, RecordId};
use crate::store::registry::Inactive;
use crate::store::{MAX_CHANGED_SINCE, Rejection, StoreCode, StoreError};
use crate::words::grouped;

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
        /// A code that a client can meet. Documents list the codes in this order.
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
        "The tenant's database cannot be used or written at the moment; the message says why. \
         Nothing was changed.",
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
        "The customer that `customer_id`, `customer_number` or `customer_email` names does not \
         exist.",
        "Create the customer first.";
    EmployeeNotFound = ("employee_not_found", 422):
        "The employee that `employee_id`, `employee_number` or `employee_email` names does not \
         exist.",
        "Create the employee first, or leave `employee_id` null.";
    HasDependents = ("has_dependents", 409):
        "Other records refer to this one, so it was not deleted, and `details` has the database's \
         message; or too many devices would move with an employee.",
        "Delete or reassign the records that depend on it first.";
    AmbiguousRecord = ("ambiguous_record", 409):
        "Several records have the value of the field that `update_by` names, or of a member such \
         as `customer_number`. Nothing was changed.",
        "Look at the records in the message. Keep one, or name one of them by its id.";
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
        "This idempotency key came with another request within 24 hours: another method, path, \
         `id` or `update_by`, or other bytes in the body, even if only their order differs. \
         Nothing was changed.",
        "Make a new UUID for every new request. For a repeat, send the same bytes.";
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
         restored. Of a moment `at`: it is before the past begins.",
        "Ask with `cursor=now`, read the lists again, and go on from the new cursor. Ask for a \
         later moment.";
    PreconditionFailed = ("precondition_failed", 412):
        "The record has another version than those in `If-Match`, or `update_by` finds no record \
         for `If-Match`, or one in spite of `If-None-Match`. Nothing was changed.",
        "Read the record, decide again, and send its `etag`. If the record should only be created, \
         nothing is left to do.";
}

impl ErrorCode {
    /// The code with this name. A test looks for the names that the program uses.
    pub fn named(name: &str) -> ErrorCode {
        let mut codes = ErrorCode::all();
        codes.find(|code| code.describe().code == name).unwrap_or(ErrorCode::InternalError)
    }
}

/// One failed request: a code, and the message, headers and members for this occurrence.
///
/// The module where a failure arises builds it: the rate limiter adds its own headers, validation
/// its own members. The cause of an `internal_error` goes to the log, never into this value.
///
/// Boxed, since nearly every function of the API may return one.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError(pub(super) Box<Occurrence>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Occurrence {
    code: ErrorCode,
    pub(super) status: u16,
    message: Cow<'static, str>,
    pub(super) headers: Vec<(&'static str, Cow<'static, str>)>,
    /// The record that is there already.
    record: Option<RecordId>,
    members: Map<String, Value>,
}

impl ApiError {
    /// An error with the code's status and without headers. `message` is for people and ends with
    /// what to do.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> ApiError {
        let status = code.describe().status;
        let message = message.into();
        ApiError(Box::new(Occurrence {
            code,
            status,
            message,
            headers: Vec::new(),
            record: None,
            members: Map::new(),
        }))
    }

    /// Adds a response header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> ApiError {
        self.0.headers.push((name, value.into()));
        self
    }

    /// Adds a member to the top level of the body, next to `error`.
    #[must_use]
    pub fn member(mut self, name: &str, value: impl Into<Value>) -> ApiError {
        self.0.members.insert(name.to_owned(), value.into());
        self
    }

    /// Says that the operation of a batch with this number, counted from 0, has failed. An earlier
    /// operation may have given the record another version, which is rolled back. So there is no
    /// `ETag`.
    #[must_use]
    pub fn of_operation(mut self, number: usize) -> ApiError {
        self.0.message = format!("Operation {number}: {}", self.0.message).into();
        self.0.headers.retain(|(name, _)| *name != "ETag");
        self.member("operation", number)
    }

    /// The error of the first of these operations of a batch. The member `operations` has all.
    pub fn of_operations(failed: Vec<(usize, ApiError)>) -> Option<ApiError> {
        let operations: Vec<Value> = failed
            .iter()
            .map(|(number, error)| {
                let mut operation = Map::new();
                operation.insert("operation".to_owned(), (*number).into());
                operation.extend(error.envelope());
                operation.into()
            })
            .collect();
        let (number, first) = failed.into_iter().next()?;
        Some(first.of_operation(number).member("operations", operations))
    }

    pub(super) fn envelope(&self) -> Map<String, Value> {
        let Occurrence { code, status, message, record, members, .. } = &*self.0;
        let code = code.describe().code;
        let mut body = Map::new();
        let mut error = json!({"code": code, "message": message, "status": status});
        if let (Some(id), Some(error)) = (record, error.as_object_mut()) {
            error.insert("id".to_owned(), json!(id));
        }
        body.insert("error".to_owned(), error);
        body.extend(members.clone());
        body
    }

    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// `bad_request`. `hint` names the fault and a correct value.
    pub fn bad_request(hint: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(ErrorCode::BadRequest, hint)
    }

    /// `malformed_request` with one of its statuses.
    pub fn malformed_request(
        status: StatusCode,
        message: impl Into<Cow<'static, str>>,
    ) -> ApiError {
        let mut error = ApiError::new(ErrorCode::MalformedRequest, message);
        error.0.status = status.as_u16();
        error
    }

    /// `method_not_allowed`; `allow` is the value of `Allow`.
    pub fn method_not_allowed(method: &Method, allow: &str) -> ApiError {
        let hint = match *method {
            Method::OPTIONS => {
                " There are no CORS headers: call the API from a server, and not from a page in a \
                 browser."
            }
            _ if allow.contains("PUT") => " PUT changes only the fields in its body.",
            _ => "",
        };
        let message = format!(
            "This endpoint does not support the request's method. Use one of: {allow}.{hint}"
        );
        ApiError::new(ErrorCode::MethodNotAllowed, message).header("Allow", allow.to_owned())
    }

    /// `internal_error`. The caller logs the cause.
    pub fn internal() -> ApiError {
        ErrorCode::InternalError.into()
    }

    /// A failure that is none of one tenant's file, such as one of the registry. The cause goes to
    /// the log, not to the client.
    pub fn of_service(error: &StoreError) -> ApiError {
        tracing::error!(%error, "a request failed");
        ApiError::internal()
    }

    pub fn overloaded() -> ApiError {
        ApiError::from(ErrorCode::Overloaded).header("Retry-After", "1")
    }

    /// `not_ready`; `failed` names what failed.
    pub fn not_ready(failed: &str) -> ApiError {
        let message = format!("The service is not ready: {failed}. Ask again in 5 seconds.");
        ApiError::new(ErrorCode::NotReady, message).header("Retry-After", "5")
    }
}

impl From<ErrorCode> for ApiError {
    /// The error in the words of the reference, where an occurrence has nothing to add.
    fn from(code: ErrorCode) -> ApiError {
        let about = code.describe();
        let message = format!("{} {}", about.meaning, about.remedy);
        ApiError::new(code, message.replace('`', "\""))
    }
}

fn tenant_unavailable(message: &'static str) -> ApiError {
    ApiError::new(ErrorCode::TenantUnavailable, message).header("Retry-After", "5")
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> ApiError {
        let code = ErrorCode::named(rejection.code());
        let mut error = ApiError::new(code, rejection.message());
        match rejection {
            Rejection::InvalidFields(faults) if code == ErrorCode::ValidationFailed => {
                let fields: Vec<&str> = faults.iter().map(|fault| &*fault.field).collect();
                let errors: Map<String, Value> =
                    faults.iter().map(|fault| (fault.field.clone(), of_field(fault))).collect();
                error.member("errors", errors).member("fields", fields)
            }
            Rejection::PreconditionFailed { present: Some(version), .. } => {
                error.header("ETag", version.etag())
            }
            Rejection::RecordExists(id, version) => {
                error.0.record = Some(id);
                error.header("ETag", version.etag())
            }
            Rejection::HasDependents { details, .. } => error.member("details", details),
            _ => error,
        }
    }
}

fn of_field(FieldError { code, message, .. }: &FieldError) -> Value {
    json!({"code": code.as_str(), "message": message})
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match error.code {
            StoreCode::Rejected(rejection) => ApiError::from(*rejection),
            StoreCode::Busy => tenant_unavailable(
                "An import or another program holds the tenant's database, so nothing was changed. \
                 Try again in 5 seconds.",
            ),
            StoreCode::Interrupted => tenant_unavailable(
                "The change, or one that was to be stored with it, took longer than 5 seconds, so \
                 nothing was changed. Try again in 5 seconds.",
            ),
            StoreCode::QueueFull => ApiError::overloaded(),
            StoreCode::SizeLimit => tenant_unavailable(
                "The tenant has reached its size limit, so nothing was changed. Delete records, \
                 or ask the operator for more space.",
            ),
            StoreCode::DiskFull => tenant_unavailable(
                "The disk has too little free space, so nothing was changed. Delete records, or \
                 ask the operator for more space.",
            ),
            StoreCode::Inactive(reason) => reason.into(),
            StoreCode::TimedOut => ApiError::bad_request(
                "The list took longer than 5 seconds and was ended. Ask for less: use a filter. \
                 In a list of records, leave out \"total\", sort by \"id\", or search for longer \
                 words.",
            ),
            StoreCode::Gone(begin) => ApiError::new(
                ErrorCode::ChangesGone,
                format!(
                    "The first moment that can be read is {begin}: the tenant was created then, or \
                     the change log has no older entries."
                ),
            ),
            StoreCode::TooManyChanges(count) => ApiError::bad_request(format!(
                "{} records have changed since the moment \"at\", and a list takes at most {}. \
                 Ask for a later moment, or ask the operator for \"export --at\".",
                grouped(count.unsigned_abs()),
                grouped(MAX_CHANGED_SINCE.unsigned_abs())
            )),
            StoreCode::Other => ApiError::of_service(&error),
            _ => tenant_unavailable(
                "The tenant's database cannot be used until the operator has repaired it, and \
                 nothing was changed. The server's log has the cause. Try again later.",
            ),
        }
    }
}

impl From<Inactive> for ApiError {
    fn from(reason: Inactive) -> ApiError {
        let message = match reason {
            Inactive::Suspended => {
                "The tenant has been suspended by the operator. Ask the operator to activate it."
            }
            Inactive::Moving => {
                let message = "The tenant is on its way to another machine, and nothing was \
                               changed. Try again in 2 seconds.";
                let error = ApiError::new(ErrorCode::TenantUnavailable, message);
                return error.header("Retry-After", "2");
            }
            Inactive::TrialOver => {
                "The tenant's trial is over. Ask the operator to activate the tenant."
            }
        };
        ApiError::new(ErrorCode::TenantInactive, message)
    }
}
