//! A request as it is written to an upstream connection.

use std::io::Write;
use std::net::IpAddr;

use hyper::header::HOST;
use hyper::http::request::Parts;
use tokio::sync::oneshot;

use super::memory_budget::MemoryPermit;
use super::upstream_response::{ForwardError, UpstreamResponse};
use super::validate::Checked;
use crate::http::access_log;
use crate::http::upstream_protocol::{FORWARDED_HEADERS, METADATA_HEADER, RequestMetadata, escape};

/// A request that waits for an upstream connection or has been written to one.
pub(super) struct QueuedRequest {
    /// The HTTP/1.1 message.
    pub(super) bytes: Vec<u8>,
    /// The response has no body, whatever its `Content-Length` says (RFC 9110 section 9.3.2).
    pub(super) head_only: bool,
    /// The address under which it is queued.
    pub(super) client: IpAddr,
    /// Where the response goes.
    pub(super) sender: oneshot::Sender<ForwardResult>,
    /// The memory of its body.
    pub(super) memory: MemoryPermit,
}

/// The result of forwarding a request.
pub(super) type ForwardResult = Result<UpstreamResponse, ForwardError>;

impl QueuedRequest {
    /// Whether the client still waits for the response.
    pub(super) fn is_wanted(&self) -> bool {
        !self.sender.is_closed()
    }
}

/// Writes a request as one HTTP/1.1 message: with new framing, and only the headers in [`FORWARDED_HEADERS`].
pub(super) fn encode(head: &Parts, checked: &Checked, metadata: &RequestMetadata, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512 + body.len());
    // Bytes that are not printable ASCII are percent-encoded; tiny_http reads nothing else. Everything else stays as sent.
    let target = access_log::printable(&checked.target);
    // Writing to a `Vec` cannot fail.
    let _ = write!(bytes, "{} {target} HTTP/1.1\r\n{METADATA_HEADER}: {}\r\n", head.method, metadata.encode());
    for name in FORWARDED_HEADERS {
        if name == HOST.as_str() {
            if let Some(host) = &checked.host {
                push_header(name, host, &mut bytes);
            }
            continue;
        }
        for value in head.headers.get_all(name) {
            push_header(name, value.as_bytes(), &mut bytes);
        }
    }
    if !body.is_empty() {
        let _ = write!(bytes, "content-length: {}\r\n", body.len());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

fn push_header(name: &str, value: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(b": ");
    escape(value, bytes);
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::validate::check;
    use hyper::Request;
    use hyper::header::HeaderValue;
    use uuid::Uuid;

    #[test]
    fn only_forwarded_headers_pass_and_duplicates_stay() {
        let request = Request::builder()
            .method("POST")
            .uri("http://shop.example/customers.php?q=ü")
            .header("Host", "elsewhere.example")
            .header("Request-Metadata", "forged")
            .header("User-Agent", HeaderValue::from_bytes(b"caf\xe9").unwrap())
            .header("Connection", "close")
            .header("Content-Length", "3")
            .header("Authorization", "Bearer a")
            .header("Authorization", HeaderValue::from_bytes(b"Bearer \xe9%").unwrap())
            .body(())
            .unwrap();
        let head = request.into_parts().0;
        let metadata = RequestMetadata {
            id: Uuid::nil(),
            client: "127.0.0.1".parse().unwrap(),
            secure: false,
            body_too_large: false,
        };
        let bytes = encode(&head, &check(&head).unwrap(), &metadata, b"{}");
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "POST /customers.php?q=%C3%BC HTTP/1.1\r\n\
             request-metadata: 00000000-0000-0000-0000-000000000000 127.0.0.1 0 0\r\n\
             authorization: Bearer a\r\n\
             authorization: Bearer %E9%25\r\n\
             host: shop.example\r\n\
             content-length: 2\r\n\r\n{}"
        );
    }
}
