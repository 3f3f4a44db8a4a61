//! One request, from its parsed head to the response.
//!
//! [`check_head`] makes the checks on a head that hyper does not make. hyper itself rejects a
//! malformed head and versions other than 1.0 and 1.1, with a bare status. It also rejects lengths
//! that differ or are not numbers, and transfer encodings that do not end in `chunked`. It drops a
//! length next to `chunked` and the fragment of a target, and takes a line that ends with LF alone.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as _, Bytes, Frame, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
    STRICT_TRANSPORT_SECURITY, TRANSFER_ENCODING,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri, Version};
use rustix::process::{Resource, getrlimit};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::app::{Application, Probe};
use super::budget::{Budget, Reservation, TrustedNetworks};
use super::lanes::WorkerPool;
use super::tls::Tls;
use crate::clock::Clock;
use crate::config::{Config, ConnectionLimits};
use crate::http::request::{MAX_BODY, MAX_METHOD};
use crate::http::response::encode_unprintable;
use crate::http::{ApiError, Body, Request, Responder, Response, ResponseQueue};
use crate::metrics::Metrics;

/// The longest request target, in bytes.
const MAX_TARGET: usize = 8 * 1024;

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
    pub(super) pool: Arc<WorkerPool>,
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
    readiness: Arc<Mutex<Option<(Instant, Response)>>>,
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
        pool: Arc<WorkerPool>,
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
            pool,
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
        let request = self.request(head, body, client);
        let (queue, metrics) = (Arc::clone(&self.responses), Arc::clone(&self.metrics));
        let (responder, receiver) = Responder::new(&request, queue, self.clock.clone(), metrics);
        // hyper drops this future when the client goes.
        let _abandoned = SetOnDrop(Arc::clone(&request.abandoned));
        match own {
            Some(response) => responder.send(response),
            None => self.pool.submit(request, responder),
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
        if let Some(probe) = self.app.probe(&head.method, head.uri.path()) {
            let response = match probe {
                Probe::Health => Response::healthy(),
                Probe::Ready => self.ready().await,
            };
            let has_body = !body.is_end_stream();
            return Ok(Received::Probe { response, has_body });
        }
        normalize_headers(&mut head.headers, &head.uri);
        let max = self.app.max_body(head.uri.path(), &head.headers);
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
            abandoned: Arc::default(),
        }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Client {
    address: IpAddr,
    /// The request arrived over HTTPS, here or at a trusted proxy.
    secure: bool,
}

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Determines the client of a request. The client is the rightmost address that is not itself
/// trusted; a client can forge everything left of it.
fn identify(peer: IpAddr, tls: bool, headers: &HeaderMap, trusted: &TrustedNetworks) -> Client {
    if !trusted.contains(peer) {
        return Client { address: peer, secure: tls };
    }
    let mut address = peer;
    for hop in last_first(headers, &FORWARDED_FOR) {
        match parse_hop(hop) {
            Some(hop) => address = hop,
            None => break,
        }
        if !trusted.contains(address) {
            break;
        }
    }
    let forwarded_https = last_first(headers, &FORWARDED_PROTO)
        .next()
        .is_some_and(|p| p.eq_ignore_ascii_case("https"));
    Client { address, secure: tls || forwarded_https }
}

/// The elements of a list header (RFC 9110 section 5.6.1), from last to first.
fn last_first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values: Vec<&str> =
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("")).collect();
    values.into_iter().rev().flat_map(|value| value.rsplit(',')).map(str::trim)
}

/// Parses an address. Some proxies append a port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare
        .parse::<IpAddr>()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address| address.to_canonical())
}

/// The client's `X-Request-Id` if it is exactly one UUID, else a new one.
fn request_id(headers: &HeaderMap) -> Uuid {
    let mut sent = headers.get_all("x-request-id").iter();
    let only = sent.next().filter(|_| sent.next().is_none());
    let id =
        only.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<Hyphenated>().ok());
    id.map_or_else(Uuid::new_v4, Uuid::from)
}

/// Rejects heads that are ambiguous or not supported (contract section 6).
fn check_head(head: &Parts) -> Result<(), ApiError> {
    let (status, message) = if head.method.as_str().len() > MAX_METHOD {
        let message = "The method is longer than 32 bytes. Use a method that the endpoint has.";
        (StatusCode::NOT_IMPLEMENTED, message)
    } else if !is_path_or_http_address(head) {
        let message = "The request target is neither a path nor an absolute http address. \
                       Send a path that begins with a slash.";
        (StatusCode::BAD_REQUEST, message)
    } else if !is_short(&head.uri) {
        let message = "The request target is longer than 8 KiB. Send a shorter path and query.";
        (StatusCode::URI_TOO_LONG, message)
    } else if !is_chunked_at_most(&head.headers) {
        let message = "The only transfer encoding is \"chunked\", once.";
        (StatusCode::NOT_IMPLEMENTED, message)
    } else if !has_one_host(head) {
        let message = "The header \"Host\" is missing, malformed, or there more than once. \
                       Send it once, with the name of this host and an optional port.";
        (StatusCode::BAD_REQUEST, message)
    } else {
        return Ok(());
    };
    Err(ApiError::malformed_request(status, message))
}

