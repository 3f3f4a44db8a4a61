//! The validation of values (contract section 2).

use std::borrow::Cow;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use serde_json::Map;
pub use serde_json::Value as Json;
use serde_json::error::Category;
use unicode_normalization::UnicodeNormalization as _;

use super::resources::{Bound, Custom, Field, Kind, NaturalKey, Value};
pub use crate::clock::is_date;
use crate::words::is_hidden;

/// The members of a JSON object, in the order in which they were sent.
pub type JsonObject = Map<String, Json>;

/// Parses the body of a POST or PUT (contract section 3) or a line of a JSON Lines file: one object
/// in UTF-8, possibly after a byte order mark. serde_json rejects lone surrogates, takes the last
/// of several members of one name, and limits the nesting to 127 levels.
///
/// # Errors
///
/// What the text is in place of an object, and where.
pub fn parse_object(body: &[u8]) -> Result<JsonObject, String> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        // The message of serde_json would repeat the value.
        Category::Data => "it is another JSON value".to_owned(),
        Category::Eof => format!(
            "it ends before the object is complete at line {} column {}",
            error.line(),
            error.column()
        ),
        Category::Syntax | Category::Io => error.to_string(),
    })
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
    /// Every code of `validation_failed`.
    pub const ALL: [FieldCode; 8] = [
        FieldCode::Required,
        FieldCode::InvalidEmail,
        FieldCode::InvalidInt,
        FieldCode::InvalidDate,
        FieldCode::InvalidBool,
        FieldCode::TooLong,
        FieldCode::TooShort,
        FieldCode::NotInList,
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

    /// Checks that a value whose texts have one line contains no hidden character, and that no
    /// custom field has the name of a range. What is `stored` already may have both: a client can
    /// send a whole record back.
    pub fn check_added(&self, stored: &Value, value: &Value) -> Result<(), FieldError> {
        match (stored, value) {
            (stored, value) if stored == value => Ok(()),
            (_, Value::Text(text)) if self.has_one_line() => check_visible_text(self.name, text),
            (stored, Value::Custom(custom)) => {
                for (name, text) in custom {
                    if !matches!(stored, Value::Custom(old) if old.get(name) == Some(text)) {
                        let label = format!("{CUSTOM_PREFIX}{name}");
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

impl NaturalKey {
    /// Checks a value by the rules of the field of `target`, under the own name.
    pub fn check(&'static self, input: &Json) -> Result<Value, Vec<FieldError>> {
        Field { name: &self.name, ..*self.key }.check(input)
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

// Custom fields: the shop's own texts in a record.

/// The prefix of a name in filters, columns of CSV files and error messages.
pub const CUSTOM_PREFIX: &str = "custom.";
/// The most custom fields of a record.
pub const MAX_CUSTOM_FIELDS: usize = 20;
/// The most characters of a value.
pub const MAX_CUSTOM_LENGTH: usize = 500;
/// The names as a regular expression.
pub const CUSTOM_NAME_PATTERN: &str = "^[a-z][a-z0-9_]{0,39}$";
/// The rule for names in messages.
pub const CUSTOM_NAME_RULE: &str =
    "A name has 1 to 40 of the characters a-z, 0-9 and _, and begins with a letter.";

pub fn is_custom_name(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    name.len() <= 40
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(is_allowed)
}

/// The name in `custom.NAME`. `None` if `text` has another form.
pub fn custom_name_in(text: &str) -> Option<&str> {
    text.strip_prefix(CUSTOM_PREFIX).filter(|name| is_custom_name(name))
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
pub fn custom_to_text(custom: &Custom) -> String {
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
            let label = format!("{CUSTOM_PREFIX}{name}");
            let checked = match input {
                _ if !is_custom_name(name) => {
                    let label = shorten(&label);
                    let message =
                        format!("The field {label:?} has no valid name. {CUSTOM_NAME_RULE}");
                    Err(self.fault(FieldCode::WrongType, message))
                }
                empty if is_empty(empty) => Ok(String::new()),
                input => check_text(&label, input, 1, MAX_CUSTOM_LENGTH, true),
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
            || format!("The record has {count} custom fields; send at most {MAX_CUSTOM_FIELDS}.");
        (count > MAX_CUSTOM_FIELDS).then(|| self.fault(FieldCode::TooLong, message()))
    }

    fn fault(&self, code: FieldCode, message: String) -> FieldError {
        FieldError { field: self.name.to_owned(), code, message }
    }
}

/// A filter by `custom.lease_to` is a range of the custom field `lease`. An empty text removes a
/// field.
fn check_no_range(label: String, name: &str, text: &str) -> Result<(), FieldError> {
    let (field, bound) = split_range(name);
    if bound == Bound::Equal || text.is_empty() {
        return Ok(());
    }
    let message = format!(
        "The name of the field \"{label}\" is that of a filter by a range of \
         \"{CUSTOM_PREFIX}{field}\". Choose a name that does not end with _from or _to."
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

/// Checks the text of the field `name`, which may have `min` to `max` characters. A text of one
/// line loses white space at both ends.
pub(super) fn check_text(
    name: &str,
    input: &Json,
    min: usize,
    max: usize,
    has_one_line: bool,
) -> Result<String, FieldError> {
    let expectation = || Kind::Text { min, max }.text_expectation();
    let fault = |code, message| Err(FieldError { field: name.to_owned(), code, message });
    let Json::String(text) = input else {
        let message = format!(
            "The field \"{name}\" must be a JSON string, but {} was sent; {}.",
            describe(input),
            expectation()
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
    fault(code, format!("\"{name}\" has the length {length}; {}.", expectation()))
}

/// In characters.
pub const MAX_EMAIL: usize = 254;

/// Whether `text` is one e-mail address: a dot-atom (RFC 5322 section 3.2.3) with any characters
/// beyond ASCII, and a domain of at least two labels that is valid for IDNA (UTS 46).
fn is_email(text: &str) -> bool {
    const MAX_LOCAL_PART: usize = 64;
    let is_allowed = |c: char| match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c),
        false => !c.is_whitespace(),
    };
    let is_atom = |atom: &str| !atom.is_empty() && atom.chars().all(is_allowed);
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let (hyphens, length) = (Hyphens::CheckFirstLast, DnsLength::Verify);
    local.len() <= MAX_LOCAL_PART
        && local.split('.').all(is_atom)
        && Uts46::new()
            .to_ascii(domain.as_bytes(), AsciiDenyList::STD3, hyphens, length)
            .is_ok_and(|ascii| ascii.contains('.'))
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
    fn an_address_has_one_unquoted_name_and_a_domain() {
        let (longest, label) = ("a".repeat(64), "b".repeat(63));
        for valid in [
            "a.b+c@shop.example",
            "müller@bücher.example",
            "用户@例子.测试",
            "!#$%&'*+-/=?^_`{|}~@b.c1",
            "a@xn--bcher-kva.ab--c.example",
            &format!("{longest}@{label}.example"),
        ] {
            assert!(is_email(valid), "{valid}");
        }
        for invalid in [
            "",
            "@",
            "a@",
            "@shop.example",
            "shop.example",
            "a@localhost",
            ".a@shop.example",
            "a..b@shop.example",
            "a b@shop.example",
            "a\u{3000}b@shop.example",
            "\"a\"@shop.example",
            "A <a@shop.example>",
            "a@b@shop.example",
            "a,b@shop.example",
            "a@b..example",
            "a@shop.example.",
            "a@-b.example",
            "a@b_c.example",
            "a@b c.example",
            "a@[127.0.0.1]",
            "a@xn--a.example",
            &format!("a{longest}@shop.example"),
            &format!("a@b{label}.example"),
        ] {
            assert!(!is_email(invalid), "{invalid:?}");
        }
    }

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
