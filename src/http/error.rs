//! An API error as a value.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::error_code::ErrorCode;
use super::response::Response;

/// One failed request: a code, and the message, headers and members for this occurrence.
///
/// The module where a failure arises builds it: the rate limiter adds its own headers, validation
/// its own members. The cause of an `internal_error` goes to the log, never into this value.
///
/// Boxed, since nearly every function of the API may return one.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError(Box<Content>);

#[derive(Clone, Debug, PartialEq)]
struct Content {
    code: ErrorCode,
    status: u16,
    message: Cow<'static, str>,
    headers: Vec<(&'static str, Cow<'static, str>)>,
    members: Map<String, Value>,
}

impl ApiError {
    /// An error with the code's status and without headers. `message` is for people and ends with
    /// what to do.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> ApiError {
        let status = code.describe().status;
        let message = message.into();
        ApiError(Box::new(Content {
            code,
            status,
            message,
            headers: Vec::new(),
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
    pub fn method_not_allowed(allow: &str) -> ApiError {
        let about_put =
            if allow.contains("PUT") { " PUT changes only the fields in its body." } else { "" };
        let message = format!(
            "This endpoint does not support the request's method. Use one of: {allow}.{about_put}"
        );
        ApiError::new(ErrorCode::MethodNotAllowed, message).header("Allow", allow.to_owned())
    }

    /// `internal_error`. The caller logs the cause.
    pub fn internal() -> ApiError {
        ErrorCode::InternalError.into()
    }

    pub fn overloaded() -> ApiError {
        let message = "The server has too many requests at the moment. Try again in a second.";
        ApiError::new(ErrorCode::Overloaded, message).header("Retry-After", "1")
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

impl From<ApiError> for Response {
    /// The envelope `{"error": {"code", "message", "status"}}` of contract section 6.
    fn from(ApiError(error): ApiError) -> Response {
        let code = error.code.describe().code;
        let mut body = Map::new();
        body.insert(
            "error".to_owned(),
            json!({"code": code, "message": error.message, "status": error.status}),
        );
        body.extend(error.members);
        Response::json(error.status, &Value::Object(body)).with(error.headers)
    }
}
