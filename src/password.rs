//! Passwords of the panel: policy, hash, and generation (contract section 9).

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use subtle::ConstantTimeEq as _;

use crate::secret::{self, RandomnessError};

/// The parameters that OWASP recommends for Argon2id: memory in KiB, passes, lanes.
const MEMORY: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// The most that a stored hash may ask for (contract section 10, `restore`).
const MAX_MEMORY: u32 = 256 << 10;
const MAX_PASSES: u32 = 10;
const MAX_LANES: u32 = 4;

/// The minimum and maximum length of a password, in characters.
pub const LENGTH: std::ops::RangeInclusive<usize> = 12..=128;

/// A hash that no password matches, with the parameters of real hashes. Verification against it
/// takes the same time, so that response times do not reveal which tenants exist.
const DUMMY_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// 32 letters and digits that are hard to confuse. Five random bits select one with uniform
/// probability.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// The password violates the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Fewer than 12 characters.
    #[error("a password has at least {} characters", LENGTH.start())]
    TooShort,
    /// More than 128 characters.
    #[error("a password has at most {} characters", LENGTH.end())]
    TooLong,
}

/// Hashing failed: the system has no memory or no randomness.
#[derive(Debug, thiserror::Error)]
#[error("the password cannot be hashed: {0}")]
pub struct HashError(String);

/// Checks the policy: 12 to 128 characters of any kind.
///
/// # Errors
///
/// [`PolicyError`] if the password is too short or too long.
pub fn check(password: &str) -> Result<(), PolicyError> {
    let length = password.chars().count();
    if length < *LENGTH.start() {
        Err(PolicyError::TooShort)
    } else if length > *LENGTH.end() {
        Err(PolicyError::TooLong)
    } else {
        Ok(())
    }
}

/// The 19 MiB of memory that one hash computation needs. It is reused because the allocator would
/// otherwise retain a copy for every thread that has computed a hash.
#[derive(Default)]
pub struct HashBuffer(Vec<Block>);

impl std::fmt::Debug for HashBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashBuffer").field("blocks", &self.0.len()).finish_non_exhaustive()
    }
}

impl HashBuffer {
    fn blocks(&mut self, count: usize) -> &mut [Block] {
        self.0.resize(count, Block::new());
        &mut self.0
    }
}

/// Returns the Argon2id hash of `password` as a PHC string, with a random salt.
///
/// # Errors
///
/// [`HashError`] if the system has no memory or no randomness.
pub fn hash(password: &str) -> Result<String, HashError> {
    hash_in(password, &mut HashBuffer::default())
}

