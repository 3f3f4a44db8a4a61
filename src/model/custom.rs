//! Custom fields: the shop's own texts in a record (contract section 2).

use super::field::{Custom, Field, Kind, Value};
use super::json_object::Json;
use super::validation::{FieldCode, FieldError, ValueError, check_text, is_empty, shorten};

/// What precedes a name in filters, columns of CSV files and error messages.
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

/// The JSON text in the column `custom`. Filters search in it, so the text of each custom field is
/// always the same.
pub fn to_text(custom: &Custom) -> String {
    // A map of texts can always be written.
    serde_json::to_string(custom).unwrap_or_else(|_| "{}".to_owned())
}

/// Reads the column `custom`. `None` if the program cannot have written the text.
pub fn parse_text(text: &str) -> Option<Custom> {
    let custom: Custom = serde_json::from_str(text).ok()?;
    let is_valid = |(name, value): (&String, &String)| {
        let input = Json::from(value.as_str());
        is_name(name) && !is_empty(&input) && check_text(name, &input, 1, MAX_LENGTH).is_ok()
    };
    let is_own = custom.len() <= MAX_FIELDS && custom.iter().all(is_valid);
    (is_own && to_text(&custom) == text).then_some(custom)
}

impl Field {
    /// Checks the object of a request or a file. An empty value stays as an empty text.
    pub(super) fn check_custom(&self, input: &Json) -> Result<Value, ValueError> {
        let Json::Object(members) = input else {
            let message = "The field \"custom\" must be a JSON object of texts.";
            return Err(ValueError::WrongType(message.to_owned()));
        };
        let (mut custom, mut faults, mut wrong_types) = (Custom::new(), Vec::new(), Vec::new());
        for (name, input) in members {
            let label = format!("{PREFIX}{name}");
            let checked = match input {
                _ if !is_name(name) => {
                    let label = shorten(&label);
                    wrong_types.push(format!("The field {label:?} has no valid name. {NAME_RULE}"));
                    continue;
                }
                empty if is_empty(empty) => Ok(String::new()),
                input => check_text(&label, input, 1, MAX_LENGTH),
            };
            match checked {
                Ok(text) => drop(custom.insert(name.clone(), text)),
                Err(ValueError::Invalid(errors)) => faults.extend(errors),
                Err(ValueError::WrongType(message)) => wrong_types.push(message),
            }
        }
        faults.extend(self.too_many(&custom));
        if !wrong_types.is_empty() {
            wrong_types.extend(faults.into_iter().map(|fault| fault.message));
            return Err(ValueError::WrongType(wrong_types.join(" ")));
        }
        if faults.is_empty() { Ok(Value::Custom(custom)) } else { Err(ValueError::Invalid(faults)) }
    }

    /// The value of the field after `change`. `stored` is the value before, or the default.
    pub fn changed(&self, stored: &Value, change: Value) -> Result<Value, FieldError> {
        let (Kind::Custom, Value::Custom(change)) = (self.kind, &change) else {
            let is_removed = self.kind == Kind::Custom;
            return Ok(if is_removed { self.default_value() } else { change });
        };
        let mut custom =
            if let Value::Custom(stored) = stored { stored.clone() } else { Custom::new() };
        custom.extend(change.clone());
        custom.retain(|_, text| !text.is_empty());
        self.too_many(&custom).map_or(Ok(Value::Custom(custom)), Err)
    }

    fn too_many(&self, custom: &Custom) -> Option<FieldError> {
        let count = custom.values().filter(|text| !text.is_empty()).count();
        (count > MAX_FIELDS).then(|| FieldError {
            field: self.name.to_owned(),
            code: FieldCode::TooLong,
            message: format!("The record has {count} custom fields; send at most {MAX_FIELDS}."),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_that_the_program_writes_are_read() {
        for text in ["{}", r#"{"a":"1","b_2":"\u0001\"é"}"#] {
            assert_eq!(parse_text(text).map(|custom| to_text(&custom)).as_deref(), Some(text));
        }
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(501));
        for text in [
            "",
            "[]",
            "{",
            "{} ",
            r#"{"a":1}"#,
            r#"{"a":""}"#,
            r#"{"a":" "}"#,
            r#"{"A":"1"}"#,
            r#"{"b":"1","a":"2"}"#,
            r#"{"a":"1","a":"1"}"#,
            r#"{"a":"1"},"x":{}"#,
            &long,
        ] {
            assert_eq!(parse_text(text), None, "{text}");
        }
    }
}
