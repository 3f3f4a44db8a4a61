//! The checks on a request head that hyper does not make.
//!
//! hyper itself rejects a malformed head, lengths that differ or are not numbers (`message_boundaries` shortens those beyond 64 bits),
//! and transfer encodings that do not end in `chunked`. It ignores a length next to `chunked` and closes the connection after the
//! response.

use hyper::header::{EXPECT, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, Version};

use super::limits::MAX_TARGET;
use crate::http::{ApiError, ProtocolViolation};

/// The parts of a valid head that are forwarded in a normalized form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Checked {
    /// A path with its query, or `*`.
    pub(super) target: String,
    /// The host of an absolute target, else of `Host`.
    pub(super) host: Option<Vec<u8>>,
}

/// A request extension: the target had a fragment, which hyper has removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct HasFragment;

/// Rejects heads that are ambiguous or not supported.
///
/// # Errors
///
/// `malformed_request` with the status of the violation (contract section 6).
pub(super) fn check(head: &Parts) -> Result<Checked, ApiError> {
    check_version(head.version)?;
    let target = check_target(head)?;
    check_transfer_encoding(&head.headers)?;
    let host = check_host(head)?;
    check_expectation(head)?;
    Ok(Checked { target, host })
}

fn reject<T>(violation: ProtocolViolation, message: &'static str) -> Result<T, ApiError> {
    Err(ApiError::malformed_request(violation, message))
}

fn check_version(version: Version) -> Result<(), ApiError> {
    match version {
        Version::HTTP_10 | Version::HTTP_11 => Ok(()),
        _ => reject(ProtocolViolation::Version, "Only HTTP/1.0 and HTTP/1.1 are served."),
    }
}

fn check_target(head: &Parts) -> Result<String, ApiError> {
    let uri = &head.uri;
    if head.method == Method::CONNECT {
        return reject(
            ProtocolViolation::NotImplemented,
            "The method CONNECT is not implemented. Use a method that the endpoint has.",
        );
    }
    if head.extensions.get::<HasFragment>().is_some() {
        return reject(
            ProtocolViolation::Malformed,
            "The request target has a fragment. Send the path and query without \"#\"; write a \"#\" in a value as \"%23\".",
        );
    }
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    if target.len() > MAX_TARGET {
        return reject(
            ProtocolViolation::TargetTooLong,
            "The request target is longer than 8 KiB. Send a shorter path and query.",
        );
    }
    match (uri.scheme_str(), uri.authority()) {
        (None, None) if target.starts_with('/') => Ok(target.to_owned()),
        (None, None) if target == "*" && head.method == Method::OPTIONS => Ok(target.to_owned()),
        (Some("http" | "https"), Some(_)) if target.starts_with('/') => Ok(target.to_owned()),
        (Some("http" | "https"), Some(_)) if target.starts_with('?') => Ok(format!("/{target}")),
        _ => reject(
            ProtocolViolation::Malformed,
            "The request target is neither a path nor an absolute http address. Send a path that begins with a slash.",
        ),
    }
}

fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if only.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => reject(ProtocolViolation::NotImplemented, "The only transfer encoding is \"chunked\", once."),
    }
}

fn check_host(head: &Parts) -> Result<Option<Vec<u8>>, ApiError> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return reject(ProtocolViolation::Malformed, "The header \"Host\" came more than once. Send it once.");
    }
    if host.is_none() && head.version == Version::HTTP_11 {
        return reject(
            ProtocolViolation::Malformed,
            "The header \"Host\" is missing. HTTP/1.1 asks for it; send the name of this host.",
        );
    }
    if host.is_some_and(|host| !host.as_bytes().iter().all(|byte| is_host_byte(*byte))) {
        return reject(
            ProtocolViolation::Malformed,
            "The header \"Host\" is malformed. Send a host with an optional port.",
        );
    }
    let authority_host = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    if authority_host.is_some_and(|authority| !authority.iter().all(|byte| is_host_byte(*byte))) {
        return reject(ProtocolViolation::Malformed, "The request target names no plain host.");
    }
    Ok(authority_host.or(host.map(|host| host.as_bytes())).map(<[u8]>::to_vec))
}

/// Whether RFC 3986 section 3.2.2 allows the byte in a host, or it is the colon before a port.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte)
}

fn check_expectation(head: &Parts) -> Result<(), ApiError> {
    // A server ignores the expectation of an HTTP/1.0 client (RFC 9110 section 10.1.1).
    let is_supported = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if head.version == Version::HTTP_11 && !head.headers.get_all(EXPECT).iter().all(is_supported) {
        return reject(ProtocolViolation::Expectation, "The only expectation that can be met is \"100-continue\".");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn checked(method: &str, target: &str, headers: &[(&str, &str)]) -> Result<Checked, u16> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0).map_err(|error| error.status())
    }

    #[test]
    fn a_target_is_a_path_or_absolute() {
        let host = [("Host", "shop.example")];
        assert_eq!(checked("GET", "/a?b", &host).unwrap().target, "/a?b");
        let absolute = checked("GET", "http://other.example:80/a", &host).unwrap();
        assert_eq!((absolute.target.as_str(), absolute.host.unwrap().as_slice()), ("/a", &b"other.example:80"[..]));
        assert_eq!(checked("GET", "http://other.example", &host).unwrap().target, "/");
        assert_eq!(checked("OPTIONS", "*", &host).unwrap().target, "*");
        assert_eq!(checked("GET", "*", &host), Err(400));
        assert_eq!(checked("GET", "ftp://other.example/", &host), Err(400));
        assert_eq!(checked("GET", "http://user@other.example/", &host), Err(400));
        assert_eq!(checked("CONNECT", "other.example:443", &host), Err(501));
        assert_eq!(checked("GET", &format!("/{}", "a".repeat(8192)), &host), Err(414));
        assert!(checked("GET", &format!("/{}", "a".repeat(8191)), &host).is_ok());
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
        for bad in [&["gzip, chunked"][..], &["chunked, chunked"], &["chunked", "chunked"], &["identity"]] {
            assert_eq!(with(bad), Some(501), "{bad:?}");
        }
    }

    #[test]
    fn continue_is_the_only_expectation() {
        assert!(checked("POST", "/", &[("Host", "a"), ("Expect", "100-Continue")]).is_ok());
        assert_eq!(checked("POST", "/", &[("Host", "a"), ("Expect", "a miracle")]), Err(417));
    }
}
