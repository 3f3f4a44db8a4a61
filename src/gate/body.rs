//! Collecting a body, or giving up on it.

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::budget::Portion;
use super::limits::MAX_DISCARDED;
use crate::error::{Error, Framing};
use crate::http::request::MAX_BODY;

/// What came of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Collected {
    Whole(Vec<u8>),
    /// More than [`MAX_BODY`]. Which check answers that is the pipeline's to decide.
    TooLarge {
        /// Some of it is still unread, so that the connection cannot be used again.
        unread: bool,
    },
}

/// Reads a body whole, or, where it is too large, to its end if that is near: a sender that is not listened to would lose
/// the answer. One that waits for `100 Continue` need not send at all.
pub(super) async fn collect(
    mut body: Incoming,
    expects_continue: bool,
    memory: &mut Portion,
) -> Result<Collected, Error> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > MAX_DISCARDED || (announced > MAX_BODY && expects_continue) {
        return Ok(Collected::TooLarge { unread: true });
    }
    // All at once, since growing by and by would leave pieces of every size behind. Untouched it takes no memory.
    let mut bytes = Vec::with_capacity(if announced > MAX_BODY { 0 } else { announced });
    let mut seen: usize = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(Error::MalformedRequest(
                Framing::Malformed,
                "The body ended early or is not framed as HTTP asks. Send as many bytes as its length says.".into(),
            ));
        };
        // Trailers are read and dropped.
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen > MAX_DISCARDED {
            return Ok(Collected::TooLarge { unread: true });
        }
        if seen > MAX_BODY || announced > MAX_BODY {
            bytes = Vec::new();
            continue;
        }
        if !memory.grow(data.len()) {
            return Err(Error::Overloaded);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(if seen > MAX_BODY { Collected::TooLarge { unread: false } } else { Collected::Whole(bytes) })
}
