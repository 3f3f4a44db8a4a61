//! One request, from its parsed head to the response, and what an address may take of the server's
//! connections and memory.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as _, Bytes, Frame, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, STRICT_TRANSPORT_SECURITY};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::app::{Application, Intake};
use super::relay::Relay;
use super::tls::Tls;
use crate::clock::Clock;
use crate::config::{Config, ConnectionLimits};
use crate::http::request::{
    MAX_BODY, TrustedNetworks, address_of, check_head, identify, normalize_headers,
};
use crate::http::{ApiError, Body, Request, Responder, Response, ResponseQueue};
use crate::metrics::Metrics;

/// The memory of all request bodies together, in bytes.
const BODY_BUDGET: usize = 96 * 1024 * 1024;

/// The memory of all responses that clients have not read yet, in bytes.
const UNREAD_BUDGET: usize = 64 * 1024 * 1024;

/// A result of a readiness test is valid for this time, because each test writes to the disk.
const READINESS_VALIDITY: Duration = Duration::from_secs(2);

/// A readiness test that takes longer has failed. `tenantdesk health` waits for 5 s.
const READINESS_TIMEOUT: Duration = Duration::from_secs(4);

/// hyper takes so many bytes of a response at once.
const PIECE: usize = 64 * 1024;

/// The value of `Strict-Transport-Security`: a year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// What all connections share.
pub(super) struct Edge {
    app: Arc<dyn Application>,
    pub(super) relay: Arc<Relay>,
    pub(super) limits: ConnectionLimits,
    pub(super) tls: Option<Arc<Tls>>,
    trusted: TrustedNetworks,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) connections: Arc<Budget>,
    bodies: Arc<Budget>,
    unread: Arc<Budget>,
    pub(super) responses: Arc<ResponseQueue>,
    /// The last result of a readiness test, and when the test ended.
    readiness: Arc<AsyncMutex<Option<(Instant, Response)>>>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    pub(super) tls: bool,
}

/// A request that the edge does not refuse.
enum Received {
    /// A worker answers it.
    Whole(Body),
    /// A probe never waits for a worker (contract section 6). Its body is not read.
    Probe { response: Response, has_body: bool },
}

