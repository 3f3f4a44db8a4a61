//! The query of a list: sort column, predicates, and the keyset position at which a page begins.

use super::{Field, Inclusion, Kind, RecordId, Resource, Value};

/// A column that a list can be filtered by, and sorted by unless it is [`Column::Referenced`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Id,
    Field(&'static Field),
    /// A field of the record that a reference names ([`Field::filters_by`]).
    Referenced {
        reference: &'static Field,
        resource: &'static Resource,
        field: &'static Field,
    },
    CreatedAt,
    UpdatedAt,
}

impl Column {
    pub const fn name(self) -> &'static str {
        match self {
            Column::Id => "id",
            Column::Field(field) | Column::Referenced { field, .. } => field.name,
            Column::CreatedAt => "created_at",
            Column::UpdatedAt => "updated_at",
        }
    }

    pub const fn is_nullable(self) -> bool {
        matches!(self, Column::Field(Field { required: false, default: None, .. }))
    }

    pub const fn is_boolean(self) -> bool {
        matches!(self, Column::Field(Field { kind: Kind::Boolean, .. }))
    }

    /// Returns the column of the referenced record by which lists are filtered too, if this is a
    /// reference that declares one.
    pub fn referenced(self) -> Option<Column> {
        let Column::Field(reference) = self else { return None };
        let resource = Resource::referenced(reference)?;
        let field = resource.field(reference.filters_by?)?;
        Some(Column::Referenced { reference, resource, field })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Predicate {
    /// The column equals the value. `Equals(Null)` matches nulls.
    Equals(Value),
    /// The column is greater than or equal to the text. Nulls do not match.
    AtLeast(String),
    /// The column is less than or equal to the text. Nulls do not match.
    AtMost(String),
}

impl Predicate {
    /// Whether it bounds a range on one side.
    pub const fn is_range(&self) -> bool {
        matches!(self, Predicate::AtLeast(_) | Predicate::AtMost(_))
    }
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
    pub sort: Column,
    pub descending: bool,
    /// The predicates. A record must match all of them.
    pub filters: Vec<(Column, Predicate)>,
    /// The search words as they were sent. A record must contain all of them.
    pub words: Vec<String>,
    /// The maximum number of records on a page, at least 1.
    pub limit: usize,
    /// The position after which the page begins; `None` for the first page.
    pub after: Option<KeysetPosition>,
    pub total: bool,
    /// What each record includes.
    pub include: Vec<&'static Inclusion>,
}
