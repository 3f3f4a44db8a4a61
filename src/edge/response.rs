//! Responses to clients, and the limit on the memory of unread responses.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, STRICT_TRANSPORT_SECURITY};
use hyper::{Method, StatusCode};
use parking_lot::Mutex;

use super::limits::RESPONSE_BUDGET;
use super::stream::ConnectionState;
use crate::http::Response;
use crate::http::request::address_of;

/// The value of `Strict-Transport-Security`: a year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Turns a response to a request of `method` into what hyper sends. With `close`, the connection
/// closes after it; `tls` says that the connection has TLS.
pub(super) fn to_hyper(
    response: Response,
    method: &Method,
    close: bool,
    tls: bool,
    unread: &Arc<UnreadResponses>,
    client: IpAddr,
    connection: &Arc<ConnectionState>,
) -> hyper::Response<ResponseBody> {
    let (mut head, body) = response.into_inner().into_parts();
    let is_bare = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !is_bare {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    if close {
        head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if tls {
        head.headers.insert(STRICT_TRANSPORT_SECURITY, HSTS);
    }
    let bytes = match body {
        _ if is_bare || *method == Method::HEAD => Bytes::new(),
        Cow::Borrowed(fixed) => Bytes::from_static(fixed),
        Cow::Owned(body) => unread.hold(body, address_of(client), connection),
    };
    let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
    hyper::Response::from_parts(head, ResponseBody { bytes, connection: Arc::clone(connection) })
}

/// The body of a response to a client.
pub(super) struct ResponseBody {
    bytes: Option<Bytes>,
    connection: Arc<ConnectionState>,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }
}

impl Drop for ResponseBody {
    /// hyper drops the body when the response is complete. The connection is then idle.
    fn drop(&mut self) {
        self.connection.set_idle();
    }
}

/// The responses that clients have not read yet. Together they take at most [`RESPONSE_BUDGET`].
///
/// A worker gives the edge a complete response, and the memory is free again when the client has
/// read it. If a new response exceeds the budget, the address with the most unread bytes loses its
/// oldest response, and the connection of that response closes at once.
///
/// Example: A has 60 unread lists of 1 MiB. B downloads a list of 4 MiB, and asks for another 1
/// MiB. The 64 MiB are full, and the first of A's connections closes. Without the budget, 10,000
/// connections such as A's would take 10 GiB within the 10 seconds of the write timeout.
#[derive(Default)]
pub(super) struct UnreadResponses(Mutex<Unread>);

#[derive(Default)]
struct Unread {
    next_number: u64,
    bytes: usize,
    /// The oldest first.
    responses: BTreeMap<u64, UnreadResponse>,
}

struct UnreadResponse {
    bytes: usize,
    address: IpAddr,
    connection: Arc<ConnectionState>,
}

impl UnreadResponses {
    /// Returns the bytes of `response`. They count until the last of them is written.
    fn hold(
        self: &Arc<Self>,
        response: Vec<u8>,
        address: IpAddr,
        connection: &Arc<ConnectionState>,
    ) -> Bytes {
        let mut unread = self.0.lock();
        let (number, bytes) = (unread.next_number, response.len());
        unread.next_number += 1;
        unread.bytes += bytes;
        let connection = Arc::clone(connection);
        unread.responses.insert(number, UnreadResponse { bytes, address, connection });
        while unread.bytes > RESPONSE_BUDGET && unread.responses.len() > 1 {
            unread.abort_one();
        }
        drop(unread);
        Bytes::from_owner(HeldResponse { response, number, unread: Arc::clone(self) })
    }
}

impl Unread {
    /// Aborts the oldest response of the address with the most unread bytes.
    fn abort_one(&mut self) {
        let mut by_address = HashMap::new();
        for response in self.responses.values() {
            *by_address.entry(response.address).or_insert(0) += response.bytes;
        }
        let most = by_address.into_iter().max_by_key(|(_, bytes)| *bytes);
        let Some((address, _)) = most else { return };
        let oldest = self.responses.iter().find(|(_, response)| response.address == address);
        let Some(number) = oldest.map(|(number, _)| *number) else { return };
        if let Some(response) = self.forget(number) {
            response.connection.abort();
        }
    }

    fn forget(&mut self, number: u64) -> Option<UnreadResponse> {
        self.responses.remove(&number).inspect(|response| self.bytes -= response.bytes)
    }
}

/// One response that counts against the limit.
struct HeldResponse {
    response: Vec<u8>,
    number: u64,
    unread: Arc<UnreadResponses>,
}

impl AsRef<[u8]> for HeldResponse {
    fn as_ref(&self) -> &[u8] {
        &self.response
    }
}

impl Drop for HeldResponse {
    fn drop(&mut self) {
        self.unread.0.lock().forget(self.number);
    }
}
