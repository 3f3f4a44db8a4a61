//! Sending the response to one request.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;

use crate::clock::{Clock, Moment};
use crate::http::access_log::{self, AccessLogEntry};
use crate::http::error::ApiError;
use crate::http::request::{Method, Request};
use crate::http::response::Response;
use crate::metrics::Metrics;

/// The header of a stored response that is sent again (contract section 8).
pub const REPLAYED: &str = "Idempotent-Replayed";

/// The version of the API, the value of the header `X-API-Version`.
pub const API_VERSION: &str = "v1";

/// Sends the response to one request, from any thread. If it is dropped without a response, for example by a panic, it sends
/// `internal_error`.
pub struct Responder {
    /// `None` once the response has been sent.
    connection: Option<tiny_http::Request>,
    /// The method is HEAD: the response has the `Content-Length` of GET and no body (RFC 9110 section 9.3.2).
    head_only: bool,
    method: String,
    path: String,
    id: Uuid,
    client: IpAddr,
    received_at: Moment,
    clock: Clock,
    metrics: Arc<Metrics>,
    tenant: String,
    key_prefix: String,
    headers: Vec<(&'static str, String)>,
}

impl Responder {
    pub(super) fn new(
        request: &Request,
        connection: tiny_http::Request,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Responder {
        let method = connection.method().to_string();
        Responder {
            connection: Some(connection),
            head_only: method == "HEAD",
            method,
            path: request.path.clone(),
            id: request.id,
            client: request.client,
            received_at: request.received_at,
            clock,
            metrics,
            tenant: String::new(),
            key_prefix: String::new(),
            headers: Vec::new(),
        }
    }

    /// Sets the tenant's name and the first 8 characters of the API key, for the access log.
    pub fn caller(&mut self, tenant: &str, key_prefix: &str) {
        tenant.clone_into(&mut self.tenant);
        key_prefix.clone_into(&mut self.key_prefix);
    }

    /// Adds headers to every response, such as those of the rate limit. A response that has a header of that name keeps its own.
    pub fn add_headers(&mut self, headers: impl IntoIterator<Item = (&'static str, String)>) {
        self.headers.extend(headers);
    }

    /// Sends the response and writes the access log entry. A failed connection is not an error, since the client has left.
    pub fn send(mut self, response: Response) {
        self.finish(response);
    }

    fn finish(&mut self, response: Response) {
        let Some(connection) = self.connection.take() else { return };
        let headers = std::mem::take(&mut self.headers);
        let response = headers.into_iter().fold(response, |response, (name, value)| match response.find_header(name) {
            Some(_) => response,
            None => response.header(name, value),
        });
        let (status, replayed) = (response.status(), response.find_header(REPLAYED).is_some());
        let bytes = encode(response, self.id, self.head_only);
        if let Err(error) = write(connection, &bytes) {
            tracing::debug!(request_id = %self.id, %error, "the response could not be sent");
        }
        let duration = self.clock.now().monotonic.saturating_sub(self.received_at.monotonic);
        self.metrics.record_response(Method::parse(&self.method).as_str(), &self.path, status, duration);
        self.metrics.replays.add(replayed.into());
        AccessLogEntry {
            method: &self.method,
            path: &self.path,
            status,
            duration,
            tenant: &self.tenant,
            key: &self.key_prefix,
            request_id: self.id,
            client: self.client,
        }
        .write();
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.connection.is_some() {
            tracing::error!(request_id = %self.id, path = %access_log::printable(&self.path), "a request was dropped without a response");
            self.finish(Response::from(ApiError::internal()));
        }
    }
}

/// Writes an encoded response to the upstream connection.
pub(super) fn write(connection: tiny_http::Request, bytes: &[u8]) -> io::Result<()> {
    let mut writer = connection.into_writer();
    writer.write_all(bytes).and_then(|()| writer.flush())
}

/// Encodes a response as an HTTP/1.1 message. 204 and 304 have neither body nor `Content-Length` (RFC 9110 section 8.6).
pub(super) fn encode(response: Response, id: Uuid, head_only: bool) -> Vec<u8> {
    let bare = matches!(response.status(), 204 | 304);
    // Enough for the head and one record.
    let mut head = Vec::with_capacity(1024);
    // Writing to a `Vec` cannot fail.
    let _ = write!(head, "HTTP/1.1 {} \r\nX-Request-Id: {id}\r\nX-API-Version: {API_VERSION}\r\n", response.status());
    if !bare {
        let _ = write!(head, "Content-Length: {}\r\n", response.body().len());
    }
    for (name, value) in response.headers() {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.extend_from_slice(b"\r\n");
    if bare || head_only {
        return head;
    }
    match response.into_body() {
        // The body has capacity for the head. To move it costs less than to copy it to memory that is not in the processor's caches.
        Cow::Owned(mut body) if body.capacity() - body.len() >= head.len() => {
            body.splice(0..0, head);
            body
        }
        body => {
            head.extend_from_slice(&body);
            head
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(response: Response, head_only: bool) -> String {
        String::from_utf8(encode(response, Uuid::nil(), head_only)).unwrap()
    }

    #[test]
    fn head_has_the_length_of_get_and_no_body() {
        let page = Response::json_bytes(200, &b"{}"[..]);
        assert!(text(page.clone(), false).ends_with("\r\n\r\n{}"));
        assert!(text(page.clone(), true).ends_with("\r\n\r\n"));
        assert!(text(page, true).contains("Content-Length: 2\r\n"));
    }

    #[test]
    fn a_body_with_spare_capacity_is_encoded_like_one_without() {
        let mut roomy = Vec::with_capacity(1_000);
        roomy.extend_from_slice(b"[1]");
        let tight = Response::json_bytes(200, &b"[1]"[..]);
        assert_eq!(text(Response::json_bytes(200, roomy), false), text(tight, false));
    }

    #[test]
    fn no_content_has_no_length() {
        assert!(!text(Response::empty(204), false).contains("Content-Length"));
    }
}
