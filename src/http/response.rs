//! A response as a value.

use std::borrow::Cow;

use serde_json::Value;

/// Status, headers and body. `Content-Length`, `X-Request-Id` and `X-API-Version` are added when it is encoded, `Date` by the edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    status: u16,
    headers: Vec<(&'static str, Cow<'static, str>)>,
    body: Cow<'static, [u8]>,
}

/// The `Content-Type` of every JSON body (contract section 1).
pub const JSON: &str = "application/json; charset=utf-8";

impl Response {
    /// A response with a body of the media type `content_type`.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Response {
        Response { status, headers: vec![("Content-Type", Cow::Borrowed(content_type))], body: body.into() }
    }

    /// A response with a body that is already JSON text.
    pub fn json_bytes(status: u16, body: impl Into<Cow<'static, [u8]>>) -> Response {
        Response::new(status, JSON, body)
    }

    /// A response with a JSON body.
    pub fn json(status: u16, body: &Value) -> Response {
        Response::json_bytes(status, body.to_string().into_bytes())
    }

    /// A response without a body and without `Content-Type`.
    pub fn empty(status: u16) -> Response {
        Response { status, headers: Vec::new(), body: Cow::Borrowed(&[]) }
    }

    /// Adds a header. A value with a line break, another control character or a byte beyond ASCII becomes empty, so that it cannot add
    /// headers of its own.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Response {
        let value = value.into();
        let safe = value.bytes().all(|byte| byte == b'\t' || (0x20..0x7f).contains(&byte));
        self.headers.push((name, if safe { value } else { Cow::Borrowed("") }));
        self
    }

    /// Adds several headers.
    #[must_use]
    pub fn with<V: Into<Cow<'static, str>>>(self, headers: impl IntoIterator<Item = (&'static str, V)>) -> Response {
        headers.into_iter().fold(self, |response, (name, value)| response.header(name, value))
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Name and value of each header, in the order added.
    pub fn headers(&self) -> &[(&'static str, Cow<'static, str>)] {
        &self.headers
    }

    /// The value of the first header of this name. Names are case-insensitive (RFC 9110 section 5.1).
    pub fn find_header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_ref())
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the body without copying it.
    pub fn into_body(self) -> Cow<'static, [u8]> {
        self.body
    }
}
