//! The validation of values (contract section 2).

use std::borrow::Cow;
use std::fmt;

use serde_json::Map;
pub use serde_json::Value as Json;
use serde_json::error::Category;
use unicode_normalization::UnicodeNormalization as _;

use super::custom::{PREFIX, split_range};
use super::email::{MAX_EMAIL, is_email};
use super::field::{Field, Kind, Value};
use super::list_query::Bound;
pub use crate::clock::is_date;
use crate::words::is_hidden;

/// The members of a JSON object, in the order in which they were sent.
pub type JsonObject = Map<String, Json>;

/// The fault of a text that is not a JSON object.
#[derive(Debug, thiserror::Error)]
pub struct JsonError(serde_json::Error);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (error, line, column) = (&self.0, self.0.line(), self.0.column());
        match error.classify() {
            // The message of serde_json would repeat the value.
            Category::Data => f.write_str("it is another JSON value"),
            Category::Eof => {
                write!(f, "it ends before the object is complete at line {line} column {column}")
            }
            Category::Syntax | Category::Io => error.fmt(f),
        }
    }
}

/// Parses the body of a POST or PUT (contract section 3) or a line of a JSON Lines file: one object
/// in UTF-8, possibly after a byte order mark. serde_json rejects lone surrogates, takes the last of
/// several members of one name, and limits the nesting to 127 levels.
pub fn parse_object(body: &[u8]) -> Result<JsonObject, JsonError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    serde_json::from_slice(body).map_err(JsonError)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCode {
    Required,
    InvalidEmail,
    InvalidInt,
    InvalidDate,
    InvalidBool,
    TooLong,
    TooShort,
    NotInList,
    /// The value of a text field has another JSON type or contains U+0000. This is no code of
    /// `validation_failed`: the whole request is `bad_request`.
    WrongType,
}

impl FieldCode {
    /// Every code of `validation_failed` with its meaning, for the API reference.
    pub const ALL: [(FieldCode, &'static str); 8] = [
        (FieldCode::Required, "A required field is empty."),
        (FieldCode::InvalidEmail, "The value is not an e-mail address."),
        (FieldCode::InvalidInt, "The value is not a 64-bit integer."),
        (FieldCode::InvalidDate, "The value is not an existing date in the form YYYY-MM-DD."),
        (FieldCode::InvalidBool, "The value is none of true, false, 1 and 0."),
        (FieldCode::TooLong, "The value has more characters than the field takes."),
        (FieldCode::TooShort, "The value has fewer characters than the field needs."),
        (FieldCode::NotInList, "The value is not one of the allowed ones."),
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            FieldCode::Required => "required",
            FieldCode::InvalidEmail => "invalid_email",
            FieldCode::InvalidInt => "invalid_int",
            FieldCode::InvalidDate => "invalid_date",
            FieldCode::InvalidBool => "invalid_bool",
            FieldCode::TooLong => "too_long",
            FieldCode::TooShort => "too_short",
            FieldCode::NotInList => "not_in_list",
            FieldCode::WrongType => "bad_request",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The name of the field, or `custom.NAME`.
    pub field: String,
    pub code: FieldCode,
    /// One sentence with the sent value and the expected kind of value.
    pub message: String,
}

/// Returns whether a value is null or consists of white space only. Such a value is empty for every
/// kind of field.
pub fn is_empty(input: &Json) -> bool {
    match input {
        Json::Null => true,
        Json::String(text) => text.chars().all(char::is_whitespace),
        _ => false,
    }
}

fn describe(input: &Json) -> Cow<'static, str> {
    match input {
        Json::Null => "null".into(),
        Json::Bool(value) => value.to_string().into(),
        Json::Number(number) => format!("the number {}", shorten(&number.to_string())).into(),
        Json::String(text) => format!("{:?}", shorten(text)).into(),
        Json::Array(_) => "an array".into(),
        Json::Object(_) => "an object".into(),
    }
}

/// Returns `text`, which a client sent, as a message shows it: cut after 40 characters, with an
/// ellipsis, if it is longer.
pub fn shorten(text: &str) -> Cow<'_, str> {
    const MAX_SHOWN: usize = 40;
    match text.char_indices().nth(MAX_SHOWN).and_then(|(end, _)| text.get(..end)) {
        Some(start) => format!("{start}…").into(),
        None => text.into(),
    }
}

/// The text in the form NFC, in which equal letters have equal bytes.
pub fn normalize(text: &str) -> String {
    text.nfc().collect()
}

/// Which record the values of a body or a row are for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rules {
    /// A new record. An empty value becomes the default.
    New,
    /// A stored record.
    Stored,
    /// The stored record with the value of this field, or a new record. The first request, which
    /// creates the record, obeys the rules of the later ones.
    StoredOrNew(&'static Field),
}

