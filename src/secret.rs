//! Secrets: API keys, session tokens, and passwords of the panel. The databases store only their
//! hashes: SHA-256 of random secrets, Argon2id of passwords.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{self, PasswordHasher as _, PasswordVerifier as _};
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

/// The minimum and maximum length of a password, in characters.
pub const PASSWORD_LENGTH: std::ops::RangeInclusive<usize> = 12..=128;

/// A hash that no password matches. It has the parameters of `Argon2::default`, as real hashes do,
/// which OWASP recommends. Verification against it takes the same time, so that response times do
/// not reveal which tenants exist.
const DUMMY_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$\
                          AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// 32 letters and digits that are hard to confuse. Five random bits select one with uniform
/// probability.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// The password violates the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a password has {} to {} characters", PASSWORD_LENGTH.start(), PASSWORD_LENGTH.end())]
pub struct PasswordPolicyError;

/// Hashing failed: the system has no memory or no randomness.
#[derive(Debug, thiserror::Error)]
#[error("the password cannot be hashed: {0}")]
pub struct HashError(#[from] password_hash::Error);

/// Checks the policy: 12 to 128 characters of any kind.
pub fn check_password(password: &str) -> Result<(), PasswordPolicyError> {
    PASSWORD_LENGTH.contains(&password.chars().count()).then_some(()).ok_or(PasswordPolicyError)
}

/// Returns the Argon2id hash of `password` as a PHC string, with a random salt.
///
/// # Errors
///
/// [`HashError`] if the system has no memory or no randomness.
pub fn hash_password(password: &str) -> Result<String, HashError> {
    Ok(Argon2::default().hash_password(password.as_bytes())?.to_string())
}

/// Returns whether `password` matches `stored`, a PHC string. `None` stands for an unknown tenant:
/// the result is `false`, after the same amount of work. One call takes 19 MiB and about 20 ms of
/// processor time; the caller limits concurrency.
pub fn verify_password(password: &str, stored: Option<&str>) -> bool {
    let matches = PasswordHash::new(stored.unwrap_or(DUMMY_HASH))
        .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
    matches && stored.is_some()
}

/// Returns a password of 100 random bits in groups of four characters: `k7mp-3xva-…`.
///
/// # Errors
///
/// [`RandomnessError`] if the generator fails.
pub fn generate_password() -> Result<String, RandomnessError> {
    let random = random::<20>()?;
    let letter = |byte: &u8| ALPHABET.get(usize::from(byte & 31)).copied().map(char::from);
    let groups: Vec<String> =
        random.chunks(4).map(|group| group.iter().filter_map(letter).collect()).collect();
    Ok(groups.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_matches_its_hash_alone() {
        let stored = hash_password("correct horse battery").unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify_password("correct horse battery", Some(&stored)));
        assert!(!verify_password("correct horse batterz", Some(&stored)));
        assert!(!verify_password("correct horse battery", Some("not a hash")));
        assert!(!verify_password("correct horse battery", None));
        assert_ne!(hash_password("correct horse battery").unwrap(), stored);
    }

    #[test]
    fn the_dummy_hash_costs_as_much_as_a_real_one() {
        let dummy = PasswordHash::new(DUMMY_HASH).unwrap();
        let real = hash_password("correct horse battery").unwrap();
        let real = PasswordHash::new(&real).unwrap();
        assert_eq!(dummy.params, real.params);
        assert_eq!((dummy.algorithm, dummy.version), (real.algorithm, real.version));
        assert_eq!(dummy.hash.unwrap().len(), real.hash.unwrap().len());
        assert!(!verify_password("", None));
    }
}
