//! A response as a value.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

/// Status, headers and body. The edge adds `Content-Length` and `Date`.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Cow<'static, [u8]>,
}

/// The `Content-Type` of every JSON body (contract section 1).
pub const JSON: &str = "application/json; charset=utf-8";

impl Response {
    /// A response with a body of the media type `content_type`.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Response {
        Response { body: body.into(), ..Response::empty(status) }.header("Content-Type", content_type)
    }

    /// A response with a body that is already JSON text.
    pub fn json_bytes(status: u16, body: impl Into<Cow<'static, [u8]>>) -> Response {
        Response::new(status, JSON, body).header("X-Content-Type-Options", "nosniff")
    }

    /// A response with a JSON body.
    pub fn json(status: u16, body: &Value) -> Response {
        Response::json_bytes(status, body.to_string().into_bytes())
    }

    /// The response of `/healthz` and `/readyz` while all is well.
    pub fn healthy() -> Response {
        Response::json(200, &json!({"status": "ok"})).header("Cache-Control", "no-store")
    }

    /// A response without a body and without `Content-Type`.
    pub fn empty(status: u16) -> Response {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Response { status, headers: HeaderMap::with_capacity(12), body: Cow::Borrowed(&[]) }
    }

    /// Adds a header. A value with a line break, another control character or a byte beyond ASCII
    /// becomes empty, so that it cannot add headers of its own.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Response {
        let value = HeaderValue::from_str(&value.into()).unwrap_or(HeaderValue::from_static(""));
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            self.headers.append(name, value);
        }
        self
    }

    /// Adds several headers.
    #[must_use]
    pub fn with<V: Into<Cow<'static, str>>>(self, headers: impl IntoIterator<Item = (&'static str, V)>) -> Response {
        headers.into_iter().fold(self, |response, (name, value)| response.header(name, value))
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// Every header.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The value of the first header of this name.
    pub fn find_header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Status, headers and body, for the edge.
    pub fn into_parts(self) -> (StatusCode, HeaderMap, Cow<'static, [u8]>) {
        (self.status, self.headers, self.body)
    }
}
