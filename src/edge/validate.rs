//! The checks on a request head that hyper does not make.
//!
//! hyper itself rejects a malformed head and versions other than 1.0 and 1.1, with a bare status.
//! It also rejects lengths that differ or are not numbers, and transfer encodings that do not end
//! in `chunked`. It drops a length next to `chunked` and the fragment of a target, and takes a line
//! that ends with LF alone.

use hyper::Uri;
use hyper::header::{EXPECT, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Version};

use super::limits::MAX_TARGET;
use crate::http::ApiError;
use crate::http::request::MAX_METHOD;
use crate::http::responder::encode_unprintable;

/// Rejects heads that are ambiguous or not supported.
///
/// # Errors
///
/// `malformed_request` with its status (contract section 6).
pub(super) fn check(head: &Parts) -> Result<(), ApiError> {
    let rules = [
        (
            head.method != Method::CONNECT,
            StatusCode::NOT_IMPLEMENTED,
            "The method CONNECT is not implemented. Use a method that the endpoint has.",
        ),
        (
            head.method.as_str().len() <= MAX_METHOD,
            StatusCode::NOT_IMPLEMENTED,
            "The method is longer than 32 bytes. Use a method that the endpoint has.",
        ),
        (
            is_path_or_http_address(head),
            StatusCode::BAD_REQUEST,
            "The request target is neither a path nor an absolute http address. \
             Send a path that begins with a slash.",
        ),
        (
            is_short(&head.uri),
            StatusCode::URI_TOO_LONG,
            "The request target is longer than 8 KiB. Send a shorter path and query.",
        ),
        (
            is_chunked_at_most(&head.headers),
            StatusCode::NOT_IMPLEMENTED,
            "The only transfer encoding is \"chunked\", once.",
        ),
        (
            has_one_host(head),
            StatusCode::BAD_REQUEST,
            "The header \"Host\" is missing, malformed, or there more than once. \
             Send it once, with the name of this host and an optional port.",
        ),
        (
            expects_continue_at_most(head),
            StatusCode::EXPECTATION_FAILED,
            "The only expectation that can be met is \"100-continue\".",
        ),
    ];
    match rules.into_iter().find(|(is_met, ..)| !is_met) {
        Some((_, status, message)) => Err(ApiError::malformed_request(status, message)),
        None => Ok(()),
    }
}

/// Takes the host of an absolute target for `Host` (RFC 9112 section 3.2.2). Replaces bytes beyond
/// ASCII by `?`, because the service reads headers as text.
pub(super) fn normalize(headers: &mut HeaderMap, uri: &Uri) {
    if let Some(host) = uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
        headers.insert(HOST, host);
    }
    for value in headers.values_mut().filter(|value| !value.as_bytes().is_ascii()) {
        let ascii: Vec<u8> = value
            .as_bytes()
            .iter()
            .map(|byte| if byte.is_ascii() { *byte } else { b'?' })
            .collect();
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

/// Whether there is one host, in the header and in an absolute target. HTTP/1.0 needs none.
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

/// A server ignores the expectation of an HTTP/1.0 client (RFC 9110 section 10.1.1).
fn expects_continue_at_most(head: &Parts) -> bool {
    let is_continue = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    head.version != Version::HTTP_11 || head.headers.get_all(EXPECT).iter().all(is_continue)
}