/// Takes the host of an absolute target for `Host` (RFC 9112 section 3.2.2). Replaces bytes beyond
/// ASCII by `?`, because the service reads headers as text.
fn normalize_headers(headers: &mut HeaderMap, uri: &Uri) {
    if let Some(host) = uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
        headers.insert(HOST, host);
    }
    for value in headers.values_mut().filter(|value| !value.as_bytes().is_ascii()) {
        let mut ascii = value.as_bytes().to_vec();
        for byte in &mut ascii {
            if !byte.is_ascii() {
                *byte = b'?';
            }
        }
        if let Ok(ascii) = HeaderValue::from_bytes(&ascii) {
            *value = ascii;
        }
    }
}

fn is_path_or_http_address(head: &Parts) -> bool {
    let (uri, path) = (&head.uri, head.uri.path());
    if uri.scheme().is_some() || uri.authority().is_some() {
        return matches!(uri.scheme_str(), Some("http" | "https")) && path.starts_with('/');
    }
    path.starts_with('/') || (path == "*" && head.method == Method::OPTIONS)
}

/// As tiny_http gets it.
fn is_short(uri: &Uri) -> bool {
    let query = uri.query().map_or(0, |query| encode_unprintable(query).len() + 1);
    encode_unprintable(uri.path()).len() + query <= MAX_TARGET
}

fn is_chunked_at_most(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked =
        encodings.next().is_none_or(|first| first.as_bytes().eq_ignore_ascii_case(b"chunked"));
    is_chunked && encodings.next().is_none()
}

/// HTTP/1.0 needs no host.
fn has_one_host(head: &Parts) -> bool {
    let mut hosts = head.headers.get_all(HOST).iter();
    let is_usable = match hosts.next() {
        Some(host) => is_host(host.as_bytes()) && hosts.next().is_none(),
        None => head.version != Version::HTTP_11,
    };
    is_usable && head.uri.authority().is_none_or(|host| is_host(host.as_str().as_bytes()))
}

/// Whether RFC 3986 section 3.2.2 allows the bytes in a host, or they are the colon before a port.
fn is_host(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_network;

    fn from(peer: &str, forwarded: &[&str], proxies: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(&FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        let trusted =
            TrustedNetworks::new(proxies.iter().map(|text| parse_network(text).unwrap()).collect());
        identify(peer.parse().unwrap(), false, &headers, &trusted).address.to_string()
    }

    #[test]
    fn forwarded_headers_of_an_untrusted_peer_are_ignored() {
        assert_eq!(from("192.0.2.1", &["203.0.113.9"], &[]), "192.0.2.1");
        assert_eq!(from("127.0.0.1", &["203.0.113.9"], &[]), "203.0.113.9");
        assert_eq!(from("192.0.2.1", &["203.0.113.9"], &["192.0.2.0/24"]), "203.0.113.9");
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_client() {
        let proxies = ["10.0.0.0/8", "2001:db8::/32"];
        assert_eq!(from("10.1.1.1", &["6.6.6.6, 203.0.113.9, 10.2.2.2"], &proxies), "203.0.113.9");
        assert_eq!(
            from("10.1.1.1", &["6.6.6.6", "203.0.113.9", "2001:db8::7"], &proxies),
            "203.0.113.9"
        );
        assert_eq!(from("10.1.1.1", &["203.0.113.9:4711"], &proxies), "203.0.113.9");
        assert_eq!(from("10.1.1.1", &["[2001:470::1]:4711"], &proxies), "2001:470::1");
        assert_eq!(from("10.1.1.1", &["6.6.6.6, nonsense, 10.2.2.2"], &proxies), "10.2.2.2");
        assert_eq!(from("10.1.1.1", &[], &proxies), "10.1.1.1");
    }

    #[test]
    fn https_to_a_trusted_proxy_is_secure() {
        let mut headers = HeaderMap::new();
        headers.insert(&FORWARDED_PROTO, HeaderValue::from_static("https"));
        let loopback = TrustedNetworks::new(Vec::new());
        assert!(identify("127.0.0.1".parse().unwrap(), false, &headers, &loopback).secure);
        assert!(!identify("192.0.2.1".parse().unwrap(), false, &headers, &loopback).secure);
        assert!(identify("192.0.2.1".parse().unwrap(), true, &HeaderMap::new(), &loopback).secure);
    }
}
