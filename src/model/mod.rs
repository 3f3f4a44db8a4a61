//! Static declarations of resources and fields, and the validation of values.
//!
//! SQL, filters, the OpenAPI document, CSV columns and the documentation page derive from these
//! declarations.

pub mod custom;
pub mod email;
pub mod field;
pub mod list_query;
mod references;
mod resources;
pub mod validation;

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use field::{CREATED_AT, Custom, Field, ID, Kind, UPDATED_AT, Value};
pub use list_query::{Bound, Inclusion, KeysetPosition, ListQuery, PastMoment};
pub use references::NaturalKey;
pub use resources::{CUSTOMER, EMPLOYEE, HARDWARE};
pub use validation::{FieldCode, FieldError, Json, JsonObject, Rules};

/// Which resource it is. With this type the compiler checks that nothing forgets a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    Customers,
    Employees,
    Hardware,
}

#[derive(Debug)]
pub struct Resource {
    pub kind: ResourceKind,
    /// The singular name for messages: `customer`.
    pub name: &'static str,
    /// The plural name, which is also the name of the table and the first half of the scopes:
    /// `customers`.
    pub plural: &'static str,
    /// The path: `/customers.php`.
    pub path: &'static str,
    /// One sentence for the API reference.
    pub about: &'static str,
    /// The writable fields in the order of contract section 2, which is also their order in
    /// responses.
    pub fields: &'static [Field],
    /// Fields by which people identify a record. A body or a file can use them in place of an id.
    /// They need not be unique.
    pub natural_keys: &'static [&'static str],
}

/// Every resource. A resource refers only to those before it.
pub static ALL: [&Resource; 3] = [&CUSTOMER, &EMPLOYEE, &HARDWARE];

/// The read-only fields: `id` precedes the fields of a resource, the others follow them (contract
/// section 2).
pub const READ_ONLY: [&str; 3] = [ID.name, CREATED_AT.name, UPDATED_AT.name];

impl Resource {
    pub fn find(plural: &str) -> Option<&'static Resource> {
        ALL.into_iter().find(|resource| resource.plural == plural)
    }

    /// Returns the element for this resource of an array that has the order of [`ALL`].
    pub fn by_resource<'a, T>(&self, elements: &'a [T; ALL.len()]) -> &'a T {
        let [customers, employees, hardware] = elements;
        match self.kind {
            ResourceKind::Customers => customers,
            ResourceKind::Employees => employees,
            ResourceKind::Hardware => hardware,
        }
    }

    /// The fields by whose value `update_by` finds a record: text and e-mail but `notes`.
    pub fn lookup_fields(&self) -> impl Iterator<Item = &'static Field> + Clone {
        self.fields.iter().filter(|field| field.has_one_line())
    }

    /// The fields by which lists can be sorted: `id`, the fields with an index, and the timestamps.
    pub fn sortable_fields(&self) -> impl Iterator<Item = &'static Field> + Clone {
        let fields = self.fields.iter().filter(|field| field.is_indexed);
        [&ID].into_iter().chain(fields).chain([&CREATED_AT, &UPDATED_AT])
    }

    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The value of a field among the values of a record.
    pub fn value<'a>(&self, values: &'a [Value], name: &str) -> Option<&'a Value> {
        values.get(self.fields.iter().position(|field| field.name == name)?)
    }

    pub fn value_mut<'a>(&self, values: &'a mut [Value], name: &str) -> Option<&'a mut Value> {
        values.get_mut(self.fields.iter().position(|field| field.name == name)?)
    }

    /// The error code of a reference to a record of this resource that does not exist.
    pub const fn missing_code(&self) -> &'static str {
        match self.kind {
            ResourceKind::Customers => "customer_not_found",
            ResourceKind::Employees => "employee_not_found",
            // No field refers to hardware; a test notices the first one.
            ResourceKind::Hardware => "hardware_not_found",
        }
    }

    /// Returns the message about `field`, which refers to the record `id` of this resource, if that
    /// record does not exist.
    pub fn missing_message(&self, field: &Field, id: i64) -> String {
        let name = self.name;
        let instead = if field.required { "" } else { ", or send null" };
        format!(
            "There is no {name} with the id {id} for \"{}\". Create the {name} first{instead}.",
            field.name
        )
    }
}

/// Each resource is one static.
impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Resource {}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_by_resource_have_the_order_of_all() {
        for resource in ALL {
            assert_eq!(*resource.by_resource(&ALL), resource);
        }
    }
}
