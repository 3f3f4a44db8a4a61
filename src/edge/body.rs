//! Collecting a body, or giving up on it.

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::memory_budget::MemoryPermit;
use crate::http::request::MAX_BODY;
use crate::http::{ApiError, ProtocolViolation};

/// What came of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Collected {
    Whole(Vec<u8>),
    /// More than [`MAX_BODY`] was announced or came. The pipeline decides which check answers that. The rest is unread.
    TooLarge,
}

/// Reads a body whole, or until it is known to be too large. A client that waits for `100 Continue` does not get it if its body
/// is announced to be too large.
///
/// # Errors
///
/// `MalformedRequest` if the body ends early or its chunks are malformed, `Overloaded` if `memory` cannot hold it.
pub(super) async fn collect(mut body: Incoming, memory: &mut MemoryPermit) -> Result<Collected, ApiError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > MAX_BODY {
        return Ok(Collected::TooLarge);
    }
    // All at once, since growing by and by would leave pieces of every size upstream. Untouched it takes no memory.
    let mut bytes = Vec::with_capacity(announced);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(ApiError::malformed_request(
                ProtocolViolation::Malformed,
                "The body ended early or is not framed as HTTP asks. Send as many bytes as its length says.",
            ));
        };
        // Trailers are read and dropped.
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len().saturating_add(data.len()) > MAX_BODY {
            return Ok(Collected::TooLarge);
        }
        if !memory.grow(data.len()) {
            return Err(ApiError::overloaded());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Collected::Whole(bytes))
}
