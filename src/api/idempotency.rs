//! Idempotency keys (contract section 8).

use std::str::FromStr;

use sha2::{Digest, Sha256};
use uuid::fmt::Hyphenated;

use super::{deadline, routes};
use crate::clock::Timestamp;
use crate::http::{ApiError, ErrorCode, Request, Response};
use crate::store::{Answer, ChangeContext, DatabaseError, MutationError, Reading, Tenant, Writing};

/// An idempotency key and the fingerprint of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The bytes of the UUID.
    pub key: [u8; 16],
    /// SHA-256 of method, path without `/v1`, `id` or `update_by`, and for POST and PUT the bytes
    /// of the body.
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
    let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    match (Hyphenated::from_str(bare), values.next()) {
        (Ok(uuid), None) => Ok(Some(*uuid.as_uuid().as_bytes())),
        _ => Err(ErrorCode::InvalidIdempotencyKey.into()),
    }
}

impl IdempotencyKey {
    /// `target` is the value of `id` or `update_by` in the query.
    pub fn new(key: [u8; 16], request: &Request, target: &str, body: &[u8]) -> IdempotencyKey {
        let mut hash = Sha256::new();
        for part in [request.method.as_str(), routes::label(&request.path), target] {
            hash.update(part);
            hash.update([0]);
        }
        hash.update(body);
        IdempotencyKey { key, request: hash.finalize().into() }
    }
}

/// The response to a repeat, or `None` if the key is new.
///
/// It only reads, so a repeat gets its response even if the tenant or the disk is full, or the file
/// takes no writes.
///
/// # Errors
///
/// `idempotency_key_reused`.
pub fn replay(
    tenant: &Tenant,
    request: &Request,
    key: &IdempotencyKey,
) -> Result<Option<Response>, ApiError> {
    let now = request.received_at.timestamp();
    tenant.read(deadline(request), |reading| look_up(reading, key, now))?.transpose()
}

/// The stored answer as a response, byte for byte. `None` if there is none.
fn look_up(
    reading: &Reading<'_>,
    IdempotencyKey { key, request }: &IdempotencyKey,
    now: Timestamp,
) -> Result<Option<Result<Response, ApiError>>, DatabaseError> {
    let stored = reading.stored_answer(key, now)?;
    Ok(stored.map(|(of, answer)| {
        if of != *request {
            return Err(ErrorCode::IdempotencyKeyReused.into());
        }
        Ok(Response::from(answer).header("Idempotent-Replayed", "true"))
    }))
}

/// Runs `work` and stores its answer under the idempotency key. Without a key it only runs `work`.
/// It runs inside a write transaction.
///
/// A request with the same key may have committed since [`replay`] found none. So this looks again,
/// and replays its answer.
///
/// # Errors
///
/// `idempotency_key_reused`, or the error of `work`. The caller rolls back.
pub fn run_once(
    writing: &Writing<'_>,
    key: Option<IdempotencyKey>,
    context: &ChangeContext,
    work: impl FnOnce() -> Result<Answer, MutationError<ApiError>>,
) -> Result<Response, MutationError<ApiError>> {
    let Some(key) = key else { return Ok(work()?.into()) };
    if let Some(stored) = look_up(writing, &key, context.at)? {
        return Ok(stored?);
    }
    let answer = work()?;
    writing.store_answer(&key.key, &key.request, &answer, context.at)?;
    Ok(answer.into())
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
