//! Idempotency keys (contract section 8).

use std::str::FromStr;

use sha2::{Digest, Sha256};
use uuid::fmt::Hyphenated;

use super::errors;
use crate::http::{ApiError, ErrorCode, Method, Request, Response};
use crate::store::{ChangeContext, MutationError, StoredResponse, Writing};

/// An idempotency key and the fingerprint of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The bytes of the UUID.
    pub key: [u8; 16],
    /// SHA-256 of method, path without `/v1`, id, and for POST and PUT the bytes of the body.
    pub request: [u8; 32],
}

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
    if values.next().is_some() {
        return Err(errors::invalid_idempotency_key(
            "The header \"Idempotency-Key\" is given twice. Send it once.",
        ));
    }
    let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    match Hyphenated::from_str(bare) {
        Ok(uuid) => Ok(Some(*uuid.as_uuid().as_bytes())),
        Err(_) => Err(errors::invalid_idempotency_key(
            "The header \"Idempotency-Key\" is not a UUID. Send 32 hexadecimal digits in the form \
             8-4-4-4-12.",
        )),
    }
}

impl IdempotencyKey {
    /// `path` is the path without `/v1`.
    pub fn new(
        key: [u8; 16],
        method: &Method,
        path: &str,
        id: &str,
        body: &[u8],
    ) -> IdempotencyKey {
        let mut hash = Sha256::new();
        for part in [method.as_str(), path, id] {
            hash.update(part);
            hash.update([0]);
        }
        hash.update(body);
        IdempotencyKey { key, request: hash.finalize().into() }
    }
}

/// Runs `work` and stores its response under the idempotency key, or replays the response stored
/// there. Without a key it only runs `work`. It runs inside a write transaction.
///
/// # Errors
///
/// `idempotency_key_reused`, or the error of `work`. The caller rolls back.
pub fn once(
    writing: &Writing<'_>,
    key: Option<IdempotencyKey>,
    context: &ChangeContext,
    work: impl FnOnce() -> Result<Response, MutationError<ApiError>>,
) -> Result<Response, MutationError<ApiError>> {
    let Some(IdempotencyKey { key, request }) = key else { return work() };
    if let Some(stored) = writing.stored_response(&key, context.at)? {
        let is_repeat = stored.request == request;
        return if is_repeat {
            Ok(replay(stored))
        } else {
            Err(ApiError::from(ErrorCode::IdempotencyKeyReused).into())
        };
    }
    let response = work()?;
    let header = |name: &str| response.find_header(name).map(str::to_owned);
    let stored = StoredResponse {
        request,
        status: response.status(),
        location: header("Location"),
        etag: header("ETag"),
        body: response.body().to_vec(),
    };
    writing.store_response(&key, &stored, context.at)?;
    Ok(response)
}

/// The stored response, byte for byte.
fn replay(stored: StoredResponse) -> Response {
    let response = if stored.body.is_empty() {
        Response::empty(stored.status)
    } else {
        Response::json_bytes(stored.status, stored.body)
    };
    let headers = [("Location", stored.location), ("ETag", stored.etag)];
    let present = headers.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    response.with(present).header("Idempotent-Replayed", "true")
}