impl Edge {
    pub(super) fn new(
        app: Arc<dyn Application>,
        relay: Arc<Relay>,
        config: &Config,
        tls: Option<Arc<Tls>>,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Edge {
        let limits = config.connections.clone();
        let trusted = TrustedNetworks::new(config.trusted_proxies.clone());
        let budget = |limit| Budget::new(limit, trusted.clone());
        Edge {
            connections: budget(max_connections(&limits)),
            bodies: budget(BODY_BUDGET),
            unread: budget(UNREAD_BUDGET),
            responses: Arc::default(),
            readiness: Arc::default(),
            trusted,
            app,
            relay,
            limits,
            tls,
            clock,
            metrics,
        }
    }

    /// Returns the response to one request: a worker's, or the edge's own.
    ///
    /// # Errors
    ///
    /// The clients have read too little of earlier responses. The connection closes.
    pub(super) async fn respond(
        self: Arc<Edge>,
        request: hyper::Request<Incoming>,
        peer: Peer,
    ) -> io::Result<hyper::Response<ResponseBody>> {
        let (mut head, body) = request.into_parts();
        let client = identify(peer.address, peer.tls, &head.headers, &self.trusted);
        let mut memory = self.bodies.reservation(client.address);
        let received = self.receive(&mut head, body, &mut memory).await;
        let nothing = Body::Whole(Vec::new());
        // A connection whose request has not been read completely cannot be used again.
        let (body, own, is_last) = match received {
            Ok(Received::Whole(body)) => {
                let is_last = body == Body::TooLarge;
                (body, None, is_last)
            }
            Ok(Received::Probe { response, has_body }) => (nothing, Some(response), has_body),
            Err(error) => (nothing, Some(error.into()), true),
        };
        let method = head.method.clone();
        // The request is complete, so it is dated now.
        let request = Request::received(head, body, client, self.clock.now());
        // hyper drops this future when the client goes.
        let _abandoned = SetOnDrop(Arc::clone(&request.abandoned));
        let (queue, metrics) = (Arc::clone(&self.responses), Arc::clone(&self.metrics));
        let held = (memory.amount > 0).then(|| Box::new(memory) as Box<dyn Any + Send>);
        let (responder, receiver) =
            Responder::new(request, held, queue, self.clock.clone(), metrics);
        match own {
            Some(response) => responder.send(response),
            None => self.relay.send(responder),
        }
        // A responder sends a response in any case.
        let response = receiver.await.unwrap_or_else(|_| ApiError::internal().into());
        let mut response = response.into_inner();
        if is_last {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if peer.tls {
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, HSTS);
        }
        self.outgoing(response, &method, client.address)
    }

    fn outgoing(
        &self,
        response: hyper::Response<Cow<'static, [u8]>>,
        method: &Method,
        client: IpAddr,
    ) -> io::Result<hyper::Response<ResponseBody>> {
        let (mut head, mut body) = response.into_parts();
        if matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            body = Cow::Borrowed(&[]);
        } else {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        if *method == Method::HEAD {
            body = Cow::Borrowed(&[]);
        }
        let mut memory = self.unread.reservation(client);
        if !memory.grow(body.len()) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let bytes = Bytes::from_owner(UnreadBody { body, _memory: memory });
        Ok(hyper::Response::from_parts(head, ResponseBody(bytes)))
    }

    /// Validates a head and reads its body, which `memory` pays for.
    ///
    /// # Errors
    ///
    /// The edge refuses the request. Nothing that followed it on its connection is read.
    async fn receive(
        &self,
        head: &mut Parts,
        body: Incoming,
        memory: &mut Reservation,
    ) -> Result<Received, ApiError> {
        check_head(head)?;
        normalize_headers(&mut head.headers, &head.uri);
        let has_body = !body.is_end_stream();
        let max = match self.app.intake(&head.method, head.uri.path(), &head.headers) {
            Intake::Health => {
                return Ok(Received::Probe { response: Response::healthy(), has_body });
            }
            Intake::Ready => {
                return Ok(Received::Probe { response: self.ready().await, has_body });
            }
            Intake::Body(max) => max,
        };
        match timeout(self.limits.body_timeout, read_body(body, max, memory)).await {
            Ok(body) => body.map(Received::Whole),
            Err(_) => {
                let message = "The body did not come within 10 seconds. Send it faster, or send \
                               less at once.";
                Err(ApiError::malformed_request(StatusCode::REQUEST_TIMEOUT, message))
            }
        }
    }

    /// The response of `/readyz`. Requests that arrive during a test wait for its result. If the
    /// disk hangs, the test keeps one thread and the lock, and every request waits for the timeout
    /// alone.
    async fn ready(&self) -> Response {
        let (app, readiness) = (Arc::clone(&self.app), Arc::clone(&self.readiness));
        let testing = async {
            let mut last = readiness.lock_owned().await;
            if let Some((end, response)) = &*last
                && end.elapsed() < READINESS_VALIDITY
            {
                return response.clone();
            }
            let test = spawn_blocking(move || {
                let response = app.ready();
                *last = Some((Instant::now(), response.clone()));
                response
            });
            // The place of a panic is on standard error.
            test.await.unwrap_or_else(|_| ApiError::internal().into())
        };
        let hangs = "a test does not end; the disk does not respond";
        let response = timeout(READINESS_TIMEOUT, testing).await;
        response.unwrap_or_else(|_| ApiError::not_ready(hangs).into())
    }
}

/// The limit on connections: at most half of the descriptor limit. Databases need the other half.
fn max_connections(limits: &ConnectionLimits) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let half = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
    limits.max_connections.min(half)
}

/// The body of a response to a client. hyper takes it in pieces, so a slow client's connection is
/// not idle until hyper has the last piece.
pub(super) struct ResponseBody(Bytes);

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.0.len().min(PIECE);
        let piece = self.0.split_to(length);
        Poll::Ready((length > 0).then_some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

/// Counts as unread until hyper has written the last byte.
struct UnreadBody {
    body: Cow<'static, [u8]>,
    _memory: Reservation,
}

impl AsRef<[u8]> for UnreadBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
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
        let frame = frame.map_err(|_| {
            let message = "The body ended early or is not framed as HTTP asks. \
                           Send as many bytes as its length says.";
            ApiError::malformed_request(StatusCode::BAD_REQUEST, message)
        })?;
        let Ok(data) = frame.into_data() else { continue };
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

/// A limited resource: connections, memory of request bodies, or memory of responses that clients
/// have not read. One address can take a quarter of it. Loopback and trusted proxies are exempt
/// from the quarter, because many clients share their addresses.
///
/// Example: bodies have 96 MiB together, and one address has 24 MiB. A client sends 30 batches of
/// 1 MiB at the same time. The 25th batch gets `overloaded`, and 72 MiB remain for other addresses.
/// Without the quarter, one client could take all 96 MiB, and every other client would get
/// `overloaded`.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    exempt: TrustedNetworks,
    reserved: Mutex<Reserved>,
}

