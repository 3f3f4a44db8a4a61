//! The checks on a request head that hyper does not make.
//!
//! hyper itself rejects a malformed head, versions but 1.0 and 1.1, lengths that differ or are not
//! numbers, and transfer encodings that do not end in `chunked`, with a bare status. It drops a
//! length next to `chunked` and the fragment of a target, and takes a line that ends with LF alone.

use hyper::Uri;
use hyper::header::{EXPECT, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Version};

use super::limits::MAX_TARGET;
use crate::http::ApiError;
use crate::http::responder::printable;

/// The target of a valid request, without scheme and authority.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// A path, or `*`. Bytes that are not printable ASCII are percent-encoded; tiny_http reads
    /// nothing else.
    pub(super) path: String,
    pub(super) query: Option<String>,
}

/// Rejects heads that are ambiguous or not supported.
///
/// # Errors
///
/// `malformed_request` with its status (contract section 6).
pub(super) fn check(head: &Parts) -> Result<Target, ApiError> {
    let target = check_target(head)?;
    check_transfer_encoding(&head.headers)?;
    check_host(head)?;
    check_expectation(head)?;
    Ok(target)
}

/// Takes the host of an absolute target for `Host` (RFC 9112 section 3.2.2), and replaces bytes
/// beyond ASCII by `?`: no header that the service reads may have them.
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

fn reject<T>(status: StatusCode, message: &'static str) -> Result<T, ApiError> {
    Err(ApiError::malformed_request(status, message))
}

fn check_target(head: &Parts) -> Result<Target, ApiError> {
    let uri = &head.uri;
    if head.method == Method::CONNECT {
        return reject(
            StatusCode::NOT_IMPLEMENTED,
            "The method CONNECT is not implemented. Use a method that the endpoint has.",
        );
    }
    let (path, query) = (uri.path(), uri.query());
    let is_path = path.starts_with('/') || (path == "*" && head.method == Method::OPTIONS);
    let is_absolute = matches!(uri.scheme_str(), Some("http" | "https")) && path.starts_with('/');
    if !(if uri.scheme().is_some() || uri.authority().is_some() { is_absolute } else { is_path }) {
        return reject(
            StatusCode::BAD_REQUEST,
            "The request target is neither a path nor an absolute http address. \
             Send a path that begins with a slash.",
        );
    }
    let (path, query) =
        (printable(path).into_owned(), query.map(|query| printable(query).into_owned()));
    if path.len() + query.as_ref().map_or(0, |query| query.len() + 1) > MAX_TARGET {
        return reject(
            StatusCode::URI_TOO_LONG,
            "The request target is longer than 8 KiB. Send a shorter path and query.",
        );
    }
    Ok(Target { path, query })
}

fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if only.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => {
            reject(StatusCode::NOT_IMPLEMENTED, "The only transfer encoding is \"chunked\", once.")
        }
    }
}

fn check_host(head: &Parts) -> Result<(), ApiError> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return reject(
            StatusCode::BAD_REQUEST,
            "The header \"Host\" came more than once. Send it once.",
        );
    }
    if host.is_none() && head.version == Version::HTTP_11 {
        return reject(
            StatusCode::BAD_REQUEST,
            "The header \"Host\" is missing. HTTP/1.1 asks for it; send the name of this host.",
        );
    }
    let is_host = |text: &[u8]| text.iter().all(|byte| is_host_byte(*byte));
    if host.is_some_and(|host| !is_host(host.as_bytes())) {
        return reject(
            StatusCode::BAD_REQUEST,
            "The header \"Host\" is malformed. Send a host with an optional port.",
        );
    }
    if head.uri.authority().is_some_and(|authority| !is_host(authority.as_str().as_bytes())) {
        return reject(StatusCode::BAD_REQUEST, "The request target names no plain host.");
    }
    Ok(())
}

/// Whether RFC 3986 section 3.2.2 allows the byte in a host, or it is the colon before a port.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte)
}

fn check_expectation(head: &Parts) -> Result<(), ApiError> {
    // A server ignores the expectation of an HTTP/1.0 client (RFC 9110 section 10.1.1).
    let is_supported = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if head.version == Version::HTTP_11 && !head.headers.get_all(EXPECT).iter().all(is_supported) {
        return reject(
            StatusCode::EXPECTATION_FAILED,
            "The only expectation that can be met is \"100-continue\".",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn checked(method: &str, target: &str, headers: &[(&str, &str)]) -> Result<Target, u16> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0).map_err(|error| error.status())
    }

    #[test]
    fn a_target_is_a_path_or_absolute() {
        let host = [("Host", "shop.example")];
        let target = |path: &str, query: Option<&str>| {
            Ok(Target { path: path.to_owned(), query: query.map(str::to_owned) })
        };
        assert_eq!(checked("GET", "/a?b", &host), target("/a", Some("b")));
        assert_eq!(checked("GET", "/ü?", &host), target("/%C3%BC", Some("")));
        assert_eq!(checked("GET", "http://other.example:80/a", &host), target("/a", None));
        assert_eq!(checked("GET", "http://other.example", &host), target("/", None));
        assert_eq!(checked("GET", "http://other.example?b", &host), target("/", Some("b")));
        assert_eq!(checked("OPTIONS", "*", &host), target("*", None));
        assert_eq!(checked("GET", "*", &host), Err(400));
        assert_eq!(checked("GET", "ftp://other.example/", &host), Err(400));
        assert_eq!(checked("GET", "http://user@other.example/", &host), Err(400));
        assert_eq!(checked("CONNECT", "other.example:443", &host), Err(501));
        assert_eq!(checked("GET", &format!("/{}", "a".repeat(8192)), &host), Err(414));
        assert!(checked("GET", &format!("/{}", "a".repeat(8191)), &host).is_ok());
    }

    #[test]
    fn headers_are_normalized() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("a"));
        headers.insert("authorization", HeaderValue::from_bytes(b"Bearer caf\xe9").unwrap());
        normalize(&mut headers, &Uri::from_static("http://b:80/"));
        assert_eq!([&headers["host"], &headers["authorization"]], ["b:80", "Bearer caf?"]);
    }

    #[test]
    fn exactly_one_host_is_required() {
        assert_eq!(checked("GET", "/", &[]), Err(400));
        assert_eq!(checked("GET", "/", &[("Host", "a"), ("Host", "a")]), Err(400));
        assert_eq!(checked("GET", "/", &[("Host", "a b")]), Err(400));
        assert_eq!(checked("GET", "/", &[("Host", "a/b")]), Err(400));
        assert!(checked("GET", "/", &[("Host", "[::1]:8080")]).is_ok());
    }

    #[test]
    fn chunked_is_the_only_transfer_encoding() {
        let with = |encodings: &[&str]| {
            let mut headers = vec![("Host", "a")];
            headers.extend(encodings.iter().map(|encoding| ("Transfer-Encoding", *encoding)));
            checked("POST", "/", &headers).err()
        };
        assert_eq!(with(&["chunked"]), None);
        assert_eq!(with(&["Chunked"]), None);
        for bad in
            [&["gzip, chunked"][..], &["chunked, chunked"], &["chunked", "chunked"], &["identity"]]
        {
            assert_eq!(with(bad), Some(501), "{bad:?}");
        }
    }

    #[test]
    fn continue_is_the_only_expectation() {
        assert!(checked("POST", "/", &[("Host", "a"), ("Expect", "100-Continue")]).is_ok());
        assert_eq!(checked("POST", "/", &[("Host", "a"), ("Expect", "a miracle")]), Err(417));
    }
}
