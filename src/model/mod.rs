//! Static declarations of resources and fields, and the validation of values.
//!
//! SQL, filters, the OpenAPI document, CSV columns and the documentation page derive from these
//! declarations.

mod resources;
pub mod validation;

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use resources::{
    ALL, Bound, CREATED_AT, CUSTOM, CUSTOMER, CUSTOMER_ID, Custom, EMPLOYEE, EMPLOYEE_ID, Field,
    HARDWARE, ID, Inclusion, Kind, NaturalKey, READ_ONLY, Resource, ResourceKind, UPDATED_AT,
    Value,
};
pub use validation::{FieldCode, FieldError, Json, JsonObject, Rules};

use crate::clock::Timestamp;

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

// Scopes: the permissions of a key (contract section 5).

/// The kind of access. Write does not imply read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// GET and HEAD.
    Read,
    /// POST, PUT and DELETE.
    Write,
}

/// One scope, such as `customers:read`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scope {
    pub resource: &'static Resource,
    pub access: Access,
}

impl Scope {
    /// Returns every scope in the order of contract section 5.
    pub fn all() -> impl Iterator<Item = Scope> {
        ALL.into_iter().flat_map(|resource| {
            [Access::Read, Access::Write].map(|access| Scope { resource, access })
        })
    }

    pub fn parse(text: &str) -> Option<Scope> {
        let (plural, access) = text.split_once(':')?;
        let access = match access {
            "read" => Access::Read,
            "write" => Access::Write,
            _ => return None,
        };
        Resource::find(plural).map(|resource| Scope { resource, access })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.access {
            Access::Read => "read",
            Access::Write => "write",
        };
        write!(f, "{}:{access}", self.resource.plural)
    }
}

/// A set of scopes: one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u32);

impl Scopes {
    pub fn every() -> Scopes {
        Scope::all().collect()
    }

    pub fn read_only() -> Scopes {
        Scope::all().filter(|scope| scope.access == Access::Read).collect()
    }

    /// Parses `all`, `read` or the name of one scope, the values that the command line and the
    /// panel's form accept.
    pub fn parse(text: &str) -> Option<Scopes> {
        match text {
            "all" => Some(Scopes::every()),
            "read" => Some(Scopes::read_only()),
            one => Scope::parse(one).map(Scopes::from),
        }
    }

    pub fn contains(self, scope: Scope) -> bool {
        self.intersects(scope.into())
    }

    pub fn intersects(self, other: Scopes) -> bool {
        self.0 & other.0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub fn union(self, other: Scopes) -> Scopes {
        Scopes(self.0 | other.0)
    }

    /// Returns the names of the scopes in the order of [`Scope::all`].
    pub fn names(self) -> Vec<String> {
        Scope::all().filter(|scope| self.contains(*scope)).map(|scope| scope.to_string()).collect()
    }
}

impl From<Scope> for Scopes {
    fn from(Scope { resource, access }: Scope) -> Scopes {
        Scopes(1 << (2 * resource.kind as u32 + access as u32))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        scopes.into_iter().map(Scopes::from).fold(Scopes::default(), Scopes::union)
    }
}

/// Parses the form in which the registry stores a set: names separated by spaces. Unknown names are
/// ignored.
impl From<&str> for Scopes {
    fn from(stored: &str) -> Scopes {
        stored.split(' ').filter_map(Scope::parse).collect()
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}

// The query of a list: sort, filters, and the position at which a page begins.

/// The position after which a page begins: the sort value and the id of the last record of the
/// previous page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysetPosition {
    pub value: Value,
    /// The id, which orders records of equal sort values.
    pub id: RecordId,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ListQuery {
    pub resource: &'static Resource,
    pub sort: &'static Field,
    pub descending: bool,
    /// A record must match all of them.
    pub filters: Vec<(&'static Field, Bound, Value)>,
    /// Custom fields by name with their values. Null finds records without the custom field.
    pub custom: Vec<(String, Bound, Value)>,
    /// The search words as they were sent. A record must contain all of them.
    pub words: Vec<String>,
    /// The maximum number of records on a page, at least 1.
    pub limit: usize,
    /// The position after which the page begins; `None` for the first page.
    pub after: Option<KeysetPosition>,
    pub total: bool,
    /// The moment of the past that the list shows.
    pub moment: Option<PastMoment>,
    /// The referenced records that each record includes.
    pub include: Vec<&'static Inclusion>,
}

/// A moment of the past: the end of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastMoment {
    pub at: Timestamp,
    /// The last entry of the change log that belongs to the moment. The first page finds it, and
    /// the cursor keeps it, so that all pages show the same state.
    pub last: Option<Version>,
}
