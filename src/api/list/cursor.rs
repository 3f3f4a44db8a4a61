//! Cursors of lists (contract section 4).
//!
//! A cursor is the base64url of: a version byte, the fingerprint of the list, the last record's id,
//! its sort value, and a checksum of all these.

use crate::api::cursor_encoding::{CHECKSUM, checksum, damaged, decode, encode};
use crate::http::ApiError;
use crate::model::{KeysetPosition, ListQuery, Predicate, RecordId, Value};

/// The version of the encoding.
const VERSION: u8 = 1;

/// Encodes `position` in the list as a cursor.
pub fn write_cursor(position: &KeysetPosition, list: &ListQuery) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&fingerprint(list));
    bytes.extend_from_slice(&position.id.0.to_be_bytes());
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
    encode(bytes)
}

/// Decodes a cursor of this list.
///
/// # Errors
///
/// `bad_request` if the cursor is damaged or belongs to another list.
pub(super) fn parse(text: &str, list: &ListQuery) -> Result<KeysetPosition, ApiError> {
    let bytes = decode(text).ok_or_else(damaged)?;
    let (list_fingerprint, position) = position(&bytes).ok_or_else(damaged)?;
    if list_fingerprint != fingerprint(list) {
        return Err(ApiError::bad_request(
            "The query parameter \"cursor\" belongs to another list. Send it with the resource, sort, filters and q that it came with.",
        ));
    }
    Ok(position)
}

fn position(body: &[u8]) -> Option<([u8; CHECKSUM], KeysetPosition)> {
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
    (*version == VERSION).then_some((
        *list_fingerprint,
        KeysetPosition { value, id: RecordId(i64::from_be_bytes(*id)) },
    ))
}

/// The checksum of resource, sort, filters and `q`. `limit` and `total` may change from page to
/// page.
fn fingerprint(list: &ListQuery) -> [u8; CHECKSUM] {
    let filters: Vec<(&str, &Predicate)> =
        list.filters.iter().map(|(column, predicate)| (column.name(), predicate)).collect();
    checksum(
        format!(
            "{} {} {} {filters:?} {:?}",
            list.resource.plural,
            list.sort.name(),
            list.descending,
            list.words
        )
        .as_bytes(),
    )
}
