//! A response as a value.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

/// Status, headers and body. The edge adds `Content-Length` and `Date`.
#[derive(Clone, Debug)]
pub struct Response(::http::Response<Cow<'static, [u8]>>);

/// The `Content-Type` of every JSON body (contract section 1).
pub const JSON: &str = "application/json; charset=utf-8";

impl Response {
    /// A response with a body of the media type `content_type`.
    pub fn new(
        status: u16,
        content_type: &'static str,
        body: impl Into<Cow<'static, [u8]>>,
    ) -> Response {
        let mut response = Response::empty(status);
        *response.0.body_mut() = body.into();
        response.header("Content-Type", content_type)
    }

    /// A response with a body that is already JSON text.
    pub fn json_bytes(status: u16, body: impl Into<Cow<'static, [u8]>>) -> Response {
        Response::new(status, JSON, body).header("X-Content-Type-Options", "nosniff")
    }

    pub fn json(status: u16, body: &Value) -> Response {
        Response::json_bytes(status, body.to_string().into_bytes())
    }

    /// The response of `/healthz` and `/readyz` while all is well.
    pub fn healthy() -> Response {
        Response::json(200, &json!({"status": "ok"}))
    }

    /// A response without a body and without `Content-Type`.
    pub fn empty(status: u16) -> Response {
        let mut response = ::http::Response::new(Cow::Borrowed(&[][..]));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().reserve(12);
        Response(response)
    }

    /// Adds a header. A value with a line break, another control character or a byte beyond ASCII
    /// becomes empty, so that it cannot add headers of its own.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Response {
        let value = HeaderValue::from_str(&value.into()).unwrap_or(HeaderValue::from_static(""));
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            self.0.headers_mut().append(name, value);
        }
        self
    }

    /// Adds several headers.
    #[must_use]
    pub fn with<V: Into<Cow<'static, str>>>(
        self,
        headers: impl IntoIterator<Item = (&'static str, V)>,
    ) -> Response {
        headers.into_iter().fold(self, |response, (name, value)| response.header(name, value))
    }

    /// Whether the response has the header `name` (in lower case).
    pub fn has_header(&self, name: &str) -> bool {
        self.0.headers().contains_key(name)
    }

    pub fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// The response as the edge sends it.
    pub fn into_inner(self) -> ::http::Response<Cow<'static, [u8]>> {
        self.0
    }
}
