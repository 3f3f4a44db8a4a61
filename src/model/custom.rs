//! Custom fields: the shop's own texts in a record (contract section 2).

use super::field::{Custom, Field, Kind, Value};
use super::list_query::Bound;
use super::validation::{FieldCode, FieldError, Json, JsonObject, check_text, is_empty, shorten};

/// The prefix of a name in filters, columns of CSV files and error messages.
pub const PREFIX: &str = "custom.";
/// The most custom fields of a record.
pub const MAX_FIELDS: usize = 20;
/// The most characters of a value.
pub const MAX_LENGTH: usize = 500;
/// The names as a regular expression.
pub const NAME_PATTERN: &str = "^[a-z][a-z0-9_]{0,39}$";
/// The rule for names in messages.
pub const NAME_RULE: &str =
    "A name has 1 to 40 of the characters a-z, 0-9 and _, and begins with a letter.";

pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    name.len() <= 40
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(is_allowed)
}

/// The name in `custom.NAME`. `None` if `text` has another form.
pub fn name_in(text: &str) -> Option<&str> {
    text.strip_prefix(PREFIX).filter(|name| is_name(name))
}

/// The ends of the names of ranges, with their bounds.
const RANGES: [(&str, Bound); 2] = [("_from", Bound::From), ("_to", Bound::To)];

/// Splits the end of a range off the name of a custom field: `lease_to` is `lease` and the bound.
pub fn split_range(name: &str) -> (&str, Bound) {
    for (end, bound) in RANGES {
        if let Some(field) = name.strip_suffix(end) {
            return (field, bound);
        }
    }
    (name, Bound::Equal)
}

/// The JSON text in the column `custom`. Filters search in it, so the text of each custom field is
/// always the same.
pub fn to_text(custom: &Custom) -> String {
    // A map of texts can always be written.
    serde_json::to_string(custom).unwrap_or_else(|_| "{}".to_owned())
}

impl Field {
    /// Checks the object of a request or a file. An empty value stays as an empty text.
    pub(super) fn check_custom(&self, input: &Json) -> Result<Value, Vec<FieldError>> {
        let members = match input {
            Json::Object(members) => members,
            // PHP writes an empty object as an array.
            Json::Array(array) if array.is_empty() => &JsonObject::new(),
            _ => {
                let message = "The field \"custom\" must be a JSON object of texts.";
                return Err(vec![self.fault(FieldCode::WrongType, message.to_owned())]);
            }
        };
        let sent = members.values().filter(|input| !is_empty(input)).count();
        let mut faults: Vec<FieldError> = self.too_many(sent).into_iter().collect();
        let mut custom = Custom::new();
        for (name, input) in members {
            let label = format!("{PREFIX}{name}");
            let checked = match input {
                _ if !is_name(name) => {
                    let label = shorten(&label);
                    let message = format!("The field {label:?} has no valid name. {NAME_RULE}");
                    Err(self.fault(FieldCode::WrongType, message))
                }
                empty if is_empty(empty) => Ok(String::new()),
                input => check_text(&label, input, 1, MAX_LENGTH, true),
            };
            match checked {
                Ok(text) => drop(custom.insert(name.clone(), text)),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(Value::Custom(custom)) } else { Err(faults) }
    }

    /// The value of the field after `change`. `stored` is the value before, or the default.
    pub fn changed(&self, stored: &Value, change: Value) -> Result<Value, FieldError> {
        match (self.kind, change) {
            (Kind::Custom, Value::Custom(change)) => {
                let mut custom = match stored {
                    Value::Custom(stored) => stored.clone(),
                    _ => Custom::new(),
                };
                custom.extend(change);
                custom.retain(|_, text| !text.is_empty());
                self.too_many(custom.len()).map_or(Ok(Value::Custom(custom)), Err)
            }
            // Null removes all of them.
            (Kind::Custom, _) => Ok(self.default_value()),
            (_, change) => Ok(change),
        }
    }

    fn too_many(&self, count: usize) -> Option<FieldError> {
        let message =
            || format!("The record has {count} custom fields; send at most {MAX_FIELDS}.");
        (count > MAX_FIELDS).then(|| self.fault(FieldCode::TooLong, message()))
    }

    fn fault(&self, code: FieldCode, message: String) -> FieldError {
        FieldError { field: self.name.to_owned(), code, message }
    }
}
