//! Passwords of the panel: their rule, their hash, and ones that we make (contract section 9).

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{self, PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};

use crate::secret::{self, NoRandomness};

/// OWASP's parameters for Argon2id: memory in KiB, passes, lanes.
const MEMORY: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// The fewest and the most characters of a password.
pub const LENGTH: std::ops::RangeInclusive<usize> = 12..=128;

/// The hash of no password, with the parameters of all others: checking against it takes as long.
const NOBODYS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Letters and digits that are not mistaken for one another: 32, so that five random bits choose one evenly.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Why a password cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("a password has at least {} characters", LENGTH.start())]
    TooShort,
    #[error("a password has at most {} characters", LENGTH.end())]
    TooLong,
}

/// Hashing failed, which takes a machine without memory or randomness.
#[derive(Debug, thiserror::Error)]
#[error("the password cannot be hashed: {0}")]
pub struct HashError(String);

/// The rule: 12 to 128 characters, any.
pub fn check(password: &str) -> Result<(), Unfit> {
    let length = password.chars().count();
    if length < *LENGTH.start() {
        Err(Unfit::TooShort)
    } else if length > *LENGTH.end() {
        Err(Unfit::TooLong)
    } else {
        Ok(())
    }
}

/// The Argon2id hash in PHC text form, with a salt of its own.
pub fn hash(password: &str) -> Result<String, HashError> {
    let failed = |error: String| HashError(error);
    let argon2 = argon2().map_err(|error| failed(error.to_string()))?;
    let hash: password_hash::Result<PasswordHash> = argon2.hash_password(password.as_bytes());
    hash.map(|hash| hash.to_string()).map_err(|error| failed(error.to_string()))
}

/// Whether `password` is the one that `stored` (PHC text) was made from. With `None`, which is an unknown tenant's, the
/// answer is no after the same work. 19 MiB and some 20 ms: the caller bounds how many run at once.
pub fn verify(password: &str, stored: Option<&str>) -> bool {
    let matches = |stored: &str| {
        PasswordHash::new(stored)
            .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
    };
    matches(stored.unwrap_or(NOBODYS)) && stored.is_some()
}

/// A password of 100 random bits, in groups that can be read out: `k7mp-3xva-…`.
pub fn generate() -> Result<String, NoRandomness> {
    let letters = secret::random::<20>()?;
    let mut password = String::with_capacity(24);
    for (place, byte) in letters.iter().enumerate() {
        if place > 0 && place % 4 == 0 {
            password.push('-');
        }
        password.extend(ALPHABET.get(usize::from(byte & 31)).map(|letter| char::from(*letter)));
    }
    Ok(password)
}

fn argon2() -> Result<Argon2<'static>, argon2::Error> {
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(MEMORY, PASSES, LANES, None)?))
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
    }

    #[test]
    fn the_hash_of_nobody_costs_what_every_other_does() {
        let nobodys = PasswordHash::new(NOBODYS).unwrap();
        let somebodys = hash("correct horse battery").unwrap();
        let somebodys = PasswordHash::new(&somebodys).unwrap();
        assert_eq!(nobodys.params, somebodys.params);
        assert_eq!(nobodys.algorithm, somebodys.algorithm);
        assert!(!verify("", None));
    }

    #[test]
    fn length_counts_characters() {
        assert_eq!(check(&"ü".repeat(11)), Err(Unfit::TooShort));
        assert_eq!(check(&"ü".repeat(12)), Ok(()));
        assert_eq!(check(&"ü".repeat(128)), Ok(()));
        assert_eq!(check(&"ü".repeat(129)), Err(Unfit::TooLong));
    }

    #[test]
    fn a_generated_password_can_be_set() {
        let password = generate().unwrap();
        assert_eq!(password.len(), 24, "{password}");
        assert_eq!(check(&password), Ok(()));
        assert_ne!(password, generate().unwrap());
    }
}
