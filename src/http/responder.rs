//! Sending the response to one request.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::clock::{Clock, Moment};
use crate::http::access_log::{self, AccessLogEntry};
use crate::http::error::ApiError;
use crate::http::response::Response;
use crate::metrics::Metrics;

/// The header of a stored response that is sent again (contract section 8).
pub const REPLAYED: &str = "Idempotent-Replayed";

/// The version of the API, the value of the header `X-API-Version`.
pub const API_VERSION: &str = "v1";

/// What the log and the metrics say of a request, whether it could be read or not.
#[derive(Clone, Debug)]
pub struct RequestLine {
    pub method: Method,
    pub path: String,
    pub id: Uuid,
    pub client: IpAddr,
    pub received_at: Moment,
}

/// Sends the response to one request, from any thread. If it is dropped without a response, for
/// example by a panic, it sends `internal_error`.
pub struct Responder {
    /// `None` once the response has been sent.
    sender: Option<oneshot::Sender<Response>>,
    line: RequestLine,
    clock: Clock,
    metrics: Arc<Metrics>,
    tenant: String,
    key_prefix: String,
    headers: Vec<(&'static str, String)>,
}

impl Responder {
    /// Also returns where the response arrives.
    pub fn new(line: RequestLine, clock: Clock, metrics: Arc<Metrics>) -> (Responder, oneshot::Receiver<Response>) {
        let (sender, receiver) = oneshot::channel();
        let sender = Some(sender);
        let (tenant, key_prefix) = (String::new(), String::new());
        (Responder { sender, line, clock, metrics, tenant, key_prefix, headers: Vec::new() }, receiver)
    }

    /// Sets the tenant's name and the first 8 characters of the API key, for the access log.
    pub fn caller(&mut self, tenant: &str, key_prefix: &str) {
        tenant.clone_into(&mut self.tenant);
        key_prefix.clone_into(&mut self.key_prefix);
    }

    /// Adds headers to every response, such as those of the rate limit. A response that has a
    /// header of that name keeps its own.
    pub fn add_headers(&mut self, headers: impl IntoIterator<Item = (&'static str, String)>) {
        self.headers.extend(headers);
    }

    /// Whether the client still waits for the response.
    pub fn is_wanted(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// Sends the response and writes the access log entry.
    pub fn send(mut self, response: Response) {
        self.finish(response);
    }

    fn finish(&mut self, response: Response) {
        let Some(sender) = self.sender.take() else { return };
        let headers = std::mem::take(&mut self.headers);
        let response = headers.into_iter().fold(response, |response, (name, value)| match response.find_header(name) {
            Some(_) => response,
            None => response.header(name, value),
        });
        let response = response.header("X-Request-Id", self.line.id.to_string()).header("X-API-Version", API_VERSION);
        let (status, replayed) = (response.status(), response.find_header(REPLAYED).is_some());
        // The receiver is gone if the client has left.
        let _ = sender.send(response);
        let RequestLine { method, path, id, client, received_at } = &self.line;
        let duration = self.clock.now().monotonic.saturating_sub(received_at.monotonic);
        self.metrics.record_response(method.as_str(), path, status, duration);
        self.metrics.replays.add(replayed.into());
        AccessLogEntry {
            method: method.as_str(),
            path,
            status,
            duration,
            tenant: &self.tenant,
            key: &self.key_prefix,
            request_id: *id,
            client: *client,
        }
        .write();
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.is_wanted() {
            let path = access_log::printable(&self.line.path);
            tracing::error!(request_id = %self.line.id, %path, "a request was dropped without a response");
            self.finish(Response::from(ApiError::internal()));
        }
    }
}
