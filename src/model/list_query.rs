//! The query of a list: sort, filters, and the keyset position at which a page begins.

use super::{Field, Inclusion, RecordId, Resource, Value};

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
    pub custom: Vec<(String, Value)>,
    /// The search words as they were sent. A record must contain all of them.
    pub words: Vec<String>,
    /// The maximum number of records on a page, at least 1.
    pub limit: usize,
    /// The position after which the page begins; `None` for the first page.
    pub after: Option<KeysetPosition>,
    pub total: bool,
    /// The referenced records that each record includes.
    pub include: Vec<&'static Inclusion>,
}
