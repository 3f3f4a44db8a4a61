//! The way back for one request's answer.

use std::borrow::Cow;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;

use crate::clock::{Clock, Moment};
use crate::http::access_log;
use crate::http::error::ApiError;
use crate::http::response::Response;
use crate::metrics::Metrics;

/// The header of an answer that was remembered (contract section 8).
pub const REPLAYED: &str = "Idempotent-Replayed";

/// Answers one request, from any thread, now or later. Dropped without an answer, as by a panic, it answers 500
/// `internal_error`.
pub struct Responder {
    /// Taken when the answer is written.
    request: Option<tiny_http::Request>,
    /// HEAD: the head of GET's answer, its length included, and no body.
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
        parts: &crate::http::Request,
        request: tiny_http::Request,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Responder {
        let method = request.method().to_string();
        Responder {
            request: Some(request),
            head_only: method == "HEAD",
            method,
            path: parts.path.clone(),
            id: parts.id,
            client: parts.client,
            received_at: parts.received_at,
            clock,
            metrics,
            tenant: String::new(),
            key_prefix: String::new(),
            headers: Vec::new(),
        }
    }

    /// Names the tenant and the key's first 8 characters for the log line.
    pub fn caller(&mut self, tenant: &str, key_prefix: &str) {
        tenant.clone_into(&mut self.tenant);
        key_prefix.clone_into(&mut self.key_prefix);
    }

    /// Headers that the answer carries whatever it is, such as the rate limit's, unless it has its own of that name.
    pub fn add_headers(&mut self, headers: impl IntoIterator<Item = (&'static str, String)>) {
        self.headers.extend(headers);
    }

    /// Writes the answer in one piece and logs the request's line. A line that is gone is no error: nobody waits.
    pub fn send(mut self, response: Response) {
        self.finish(response);
    }

    fn finish(&mut self, response: Response) {
        let Some(request) = self.request.take() else { return };
        let headers = std::mem::take(&mut self.headers);
        let response = headers.into_iter().fold(response, |response, (name, value)| match response.find_header(name) {
            Some(_) => response,
            None => response.header(name, value),
        });
        let (status, replayed) = (response.status(), response.find_header(REPLAYED).is_some());
        let bytes = encode(response, self.id, self.head_only);
        let mut line = request.into_writer();
        if let Err(error) = line.write_all(&bytes).and_then(|()| line.flush()) {
            tracing::debug!(request_id = %self.id, %error, "the answer was not delivered");
        }
        drop(line);
        let duration = self.clock.now().monotonic.saturating_sub(self.received_at.monotonic);
        self.metrics.record_response(&self.method, &self.path, status, duration);
        self.metrics.replays.add(replayed.into());
        access_log::AccessLogEntry {
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
        if self.request.is_some() {
            tracing::error!(request_id = %self.id, path = %access_log::printable(&self.path), "a request was dropped without an answer");
            self.finish(Response::from(ApiError::internal()));
        }
    }
}

/// The answer as it goes over the private line. 204 and 304 have neither body nor length.
pub(super) fn encode(response: Response, id: Uuid, head_only: bool) -> Vec<u8> {
    let bare = matches!(response.status(), 204 | 304);
    // Room for a record too.
    let mut head = Vec::with_capacity(1024);
    // Writing to a `Vec` cannot fail.
    let _ = write!(head, "HTTP/1.1 {} \r\nX-Request-Id: {id}\r\nX-API-Version: v1\r\n", response.status());
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
        // A page leaves room: to move it costs less than memory for another that is not in the processor's caches.
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
    fn a_body_with_room_before_it_is_answered_as_one_without() {
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
