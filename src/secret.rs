//! Random secrets: API keys and session tokens. The databases store only their SHA-256 hash.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest as _, Sha256};

/// The first characters of every API key.
pub const KEY_START: &str = "tdk_";

/// The length of the stored key prefix, in characters: `tdk_` and four more. People identify a key
/// by it.
pub const PREFIX_LENGTH: usize = 8;

/// The minimum length of a well-formed key, in characters (contract section 5).
const MIN_KEY_LENGTH: usize = 40;

/// The operating system's random generator failed.
#[derive(Debug, thiserror::Error)]
#[error("the system's random generator failed: {0}")]
pub struct RandomnessError(#[from] getrandom::Error);

/// Returns `N` random bytes from the operating system's generator.
///
/// # Errors
///
/// [`RandomnessError`] if the generator fails.
pub fn random<const N: usize>() -> Result<[u8; N], RandomnessError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Returns 256 random bits as 43 characters of unpadded base64url: a session token, or the second
/// part of a key.
///
/// # Errors
///
/// [`RandomnessError`] if the generator fails.
pub fn generate_token() -> Result<String, RandomnessError> {
    random::<32>().map(|bytes| Base64UrlUnpadded::encode_string(&bytes))
}

/// Returns a new API key: `tdk_` and 43 characters.
///
/// # Errors
///
/// [`RandomnessError`] if the generator fails.
pub fn generate_key() -> Result<String, RandomnessError> {
    generate_token().map(|token| format!("{KEY_START}{token}"))
}

/// Returns whether `token` has the form of an API key: the prefix `tdk_`, and at least 40
/// characters in all (contract section 5).
pub fn is_well_formed_key(token: &str) -> bool {
    token.starts_with(KEY_START) && token.chars().count() >= MIN_KEY_LENGTH
}

/// Returns the SHA-256 hash of a key or a token, which is what the registry stores.
pub fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}
