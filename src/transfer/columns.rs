//! The columns of a CSV file, which are also the members of a line in JSON Lines.

use super::RowError;
use crate::model::validation::{is_integer, shorten};
use crate::model::{Field, Json, Kind, READ_ONLY, Resource};
use crate::suggest;

/// All columns that a file of a resource can have: its fields, what an export writes besides them,
/// and the natural keys of the records that it refers to.
#[derive(Debug)]
pub(super) struct Columns {
    pub resource: &'static Resource,
    pub natural_keys: Vec<NaturalKey>,
}

/// A column that stands for a reference, such as `customer_number` for the field `customer_id`.
#[derive(Debug)]
pub(super) struct NaturalKey {
    pub name: String,
    /// The reference.
    pub field: &'static Field,
    pub target: &'static Resource,
    /// The field of `target` that the column holds.
    pub key: &'static Field,
}

impl Columns {
    pub(super) fn of(resource: &'static Resource) -> Columns {
        let references = resource.fields.iter().filter_map(|field| {
            let target = Resource::referenced(field)?;
            Some(target.natural_keys.iter().filter_map(move |key| {
                let key = target.field(key)?;
                let name = natural_key_name(target, key);
                Some(NaturalKey { name, field, target, key })
            }))
        });
        Columns { resource, natural_keys: references.flatten().collect() }
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        let fields = self.resource.fields.iter().map(|field| field.name);
        let natural_keys = self.natural_keys.iter().map(|column| column.name.as_str());
        fields.chain(READ_ONLY).chain(natural_keys)
    }

    /// The errors of the columns `present` on `line` of the file: of one that does not exist, and
    /// of one that sets the same field as one before it.
    pub(super) fn check<'a>(
        &'a self,
        line: u64,
        present: impl Iterator<Item = &'a str>,
    ) -> Vec<RowError> {
        let mut errors = Vec::new();
        // The columns so far, each with the field that it sets.
        let mut set: Vec<(&str, &str)> = Vec::new();
        for name in present {
            let natural_key = self.natural_keys.iter().find(|column| column.name == name);
            let field = natural_key.map_or(name, |column| column.field.name);
            let message = if !self.names().any(|known| known == name) {
                let message = suggest::unknown("column", &shorten(name), self.names());
                errors.push(RowError::new(line, name, "unknown_column", message));
                continue;
            } else if let Some((first, _)) = set.iter().find(|(_, earlier)| *earlier == field) {
                format!("The columns \"{first}\" and \"{name}\" set the same field. Keep one.")
            } else {
                set.push((name, field));
                continue;
            };
            errors.push(RowError::new(line, name, "bad_request", message));
        }
        errors
    }

    /// The type of the values in the column `name`.
    pub(super) fn kind(&self, name: &str) -> Option<Kind> {
        match self.resource.field(name) {
            None if name == "id" => Some(Kind::Integer),
            field => field.map(|field| field.kind),
        }
    }
}

/// `customer_number` contains the name of its resource; `email` needs it as a prefix.
fn natural_key_name(target: &Resource, key: &Field) -> String {
    let prefix = format!("{}_", target.name);
    if key.name.starts_with(&prefix) { key.name.to_owned() } else { prefix + key.name }
}

/// Converts a cell to the type of its column. A cell that cannot be converted remains text, and
/// validation rejects it.
pub(super) fn input(kind: Option<Kind>, cell: &str) -> Json {
    match kind {
        Some(Kind::Integer | Kind::Boolean) if is_integer(cell) => {
            serde_json::from_str(cell).unwrap_or_default()
        }
        // Spreadsheets write booleans in capitals.
        Some(Kind::Boolean) if cell.eq_ignore_ascii_case("true") => true.into(),
        Some(Kind::Boolean) if cell.eq_ignore_ascii_case("false") => false.into(),
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
            let columns = Columns::of(resource).natural_keys.into_iter();
            columns.map(|column| column.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&CUSTOMER), Vec::<String>::new());
        assert_eq!(names(&EMPLOYEE), ["customer_number", "customer_email"]);
        assert_eq!(names(&HARDWARE), ["employee_email"]);
    }
}
