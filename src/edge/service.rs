//! A request's way through the gate.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::EdgeConfig;
use super::body::{self, Collected};
use super::client_address::{self, Client, Network};
use super::connection::ConnectionState;
use super::forward::{self, ForwardError, QueuedRequest};
use super::limits::{BODY_BUDGET, HEALTH_TIMEOUT, Limits};
use super::memory_budget::{MemoryBudget, ResponseBudget};
use super::response::{self, ResponseBody, UpstreamResponse};
use super::upstream_pool::UpstreamPool;
use super::validate;
use crate::http::access_log;
use crate::http::upstream_protocol::RequestMetadata;
use crate::http::{ApiError, ProtocolViolation};
use crate::metrics::Metrics;

/// What all connections share.
pub(super) struct EdgeContext {
    pub(super) limits: Limits,
    proxies: Vec<Network>,
    pool: Arc<UpstreamPool>,
    bodies: Arc<MemoryBudget>,
    answers: Arc<ResponseBudget>,
    metrics: Arc<Metrics>,
}

/// An answer, and whether the connection closes after it.
enum Outcome {
    Forwarded { response: UpstreamResponse, close: bool },
    Local { response: crate::http::Response, close: bool },
}

impl Outcome {
    fn refusal(error: ApiError, close: bool) -> Outcome {
        Outcome::Local { response: error.into(), close }
    }
}

impl EdgeContext {
    pub(super) fn new(config: &EdgeConfig, pool: Arc<UpstreamPool>) -> EdgeContext {
        EdgeContext {
            limits: config.limits.clone(),
            proxies: config.proxies.clone(),
            pool,
            bodies: MemoryBudget::new(BODY_BUDGET),
            answers: Arc::new(ResponseBudget::default()),
            metrics: Arc::clone(&config.metrics),
        }
    }

    /// ResponseBudget one request: by handing it on, or with a refusal.
    pub(super) async fn answer(
        self: Arc<EdgeContext>,
        request: Request<Incoming>,
        peer: IpAddr,
        tls: bool,
        connection: Arc<ConnectionState>,
    ) -> Response<ResponseBody> {
        let started = Instant::now();
        let (head, body) = request.into_parts();
        let client = client_address::identify(peer, tls, &head.headers, &self.proxies);
        let id = request_id(&head.headers);
        match self.pass(&head, body, client, id, connection.over_limit).await {
            Outcome::Forwarded { response, close } => {
                response::from_upstream(response, close, &self.answers, &connection)
            }
            Outcome::Local { response, close } => {
                self.note(&head, response.status(), started.elapsed(), id, client.address);
                response::own(&response, id, close, &connection)
            }
        }
    }

    async fn pass(&self, head: &Parts, body: Incoming, client: Client, id: Uuid, over_limit: bool) -> Outcome {
        let checked = match validate::check(head) {
            Ok(checked) => checked,
            Err(error) => return Outcome::refusal(error, true),
        };
        let health = is_health(head, &checked.target);
        if over_limit {
            return if health { healthy(true) } else { Outcome::refusal(ApiError::overloaded(), true) };
        }
        let mut memory = self.bodies.permit();
        let collecting = body::collect(body, &mut memory);
        let collected = match timeout(self.limits.body_timeout, collecting).await {
            Ok(Ok(collected)) => collected,
            Ok(Err(error)) => return Outcome::refusal(error, true),
            Err(_) => {
                let slow = ApiError::malformed_request(
                    ProtocolViolation::TooSlow,
                    "The body did not come in time. Send it without long pauses.",
                );
                return Outcome::refusal(slow, true);
            }
        };
        let (bytes, body_too_large, close) = match collected {
            Collected::Whole(bytes) => (bytes, false, false),
            // Some of the body is unread, so the connection cannot be used again.
            Collected::TooLarge => (Vec::new(), true, true),
        };
        let note = RequestMetadata { id, client: client.address, secure: client.secure, body_too_large };
        let bytes = forward::rebuild(head, &checked, &note, &bytes);
        let (answer, waiting) = oneshot::channel();
        let head_only = head.method == Method::HEAD;
        let queued = QueuedRequest { bytes, head_only, client: client.address, answer, memory };
        if health {
            self.check_health(queued, waiting, close).await
        } else {
            self.forward(queued, waiting, close).await
        }
    }

    async fn forward(
        &self,
        queued: QueuedRequest,
        waiting: oneshot::Receiver<forward::ForwardResult>,
        close: bool,
    ) -> Outcome {
        if self.pool.forward(queued).is_err() {
            return Outcome::refusal(ApiError::overloaded(), close);
        }
        match waiting.await {
            Ok(Ok(response)) => Outcome::Forwarded { response, close },
            Ok(Err(ForwardError::Displaced)) => Outcome::refusal(ApiError::overloaded(), close),
            Ok(Err(ForwardError::Broken)) | Err(_) => Outcome::refusal(ApiError::internal(), close),
        }
    }

    /// `/healthz` says that the process serves, in overload too: then the gate says it itself.
    async fn check_health(
        &self,
        queued: QueuedRequest,
        waiting: oneshot::Receiver<forward::ForwardResult>,
        close: bool,
    ) -> Outcome {
        if self.pool.is_crowded() {
            return healthy(close);
        }
        match timeout(HEALTH_TIMEOUT, self.forward(queued, waiting, close)).await {
            Ok(given @ Outcome::Forwarded { .. }) => given,
            _ => healthy(close),
        }
    }

    /// Logs and counts an answer that the gate gave itself.
    fn note(&self, head: &Parts, status: u16, duration: Duration, id: Uuid, client: IpAddr) {
        let (method, path) = (head.method.as_str(), head.uri.path());
        self.metrics.record_response(method, path, status, duration);
        access_log::AccessLogEntry { method, path, status, duration, tenant: "", key: "", request_id: id, client }
            .write();
    }
}

fn is_health(head: &Parts, target: &str) -> bool {
    let path = target.split('?').next();
    path == Some("/healthz") && (head.method == Method::GET || head.method == Method::HEAD)
}

fn healthy(close: bool) -> Outcome {
    let response = crate::http::Response::json_bytes(200, &br#"{"status":"ok"}"#[..]);
    Outcome::Local { response: response.header("Cache-Control", "no-store"), close }
}

/// The client's own `X-Request-Id` where it is one UUID, else a new one.
fn request_id(headers: &HeaderMap) -> Uuid {
    let mut sent = headers.get_all("x-request-id").iter();
    let only = sent.next().filter(|_| sent.next().is_none());
    let id = only.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<Hyphenated>().ok());
    id.map_or_else(Uuid::new_v4, Uuid::from)
}
