//! Idempotency keys (contract section 8).

use std::str::FromStr;

use sha2::{Digest, Sha256};
use uuid::fmt::Hyphenated;

use super::routes;
use crate::http::{ApiError, ErrorCode, Request, Response};
use crate::store::{Answer, IdempotencyKey};

/// Returns the bytes of the UUID in the header `Idempotency-Key`, or `None` without the header.
///
/// The form is 8-4-4-4-12 hexadecimal digits in any case, of any UUID version. One pair of double
/// quotes around it is removed.
///
/// # Errors
///
/// `invalid_idempotency_key` if the header occurs twice or is not a UUID.
pub fn parse_key(request: &Request) -> Result<Option<[u8; 16]>, ApiError> {
    let mut values = request.headers("idempotency-key");
    let Some(value) = values.next() else { return Ok(None) };
    let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    match (Hyphenated::from_str(bare), values.next()) {
        (Ok(uuid), None) => Ok(Some(*uuid.as_uuid().as_bytes())),
        _ => Err(ErrorCode::InvalidIdempotencyKey.into()),
    }
}

/// The key with the SHA-256 of method, path without `/v1`, `target` and for POST and PUT the bytes of
/// the body. `target` is the value of `id` or `update_by` in the query.
pub fn key_of(key: [u8; 16], request: &Request, target: &str, body: &[u8]) -> IdempotencyKey {
    let mut hash = Sha256::new();
    for part in [request.method.as_str(), routes::label(&request.path), target] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(body);
    IdempotencyKey { key, request: hash.finalize().into() }
}

impl From<Answer> for Response {
    fn from(Answer { status, location, etag, body }: Answer) -> Response {
        let response = if body.is_empty() {
            Response::empty(status)
        } else {
            Response::json_bytes(status, body)
        };
        let headers = [("Location", location), ("ETag", etag)];
        response.with(headers.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }
}
