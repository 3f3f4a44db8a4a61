//! The search text of a record. A word of `q` is found by a look at the search text of each record.
//! The text is stored: to fold a record's fields at each search took four times as long.

use crate::model::{Resource, Value};

/// Unicode's full case folding: SQLite's own folds letter by letter, so that `strasse` would miss
/// `Straße`.
pub fn fold(text: &str) -> String {
    unicase::UniCase::unicode(text).to_folded_case()
}

/// The folded text of all searched fields, one a line: a word of `q` has no white space and so
/// stays within one.
pub(super) fn search_text(resource: &Resource, values: &[Value]) -> String {
    let mut text = String::new();
    let mut add = |value: &str| {
        text.push_str(&fold(value));
        text.push('\n');
    };
    for (field, value) in resource.fields.iter().zip(values) {
        match value {
            Value::Text(value) if field.is_searched() => add(value),
            Value::Custom(custom) => custom.values().for_each(|value| add(value)),
            _ => (),
        }
    }
    text
}
