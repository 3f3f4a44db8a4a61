//! A response as a value, and the way of the response to the client. The access log has one entry
//! for each request.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::error::ApiError;
use super::request::{MAX_METHOD, Request};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::secret::{KEY_START, PREFIX_LENGTH};

/// Status, headers and body. The edge adds `Content-Length` and `Date`.
#[derive(Clone, Debug)]
pub struct Response(::http::Response<Cow<'static, [u8]>>);

/// The `Content-Type` of every JSON body (contract section 1).
pub const JSON: &str = "application/json; charset=utf-8";

/// The `Content-Type` of every page.
pub const HTML: &str = "text/html; charset=utf-8";

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

    /// Adds the headers that protect a page, or a redirect to one, in the browser.
    #[must_use]
    pub fn protect(self, policy: &'static str) -> Response {
        self.header("Content-Security-Policy", policy)
            .header("X-Frame-Options", "DENY")
            .header("X-Content-Type-Options", "nosniff")
            // With `no-referrer`, a browser sends `Origin: null` with the panel's forms.
            .header("Referrer-Policy", "same-origin")
    }

    pub fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// The response as the edge sends it.
    pub fn into_inner(self) -> ::http::Response<Cow<'static, [u8]>> {
        self.0
    }
}

impl From<ApiError> for Response {
    fn from(error: ApiError) -> Response {
        let body = Value::Object(error.envelope());
        Response::json(error.0.status, &body).with(error.0.headers)
    }
}

/// The version of the API, the value of the header `X-API-Version`.
pub const API_VERSION: &str = "v1";

/// The status in log and metrics of a request whose client disconnected before the response. No
/// client receives it. nginx uses the same number.
const CLIENT_DISCONNECTED: u16 = 499;

/// Brings responses to the edge from other threads. To wake the edge is a system call, so one wake
/// brings all responses that wait.
#[derive(Default)]
pub struct ResponseQueue {
    waiting: Mutex<Vec<(oneshot::Sender<Response>, Response)>>,
    wake: Notify,
}

impl ResponseQueue {
    fn push(&self, sender: oneshot::Sender<Response>, response: Response) {
        let mut waiting = self.waiting.lock();
        waiting.push((sender, response));
        let is_first = waiting.len() == 1;
        drop(waiting);
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Runs in the edge, and gives each response to the request that waits for it.
    pub async fn deliver(&self) {
        loop {
            self.wake.notified().await;
            let waiting = std::mem::take(&mut *self.waiting.lock());
            for (sender, response) in waiting {
                // The client may have disconnected.
                let _ = sender.send(response);
            }
        }
    }
}

/// A request, and the way back for its response, from any thread. If it is dropped without a
/// response, for example by a panic, it sends `internal_error`.
///
/// The log and the metrics never have the query, headers or body, which may contain secrets or
/// personal data.
pub struct Responder {
    pub request: Arc<Request>,
    /// `None` once the response has been sent.
    sender: Option<oneshot::Sender<Response>>,
    queue: Arc<ResponseQueue>,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// Empty if the request was not authenticated.
    tenant: String,
    /// The first 8 characters of the API key, or empty.
    key_prefix: String,
    headers: Vec<(&'static str, String)>,
    _held: Option<Box<dyn Any + Send>>,
}

impl Responder {
    /// `held` lives as long as the request: the body takes memory until then, although the client
    /// may have disconnected. Also returns where the response arrives.
    pub fn new(
        request: Request,
        held: Option<Box<dyn Any + Send>>,
        queue: Arc<ResponseQueue>,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> (Responder, oneshot::Receiver<Response>) {
        let (sender, receiver) = oneshot::channel();
        let responder = Responder {
            request: Arc::new(request),
            sender: Some(sender),
            queue,
            clock,
            metrics,
            tenant: String::new(),
            key_prefix: String::new(),
            headers: Vec::new(),
            _held: held,
        };
        (responder, receiver)
    }

    /// Sets the tenant's name and the first 8 characters of the API key, for the access log.
    pub fn log_tenant(&mut self, tenant: &str, key_prefix: &str) {
        self.tenant = tenant.to_owned();
        self.key_prefix = key_prefix.to_owned();
    }

    /// Adds headers to every possible response to the request, errors too. Example:
    /// `X-RateLimit-Remaining`.
    pub fn add_headers(&mut self, headers: impl IntoIterator<Item = (&'static str, String)>) {
        self.headers.extend(headers);
    }

    /// Sends the response and writes the access log entry.
    pub fn send(mut self, response: Response) {
        self.finish(response);
    }

    fn finish(&mut self, response: Response) {
        let Some(sender) = self.sender.take() else { return };
        // Records are private, and `/readyz` is of this moment. Only a document that is the same
        // for every client has a `Cache-Control` of its own.
        let has_caching = response.0.headers().contains_key("cache-control");
        let caching = (!has_caching).then_some(("Cache-Control", "no-store"));
        let response = response
            .with(std::mem::take(&mut self.headers))
            .with(caching)
            .header("X-Request-Id", self.request.id.to_string())
            .header("X-API-Version", API_VERSION);
        let status = if sender.is_closed() { CLIENT_DISCONNECTED } else { response.status() };
        self.queue.push(sender, response);
        let Request { method, path, received_at, .. } = &*self.request;
        let duration = self.clock.now().monotonic.saturating_sub(received_at.monotonic);
        self.metrics.record_response(method.as_str(), path, status, duration);
        self.log(status, duration);
    }

    fn log(&self, status: u16, duration: Duration) {
        let Request { method, path, id, client, .. } = &*self.request;
        let method = method.as_str();
        tracing::info!(
            target: "request",
            method = method.get(..MAX_METHOD).unwrap_or(method),
            path = %without_key(path),
            status,
            // Whole microseconds: 0.076 in place of 0.07592600000000001.
            duration_ms = (duration.as_secs_f64() * 1e6).round() / 1e3,
            tenant = self.tenant,
            key = self.key_prefix,
            request_id = %id,
            client = %client,
        );
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let Some(sender) = &self.sender else { return };
        if !sender.is_closed() {
            let (request_id, path) = (self.request.id, without_key(&self.request.path));
            tracing::error!(%request_id, %path, "a request was dropped without a response");
        }
        self.finish(Response::from(ApiError::internal()));
    }
}

/// Truncates an API key in the path to its prefix. Clients sometimes send a key in the wrong place.
fn without_key(path: &str) -> Cow<'_, str> {
    match path
        .find(KEY_START)
        .and_then(|at| path.get(..at + PREFIX_LENGTH).filter(|kept| kept.len() < path.len()))
    {
        Some(kept) => format!("{kept}…").into(),
        None => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_the_path_is_truncated() {
        assert_eq!(without_key("/customers.php"), "/customers.php");
        assert_eq!(without_key("/v1/tdk_abcdefgh"), "/v1/tdk_abcd…");
        assert_eq!(without_key("/tdk_"), "/tdk_");
    }
}
