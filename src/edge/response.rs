//! Responses to clients: those of the workers, and those of the edge itself.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use uuid::Uuid;

use super::connection_state::ConnectionState;
use super::limits::RESPONSE_BUDGET;
use super::memory_budget::ResponseBudget;
use super::upstream_response::{REQUEST_ID, UpstreamResponse};

const API_VERSION: HeaderName = HeaderName::from_static("x-api-version");

/// The body of a response to a client.
pub(super) struct ResponseBody {
    bytes: Option<Bytes>,
    connection: Arc<ConnectionState>,
}

impl ResponseBody {
    fn new(bytes: Bytes, connection: &Arc<ConnectionState>) -> ResponseBody {
        ResponseBody { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()), connection: Arc::clone(connection) }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

impl Drop for ResponseBody {
    /// hyper drops the body when the response is complete. The connection is then idle.
    fn drop(&mut self) {
        self.connection.set_idle();
    }
}

/// Turns a response of a worker into the response to the client.
pub(super) fn from_upstream(
    upstream: UpstreamResponse,
    close: bool,
    budget: &Arc<ResponseBudget>,
    connection: &Arc<ConnectionState>,
) -> Response<ResponseBody> {
    let range = upstream.body..upstream.bytes.len();
    let bytes = budget.hold(upstream.bytes, range, connection, RESPONSE_BUDGET);
    build(upstream.status, upstream.headers, bytes, close, connection)
}

/// Builds a response of the edge itself, with the headers that every response has.
pub(super) fn local(
    response: &crate::http::Response,
    id: Uuid,
    close: bool,
    connection: &Arc<ConnectionState>,
) -> Response<ResponseBody> {
    let mut headers = HeaderMap::with_capacity(8);
    for (name, value) in response.headers() {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
    if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(API_VERSION, HeaderValue::from_static("v1"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(response.body().len()));
    let status = StatusCode::from_u16(response.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    build(status, headers, Bytes::copy_from_slice(response.body()), close, connection)
}

fn build(
    status: StatusCode,
    headers: HeaderMap,
    bytes: Bytes,
    close: bool,
    connection: &Arc<ConnectionState>,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::new(bytes, connection));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if close {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