/// Like [`hash`], with a buffer that the caller reuses.
///
/// # Errors
///
/// [`HashError`] if the system has no memory or no randomness.
pub fn hash_in(password: &str, buffer: &mut HashBuffer) -> Result<String, HashError> {
    let failed = |error: &dyn std::fmt::Display| HashError(error.to_string());
    let salt = secret::random::<16>().map_err(|error| failed(&error))?;
    let params = Params::new(MEMORY, PASSES, LANES, None).map_err(|error| failed(&error))?;
    let params_text = ParamsString::try_from(&params).map_err(|error| failed(&error))?;
    let mut output = [0; Params::DEFAULT_OUTPUT_LEN];
    let blocks = buffer.blocks(params.block_count());
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

/// Returns whether `password` matches `stored`, a PHC string. `None` stands for an unknown tenant:
/// the result is `false`, after the same amount of work. One call takes 19 MiB and about 20 ms of
/// processor time; the caller limits concurrency.
pub fn verify(password: &str, stored: Option<&str>, buffer: &mut HashBuffer) -> bool {
    matches(password, stored.unwrap_or(DUMMY_HASH), buffer).unwrap_or(false) && stored.is_some()
}

/// Whether `stored` is a hash that [`verify`] computes. Its parameters decide what one sign-in
/// costs, so a backup may not bring others.
pub fn is_acceptable(stored: &str) -> bool {
    PasswordHash::new(stored).is_ok_and(|stored| acceptable_params(&stored).is_some())
}

/// The parameters of an Argon2id hash, unless they exceed the limits.
fn acceptable_params(stored: &PasswordHash) -> Option<Params> {
    let is_known = stored.algorithm == Algorithm::Argon2id.ident()
        && stored.version == Some(Version::V0x13.into())
        && stored.salt.is_some()
        && stored.hash.is_some();
    let params = Params::try_from(stored).ok().filter(|_| is_known)?;
    let is_small = params.m_cost() <= MAX_MEMORY
        && params.t_cost() <= MAX_PASSES
        && params.p_cost() <= MAX_LANES;
    is_small.then_some(params)
}

/// Returns `None` if `stored` is not an Argon2id hash within the limits.
fn matches(password: &str, stored: &str, buffer: &mut HashBuffer) -> Option<bool> {
    let stored = PasswordHash::new(stored).ok()?;
    let params = acceptable_params(&stored)?;
    let (salt, expected) = (stored.salt?, stored.hash?);
    let mut output = vec![0; expected.len()];
    let blocks = buffer.blocks(params.block_count());
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2.hash_password_into_with_memory(password.as_bytes(), &salt, &mut output, blocks).ok()?;
    Some(output.ct_eq(expected.as_bytes()).into())
}

/// Returns a password of 100 random bits in groups of four characters: `k7mp-3xva-…`.
///
/// # Errors
///
/// [`RandomnessError`] if the generator fails.
pub fn generate() -> Result<String, RandomnessError> {
    let letters = secret::random::<20>()?;
    let mut password = String::with_capacity(24);
    for (index, byte) in letters.iter().enumerate() {
        if index > 0 && index % 4 == 0 {
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
        let buffer = &mut HashBuffer::default();
        let stored = hash_in("correct horse battery", buffer).unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify("correct horse battery", Some(&stored), buffer));
        assert!(!verify("correct horse batterz", Some(&stored), buffer));
        assert!(!verify("correct horse battery", Some("not a hash"), buffer));
        assert!(!verify("correct horse battery", None, buffer));
        assert_ne!(hash_in("correct horse battery", buffer).unwrap(), stored);
    }

    #[test]
    fn a_hash_that_costs_too_much_is_not_computed() {
        let with = |params: &str| DUMMY_HASH.replace("m=19456,t=2,p=1", params);
        for params in ["m=262144,t=10,p=4", "m=64,t=1,p=1"] {
            assert!(is_acceptable(&with(params)), "{params}");
        }
        for params in
            ["m=262145,t=2,p=1", "m=4194303,t=2,p=1", "m=19456,t=11,p=1", "m=19456,t=2,p=5"]
        {
            assert!(!is_acceptable(&with(params)), "{params}");
            assert_eq!(matches("", &with(params), &mut HashBuffer::default()), None, "{params}");
        }
        for other in ["", "$phc", &DUMMY_HASH.replace("argon2id", "argon2d")] {
            assert!(!is_acceptable(other), "{other}");
        }
    }

    #[test]
    fn hashes_are_those_of_the_reference() {
        use argon2::{PasswordHasher as _, PasswordVerifier as _};
        let buffer = &mut HashBuffer::default();
        let reference: PasswordHash =
            Argon2::default().hash_password(b"correct horse battery").unwrap();
        assert!(verify("correct horse battery", Some(&reference.to_string()), buffer));
        let ours = hash_in("correct horse battery", buffer).unwrap();
        let ours = PasswordHash::new(&ours).unwrap();
        assert!(Argon2::default().verify_password(b"correct horse battery", &ours).is_ok());
    }

    #[test]
    fn the_dummy_hash_costs_as_much_as_a_real_one() {
        let buffer = &mut HashBuffer::default();
        let dummy = PasswordHash::new(DUMMY_HASH).unwrap();
        let real = hash_in("correct horse battery", buffer).unwrap();
        let real = PasswordHash::new(&real).unwrap();
        assert_eq!(dummy.params, real.params);
        assert_eq!((dummy.algorithm, dummy.version), (real.algorithm, real.version));
        assert_eq!(dummy.hash.unwrap().len(), real.hash.unwrap().len());
        assert_eq!(matches("", DUMMY_HASH, buffer), Some(false), "the work is done");
        assert!(!verify("", None, buffer));
    }

    #[test]
    fn length_counts_characters() {
        assert_eq!(check(&"ü".repeat(11)), Err(PolicyError::TooShort));
        assert_eq!(check(&"ü".repeat(12)), Ok(()));
        assert_eq!(check(&"ü".repeat(128)), Ok(()));
        assert_eq!(check(&"ü".repeat(129)), Err(PolicyError::TooLong));
    }

    #[test]
    fn a_generated_password_can_be_set() {
        let password = generate().unwrap();
        assert_eq!(password.len(), 24, "{password}");
        assert_eq!(check(&password), Ok(()));
        assert_ne!(password, generate().unwrap());
    }
}
