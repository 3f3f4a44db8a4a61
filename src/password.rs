//! Passwords of the panel: their rule, their hash, and ones that we make (contract section 9).

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use subtle::ConstantTimeEq as _;

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

/// The 19 MiB that one work on a password takes, to be used again for the next. Freed and allocated each time, they would
/// stay with the allocator, once for every thread that ever worked on one.
#[derive(Default)]
pub struct Memory(Vec<Block>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("blocks", &self.0.len()).finish_non_exhaustive()
    }
}

impl Memory {
    fn blocks(&mut self, count: usize) -> &mut [Block] {
        self.0.resize(count, Block::new());
        &mut self.0
    }
}

/// The Argon2id hash in PHC text form, with a salt of its own.
pub fn hash(password: &str) -> Result<String, HashError> {
    hash_in(password, &mut Memory::default())
}

/// [`hash`] in memory that is used again.
pub fn hash_in(password: &str, memory: &mut Memory) -> Result<String, HashError> {
    let failed = |error: &dyn std::fmt::Display| HashError(error.to_string());
    let salt = secret::random::<16>().map_err(|error| failed(&error))?;
    let params = Params::new(MEMORY, PASSES, LANES, None).map_err(|error| failed(&error))?;
    let params_text = ParamsString::try_from(&params).map_err(|error| failed(&error))?;
    let mut output = [0; Params::DEFAULT_OUTPUT_LEN];
    let blocks = memory.blocks(params.block_count());
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2
        .hash_password_into_with_memory(password.as_bytes(), &salt, &mut output, blocks)
        .map_err(|error| failed(&error))?;
    let hash = PasswordHash {
        algorithm: Algorithm::Argon2id.ident(),
        version: Some(Version::V0x13.into()),
        params: params_text,
        salt: Some(Salt::new(&salt).map_err(|error| failed(&error))?),
        hash: Some(Output::new(&output).map_err(|error| failed(&error))?),
    };
    Ok(hash.to_string())
}

/// Whether `password` is the one that `stored` (PHC text) was made from. With `None`, which is an unknown tenant's, the
/// answer is no after the same work. 19 MiB and some 20 ms: the caller bounds how many run at once.
pub fn verify(password: &str, stored: Option<&str>, memory: &mut Memory) -> bool {
    matches(password, stored.unwrap_or(NOBODYS), memory).unwrap_or(false) && stored.is_some()
}

/// `None` where `stored` is no hash of ours.
fn matches(password: &str, stored: &str, memory: &mut Memory) -> Option<bool> {
    let stored = PasswordHash::new(stored).ok()?;
    let algorithm = Algorithm::try_from(stored.algorithm.as_str()).ok()?;
    let version = Version::try_from(stored.version?).ok()?;
    let params = Params::try_from(&stored).ok()?;
    let (salt, expected) = (stored.salt?, stored.hash?);
    let mut output = vec![0; expected.len()];
    let blocks = memory.blocks(params.block_count());
    let argon2 = Argon2::new(algorithm, version, params);
    argon2.hash_password_into_with_memory(password.as_bytes(), &salt, &mut output, blocks).ok()?;
    Some(output.ct_eq(expected.as_bytes()).into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_matches_its_hash_alone() {
        let memory = &mut Memory::default();
        let stored = hash_in("correct horse battery", memory).unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify("correct horse battery", Some(&stored), memory));
        assert!(!verify("correct horse batterz", Some(&stored), memory));
        assert!(!verify("correct horse battery", Some("not a hash"), memory));
        assert!(!verify("correct horse battery", None, memory));
        assert_ne!(hash_in("correct horse battery", memory).unwrap(), stored);
    }

    #[test]
    fn hashes_are_those_of_the_reference() {
        use argon2::{PasswordHasher as _, PasswordVerifier as _};
        let memory = &mut Memory::default();
        let reference: PasswordHash = Argon2::default().hash_password(b"correct horse battery").unwrap();
        assert!(verify("correct horse battery", Some(&reference.to_string()), memory));
        let ours = hash_in("correct horse battery", memory).unwrap();
        let ours = PasswordHash::new(&ours).unwrap();
        assert!(Argon2::default().verify_password(b"correct horse battery", &ours).is_ok());
    }

    #[test]
    fn the_hash_of_nobody_costs_what_every_other_does() {
        let memory = &mut Memory::default();
        let nobodys = PasswordHash::new(NOBODYS).unwrap();
        let somebodys = hash_in("correct horse battery", memory).unwrap();
        let somebodys = PasswordHash::new(&somebodys).unwrap();
        assert_eq!(nobodys.params, somebodys.params);
        assert_eq!((nobodys.algorithm, nobodys.version), (somebodys.algorithm, somebodys.version));
        assert_eq!(nobodys.hash.unwrap().len(), somebodys.hash.unwrap().len());
        assert_eq!(matches("", NOBODYS, memory), Some(false), "the work is done");
        assert!(!verify("", None, memory));
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
