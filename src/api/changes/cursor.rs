//! Cursors of the change log (contract section 12): the change log's lineage and the number of the
//! last entry.

use crate::api::cursor_encoding::{damaged, decode, encode};
use crate::http::ApiError;
use crate::model::Version;
use crate::store::Position;

/// The version of the encoding. Cursors of lists have another first byte.
const VERSION: u8 = 0x81;

/// Encodes `position` as a cursor.
pub(super) fn write(position: &Position) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&position.lineage);
    bytes.extend_from_slice(&position.seq.0.to_be_bytes());
    encode(bytes)
}

/// Decodes a cursor.
///
/// # Errors
///
/// `bad_request` if the cursor is damaged or belongs to a list.
pub(super) fn parse(text: &str) -> Result<Position, ApiError> {
    decode(text).and_then(|bytes| position(&bytes)).ok_or_else(damaged)
}

fn position(bytes: &[u8]) -> Option<Position> {
    let (version, rest) = bytes.split_first()?;
    let (lineage, seq) = rest.split_first_chunk::<16>()?;
    let seq = Version(i64::from_be_bytes(seq.try_into().ok()?));
    (*version == VERSION).then_some(Position { lineage: *lineage, seq })
}
