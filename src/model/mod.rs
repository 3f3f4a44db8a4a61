//! Static declarations of resources and fields, and the validation of values.
//!
//! SQL, filters, the OpenAPI document, CSV columns and the documentation page derive from these
//! declarations.

pub mod custom;
pub mod email;
pub mod field;
pub mod json_object;
pub mod list_query;
mod resources;
pub mod scope;
pub mod validation;

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use field::{CREATED_AT, Custom, Field, ID, Kind, UPDATED_AT, Value};
pub use json_object::{Json, JsonObject};
pub use list_query::{Bound, Inclusion, KeysetPosition, ListQuery};
pub use resources::{CUSTOMER, EMPLOYEE, HARDWARE};
pub use scope::{Access, Scope, Scopes};
pub use validation::{FieldCode, FieldError, Rules};

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
    /// Fields by which people identify a record. An imported file can use them in place of an id.
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
