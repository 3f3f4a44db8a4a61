//! Safe retries: `Idempotency-Key` (contract section 8).

use std::str::FromStr;

use sha2::{Digest, Sha256};
use uuid::fmt::Hyphenated;

use super::errors;
use crate::http::{ApiError, Method, Request};

/// A key, and what makes a repeat the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: [u8; 16],
    /// SHA-256 of method, path without `/v1`, id, and for POST and PUT the bytes of the body.
    pub request: [u8; 32],
}

/// The key of a request that changes something, without one `None`. `path` is the one without `/v1`.
///
/// The form is 8-4-4-4-12 hexadecimal digits, any version, case ignored; one pair of double quotes around it is taken off.
pub fn parse_key(request: &Request) -> Result<Option<[u8; 16]>, ApiError> {
    let mut given = request.headers("idempotency-key");
    let Some(value) = given.next() else { return Ok(None) };
    if given.next().is_some() {
        return Err(errors::invalid_idempotency_key("The header \"Idempotency-Key\" is given twice. Send it once."));
    }
    let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    match Hyphenated::from_str(bare) {
        Ok(uuid) => Ok(Some(*uuid.as_uuid().as_bytes())),
        Err(_) => Err(errors::invalid_idempotency_key(
            "The header \"Idempotency-Key\" is not a UUID. Send 32 hexadecimal digits in the form 8-4-4-4-12.",
        )),
    }
}

/// What makes a repeat the same request.
pub fn fingerprint(method: Method, path: &str, id: &str, body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [method.as_str(), path, id] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(body);
    hash.finalize().into()
}