#[derive(Debug, Default)]
struct Reserved {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A part of a budget. Dropping it gives the part back.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    address: IpAddr,
    is_exempt: bool,
    amount: usize,
}

impl Budget {
    pub(super) fn new(limit: usize, exempt: TrustedNetworks) -> Arc<Budget> {
        Arc::new(Budget { limit, exempt, reserved: Mutex::default() })
    }

    /// A reservation of nothing, which can grow.
    pub(super) fn reservation(self: &Arc<Budget>, client: IpAddr) -> Reservation {
        let is_exempt = self.exempt.contains(client);
        Reservation { budget: Arc::clone(self), address: address_of(client), is_exempt, amount: 0 }
    }
}

impl Reservation {
    /// Reserves `amount` more, and returns whether the limits allow it. If not, the caller drops
    /// the reservation.
    pub(super) fn grow(&mut self, amount: usize) -> bool {
        let limit = self.budget.limit;
        let address_limit = (limit / 4).max(1);
        let mut reserved = self.budget.reserved.lock();
        self.amount += amount;
        reserved.total += amount;
        let own = reserved.by_address.entry(self.address).or_default();
        *own += amount;
        (self.is_exempt || *own <= address_limit) && reserved.total <= limit
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.budget.reserved.lock();
        reserved.total -= self.amount;
        if let Some(own) = reserved.by_address.get_mut(&self.address) {
            *own -= self.amount;
            if *own == 0 {
                reserved.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: usize) -> Arc<Budget> {
        let exempt = TrustedNetworks::new(vec!["10.0.0.0/8".parse().unwrap()]);
        Budget::new(limit, exempt)
    }

    fn take(budget: &Arc<Budget>, address: &str, amount: usize) -> (Reservation, bool) {
        let mut reservation = budget.reservation(address.parse().unwrap());
        let is_fair = reservation.grow(amount);
        (reservation, is_fair)
    }

    #[test]
    fn an_address_holds_a_quarter_and_leaves_the_rest() {
        let budget = budget(40);
        let (first, is_fair) = take(&budget, "192.0.2.1", 10);
        assert!(is_fair);
        assert!(!take(&budget, "192.0.2.1", 1).1);
        assert!(take(&budget, "192.0.2.2", 10).1);
        drop(first);
        assert!(take(&budget, "192.0.2.1", 10).1);
        assert!(budget.reserved.lock().by_address.is_empty());
    }

    #[test]
    fn one_ipv6_network_is_one_address() {
        let budget = budget(4);
        let _first = take(&budget, "2001:db8::1", 1);
        assert!(!take(&budget, "2001:db8::2", 1).1);
        assert!(take(&budget, "2001:db8:0:1::1", 1).1);
    }

    #[test]
    fn loopback_and_trusted_proxies_are_limited_by_the_total_alone() {
        let budget = budget(4);
        let _first = take(&budget, "127.0.0.1", 1);
        let (_second, is_fair) = take(&budget, "10.1.2.3", 3);
        assert!(is_fair);
        assert!(!take(&budget, "127.0.0.1", 1).1);
    }

    #[test]
    fn a_body_takes_memory_until_its_request_ends_although_the_client_has_gone() {
        let budget = budget(4);
        let clock = Clock::system();
        let request = Request::new(Method::POST, "/", clock.now());
        let held = take(&budget, "192.0.2.1", 1).0;
        let (responder, receiver) = Responder::new(
            request,
            Some(Box::new(held)),
            Arc::default(),
            clock,
            Arc::new(Metrics::new(|_| "/")),
        );
        drop(receiver);
        assert!(!take(&budget, "192.0.2.1", 1).1);
        drop(responder);
        assert!(take(&budget, "192.0.2.1", 1).1);
    }
}
