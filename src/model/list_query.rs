//! The query of a list: sort, filters, and the keyset position at which a page begins.

use std::sync::LazyLock;

use super::{ALL, Field, RecordId, Resource, Value, Version};
use crate::clock::Timestamp;

/// How a filter compares a field with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Null finds nulls.
    Equal,
    /// The value or a greater one. Nulls do not match.
    From,
    /// The value or a smaller one. Nulls do not match.
    To,
}

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
    /// The last entry of the change log that belongs to the moment. The first page finds it, and the
    /// cursor keeps it, so that all pages show the same state.
    pub last: Option<Version>,
}

/// A record that another one refers to.
#[derive(Debug, PartialEq, Eq)]
pub struct Inclusion {
    pub resource: &'static Resource,
    pub reference: &'static Field,
}

impl Inclusion {
    /// The name in `include`, and of the member in a response: the reference without `_id`.
    pub fn name(&self) -> &'static str {
        let name = self.reference.name;
        name.strip_suffix("_id").unwrap_or(name)
    }
}

impl Resource {
    /// The records that a record of the resource can include.
    pub fn inclusions(&self) -> &'static [Inclusion] {
        static BY_RESOURCE: LazyLock<[Vec<Inclusion>; ALL.len()]> =
            LazyLock::new(|| ALL.map(inclusions_of));
        self.by_resource::<Vec<Inclusion>>(&BY_RESOURCE)
    }
}

fn inclusions_of(resource: &'static Resource) -> Vec<Inclusion> {
    let mut inclusions = Vec::new();
    for reference in resource.fields {
        if let Some(resource) = reference.references {
            inclusions.push(Inclusion { resource, reference });
        }
    }
    inclusions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::READ_ONLY;

    #[test]
    fn no_two_members_of_a_record_have_the_same_name() {
        for resource in ALL {
            let fields = resource.fields.iter().map(|field| field.name);
            let included = resource.inclusions().iter().map(Inclusion::name);
            let mut names: Vec<&str> =
                READ_ONLY.into_iter().chain(fields).chain(included).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{}", resource.plural);
        }
    }
}
