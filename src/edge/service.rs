//! The handling of one request, from its parsed head to the response.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::body::{Body as _, Incoming};
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use tokio::time::timeout;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::clients::{self, Budget, Client, Reservation, TrustedNetworks};
use super::limits::{ADDRESS_BODY_BUDGET, ADDRESS_REQUESTS, BODY_BUDGET, CONNECTION_LIMITS};
use super::response::{self, ResponseBody, UnreadResponses};
use super::stream::ConnectionState;
use super::tls::Tls;
use super::validate;
use crate::app::Application;
use crate::clock::Clock;
use crate::config::{Config, ConnectionLimits};
use crate::http::request::MAX_BODY;
use crate::http::responder::encode_unprintable;
use crate::http::{ApiError, Body, Request, Responder};
use crate::metrics::Metrics;
use crate::workers::WorkerPool;

/// The state that all connections share.
pub(super) struct EdgeContext {
    app: Arc<dyn Application>,
    pub(super) pool: Arc<WorkerPool>,
    pub(super) limits: ConnectionLimits,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) trusted: TrustedNetworks,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    requests: Arc<Budget>,
    bodies: Arc<Budget>,
    unread: Arc<UnreadResponses>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    pub(super) tls: bool,
}

/// A response of the edge itself, without a worker.
struct OwnResponse {
    response: crate::http::Response,
    /// Nothing that followed the request on its connection is read.
    closes: bool,
}

impl From<ApiError> for OwnResponse {
    fn from(error: ApiError) -> OwnResponse {
        OwnResponse { response: error.into(), closes: true }
    }
}

impl EdgeContext {
    pub(super) fn new(
        app: Arc<dyn Application>,
        pool: Arc<WorkerPool>,
        config: &Config,
        tls: Option<Arc<Tls>>,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> EdgeContext {
        let limits = config.connections.clone().unwrap_or(CONNECTION_LIMITS);
        let trusted = TrustedNetworks::new(config.trusted_proxies.clone());
        // The lanes limit the requests of all addresses together.
        let requests = Budget::new(usize::MAX, ADDRESS_REQUESTS, trusted.clone());
        let bodies = Budget::new(BODY_BUDGET, ADDRESS_BODY_BUDGET, trusted.clone());
        let unread = Arc::default();
        EdgeContext { app, pool, limits, tls, trusted, clock, metrics, requests, bodies, unread }
    }

    /// Returns the response to one request: a worker's, or the edge's own.
    pub(super) async fn respond(
        self: Arc<EdgeContext>,
        request: hyper::Request<Incoming>,
        peer: Peer,
        connection: Arc<ConnectionState>,
    ) -> Response<ResponseBody> {
        let (mut head, body) = request.into_parts();
        let client = clients::identify(peer.address, peer.tls, &head.headers, &self.trusted);
        let mut place = self.requests.reservation(client.address);
        let mut memory = self.bodies.reservation(client.address);
        let is_over = connection.over_limit || !place.grow(1);
        let received = self.receive(&mut head, body, is_over, &mut memory).await;
        // A connection whose request has not been read completely cannot be used again.
        let (body, own, close) = match received {
            Ok(body) => {
                let is_unread = body == Body::TooLarge;
                (body, None, is_unread)
            }
            Err(OwnResponse { response, closes }) => {
                (Body::Whole(Vec::new()), Some(response), closes || connection.over_limit)
            }
        };
        let method = head.method.clone();
        let request = self.request(head, body, client);
        let (clock, metrics) = (self.clock.clone(), Arc::clone(&self.metrics));
        let (responder, receiver) = Responder::new(&request, clock, metrics);
        // hyper drops this future when the client goes.
        let _abandoned = SetOnDrop(Arc::clone(&request.is_abandoned));
        match own {
            Some(response) => responder.send(response),
            None => self.pool.submit(request, responder),
        }
        // A responder sends a response in any case.
        let response = receiver.await.unwrap_or_else(|_| ApiError::internal().into());
        let unread = &self.unread;
        response::to_hyper(response, &method, close, peer.tls, unread, client.address, &connection)
    }

    /// Validates a head and reads its body, which `memory` pays for. An `Err` is the edge's own
    /// response. A probe never waits for a worker (contract section 6). If `is_over`, every other
    /// request is refused.
    async fn receive(
        &self,
        head: &mut Parts,
        body: Incoming,
        is_over: bool,
        memory: &mut Reservation,
    ) -> Result<Body, OwnResponse> {
        validate::check(head)?;
        if let Some(response) = self.app.probe(&head.method, head.uri.path()) {
            return Err(OwnResponse { response, closes: !body.is_end_stream() });
        }
        if is_over {
            return Err(ApiError::overloaded().into());
        }
        validate::normalize(&mut head.headers, &head.uri);
        let max = self.app.max_body(head.uri.path(), &head.headers);
        let reading = timeout(self.limits.body_timeout, read_body(body, max, memory));
        Ok(reading.await.unwrap_or_else(|_| Err(slow_body()))?)
    }

    /// The request as a value. It is complete, so it is dated now.
    fn request(&self, head: Parts, body: Body, client: Client) -> Request {
        Request {
            path: encode_unprintable(head.uri.path()).into_owned(),
            query: head.uri.query().map(|query| encode_unprintable(query).into_owned()),
            id: request_id(&head.headers),
            method: head.method,
            headers: head.headers,
            body,
            client: client.address,
            secure: client.secure,
            received_at: self.clock.now(),
            is_abandoned: Arc::default(),
        }
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
async fn read_body(
    mut body: Incoming,
    max: usize,
    memory: &mut Reservation,
) -> Result<Body, ApiError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max || (max == 0 && !body.is_end_stream()) {
        return Ok(Body::TooLarge);
    }
    // A usual body is allocated at once: growing in steps would fragment the heap. Pages that are
    // never written take no memory.
    let mut bytes = Vec::with_capacity(announced.min(MAX_BODY));
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        // Trailers are ignored.
        let Ok(data) = frame.map_err(|_| broken_body())?.into_data() else { continue };
        if bytes.len().saturating_add(data.len()) > max {
            return Ok(Body::TooLarge);
        }
        if !memory.grow(data.len()) {
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
    let message = "The body did not come within 10 seconds. Send it faster, or send less at once.";
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
