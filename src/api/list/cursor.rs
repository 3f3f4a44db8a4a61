//! Cursors of lists (contract section 4).
//!
//! A cursor is the base64url of: a version byte, the fingerprint of the list, the last record's id, its sort value, and a
//! checksum of all these.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::http::ApiError;
use crate::model::{KeysetPosition, ListQuery, Predicate, Value};

/// The version of the encoding.
const VERSION: u8 = 1;
/// Bytes of a checksum.
const CHECKSUM: usize = 8;
/// Maximum length of a cursor in characters. The longest sort value, an e-mail address, fits.
pub const MAX_CURSOR: usize = 2048;

/// Encodes `position` in the list as a cursor.
pub fn write_cursor(position: &KeysetPosition, list: &ListQuery) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&fingerprint(list));
    bytes.extend_from_slice(&position.id.to_be_bytes());
    match &position.value {
        Value::Null => bytes.push(b'n'),
        Value::Boolean(truth) => bytes.extend([b'b', u8::from(*truth)]),
        Value::Integer(number) => {
            bytes.push(b'i');
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        Value::Text(text) => {
            bytes.push(b't');
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes.extend_from_slice(&checksum(&bytes));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a cursor of this list.
///
/// # Errors
///
/// `bad_request` if the cursor is damaged or belongs to another list.
pub(super) fn parse(text: &str, list: &ListQuery) -> Result<KeysetPosition, ApiError> {
    let damaged = || {
        ApiError::bad_request(
            "The query parameter \"cursor\" is damaged. Send the \"next_cursor\" of the last page unchanged.",
        )
    };
    if text.len() > MAX_CURSOR {
        return Err(damaged());
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| damaged())?;
    let (body, expected) = bytes.split_last_chunk::<CHECKSUM>().ok_or_else(damaged)?;
    if checksum(body) != *expected {
        return Err(damaged());
    }
    let (list_fingerprint, position) = decode(body).ok_or_else(damaged)?;
    if list_fingerprint != fingerprint(list) {
        return Err(ApiError::bad_request(
            "The query parameter \"cursor\" belongs to another list. Send it with the resource, sort, filters and q that it came with.",
        ));
    }
    Ok(position)
}

fn decode(body: &[u8]) -> Option<([u8; CHECKSUM], KeysetPosition)> {
    let (version, rest) = body.split_first()?;
    let (list_fingerprint, rest) = rest.split_first_chunk::<CHECKSUM>()?;
    let (id, rest) = rest.split_first_chunk::<8>()?;
    let (tag, rest) = rest.split_first()?;
    let value = match (tag, rest) {
        (b'n', []) => Value::Null,
        (b'b', [truth]) => Value::Boolean(*truth == 1),
        (b'i', number) => Value::Integer(i64::from_be_bytes(number.try_into().ok()?)),
        (b't', text) => Value::Text(str::from_utf8(text).ok()?.to_owned()),
        _ => return None,
    };
    (*version == VERSION).then_some((*list_fingerprint, KeysetPosition { value, id: i64::from_be_bytes(*id) }))
}

/// The checksum of resource, sort, filters and `q`. `limit` and `total` may change from page to page.
fn fingerprint(list: &ListQuery) -> [u8; CHECKSUM] {
    let filters: Vec<(&str, &Predicate)> =
        list.filters.iter().map(|(column, predicate)| (column.name(), predicate)).collect();
    checksum(
        format!("{} {} {} {filters:?} {:?}", list.resource.plural, list.sort.name(), list.descending, list.words)
            .as_bytes(),
    )
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let whole: [u8; 32] = Sha256::digest(bytes).into();
    whole.first_chunk().copied().unwrap_or_default()
}
