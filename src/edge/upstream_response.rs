//! Reading a response from an upstream connection.

use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncReadExt};

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A response as it was read from an upstream connection.
#[derive(Debug)]
pub(super) struct UpstreamResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The head and the body.
    pub(super) bytes: Vec<u8>,
    /// The offset of the body in `bytes`.
    pub(super) body: usize,
}

/// Why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardError {
    /// The upstream connection failed or timed out. The request may have been handled.
    Broken,
    /// The request was evicted from the full queue and has not been handled.
    Evicted,
}

/// The longest response head, in bytes. Those of the workers have a few hundred.
const MAX_RESPONSE_HEAD: usize = 64 * 1024;

/// Reads one response. `head_only` says that it has no body, as the response to HEAD.
///
/// # Errors
///
/// [`ForwardError::Broken`] if the connection fails, the response is malformed or more bytes follow it, or if it has no request id:
/// then tiny_http has generated it and no worker.
pub(super) async fn read<S: AsyncRead + Unpin>(
    connection: &mut S,
    head_only: bool,
) -> Result<UpstreamResponse, ForwardError> {
    let mut bytes = Vec::with_capacity(4096);
    let body = loop {
        let before = bytes.len();
        if connection.read_buf(&mut bytes).await.map_err(|_| ForwardError::Broken)? == 0 {
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
        if connection.read_buf(&mut bytes).await.map_err(|_| ForwardError::Broken)? == 0 {
            return Err(ForwardError::Broken);
        }
    }
    // A connection carries one request at a time, so nothing may follow its response.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bytes: &[u8], head_only: bool) -> Result<UpstreamResponse, ForwardError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read(&mut &bytes[..], head_only))
    }

    const HEAD: &str = "HTTP/1.1 200 \r\nX-Request-Id: a\r\nContent-Length: 2\r\n\r\n";

    #[test]
    fn a_response_is_read_to_its_end_and_no_further() {
        let response = run(format!("{HEAD}{{}}").as_bytes(), false).unwrap();
        assert_eq!((response.status.as_u16(), &response.bytes[response.body..]), (200, &b"{}"[..]));
        assert!(run(HEAD.as_bytes(), true).is_ok());
        assert_eq!(run(HEAD.as_bytes(), false).err(), Some(ForwardError::Broken));
        assert_eq!(run(format!("{HEAD}{{}}x").as_bytes(), false).err(), Some(ForwardError::Broken));
    }

    #[test]
    fn a_response_without_a_request_id_is_rejected() {
        assert_eq!(
            run(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", false).err(),
            Some(ForwardError::Broken)
        );
        assert_eq!(run(b"", false).err(), Some(ForwardError::Broken));
    }
}
