//! Passwords of the panel: policy, hash, and generation (contract section 9).

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{self, PasswordHasher as _, PasswordVerifier as _};

use crate::secret::{self, RandomnessError};

/// The minimum and maximum length of a password, in characters.
pub const LENGTH: std::ops::RangeInclusive<usize> = 12..=128;

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
#[error("a password has {} to {} characters", LENGTH.start(), LENGTH.end())]
pub struct PolicyError;

/// Hashing failed: the system has no memory or no randomness.
#[derive(Debug, thiserror::Error)]
#[error("the password cannot be hashed: {0}")]
pub struct HashError(#[from] password_hash::Error);

/// Checks the policy: 12 to 128 characters of any kind.
pub fn check(password: &str) -> Result<(), PolicyError> {
    LENGTH.contains(&password.chars().count()).then_some(()).ok_or(PolicyError)
}

/// Returns the Argon2id hash of `password` as a PHC string, with a random salt.
///
/// # Errors
///
/// [`HashError`] if the system has no memory or no randomness.
pub fn hash(password: &str) -> Result<String, HashError> {
    Ok(Argon2::default().hash_password(password.as_bytes())?.to_string())
}

/// Returns whether `password` matches `stored`, a PHC string. `None` stands for an unknown tenant:
/// the result is `false`, after the same amount of work. One call takes 19 MiB and about 20 ms of
/// processor time; the caller limits concurrency.
pub fn verify(password: &str, stored: Option<&str>) -> bool {
    let matches = PasswordHash::new(stored.unwrap_or(DUMMY_HASH))
        .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
    matches && stored.is_some()
}

/// Returns a password of 100 random bits in groups of four characters: `k7mp-3xva-…`.
///
/// # Errors
///
/// [`RandomnessError`] if the generator fails.
pub fn generate() -> Result<String, RandomnessError> {
    let random = secret::random::<20>()?;
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
        let stored = hash("correct horse battery").unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify("correct horse battery", Some(&stored)));
        assert!(!verify("correct horse batterz", Some(&stored)));
        assert!(!verify("correct horse battery", Some("not a hash")));
        assert!(!verify("correct horse battery", None));
        assert_ne!(hash("correct horse battery").unwrap(), stored);
    }

    #[test]
    fn the_dummy_hash_costs_as_much_as_a_real_one() {
        let dummy = PasswordHash::new(DUMMY_HASH).unwrap();
        let real = hash("correct horse battery").unwrap();
        let real = PasswordHash::new(&real).unwrap();
        assert_eq!(dummy.params, real.params);
        assert_eq!((dummy.algorithm, dummy.version), (real.algorithm, real.version));
        assert_eq!(dummy.hash.unwrap().len(), real.hash.unwrap().len());
        assert!(!verify("", None));
    }

    #[test]
    fn length_counts_characters() {
        assert_eq!(check(&"ü".repeat(11)), Err(PolicyError));
        assert_eq!(check(&"ü".repeat(12)), Ok(()));
        assert_eq!(check(&"ü".repeat(128)), Ok(()));
        assert_eq!(check(&"ü".repeat(129)), Err(PolicyError));
    }

    #[test]
    fn a_generated_password_can_be_set() {
        let password = generate().unwrap();
        assert_eq!(password.len(), 24, "{password}");
        assert_eq!(check(&password), Ok(()));
        assert_ne!(password, generate().unwrap());
    }
}
