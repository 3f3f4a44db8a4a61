//! What a record is: plain static declarations from which validation, SQL, filters, OpenAPI, CSV and the docs page follow.

pub mod customer;
pub mod employee;
pub mod field;
pub mod field_error;
pub mod hardware;
pub mod json_object;
pub mod list_query;
pub mod scope;

pub use customer::CUSTOMER;
pub use employee::EMPLOYEE;
pub use field::{Field, Kind, Value};
pub use field_error::{FieldCode, FieldError};
pub use hardware::HARDWARE;
pub use json_object::{JsonError, JsonObject};
pub use list_query::{Column, KeysetPosition, ListQuery, Predicate};
pub use scope::{Access, Scope, Scopes};

/// One kind of record and all that is said about it.
#[derive(Debug)]
pub struct Resource {
    /// The singular, as messages say it: `customer`.
    pub name: &'static str,
    /// The plural, which is also its table, its scope's first half and its path: `customers` → `/customers.php`.
    pub plural: &'static str,
    /// `/customers.php`.
    pub path: &'static str,
    /// One sentence for the reference.
    pub about: &'static str,
    /// The writable fields in the order of contract section 2, which is also the order of every answer.
    pub fields: &'static [Field],
    /// Fields that people know a record by: in an imported file they may stand in for its id. Not always unique.
    pub natural_keys: &'static [&'static str],
    /// The code of a reference to a record of this resource that does not exist (contract section 6, conditions 16 and 17). `None`
    /// where nothing refers to the resource.
    pub missing_code: Option<&'static str>,
}

/// Every resource, in the order in which one may refer to another.
pub static ALL: [&Resource; 3] = [&CUSTOMER, &EMPLOYEE, &HARDWARE];

/// The read-only fields around a resource's own: `id` first, the others last (contract section 2).
pub const READ_ONLY: [&str; 3] = ["id", "created_at", "updated_at"];

impl Resource {
    /// The resource whose plural is `plural`.
    pub fn find(plural: &str) -> Option<&'static Resource> {
        ALL.into_iter().find(|resource| resource.plural == plural)
    }

    /// This resource's part of `each`, which was made of [`ALL`] in its order.
    pub fn pick<T>(&self, each: &'static [T; ALL.len()]) -> &'static T {
        let found = ALL.into_iter().zip(each).find(|(declared, _)| *declared == self);
        found.map_or_else(|| unreachable!("a resource that is not declared"), |(_, part)| part)
    }

    /// The declared field `name`; `id` and the timestamps are none.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// What is wrong with `field`, which refers to the record `id` of this resource, where there is none.
    pub fn missing_message(&self, field: &Field, id: i64) -> String {
        let name = self.name;
        let instead = if field.required { "" } else { ", or send null" };
        format!("There is no {name} with the id {id} for \"{}\". Create the {name} first{instead}.", field.name)
    }

    /// The resource that the reference `field` points to.
    pub fn referenced(field: &Field) -> Option<&'static Resource> {
        ALL.into_iter().find(|resource| Some(resource.name) == field.references)
    }
}

/// Two resources are the same when they are the same table.
impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        self.plural == other.plural
    }
}
