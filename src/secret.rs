//! Secrets that the system's generator makes: API keys, tokens, passwords. What is stored is their SHA-256, never they
//! themselves.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// What every API key begins with.
pub const KEY_START: &str = "tdk_";

/// How much of a key is kept for people to tell keys apart: `tdk_` and four more.
pub const PREFIX_LENGTH: usize = 8;

/// The fewest characters of a well-formed key (contract section 5).
const SHORTEST_KEY: usize = 40;

/// The system's generator does not answer.
#[derive(Debug, thiserror::Error)]
#[error("the system's random generator failed: {0}")]
pub struct NoRandomness(#[from] getrandom::Error);

/// `N` bytes from the system's generator.
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// 256 random bits as 43 characters of unpadded base64url: a session's token, a key's second part.
pub fn generate_token() -> Result<String, NoRandomness> {
    random::<32>().map(|bytes| URL_SAFE_NO_PAD.encode(bytes))
}

/// A new API key: `tdk_` and 43 characters.
pub fn generate_key() -> Result<String, NoRandomness> {
    generate_token().map(|token| format!("{KEY_START}{token}"))
}

/// Check 2 of contract section 5: the prefix, and at least 40 characters in all.
pub fn is_well_formed_key(token: &str) -> bool {
    token.starts_with(KEY_START) && token.chars().count() >= SHORTEST_KEY
}

/// What is stored of a key or a token: the SHA-256 of the whole.
pub fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_well_formed_and_differ() {
        let key = generate_key().unwrap();
        assert_eq!(key.len(), 47);
        assert!(is_well_formed_key(&key));
        assert_ne!(key, generate_key().unwrap());
    }

    #[test]
    fn forty_characters_are_enough() {
        assert!(is_well_formed_key(&format!("tdk_{}", "x".repeat(36))));
        assert!(!is_well_formed_key(&format!("tdk_{}", "x".repeat(35))));
        assert!(!is_well_formed_key(&"x".repeat(47)));
        assert!(!is_well_formed_key(&format!("TDK_{}", "x".repeat(43))));
    }

    #[test]
    fn the_hash_is_sha256_of_the_whole_key() {
        assert_eq!(hash("abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
