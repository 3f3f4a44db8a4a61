//! The handling of one request, from its parsed head to the response.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use tokio::time::timeout;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::clients::{self, Client, Share, Shares, TrustedNetworks, Verdict};
use super::limits::{BODY_BUDGET, MAX_REQUESTS};
use super::parts::EdgeParts;
use super::response::{self, ResponseBody, UnreadResponses};
use super::stream::ConnectionState;
use super::validate::{self, Target};
use crate::http::request::MAX_BODY;
use crate::http::{ApiError, Body, Request, RequestLine, Responder};

/// The path of the health check.
const HEALTH_PATH: &str = "/healthz";

/// What all connections share.
pub(super) struct EdgeContext {
    pub(super) parts: EdgeParts,
    pub(super) trusted: TrustedNetworks,
    requests: Arc<Shares>,
    bodies: Arc<Shares>,
    unread: Arc<UnreadResponses>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    pub(super) tls: bool,
}

impl EdgeContext {
    pub(super) fn new(parts: EdgeParts) -> EdgeContext {
        let trusted = TrustedNetworks::new(parts.proxies.clone());
        let requests = Shares::new(MAX_REQUESTS, trusted.clone());
        let bodies = Shares::new(BODY_BUDGET, trusted.clone());
        EdgeContext { parts, trusted, requests, bodies, unread: Arc::default() }
    }

    /// Returns the response to one request: a worker's, or the edge's own.
    pub(super) async fn respond(
        self: Arc<EdgeContext>,
        request: hyper::Request<Incoming>,
        peer: Peer,
        connection: Arc<ConnectionState>,
    ) -> Response<ResponseBody> {
        let (head, body) = request.into_parts();
        let client = clients::identify(peer.address, peer.tls, &head.headers, &self.trusted);
        let id = request_id(&head.headers);
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        let has_body = !body.is_end_stream();
        let mut share = self.requests.of(client.address);
        let is_over = connection.over_limit || share.grow(1) == Verdict::AddressOver;
        let received = self.receive(head, body, client, id, is_over).await;

        let received_at = received
            .as_ref()
            .map_or_else(|_| self.parts.clock.now(), |(request, _)| request.received_at);
        let line =
            RequestLine { method: method.clone(), path, id, client: client.address, received_at };
        let (responder, receiver) =
            Responder::new(line, self.parts.clock.clone(), Arc::clone(&self.parts.metrics));
        // A connection whose request has not been read completely cannot be used again.
        let (close, _held) = match received {
            Ok((request, memory)) => {
                let close = request.body == Body::TooLarge;
                // hyper drops this future when the client goes.
                let abandoned = SetOnDrop(Arc::clone(&request.is_abandoned));
                self.parts.pool.submit(request, responder);
                (close, Some((memory, abandoned)))
            }
            Err(response) => {
                let close = has_body || connection.over_limit || response.status() != 200;
                responder.send(response);
                (close, None)
            }
        };
        // A responder sends a response in any case.
        let response = receiver.await.unwrap_or_else(|_| ApiError::internal().into());
        response::to_hyper(response, &method, close, peer.tls, &self.unread, &connection)
    }

    /// Validates a request and reads its body, which holds memory. Returns the response if the edge
    /// responds itself: `is_over` refuses the request, unless it is a health check, since the
    /// process serves whatever the workers do (contract section 6).
    async fn receive(
        &self,
        head: Parts,
        body: Incoming,
        client: Client,
        id: Uuid,
        is_over: bool,
    ) -> Result<(Request, Share), crate::http::Response> {
        let Target { path, query } = validate::check(&head)?;
        let Parts { method, uri, mut headers, .. } = head;
        if path == HEALTH_PATH && (method == Method::GET || method == Method::HEAD) {
            return Err(crate::http::Response::healthy());
        }
        if is_over {
            return Err(ApiError::overloaded().into());
        }
        validate::normalize(&mut headers, &uri);
        let max = (self.parts.max_body)(&path, &headers);
        let mut memory = self.bodies.of(client.address);
        let reading = timeout(self.parts.limits.body_timeout, read_body(body, max, &mut memory));
        let body = reading.await.unwrap_or_else(|_| Err(slow_body()))?;
        let Client { address: client, secure } = client;
        let received_at = self.parts.clock.now();
        let is_abandoned = Arc::default();
        let request = Request {
            method,
            path,
            query,
            headers,
            body,
            id,
            client,
            secure,
            received_at,
            is_abandoned,
        };
        Ok((request, memory))
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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
    let message = "The body ended early or is not framed as HTTP asks. \
                   Send as many bytes as its length says.";
    ApiError::malformed_request(StatusCode::BAD_REQUEST, message)
}

fn slow_body() -> ApiError {
    let message = "The body did not come in time. Send it without long pauses.";
    ApiError::malformed_request(StatusCode::REQUEST_TIMEOUT, message)
}

/// The client's `X-Request-Id` if it is exactly one UUID, else a new one.
fn request_id(headers: &HeaderMap) -> Uuid {
    let mut sent = headers.get_all("x-request-id").iter();
    let only = sent.next().filter(|_| sent.next().is_none());
    let id =
        only.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<Hyphenated>().ok());
    id.map_or_else(Uuid::new_v4, Uuid::from)
}
