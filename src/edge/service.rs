//! The handling of one request, from its parsed head to the response.

use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Method, Response};
use tokio::time::timeout;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::client_address::{self, Client, TrustedNetworks};
use super::limits::{BODY_BUDGET, MAX_REQUESTS};
use super::parts::EdgeParts;
use super::response::{self, Framing, ResponseBody, UnreadResponses};
use super::shares::{Share, Shares, Verdict};
use super::stream::ConnectionState;
use super::validate::{self, Target};
use crate::clock::Clock;
use crate::config::ConnectionLimits;
use crate::http::request::MAX_BODY;
use crate::http::{ApiError, Body, ProtocolViolation, Request, RequestLine, Responder, WorkerPool};
use crate::metrics::Metrics;

/// The path of the health check.
const HEALTH_PATH: &str = "/healthz";

/// What all connections share.
pub(super) struct EdgeContext {
    pub(super) limits: ConnectionLimits,
    trusted: TrustedNetworks,
    pool: Arc<WorkerPool>,
    max_body: fn(&str, &HeaderMap) -> usize,
    requests: Arc<Shares>,
    bodies: Arc<Shares>,
    unread: Arc<UnreadResponses>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    pub(super) tls: bool,
}

/// What the edge does with a request.
enum Outcome {
    /// A worker responds to it.
    Accepted { request: Request, close: bool, memory: Share },
    /// The edge responds itself.
    Answered { response: crate::http::Response, close: bool },
}

impl From<ApiError> for Outcome {
    fn from(error: ApiError) -> Outcome {
        Outcome::Answered { response: error.into(), close: true }
    }
}

impl EdgeContext {
    pub(super) fn new(parts: &EdgeParts, trusted: TrustedNetworks) -> EdgeContext {
        EdgeContext {
            limits: parts.limits.clone(),
            pool: Arc::clone(&parts.pool),
            max_body: parts.max_body,
            requests: Shares::new(MAX_REQUESTS, trusted.clone()),
            bodies: Shares::new(BODY_BUDGET, trusted.clone()),
            trusted,
            unread: Arc::default(),
            clock: parts.clock.clone(),
            metrics: Arc::clone(&parts.metrics),
        }
    }

    /// Returns the response to one request: a worker's, or the edge's own.
    pub(super) async fn respond(
        self: Arc<EdgeContext>,
        request: hyper::Request<Incoming>,
        peer: Peer,
        connection: Arc<ConnectionState>,
    ) -> Response<ResponseBody> {
        let (head, body) = request.into_parts();
        let client = client_address::identify(peer.address, peer.tls, &head.headers, &self.trusted);
        let id = request_id(&head.headers);
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        let mut share = self.requests.of(client.address);
        let is_over = connection.over_limit || share.grow(1) == Verdict::AddressOver;
        let outcome = self.receive(head, body, client, id, is_over).await.unwrap_or_else(Outcome::from);

        let received_at = match &outcome {
            Outcome::Accepted { request, .. } => request.received_at,
            Outcome::Answered { .. } => self.clock.now(),
        };
        let line = RequestLine { method: method.clone(), path, id, client: client.address, received_at };
        let (responder, receiver) = Responder::new(line, self.clock.clone(), Arc::clone(&self.metrics));
        let (close, _memory) = match outcome {
            Outcome::Accepted { request, close, memory } => {
                self.pool.submit(request, responder);
                (close, Some(memory))
            }
            Outcome::Answered { response, close } => {
                responder.send(response);
                (close || connection.over_limit, None)
            }
        };
        // A responder sends a response in any case.
        let response = receiver.await.unwrap_or_else(|_| ApiError::internal().into());
        let framing = Framing { method, close, tls: peer.tls };
        response::to_hyper(response, &framing, &self.unread, &connection)
    }

    /// Validates a request and reads its body. `is_over` refuses it, unless it is a health check:
    /// the process serves, whatever the workers do (contract section 6).
    async fn receive(
        &self,
        head: Parts,
        body: Incoming,
        client: Client,
        id: Uuid,
        is_over: bool,
    ) -> Result<Outcome, ApiError> {
        let Target { path, query } = validate::check(&head)?;
        let Parts { method, uri, mut headers, .. } = head;
        if path == HEALTH_PATH && (method == Method::GET || method == Method::HEAD) {
            let response = crate::http::Response::healthy();
            return Ok(Outcome::Answered { response, close: !body.is_end_stream() });
        }
        if is_over {
            return Err(ApiError::overloaded());
        }
        validate::normalize(&mut headers, &uri);
        let max = (self.max_body)(&path, &headers);
        let mut memory = self.bodies.of(client.address);
        let reading = read_body(body, max, &mut memory);
        let body = timeout(self.limits.body_timeout, reading).await.unwrap_or_else(|_| Err(slow_body()))?;
        // Part of a body that is too large is unread, so the connection cannot be used again.
        let close = body == Body::TooLarge;
        let Client { address, secure } = client;
        let received_at = self.clock.now();
        let request = Request { method, path, query, headers, body, id, client: address, secure, received_at };
        Ok(Outcome::Accepted { request, close, memory })
    }
}

/// Reads a body completely, or until it has more than `max` bytes. A client that waits for
/// `100 Continue` does not get it if the announced length is too large.
///
/// # Errors
///
/// `malformed_request` if the body ends early or its chunks are malformed, `overloaded` if there is
/// no memory for it.
async fn read_body(mut body: Incoming, max: usize, memory: &mut Share) -> Result<Body, ApiError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max || (max == 0 && !body.is_end_stream()) {
        return Ok(Body::TooLarge);
    }
    // A usual body is allocated at once: growing in steps would fragment the heap. Pages that are
    // never written take no memory.
    let mut bytes = Vec::with_capacity(announced.min(MAX_BODY));
    while let Some(frame) = body.frame().await {
        // Trailers are ignored.
        let Ok(data) = frame.map_err(|_| broken_body())?.into_data() else { continue };
        if bytes.len().saturating_add(data.len()) > max {
            return Ok(Body::TooLarge);
        }
        if memory.grow(data.len()) != Verdict::Fair {
            return Err(ApiError::overloaded());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Body::Whole(bytes))
}

fn broken_body() -> ApiError {
    let message = "The body ended early or is not framed as HTTP asks. Send as many bytes as its length says.";
    ApiError::malformed_request(ProtocolViolation::Malformed, message)
}

fn slow_body() -> ApiError {
    let message = "The body did not come in time. Send it without long pauses.";
    ApiError::malformed_request(ProtocolViolation::TooSlow, message)
}

/// The client's `X-Request-Id` if it is exactly one UUID, else a new one.
fn request_id(headers: &HeaderMap) -> Uuid {
    let mut sent = headers.get_all("x-request-id").iter();
    let only = sent.next().filter(|_| sent.next().is_none());
    let id = only.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<Hyphenated>().ok());
    id.map_or_else(Uuid::new_v4, Uuid::from)
}
