//! What a list asks for: columns, predicates, and the keyset position where a page begins.

use super::{Field, Kind, Resource, Value};

/// A column that a list can be sorted and filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Id,
    Field(&'static Field),
    CreatedAt,
    UpdatedAt,
}

impl Column {
    pub const fn name(self) -> &'static str {
        match self {
            Column::Id => "id",
            Column::Field(field) => field.name,
            Column::CreatedAt => "created_at",
            Column::UpdatedAt => "updated_at",
        }
    }

    /// Whether a record may have null there.
    pub const fn is_nullable(self) -> bool {
        matches!(self, Column::Field(Field { required: false, default: None, .. }))
    }

    pub const fn is_boolean(self) -> bool {
        matches!(self, Column::Field(Field { kind: Kind::Boolean, .. }))
    }
}

/// One condition of a list. `Equals(Null)` finds nulls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Predicate {
    Equals(Value),
    AtLeast(String),
    AtMost(String),
}

/// Where a page begins: behind the record with this sort value and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysetPosition {
    pub value: Value,
    pub id: i64,
}

/// What a list asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct ListQuery {
    pub resource: &'static Resource,
    pub sort: Column,
    pub descending: bool,
    pub filters: Vec<(Column, Predicate)>,
    /// Words that each record must have, as they were sent.
    pub words: Vec<String>,
    /// Records a page, at least 1.
    pub limit: usize,
    pub after: Option<KeysetPosition>,
    /// Count all that match as well.
    pub total: bool,
}
