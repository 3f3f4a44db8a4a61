//! Sending the response to one request.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::http::access_log::{self, Caller, RequestLine};
use crate::http::error::ApiError;
use crate::http::response::Response;
use crate::metrics::Metrics;

/// The header of a stored response that is sent again (contract section 8).
pub const REPLAYED: &str = "Idempotent-Replayed";

/// The version of the API, the value of the header `X-API-Version`.
pub const API_VERSION: &str = "v1";

/// Sends the response to one request, from any thread. If it is dropped without a response, for
/// example by a panic, it sends `internal_error`.
pub struct Responder {
    /// `None` once the response has been sent.
    sender: Option<oneshot::Sender<Response>>,
    line: RequestLine,
    clock: Clock,
    metrics: Arc<Metrics>,
    caller: Caller,
    headers: Vec<(&'static str, String)>,
}

impl Responder {
    /// Also returns where the response arrives.
    pub fn new(
        line: RequestLine,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> (Responder, oneshot::Receiver<Response>) {
        let (sender, receiver) = oneshot::channel();
        let (sender, caller, headers) = (Some(sender), Caller::default(), Vec::new());
        (Responder { sender, line, clock, metrics, caller, headers }, receiver)
    }

    /// Sets the tenant's name and the first 8 characters of the API key, for the access log.
    pub fn caller(&mut self, tenant: &str, key_prefix: &str) {
        self.caller = Caller { tenant: tenant.to_owned(), key_prefix: key_prefix.to_owned() };
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
        let response = headers.into_iter().fold(response, |response, (name, value)| match response
            .find_header(name)
        {
            Some(_) => response,
            None => response.header(name, value),
        });
        let response = response
            .header("X-Request-Id", self.line.id.to_string())
            .header("X-API-Version", API_VERSION);
        let (status, replayed) = (response.status(), response.find_header(REPLAYED).is_some());
        // The receiver is gone if the client has left.
        let _ = sender.send(response);
        let RequestLine { method, path, received_at, .. } = &self.line;
        let duration = self.clock.now().monotonic.saturating_sub(received_at.monotonic);
        self.metrics.record_response(method.as_str(), path, status, duration);
        self.metrics.replays.inc_by(replayed.into());
        self.line.log(&self.caller, status, duration);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.is_wanted() {
            let path = access_log::printable(&self.line.path);
            let request_id = self.line.id;
            tracing::error!(%request_id, %path, "a request was dropped without a response");
            self.finish(Response::from(ApiError::internal()));
        }
    }
}
