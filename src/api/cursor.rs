//! Cursors of lists and of the change log (contract sections 4 and 12). A cursor is a position
//! behind a record or an entry. A page number would be wrong after a change: if record 3 is deleted
//! while the client reads page 1, page 2 skips a record.
//!
//! A cursor is base64url of a kind byte, the position and a checksum. The checksum finds a cursor
//! that was cut off or mistyped. It is no signature and need not be one: a client that makes its
//! own cursor reads nothing that its key may not read.
//!
//! Cursors stay valid after a restart. So a change of their bytes needs a new kind byte.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest, Sha256};

use crate::http::ApiError;
use crate::model::{Bound, KeysetPosition, ListQuery, RecordId, Value, Version};
use crate::store::Position;

/// The length of a checksum in bytes.
const CHECKSUM: usize = 8;
/// The maximum length of a cursor in characters. The longest sort value, an e-mail address, fits.
pub const MAX_CURSOR: usize = 2048;

fn encode(mut bytes: Vec<u8>) -> String {
    bytes.extend_from_slice(&checksum(&bytes));
    Base64UrlUnpadded::encode_string(&bytes)
}

/// Decodes what [`encode`] returned; `None` if it was changed.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Base64UrlUnpadded::decode_vec(text).ok()?;
    let (body, expected) = bytes.split_last_chunk::<CHECKSUM>()?;
    if checksum(body) != *expected {
        return None;
    }
    bytes.truncate(body.len());
    Some(bytes)
}

/// The error for a cursor that was changed.
fn damaged() -> ApiError {
    ApiError::bad_request(
        "The query parameter \"cursor\" is damaged. Send the \"next_cursor\" of the last page \
         unchanged.",
    )
}

/// A checksum against changes by mistake.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = Sha256::digest(bytes).into();
    [a, b, c, d, e, f, g, h]
}

/// The kind byte of a list's cursor. The fingerprint of the list follows, then the id and the sort
/// value of the last record on the page.
///
/// Example: the first page of `sort=city` ends with record 7 in Kiel. The next page begins behind
/// (`Kiel`, 7) in that order, even if record 7 has been deleted since. The fingerprint names the
/// list: behind (`Kiel`, 7) of a list by `email`, the client would silently miss records.
const LIST_KIND: u8 = 1;

pub fn write_cursor(position: &KeysetPosition, list: &ListQuery) -> String {
    let mut bytes = vec![LIST_KIND];
    bytes.extend_from_slice(&fingerprint(list));
    bytes.extend_from_slice(&position.id.0.to_be_bytes());
    match &position.value {
        // No list is sorted by custom fields.
        Value::Null | Value::Custom(_) => bytes.push(b'n'),
        Value::Boolean(value) => bytes.extend([b'b', u8::from(*value)]),
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
pub(super) fn parse_cursor(text: &str, list: &ListQuery) -> Result<KeysetPosition, ApiError> {
    let bytes = decode(text).ok_or_else(damaged)?;
    let (list_fingerprint, position) = list_position(&bytes).ok_or_else(damaged)?;
    if list_fingerprint != fingerprint(list) {
        return Err(ApiError::bad_request(
            "The query parameter \"cursor\" belongs to another list. Send it with the resource, \
             sort, filters and q that it came with.",
        ));
    }
    Ok(position)
}

/// Reads the fingerprint and the position in the bytes of a list's cursor. `None` for other bytes.
fn list_position(bytes: &[u8]) -> Option<([u8; CHECKSUM], KeysetPosition)> {
    let (kind, rest) = bytes.split_first()?;
    let (list_fingerprint, rest) = rest.split_first_chunk::<CHECKSUM>()?;
    let (id, rest) = rest.split_first_chunk::<8>()?;
    let (tag, rest) = rest.split_first()?;
    let value = match (tag, rest) {
        (b'n', []) => Value::Null,
        (b'b', [value]) => Value::Boolean(*value == 1),
        (b'i', number) => Value::Integer(i64::from_be_bytes(number.try_into().ok()?)),
        (b't', text) => Value::Text(str::from_utf8(text).ok()?.to_owned()),
        _ => return None,
    };
    (*kind == LIST_KIND).then_some((
        *list_fingerprint,
        KeysetPosition { value, id: RecordId(i64::from_be_bytes(*id)) },
    ))
}

/// The checksum of resource, sort, filters and `q`. `limit` and `total` may change from page to
/// page.
///
/// The text has the `Debug` form of filters and words. If that form changes, a client that reads a
/// list during the upgrade gets "belongs to another list" and must begin again.
fn fingerprint(list: &ListQuery) -> [u8; CHECKSUM] {
    let filters: Vec<(&str, Bound, &Value)> =
        list.filters.iter().map(|(field, bound, value)| (field.name, *bound, value)).collect();
    let mut text = format!(
        "{} {} {} {filters:?} {:?}",
        list.resource.plural, list.sort.name, list.descending, list.words
    );
    // A list without filters by custom fields has the same text as in versions without custom
    // fields. So cursors from those versions stay valid.
    if !list.custom.is_empty() {
        text.push_str(&format!(" {:?}", list.custom));
    }
    checksum(text.as_bytes())
}

/// The kind byte of a change log's cursor. The log's lineage and the number of the last entry that
/// the client has seen follow. Cursors of lists begin with another byte, so the cursor of a list is
/// no valid cursor of the change log.
///
/// The lineage is a random number that changes when the tenant is restored. Example: a client has
/// seen entry 1,075, and the operator restores a backup that ends with entry 900. The restore takes
/// back the changes 901 to 1,075, and the log has no entries for that. With the number alone, the
/// client would go on and keep those changes forever. With the lineage, the client gets 410
/// `changes_gone` and reads the lists again.
const CHANGE_KIND: u8 = 0x81;

pub(super) fn write_change_cursor(position: &Position) -> String {
    let mut bytes = vec![CHANGE_KIND];
    bytes.extend_from_slice(&position.lineage);
    bytes.extend_from_slice(&position.seq.0.to_be_bytes());
    encode(bytes)
}

/// Decodes a cursor of the change log.
///
/// # Errors
///
/// `bad_request` if the cursor is damaged or belongs to a list.
pub(super) fn parse_change_cursor(text: &str) -> Result<Position, ApiError> {
    decode(text).and_then(|bytes| change_position(&bytes)).ok_or_else(damaged)
}

/// Reads the position in the bytes of a change log's cursor. `None` for other bytes.
fn change_position(bytes: &[u8]) -> Option<Position> {
    let (kind, rest) = bytes.split_first()?;
    let (lineage, seq) = rest.split_first_chunk::<16>()?;
    let seq = Version(i64::from_be_bytes(seq.try_into().ok()?));
    (*kind == CHANGE_KIND).then_some(Position { lineage: *lineage, seq })
}
