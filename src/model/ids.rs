//! Identifiers and versions. Each is a type of its own, so that one cannot stand in for another.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A tenant. Never used again after the tenant is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TenantId(pub i64);

/// An API key. Never used again after the key is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId(pub i64);

/// A record of a resource, counted from 1. Never used again after the record is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordId(pub i64);

/// The number of an entry in the change log, and the version of the record as that entry left it.
/// No two states of a record have the same version (contract section 13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub i64);

impl Version {
    /// The version as an entity tag, with its quotes.
    pub fn etag(self) -> String {
        format!("\"{}\"", self.0)
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for KeyId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<KeyId, ParseIntError> {
        text.parse().map(KeyId)
    }
}
