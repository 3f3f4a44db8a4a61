//! Sending the response to one request, and the access log: one entry for each request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::clock::{Clock, Moment};
use crate::http::error::ApiError;
use crate::http::response::Response;
use crate::metrics::Metrics;
use crate::secret::{KEY_START, PREFIX_LENGTH};

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
            let path = printable(&self.line.path);
            let request_id = self.line.id;
            tracing::error!(%request_id, %path, "a request was dropped without a response");
            self.finish(Response::from(ApiError::internal()));
        }
    }
}

/// What the log and the metrics say of a request, whether it could be read or not. It never has the
/// query, headers or body, which may contain secrets or personal data.
#[derive(Clone, Debug)]
pub struct RequestLine {
    pub method: Method,
    /// As sent. [`RequestLine::log`] escapes it.
    pub path: String,
    /// The value of `X-Request-Id`.
    pub id: Uuid,
    pub client: IpAddr,
    /// When the complete request was received.
    pub received_at: Moment,
}

/// Who sent a request. Both are empty if it was not authenticated.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub tenant: String,
    /// The first 8 characters of the API key.
    pub key_prefix: String,
}

impl RequestLine {
    /// Writes the entry at level INFO, with the target `request`. `duration` is from the complete
    /// request to its response.
    pub fn log(&self, caller: &Caller, status: u16, duration: Duration) {
        tracing::info!(
            target: "request",
            method = self.method.as_str(),
            path = %without_key(&printable(&self.path)),
            status,
            // Whole microseconds: 0.076 in place of 0.07592600000000001.
            duration_ms = (duration.as_secs_f64() * 1e6).round() / 1e3,
            tenant = caller.tenant,
            key = caller.key_prefix,
            request_id = %self.id,
            client = %self.client,
        );
    }
}

/// Percent-encodes every byte that is not printable ASCII. In a terminal, control characters would
/// take effect and bidirectional ones would reorder the text (contract section 11).
pub fn printable(text: &str) -> Cow<'_, str> {
    const UNPRINTABLE: &AsciiSet = &CONTROLS.add(b' ');
    utf8_percent_encode(text, UNPRINTABLE).into()
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
    fn what_is_not_printable_ascii_is_encoded_once() {
        assert_eq!(printable("/a%41?b=~"), "/a%41?b=~");
        assert_eq!(printable("\u{7f}\n \u{9b}\u{202e}ü"), "%7F%0A%20%C2%9B%E2%80%AE%C3%BC");
    }

    #[test]
    fn a_key_in_the_path_is_truncated() {
        assert_eq!(without_key("/customers.php"), "/customers.php");
        assert_eq!(without_key("/v1/tdk_abcdefgh"), "/v1/tdk_abcd…");
        assert_eq!(without_key("/tdk_"), "/tdk_");
    }
}
