//! The columns of a CSV file, which are also the members of a line in JSON Lines.

use super::{Format, Place, RowError};
use crate::model::custom::{NAME_RULE, PREFIX, name_in};
use crate::model::field::CUSTOM;
use crate::model::validation::{is_integer, shorten};
use crate::model::{Field, ID, Json, JsonObject, Kind, READ_ONLY, Resource};
use crate::words;

/// The columns that a file of a resource can have: its fields, the read-only fields that an export
/// writes, and the natural keys of the records that it refers to.
#[derive(Debug)]
pub(super) struct Columns {
    pub resource: &'static Resource,
    format: Format,
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

/// A column of a CSV file: its name, and the type of its values. An unused column has no name.
pub(super) type Heading = (String, Option<Kind>);

impl Columns {
    pub(super) fn of(resource: &'static Resource, format: Format) -> Columns {
        let references = resource.fields.iter().filter_map(|field| {
            let target = field.references?;
            Some(target.natural_keys.iter().filter_map(move |key| {
                let key = target.field(key)?;
                let name = natural_key_name(target, key);
                Some(NaturalKey { name, field, target, key })
            }))
        });
        Columns { resource, format, natural_keys: references.flatten().collect() }
    }

    /// The names for messages. `custom.NAME` stands for the column of any custom field.
    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        let fields = self.resource.fields.iter().map(|field| match self.format {
            Format::Csv if field.name == CUSTOM.name => "custom.NAME",
            _ => field.name,
        });
        let natural_keys = self.natural_keys.iter().map(|column| column.name.as_str());
        fields.chain(READ_ONLY).chain(natural_keys)
    }

    /// Returns an error for each of the columns `present` that does not exist, and for each that
    /// sets the same field as an earlier one. A column of a CSV file comes with its index.
    pub(super) fn check<'a>(
        &'a self,
        place: Place,
        present: impl Iterator<Item = (Option<usize>, &'a str)>,
    ) -> Vec<RowError> {
        let (mut errors, mut has_listed) = (Vec::new(), false);
        // The columns so far, each with the field that it sets.
        let mut set: Vec<(String, &str)> = Vec::new();
        for (index, name) in present {
            let column = index.map_or("member".to_owned(), column_label);
            let Some(field) = self.field_of(name) else {
                let is_similar = words::closest(name, self.names()).is_some();
                let message = if self.format == Format::Csv && name.starts_with(PREFIX) {
                    format!("Unknown {column} {:?}. {NAME_RULE}", shorten(name))
                } else if has_listed && !is_similar {
                    format!("Unknown {column} {:?}.", shorten(name))
                } else {
                    words::unknown(&column, &shorten(name), self.names())
                };
                has_listed |= !is_similar;
                errors.push(RowError::new(place, name, "unknown_column", message));
                continue;
            };
            let column = format!("{column} \"{name}\"");
            if let Some((first, _)) = set.iter().find(|(_, earlier)| *earlier == field) {
                let first = words::capitalize(first);
                let message = format!("{first} and {column} set the same field. Keep one.");
                errors.push(RowError::new(place, name, "bad_request", message));
            } else {
                set.push((column, field));
            }
        }
        errors
    }

    /// The name of the field that a column sets. `None` if there is no such column.
    fn field_of<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        if self.format == Format::Csv && name.starts_with(PREFIX) {
            return name_in(name).map(|_| name);
        }
        let natural_key = self.natural_keys.iter().find(|column| column.name == name);
        let natural_key = natural_key.map(|column| column.field.name);
        natural_key.or_else(|| self.names().find(|known| *known == name))
    }

    /// The heading of a CSV column.
    pub(super) fn heading(&self, name: &str) -> Heading {
        let mut fields = [&ID].into_iter().chain(self.resource.fields);
        let kind = fields.find(|field| field.name == name).map(|field| field.kind);
        (name.to_owned(), kind)
    }
}

/// The label of the column at `index`, as a spreadsheet names it: `column 12 (L)`.
fn column_label(index: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = index + 1;
    while rest > 0 {
        letters.extend(('A'..='Z').nth((rest - 1) % 26));
        rest = (rest - 1) / 26;
    }
    format!("column {} ({})", index + 1, letters.iter().rev().collect::<String>())
}

/// `customer_number` contains the name of its resource; `email` needs it as a prefix.
fn natural_key_name(target: &Resource, key: &Field) -> String {
    let prefix = format!("{}_", target.name);
    if key.name.starts_with(&prefix) { key.name.to_owned() } else { prefix + key.name }
}

/// Converts a CSV row to an object as in JSON Lines, or returns a message if the row does not fit
/// the headings. The columns `custom.NAME` become members of the object `custom`.
pub(super) fn to_object<'a>(
    headings: &[Heading],
    cells: impl Iterator<Item = &'a str>,
) -> Result<JsonObject, String> {
    let (mut object, mut custom) = (JsonObject::new(), JsonObject::new());
    let mut last = 0;
    for (index, cell) in cells.enumerate() {
        last = index;
        match headings.get(index) {
            Some((name, kind)) if !name.is_empty() => match name_in(name) {
                Some(name) => custom.insert(name.to_owned(), cell.into()),
                None => object.insert(name.clone(), parse_cell(*kind, cell)),
            },
            _ if cell.is_empty() => None,
            _ => {
                let (value, column) = (shorten(cell), column_label(index));
                return Err(format!(
                    "The value {value:?} stands in {column}, which has no heading. If it belongs to \
                     the cell before it, put that cell in quotes."
                ));
            }
        };
    }
    let needed = headings.iter().rposition(|(name, _)| !name.is_empty()).unwrap_or(0);
    if last < needed {
        let (last, needed) = (column_label(last), column_label(needed));
        return Err(format!("The row ends in {last}, and the header in {needed}."));
    }
    if !custom.is_empty() {
        object.insert(CUSTOM.name.to_owned(), custom.into());
    }
    Ok(object)
}

/// Converts a cell to the type of its column. A cell that cannot be converted remains text, and
/// validation rejects it.
fn parse_cell(kind: Option<Kind>, cell: &str) -> Json {
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
            let columns = Columns::of(resource, Format::Csv).natural_keys.into_iter();
            columns.map(|column| column.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&CUSTOMER), Vec::<String>::new());
        assert_eq!(names(&EMPLOYEE), ["customer_number", "customer_email"]);
        let of_hardware =
            ["employee_number", "employee_email", "customer_number", "customer_email"];
        assert_eq!(names(&HARDWARE), of_hardware);
    }
}
