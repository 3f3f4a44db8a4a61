//! Handing on: one whole request as bytes, and the way back for its answer. What lies behind this seam can be replaced
//! in one place.

use std::io::Write;
use std::net::IpAddr;

use hyper::header::HOST;
use hyper::http::request::Parts;
use tokio::sync::oneshot;

use super::memory_budget::MemoryPermit;
use super::response::UpstreamResponse;
use super::validate::Checked;
use crate::http::access_log;
use crate::http::upstream_protocol::{FORWARDED_HEADERS, METADATA_HEADER, RequestMetadata, escape};

/// One request that waits for a line, or is on one.
pub(super) struct QueuedRequest {
    /// The request as tiny_http reads it.
    pub(super) bytes: Vec<u8>,
    /// The answer will have no body, whatever its length says.
    pub(super) head_only: bool,
    /// In whose turn it is taken.
    pub(super) client: IpAddr,
    pub(super) answer: oneshot::Sender<ForwardResult>,
    /// The memory that it takes.
    pub(super) memory: MemoryPermit,
}

/// What comes back.
pub(super) type ForwardResult = Result<UpstreamResponse, ForwardError>;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardError {
    /// The line broke, or the answer did not come. The request may have run.
    Broken,
    /// It gave up its place to others while it waited, and has not run.
    Displaced,
}

impl QueuedRequest {
    pub(super) fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }
}

/// The request rebuilt: nothing of the client's framing, and only the headers that the service reads.
pub(super) fn rebuild(head: &Parts, checked: &Checked, note: &RequestMetadata, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512 + body.len());
    // Clients should have encoded what is not ASCII in a target; the rest stays as it was sent.
    let target = access_log::printable(&checked.target);
    // Writing to a `Vec` cannot fail.
    let _ = write!(bytes, "{} {target} HTTP/1.1\r\n{METADATA_HEADER}: {}\r\n", head.method, note.encode());
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
    fn only_known_headers_pass_and_duplicates_stay() {
        let request = Request::builder()
            .method("POST")
            .uri("http://shop.example/customers.php?q=ü")
            .header("Host", "elsewhere.example")
            .header("Gate", "forged")
            .header("User-Agent", HeaderValue::from_bytes(b"caf\xe9").unwrap())
            .header("Connection", "close")
            .header("Content-Length", "3")
            .header("Authorization", "Bearer a")
            .header("Authorization", HeaderValue::from_bytes(b"Bearer \xe9%").unwrap())
            .body(())
            .unwrap();
        let head = request.into_parts().0;
        let note = RequestMetadata {
            id: Uuid::nil(),
            client: "127.0.0.1".parse().unwrap(),
            secure: false,
            body_too_large: false,
        };
        let bytes = rebuild(&head, &check(&head).unwrap(), &note, b"{}");
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "POST /customers.php?q=%C3%BC HTTP/1.1\r\n\
             gate: 00000000-0000-0000-0000-000000000000 127.0.0.1 0 0\r\n\
             authorization: Bearer a\r\n\
             authorization: Bearer %E9%25\r\n\
             host: shop.example\r\n\
             content-length: 2\r\n\r\n{}"
        );
    }
}
