//! Reading a request body.

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::memory_budget::MemoryPermit;
use crate::http::request::MAX_BODY;
use crate::http::{ApiError, ProtocolViolation};

/// The result of reading a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Collected {
    /// The complete body.
    Whole(Vec<u8>),
    /// More bytes than the path takes were announced or received. The rest is unread. The pipeline decides which check rejects it.
    TooLarge,
}

/// Reads a body completely, or until it has more than `max` bytes. A client that waits for `100 Continue` does not get it if the announced length
/// is too large.
///
/// # Errors
///
/// `MalformedRequest` if the body ends early or its chunks are malformed, `Overloaded` if the memory budget is exhausted.
pub(super) async fn collect(mut body: Incoming, max: usize, memory: &mut MemoryPermit) -> Result<Collected, ApiError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max {
        return Ok(Collected::TooLarge);
    }
    // A usual body is allocated at once: growing in steps would fragment the heap. Pages that are never written take no memory.
    let mut bytes = Vec::with_capacity(announced.min(MAX_BODY));
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(ApiError::malformed_request(
                ProtocolViolation::Malformed,
                "The body ended early or is not framed as HTTP asks. Send as many bytes as its length says.",
            ));
        };
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len().saturating_add(data.len()) > max {
            return Ok(Collected::TooLarge);
        }
        if !memory.grow(data.len()) {
            return Err(ApiError::overloaded());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Collected::Whole(bytes))
}
