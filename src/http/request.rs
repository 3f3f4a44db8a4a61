//! A complete request as a value: the checks of its head, its client, and its parts.
//!
//! [`check_head`] makes the checks on a head that hyper does not make. hyper itself rejects a
//! malformed head and versions other than 1.0 and 1.1, with a bare status. It also rejects lengths
//! that differ or are not numbers, and transfer encodings that do not end in `chunked`. It drops a
//! length next to `chunked` and the fragment of a target, and takes a line that ends with LF alone.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::Utf8Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use ipnet::IpNet;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::error::ApiError;
use crate::clock::Moment;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The complete body; empty if there was none.
    Whole(Vec<u8>),
    /// More bytes than the path takes from this client. The pipeline decides which check rejects
    /// it.
    TooLarge,
}

/// The longest body in bytes of all paths but that of batches (contract section 3).
pub const MAX_BODY: usize = 64 * 1024;

/// The longest body of a batch in bytes (contract section 15). No path takes a longer one.
pub const MAX_BATCH_BODY: usize = 1024 * 1024;

/// The longest method in bytes. The log has no more of a method.
pub const MAX_METHOD: usize = 32;

/// The longest request target, in bytes.
const MAX_TARGET: usize = 8 * 1024;

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    /// Not percent-decoded. Bytes that are not printable ASCII are percent-encoded: tiny_http reads
    /// nothing else, and the log takes nothing else.
    pub path: String,
    /// The text behind `?`, as sent; `None` without a `?`.
    pub query: Option<String>,
    /// Values are ASCII: the edge replaces other bytes by `?`.
    pub headers: HeaderMap,
    pub body: Body,
    /// The client's `X-Request-Id` if it is a UUID, else a new one.
    pub id: Uuid,
    /// As [`identify`] finds it.
    pub client: IpAddr,
    /// The request arrived over HTTPS, here or at a trusted proxy.
    pub secure: bool,
    /// When the complete request was received.
    pub received_at: Moment,
    /// A read ends early if another thread sets it.
    pub abandoned: Arc<AtomicBool>,
}

impl Request {
    /// A request with this head, which [`check_head`] has passed.
    pub fn received(head: Parts, body: Body, client: Client, received_at: Moment) -> Request {
        Request {
            path: encode_unprintable(head.uri.path()).into_owned(),
            query: head.uri.query().map(|query| encode_unprintable(query).into_owned()),
            id: request_id(&head.headers),
            method: head.method,
            headers: head.headers,
            body,
            client: client.address,
            secure: client.secure,
            received_at,
            abandoned: Arc::default(),
        }
    }

    /// A request of this machine, with a new id and without query, headers and body.
    pub fn new(method: Method, path: &str, received_at: Moment) -> Request {
        Request {
            method,
            path: path.to_owned(),
            query: None,
            headers: HeaderMap::new(),
            body: Body::Whole(Vec::new()),
            id: Uuid::new_v4(),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            secure: false,
            received_at,
            abandoned: Arc::default(),
        }
    }

    /// Whether the client has its response, or has disconnected.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// All values of the header `name` (in lower case), in the order sent.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
    }

    /// The first value of the header `name` (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    /// Whether `If-None-Match` names this tag, by weak comparison (RFC 9110 section 13.1.2). A
    /// header that cannot be read is ignored. Several lines are one list.
    pub fn is_unchanged(&self, etag: &str) -> bool {
        let lines: Vec<&str> = self.headers("if-none-match").collect();
        let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag) == etag;
        parse_tags(&lines.join(","))
            .is_some_and(|tags| tags.into_iter().any(|tag| tag == "*" || opaque(tag)))
    }
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
pub fn check_head(head: &Parts) -> Result<(), ApiError> {
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
pub fn normalize_headers(headers: &mut HeaderMap, uri: &Uri) {
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

/// Percent-encodes every byte that is not printable ASCII. In a terminal, control characters would
/// take effect and bidirectional ones would reorder the text (contract section 11).
pub fn encode_unprintable(text: &str) -> Cow<'_, str> {
    const UNPRINTABLE: &AsciiSet = &CONTROLS.add(b' ');
    utf8_percent_encode(text, UNPRINTABLE).into()
}

/// Loopback and the networks of `--trusted-proxy`. The service believes their `X-Forwarded-For` and
/// `X-Forwarded-Proto`.
#[derive(Clone, Debug)]
pub struct TrustedNetworks(Arc<[IpNet]>);

impl TrustedNetworks {
    pub fn new(proxies: Vec<IpNet>) -> TrustedNetworks {
        TrustedNetworks(proxies.into())
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.0.iter().any(|network| network.contains(&address))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The peer's address. If the peer is a trusted proxy, the address that the proxy reports.
    pub address: IpAddr,
    /// The request arrived over HTTPS, here or at a trusted proxy.
    pub secure: bool,
}

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Determines the client of a request. The client is the rightmost address that is not itself
/// trusted; a client can forge everything left of it.
pub fn identify(peer: IpAddr, tls: bool, headers: &HeaderMap, trusted: &TrustedNetworks) -> Client {
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

/// Returns the address that identifies a client: an IPv4 address, or the /64 network of an IPv6
/// address, since a provider assigns at least a /64 to each customer.
pub fn address_of(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// Splits a query string or a form (`application/x-www-form-urlencoded`, WHATWG URL section 5) into
/// its pairs of a name and a value, still encoded. Empty pairs are skipped.
pub fn form_pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Decodes a name or a value: `+` is a space and `%XX` is a byte.
///
/// # Errors
///
/// [`Utf8Error`] if the decoded bytes are not UTF-8.
pub fn decode_form(text: &str) -> Result<String, Utf8Error> {
    Ok(percent_decode_str(&text.replace('+', " ")).decode_utf8()?.into_owned())
}

/// The white space that may surround an element of a list.
const SPACE: [char; 2] = [' ', '\t'];

/// Parses `*` or a list of entity tags with commas between (RFC 9110 sections 5.6.1 and 8.8.3).
/// Empty elements are ignored, but there must be a tag.
pub fn parse_tags(text: &str) -> Option<Vec<&str>> {
    let mut rest = text.trim_matches(SPACE);
    if rest == "*" {
        return Some(vec![rest]);
    }
    let mut tags = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return (!tags.is_empty()).then_some(tags);
        }
        let (tag, after) = split_tag(rest)?;
        tags.push(tag);
        rest = after.trim_start_matches(SPACE);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

/// Splits the tag off the beginning of `text`, with its quotes and `W/`.
fn split_tag(text: &str) -> Option<(&str, &str)> {
    let quoted = text.strip_prefix("W/").unwrap_or(text).strip_prefix('"')?;
    let (opaque, rest) = quoted.split_once('"')?;
    let is_allowed = |c: char| matches!(c, '!' | '#'..='~');
    let is_tag = opaque.chars().all(is_allowed);
    text.split_at_checked(text.len() - rest.len()).filter(|_| is_tag)
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

    #[test]
    fn what_is_not_printable_ascii_is_encoded_once() {
        assert_eq!(encode_unprintable("/a%41?b=~"), "/a%41?b=~");
        assert_eq!(
            encode_unprintable("\u{7f}\n \u{9b}\u{202e}ü"),
            "%7F%0A%20%C2%9B%E2%80%AE%C3%BC"
        );
    }
}
