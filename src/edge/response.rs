//! ResponseBudget: as they come from a line, as clients get them, and the gate's own.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt};
use uuid::Uuid;

use super::connection::ConnectionState;
use super::forward::ForwardError;
use super::limits::RESPONSE_BUDGET;
use super::memory_budget::ResponseBudget;

/// An answer as it came over a line.
#[derive(Debug)]
pub(super) struct UpstreamResponse {
    status: StatusCode,
    headers: HeaderMap,
    bytes: Vec<u8>,
    /// Where in `bytes` the body begins.
    body: usize,
}

/// The most that an answer's head may have; ours has a few hundred bytes.
const MAX_RESPONSE_HEAD: usize = 64 * 1024;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const API_VERSION: HeaderName = HeaderName::from_static("x-api-version");

/// Reads one answer. What the workers did not write themselves, such as tiny_http's own words, has no request id and is as
/// good as none.
pub(super) async fn read<S: AsyncRead + Unpin>(
    line: &mut S,
    head_only: bool,
) -> Result<UpstreamResponse, ForwardError> {
    let mut bytes = Vec::with_capacity(4096);
    let body = loop {
        let before = bytes.len();
        if line.read_buf(&mut bytes).await.map_err(|_| ForwardError::Broken)? == 0 {
            return Err(ForwardError::Broken);
        }
        let from = before.saturating_sub(3);
        if let Some(at) = bytes.get(from..).and_then(|new| new.windows(4).position(|four| four == b"\r\n\r\n")) {
            break from + at + 4;
        }
        if bytes.len() > MAX_RESPONSE_HEAD {
            return Err(ForwardError::Broken);
        }
    };
    let (status, headers) = bytes.get(..body).and_then(parse_head).ok_or(ForwardError::Broken)?;
    let bare = head_only || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    let length = if bare { 0 } else { length(&headers).ok_or(ForwardError::Broken)? };
    let end = body + length;
    bytes.reserve_exact(end.saturating_sub(bytes.len()));
    while bytes.len() < end {
        if line.read_buf(&mut bytes).await.map_err(|_| ForwardError::Broken)? == 0 {
            return Err(ForwardError::Broken);
        }
    }
    // A line carries one request at a time: more than its answer is no answer.
    if bytes.len() == end { Ok(UpstreamResponse { status, headers, bytes, body }) } else { Err(ForwardError::Broken) }
}

fn parse_head(head: &[u8]) -> Option<(StatusCode, HeaderMap)> {
    let mut lines = head.strip_suffix(b"\r\n\r\n")?.split(|byte| *byte == b'\n');
    let status = lines.next()?.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    let mut headers = HeaderMap::with_capacity(16);
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(line.get(..colon)?).ok()?;
        let value = HeaderValue::from_bytes(line.get(colon + 1..)?.trim_ascii()).ok()?;
        headers.append(name, value);
    }
    headers.contains_key(REQUEST_ID).then_some((StatusCode::from_bytes(status).ok()?, headers))
}

fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The body of an answer on its way to a client.
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
    /// hyper has taken all of it: the connection waits for its next request.
    fn drop(&mut self) {
        self.connection.set_idle();
    }
}

/// An answer from a line as its client gets it.
pub(super) fn from_upstream(
    raw: UpstreamResponse,
    close: bool,
    answers: &Arc<ResponseBudget>,
    connection: &Arc<ConnectionState>,
) -> Response<ResponseBody> {
    let range = raw.body..raw.bytes.len();
    let bytes = answers.hold(raw.bytes, range, connection, RESPONSE_BUDGET);
    build(raw.status, raw.headers, bytes, close, connection)
}

/// An answer that the gate gives itself.
pub(super) fn own(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bytes: &[u8], head_only: bool) -> Result<UpstreamResponse, ForwardError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read(&mut &bytes[..], head_only))
    }

    const HEAD: &str = "HTTP/1.1 200 \r\nX-Request-Id: a\r\nContent-Length: 2\r\n\r\n";

    #[test]
    fn an_answer_is_read_to_its_end_and_no_further() {
        let raw = run(format!("{HEAD}{{}}").as_bytes(), false).unwrap();
        assert_eq!((raw.status.as_u16(), &raw.bytes[raw.body..]), (200, &b"{}"[..]));
        assert!(run(HEAD.as_bytes(), true).is_ok());
        assert_eq!(run(HEAD.as_bytes(), false).err(), Some(ForwardError::Broken));
        assert_eq!(run(format!("{HEAD}{{}}x").as_bytes(), false).err(), Some(ForwardError::Broken));
    }

    #[test]
    fn what_no_worker_wrote_is_no_answer() {
        assert_eq!(
            run(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", false).err(),
            Some(ForwardError::Broken)
        );
        assert_eq!(run(b"", false).err(), Some(ForwardError::Broken));
    }
}
