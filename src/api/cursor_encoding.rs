//! The encoding of cursors: base64url of bytes and their checksum.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::http::ApiError;

/// Bytes of a checksum.
pub(super) const CHECKSUM: usize = 8;
/// Maximum length of a cursor in characters. The longest sort value, an e-mail address, fits.
pub(super) const MAX_CURSOR: usize = 2048;

/// Encodes `bytes` as a cursor.
pub(super) fn encode(mut bytes: Vec<u8>) -> String {
    bytes.extend_from_slice(&checksum(&bytes));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes what [`encode`] returned; `None` if it was changed.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    if text.len() > MAX_CURSOR {
        return None;
    }
    let mut bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (body, expected) = bytes.split_last_chunk::<CHECKSUM>()?;
    if checksum(body) != *expected {
        return None;
    }
    bytes.truncate(body.len());
    Some(bytes)
}

/// The error for a cursor that was changed.
pub(super) fn damaged() -> ApiError {
    ApiError::bad_request(
        "The query parameter \"cursor\" is damaged. Send the \"next_cursor\" of the last page unchanged.",
    )
}

/// A checksum against changes by mistake.
pub(super) fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let whole: [u8; 32] = Sha256::digest(bytes).into();
    whole.first_chunk().copied().unwrap_or_default()
}
