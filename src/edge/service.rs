//! The handling of one request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use ipnet::IpNet;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::body::{self, Collected};
use super::client_address::{self, Client};
use super::connection_state::ConnectionState;
use super::forward::{self, ForwardResult, QueuedRequest};
use super::limits::{BODY_BUDGET, HEALTH_TIMEOUT, LARGE_BODY_BUDGET};
use super::memory_budget::{MemoryBudget, MemoryPermit, ResponseBudget};
use super::parts::EdgeParts;
use super::response::{self, ResponseBody};
use super::upstream_pool::UpstreamPool;
use super::upstream_response::{ForwardError, UpstreamResponse};
use super::validate;
use crate::config::ConnectionLimits;
use crate::http::access_log::AccessLogEntry;
use crate::http::request::MAX_BODY;
use crate::http::upstream_protocol::RequestMetadata;
use crate::http::{ApiError, Method as LabelMethod, ProtocolViolation};
use crate::metrics::Metrics;

/// What all connections share.
pub(super) struct EdgeContext {
    pub(super) limits: ConnectionLimits,
    proxies: Vec<IpNet>,
    pool: Arc<UpstreamPool>,
    max_body: fn(&str) -> usize,
    body_budget: Arc<MemoryBudget>,
    large_body_budget: Arc<MemoryBudget>,
    response_budget: Arc<ResponseBudget>,
    metrics: Arc<Metrics>,
}

/// The response to a request. If `close` is set, the connection closes after it.
enum Outcome {
    /// A worker's response.
    Forwarded { response: UpstreamResponse, close: bool },
    /// A response of the edge itself.
    Local { response: crate::http::Response, close: bool },
}

impl Outcome {
    fn error(error: ApiError, close: bool) -> Outcome {
        Outcome::Local { response: error.into(), close }
    }
}

impl EdgeContext {
    pub(super) fn new(config: &EdgeParts, pool: Arc<UpstreamPool>) -> EdgeContext {
        EdgeContext {
            limits: config.limits.clone(),
            proxies: config.proxies.clone(),
            pool,
            max_body: config.max_body,
            body_budget: MemoryBudget::new(BODY_BUDGET),
            large_body_budget: MemoryBudget::new(LARGE_BODY_BUDGET),
            response_budget: Arc::default(),
            metrics: Arc::clone(&config.metrics),
        }
    }

    /// Returns the response to one request: a worker's, or an error of the edge.
    pub(super) async fn respond(
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
        match self.handle(&head, body, client, id, connection.over_limit).await {
            Outcome::Forwarded { response, close } => {
                response::from_upstream(response, close, &self.response_budget, &connection)
            }
            Outcome::Local { response, close } => {
                self.record(&head, response.status(), started.elapsed(), id, client.address);
                response::local(&response, id, close, &connection)
            }
        }
    }

    async fn handle(&self, head: &Parts, body: Incoming, client: Client, id: Uuid, over_limit: bool) -> Outcome {
        let checked = match validate::check(head) {
            Ok(checked) => checked,
            Err(error) => return Outcome::error(error, true),
        };
        let is_health = is_health_request(head, &checked.target);
        if over_limit {
            return if is_health { healthy(true) } else { Outcome::error(ApiError::overloaded(), true) };
        }
        let (max, mut memory) = self.body_limit(&checked.target);
        let collected = match timeout(self.limits.body_timeout, body::collect(body, max, &mut memory)).await {
            Ok(Ok(collected)) => collected,
            Ok(Err(error)) => return Outcome::error(error, true),
            Err(_) => return Outcome::error(slow_body(), true),
        };
        let (body, body_too_large, close) = match collected {
            Collected::Whole(bytes) => (bytes, false, false),
            // Part of the body is unread, so the connection cannot be reused.
            Collected::TooLarge => (Vec::new(), true, true),
        };
        let metadata = RequestMetadata { id, client: client.address, secure: client.secure, body_too_large };
        let bytes = forward::encode(head, &checked, &metadata, &body);
        drop(body);
        let (sender, receiver) = oneshot::channel();
        let head_only = head.method == Method::HEAD;
        let request = QueuedRequest { bytes, head_only, client: client.address, sender, memory };
        if is_health {
            self.forward_health(request, receiver, close).await
        } else {
            self.forward(request, receiver, close).await
        }
    }

    /// The longest body that the path of `target` takes, and a permit for its memory.
    fn body_limit(&self, target: &str) -> (usize, MemoryPermit) {
        let max = (self.max_body)(target.split('?').next().unwrap_or_default());
        let budget = if max > MAX_BODY { &self.large_body_budget } else { &self.body_budget };
        (max, budget.permit())
    }

    async fn forward(
        &self,
        request: QueuedRequest,
        receiver: oneshot::Receiver<ForwardResult>,
        close: bool,
    ) -> Outcome {
        if self.pool.forward(request).is_err() {
            return Outcome::error(ApiError::overloaded(), close);
        }
        match receiver.await {
            Ok(Ok(response)) => Outcome::Forwarded { response, close },
            Ok(Err(ForwardError::Evicted)) => Outcome::error(ApiError::overloaded(), close),
            Ok(Err(ForwardError::Broken)) | Err(_) => Outcome::error(ApiError::internal(), close),
        }
    }

    /// Forwards a request for `/healthz`. Responds to it locally if the workers are overloaded, because the process still responds
    /// (contract section 6).
    async fn forward_health(
        &self,
        request: QueuedRequest,
        receiver: oneshot::Receiver<ForwardResult>,
        close: bool,
    ) -> Outcome {
        if self.pool.is_saturated() {
            return healthy(close);
        }
        match timeout(HEALTH_TIMEOUT, self.forward(request, receiver, close)).await {
            Ok(forwarded @ Outcome::Forwarded { .. }) => forwarded,
            _ => healthy(close),
        }
    }

    /// Logs and counts a local response.
    fn record(&self, head: &Parts, status: u16, duration: Duration, id: Uuid, client: IpAddr) {
        let (method, path) = (head.method.as_str(), head.uri.path());
        self.metrics.record_response(LabelMethod::parse(method).as_str(), path, status, duration);
        AccessLogEntry { method, path, status, duration, tenant: "", key: "", request_id: id, client }.write();
    }
}

fn slow_body() -> ApiError {
    ApiError::malformed_request(
        ProtocolViolation::TooSlow,
        "The body did not come in time. Send it without long pauses.",
    )
}

fn is_health_request(head: &Parts, target: &str) -> bool {
    let path = target.split('?').next();
    path == Some("/healthz") && (head.method == Method::GET || head.method == Method::HEAD)
}

fn healthy(close: bool) -> Outcome {
    let response = crate::http::Response::json_bytes(200, &br#"{"status":"ok"}"#[..]);
    Outcome::Local { response: response.header("Cache-Control", "no-store"), close }
}

/// The client's `X-Request-Id` if it is exactly one UUID, else a new one.
fn request_id(headers: &HeaderMap) -> Uuid {
    let mut sent = headers.get_all("x-request-id").iter();
    let only = sent.next().filter(|_| sent.next().is_none());
    let id = only.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<Hyphenated>().ok());
    id.map_or_else(Uuid::new_v4, Uuid::from)
}
