//! The columns of a CSV file, which are also the members of a line in JSON Lines.

use std::borrow::Cow;

use super::RowError;
use crate::model::validation::is_integer;
use crate::model::validation::shorten;
use crate::model::{Field, Json, Kind, READ_ONLY, Resource};
use crate::suggest;

/// All columns that a file of a resource can have.
#[derive(Debug)]
pub(super) struct Layout {
    pub resource: &'static Resource,
    pub columns: Vec<FileColumn>,
}

/// One column that a file can have.
#[derive(Debug)]
pub(super) struct FileColumn {
    pub name: Cow<'static, str>,
    pub role: Role,
}

/// The purpose of a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Id,
    /// `created_at` or `updated_at`: written by an export, ignored by an import.
    Timestamp,
    Field(&'static Field),
    /// A reference by natural key, such as `customer_number` for the field `customer_id`: `key` is
    /// the field of `target` that the cell holds.
    NaturalKey {
        field: &'static Field,
        target: &'static Resource,
        key: &'static Field,
    },
}

impl Role {
    /// The field that the column sets.
    fn field(self) -> Option<&'static Field> {
        match self {
            Role::Field(field) | Role::NaturalKey { field, .. } => Some(field),
            Role::Id | Role::Timestamp => None,
        }
    }
}

impl Layout {
    pub(super) fn of(resource: &'static Resource) -> Layout {
        let read_only = |name: &'static str| FileColumn {
            name: name.into(),
            role: if name == "id" { Role::Id } else { Role::Timestamp },
        };
        let fields = resource
            .fields
            .iter()
            .map(|field| FileColumn { name: field.name.into(), role: Role::Field(field) });
        let columns =
            fields.chain(READ_ONLY.map(read_only)).chain(natural_key_columns(resource)).collect();
        Layout { resource, columns }
    }

    /// The index of the column `name`.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The error of a column `name` that does not exist, on `line` of the file.
    pub(super) fn unknown_column(&self, line: u64, name: &str) -> RowError {
        let known = self.columns.iter().map(|column| column.name.as_ref());
        let message = suggest::unknown("column", &shorten(name), known);
        RowError::new(line, name, "unknown_column", message)
    }

    /// The error of the first two columns that set the same field, if there are any. `present`
    /// holds the indexes of the columns of the file in their order.
    pub(super) fn conflict(&self, line: u64, present: &[usize]) -> Option<RowError> {
        let columns: Vec<&FileColumn> =
            present.iter().filter_map(|index| self.columns.get(*index)).collect();
        let (first, second) = columns.iter().enumerate().find_map(|(index, second)| {
            let first = columns.iter().take(index).find(|first| first.conflicts_with(second))?;
            Some((first, second))
        })?;
        let message = if first.name == second.name {
            format!("The column \"{}\" is there twice. Keep one.", second.name)
        } else {
            format!(
                "The columns \"{}\" and \"{}\" name the same reference. Keep one.",
                first.name, second.name
            )
        };
        Some(RowError::new(line, &second.name, "bad_request", message))
    }
}

impl FileColumn {
    fn conflicts_with(&self, other: &FileColumn) -> bool {
        match (self.role.field(), other.role.field()) {
            (Some(field), Some(other)) => field.name == other.name,
            _ => self.name == other.name,
        }
    }
}

/// For each reference of the resource, a column for each natural key of the referenced resource.
fn natural_key_columns(resource: &'static Resource) -> impl Iterator<Item = FileColumn> {
    resource.fields.iter().filter_map(|field| Some((field, Resource::referenced(field)?))).flat_map(
        |(field, target)| {
            target.natural_keys.iter().filter_map(move |key| {
                let key = target.field(key)?;
                // `customer_number` contains the name of its resource; `email` needs it as a
                // prefix.
                let has_prefix =
                    key.name.strip_prefix(target.name).is_some_and(|rest| rest.starts_with('_'));
                let name = if has_prefix {
                    key.name.into()
                } else {
                    format!("{}_{}", target.name, key.name).into()
                };
                Some(FileColumn { name, role: Role::NaturalKey { field, target, key } })
            })
        },
    )
}

/// Converts a cell to the type of its column. A cell that cannot be converted remains text, and
/// validation rejects it.
pub(super) fn input(role: Role, cell: &str) -> Json {
    let kind = match role {
        Role::Field(field) => field.kind,
        Role::Id => Kind::Integer,
        Role::Timestamp | Role::NaturalKey { .. } => return cell.into(),
    };
    match kind {
        Kind::Integer | Kind::Boolean if is_integer(cell) => {
            serde_json::from_str(cell).unwrap_or_default()
        }
        // Spreadsheets write booleans in capitals.
        Kind::Boolean if cell.eq_ignore_ascii_case("true") => true.into(),
        Kind::Boolean if cell.eq_ignore_ascii_case("false") => false.into(),
        _ => cell.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CUSTOMER, EMPLOYEE, HARDWARE};

    #[test]
    fn references_have_columns_for_natural_keys() {
        let names = |resource| {
            let layout = Layout::of(resource);
            let columns = layout
                .columns
                .into_iter()
                .filter(|column| matches!(column.role, Role::NaturalKey { .. }));
            columns.map(|column| column.name.into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&CUSTOMER), Vec::<String>::new());
        assert_eq!(names(&EMPLOYEE), ["customer_number", "customer_email"]);
        assert_eq!(names(&HARDWARE), ["employee_email"]);
    }
}