impl Field {
    /// Validates the value that a body or a row has for the field. `None` if it has none and may
    /// leave it out.
    pub fn check_sent(
        &self,
        sent: Option<&Json>,
        rules: Rules,
    ) -> Result<Option<Value>, Vec<FieldError>> {
        let is_key = matches!(rules, Rules::StoredOrNew(key) if key == self);
        let field = Field { required: self.required || is_key, ..*self };
        match (sent, rules) {
            (Some(input), Rules::New) => {
                let value = field.check(input)?;
                self.check_added(&Value::Null, &value).map_err(|fault| vec![fault])?;
                Ok(Some(value))
            }
            (Some(input), _) => field.check_update(input).map(Some),
            (None, Rules::New | Rules::StoredOrNew(_)) if field.required => {
                Err(vec![field.missing()])
            }
            (None, _) => Ok(None),
        }
    }

    /// Checks that a value whose texts have one line contains no hidden character, and that no custom
    /// field has the name of a range. What is `stored` already may have both: a client can send a
    /// whole record back.
    pub fn check_added(&self, stored: &Value, value: &Value) -> Result<(), FieldError> {
        match (stored, value) {
            (stored, value) if stored == value => Ok(()),
            (_, Value::Text(text)) if self.has_one_line() => check_visible_text(self.name, text),
            (stored, Value::Custom(custom)) => {
                for (name, text) in custom {
                    if !matches!(stored, Value::Custom(old) if old.get(name) == Some(text)) {
                        let label = format!("{PREFIX}{name}");
                        check_visible_text(&label, text)?;
                        check_no_range(label, name, text)?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A former value in the form that the field has now: a text of one line loses white space at
    /// both ends.
    pub fn trimmed(&self, value: Value) -> Value {
        match value {
            Value::Text(text) if self.has_one_line() => Value::of(text.trim()),
            Value::Custom(custom) => {
                let trimmed = |(name, text): (String, String)| (name, text.trim().to_owned());
                Value::Custom(custom.into_iter().map(trimmed).collect())
            }
            value => value,
        }
    }

    /// Validates `input` and returns the value to store.
    ///
    /// # Errors
    ///
    /// One error. An object of custom fields can have several.
    pub fn check(&self, input: &Json) -> Result<Value, Vec<FieldError>> {
        if is_empty(input) {
            return if self.required { Err(self.empty(input)) } else { Ok(self.default_value()) };
        }
        let text = input.as_str();
        let (code, value) = match self.kind {
            Kind::Text { min, max } => {
                let text = check_text(self.name, input, min, max, self.has_one_line());
                return text.map(Value::Text).map_err(|fault| match fault.code {
                    FieldCode::TooShort | FieldCode::TooLong if min == max => {
                        vec![self.invalid(fault.code, &format!("was {}", describe(input)))]
                    }
                    _ => vec![fault],
                });
            }
            Kind::Custom => return self.check_custom(input),
            Kind::Email => {
                let address = text.map(str::trim);
                if let Some(address) = address {
                    self.check_address(address)?;
                }
                let address = address.filter(|address| is_email(address));
                (FieldCode::InvalidEmail, address.map(Value::of))
            }
            Kind::Integer => (FieldCode::InvalidInt, input.as_i64().map(Value::Integer)),
            Kind::Boolean => {
                let bit = input.as_i64().filter(|number| matches!(number, 0 | 1));
                let truth = input.as_bool().or(bit.map(|bit| bit == 1));
                (FieldCode::InvalidBool, truth.map(Value::Boolean))
            }
            Kind::Date => {
                (FieldCode::InvalidDate, text.filter(|text| is_date(text)).map(Value::of))
            }
            Kind::Timestamp => (FieldCode::InvalidDate, None),
            Kind::Choice(allowed) => {
                let known = text.filter(|text| allowed.contains(text));
                (FieldCode::NotInList, known.map(Value::of))
            }
        };
        value.ok_or_else(|| {
            let mut fault = self.invalid(code, &format!("was {}", describe(input)));
            fault.message.push_str(&self.hint(input));
            vec![fault]
        })
    }

    fn hint(&self, input: &Json) -> String {
        match (self.kind, input) {
            (Kind::Integer, Json::Number(number)) if number.as_f64().is_some_and(is_whole) => {
                let whole = number.to_string();
                let whole = whole.split('.').next().unwrap_or_default();
                format!(" Send {whole}, without a decimal point or an exponent.")
            }
            (Kind::Email, Json::String(text)) if text.contains('<') => {
                " Send the address alone, without a name and brackets.".to_owned()
            }
            _ => String::new(),
        }
    }

    fn check_address(&self, address: &str) -> Result<(), Vec<FieldError>> {
        check_visible_text(self.name, address).map_err(|fault| vec![fault])?;
        let length = address.chars().count();
        if length > MAX_EMAIL {
            let fault = format!("has the length {length}");
            return Err(vec![self.invalid(FieldCode::TooLong, &fault)]);
        }
        Ok(())
    }

    /// Validates `input` for a record that exists: an empty value does not reset a field to its
    /// default by accident. Null for `custom` removes all custom fields.
    pub fn check_update(&self, input: &Json) -> Result<Value, Vec<FieldError>> {
        match self.kind {
            _ if is_empty(input) && self.default.is_some() => Err(self.empty(input)),
            Kind::Custom if is_empty(input) => Ok(Value::Null),
            _ => self.check(input),
        }
    }

    /// `fault` follows the field's name.
    fn invalid(&self, code: FieldCode, fault: &str) -> FieldError {
        let message = format!("\"{}\" {fault}; {}.", self.name, self.expectation());
        FieldError { field: self.name.to_owned(), code, message }
    }

    fn empty(&self, input: &Json) -> Vec<FieldError> {
        let fault = format!("is required and was {}", describe(input));
        vec![self.invalid(FieldCode::Required, &fault)]
    }

    pub fn missing(&self) -> FieldError {
        self.invalid(FieldCode::Required, "is required and was not sent")
    }

    /// Returns an instruction such as `send true, false, 1 or 0`, the second half of every message
    /// about a value.
    pub fn expectation(&self) -> String {
        match self.kind {
            // The only text of one length.
            Kind::Text { min, max } if min == max => {
                format!("send an ISO 3166-1 alpha-2 code such as {}", self.example)
            }
            Kind::Text { .. } => self.kind.text_expectation(),
            Kind::Custom => "send an object of texts".to_owned(),
            Kind::Email => format!("send one e-mail address of at most {MAX_EMAIL} characters"),
            Kind::Integer if self.name.ends_with("_cents") => {
                format!("send a whole number of cents such as {}", self.example)
            }
            Kind::Integer => {
                "send a JSON integer in the signed 64-bit range, such as 12".to_owned()
            }
            Kind::Boolean => "send true, false, 1 or 0".to_owned(),
            Kind::Date => "send a date that exists in the form YYYY-MM-DD".to_owned(),
            Kind::Choice(allowed) => format!("send one of {}", allowed.join(", ")),
            Kind::Timestamp => "send an RFC 3339 timestamp such as 2026-11-20T19:30:00Z".to_owned(),
        }
    }
}

impl Kind {
    fn text_expectation(self) -> String {
        match self {
            Kind::Text { min: 0, max } => format!("send text of at most {max} characters"),
            Kind::Text { min, max } if min == max => {
                format!("send text of exactly {max} characters")
            }
            Kind::Text { min, max } => format!("send text of {min} to {max} characters"),
            _ => "send text".to_owned(),
        }
    }
}

/// A filter by `custom.lease_to` is a range of the custom field `lease`. An empty text removes a field.
fn check_no_range(label: String, name: &str, text: &str) -> Result<(), FieldError> {
    let (field, bound) = split_range(name);
    if bound == Bound::Equal || text.is_empty() {
        return Ok(());
    }
    let message = format!(
        "The name of the field \"{label}\" is that of a filter by a range of \"{PREFIX}{field}\". \
         Choose a name that does not end with _from or _to."
    );
    Err(FieldError { field: label, code: FieldCode::WrongType, message })
}

fn check_visible_text(name: &str, text: &str) -> Result<(), FieldError> {
    let hidden = text.chars().zip(1..).find(|(character, _)| is_hidden(*character));
    let Some((character, place)) = hidden else { return Ok(()) };
    let message = format!(
        "The field \"{name}\" has U+{:04X} as character {place}. A text of one line has no line \
         break, and no control or invisible character. Send the text without it.",
        u32::from(character)
    );
    Err(FieldError { field: name.to_owned(), code: FieldCode::WrongType, message })
}

/// Checks the text of the field `name`, which may have `min` to `max` characters. A text of one line
/// loses white space at both ends.
pub(super) fn check_text(
    name: &str,
    input: &Json,
    min: usize,
    max: usize,
    has_one_line: bool,
) -> Result<String, FieldError> {
    let expectation = Kind::Text { min, max }.text_expectation();
    let fault = |code, message| Err(FieldError { field: name.to_owned(), code, message });
    let Json::String(text) = input else {
        let message = format!(
            "The field \"{name}\" must be a JSON string, but {} was sent; {expectation}.",
            describe(input)
        );
        return fault(FieldCode::WrongType, message);
    };
    if text.contains('\0') {
        let message = format!(
            "The field \"{name}\" contains the character U+0000, which text cannot hold. Send the \
             text without it."
        );
        return fault(FieldCode::WrongType, message);
    }
    let text = if has_one_line { text.trim() } else { text };
    let length = text.chars().count();
    let code = match length {
        _ if length > max => FieldCode::TooLong,
        _ if length < min => FieldCode::TooShort,
        _ => return Ok(text.to_owned()),
    };
    fault(code, format!("\"{name}\" has the length {length}; {expectation}."))
}

/// Whether a number is an integer that every JSON parser reads exactly.
fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0
}

/// Returns whether `text` is an integer as JSON writes it (RFC 8259 section 6): digits without a
/// leading zero, after an optional minus sign. The number of digits is not limited.
pub fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}

/// Returns whether `text` is a positive integer: digits without a sign or a leading zero.
pub fn is_positive_integer(text: &str) -> bool {
    is_integer(text) && !text.starts_with(['-', '0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_form_of_json() {
        for valid in ["0", "12", "-5", "-0", "99999999999999999999"] {
            assert!(is_integer(valid), "{valid}");
        }
        for invalid in ["", "-", "007", "+5", "1.0", "1e2", " 1", "12 ", "٣"] {
            assert!(!is_integer(invalid), "{invalid}");
        }
    }
}
