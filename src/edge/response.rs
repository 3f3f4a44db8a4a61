//! Responses to clients, and the limit on the memory of unread responses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
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
        Cow::Owned(body) => unread.hold(body, connection, RESPONSE_BUDGET),
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
/// read it. If a new response exceeds the budget, the oldest unread response goes, and its
/// connection closes at once. A client that reads has finished an old response, so the oldest
/// response most likely belongs to a client that does not read.
///
/// Example: 64 clients each ask for a list of 1 MiB and read nothing. The 64 MiB are full. Another
/// client asks for a list of 1 MiB, and the first of the 64 connections closes. Without the budget,
/// 10,000 such connections would take 10 GiB within the 10 seconds of the write timeout.
#[derive(Default)]
pub(super) struct UnreadResponses(Mutex<Unread>);

#[derive(Default)]
struct Unread {
    next_number: u64,
    bytes: usize,
    /// Size and connection of each response, oldest first.
    responses: BTreeMap<u64, (usize, Arc<ConnectionState>)>,
}

impl UnreadResponses {
    /// Returns the bytes of `response`. They count against `limit` bytes until the last of them is
    /// written.
    fn hold(
        self: &Arc<Self>,
        response: Vec<u8>,
        connection: &Arc<ConnectionState>,
        limit: usize,
    ) -> Bytes {
        let mut unread = self.0.lock();
        let number = unread.next_number;
        unread.next_number += 1;
        unread.bytes += response.capacity();
        unread.responses.insert(number, (response.capacity(), Arc::clone(connection)));
        while unread.bytes > limit && unread.responses.len() > 1 {
            let Some((_, (bytes, oldest))) = unread.responses.pop_first() else { break };
            unread.bytes -= bytes;
            oldest.abort();
        }
        drop(unread);
        Bytes::from_owner(HeldResponse { response, number, unread: Arc::clone(self) })
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
        let mut unread = self.unread.0.lock();
        if let Some((bytes, _)) = unread.responses.remove(&self.number) {
            unread.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;
    use crate::edge::limits::CONNECTION_LIMITS;

    fn is_aborted(connection: &ConnectionState) -> bool {
        pin!(connection.aborted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_response_is_aborted() {
        let unread = Arc::new(UnreadResponses::default());
        let connections: Vec<_> =
            (0..3).map(|_| ConnectionState::new(false, &CONNECTION_LIMITS)).collect();
        let held: Vec<Bytes> =
            connections.iter().map(|c| unread.hold(vec![0; 100], c, 250)).collect();
        assert_eq!(
            connections.iter().map(|c| is_aborted(c)).collect::<Vec<_>>(),
            [true, false, false]
        );
        drop(held);
        assert_eq!(unread.0.lock().bytes, 0);
    }
}
