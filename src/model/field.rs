//! Fields: their kinds, their rules, and the validation of values (contract section 2).

use std::borrow::Cow;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::field_error::{FieldCode, FieldError};
use super::json_object::Json;

/// The kind of value that a field holds, with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text of limited length.
    Text {
        /// The minimum length in Unicode scalar values.
        min: usize,
        /// The maximum length in Unicode scalar values.
        max: usize,
    },
    Email,
    Integer,
    Boolean,
    /// An existing date, `YYYY-MM-DD`.
    Date,
    Choice(&'static [&'static str]),
}

/// The maximum length of an e-mail address, in characters.
pub const MAX_EMAIL: usize = 254;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, which is also the name of the column.
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// The value of an absent or empty field in the syntax of a query parameter. Without a default
    /// the field is null.
    pub default: Option<&'static str>,
    /// The singular name of the resource to which the field refers by id.
    pub references: Option<&'static str>,
    /// A required field of the referenced record. Lists have a filter of its name too. Its null
    /// finds records without the reference.
    pub filters_by: Option<&'static str>,
    /// One sentence for the API reference.
    pub about: &'static str,
    /// An example value, as JSON.
    pub example: &'static str,
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        required: false,
        default: None,
        references: None,
        filters_by: None,
        about: "",
        example: "null",
    }
}

/// Declares a text field of unlimited length. [`Field::at_most`] or [`Field::between`] limits it.
pub const fn text(name: &'static str) -> Field {
    field(name, Kind::Text { min: 0, max: usize::MAX })
}

pub const fn email(name: &'static str) -> Field {
    field(name, Kind::Email)
}

pub const fn integer(name: &'static str) -> Field {
    field(name, Kind::Integer)
}

pub const fn boolean(name: &'static str) -> Field {
    field(name, Kind::Boolean)
}

pub const fn date(name: &'static str) -> Field {
    field(name, Kind::Date)
}

/// Declares a field that holds one of the `allowed` values.
pub const fn choice(name: &'static str, allowed: &'static [&'static str]) -> Field {
    field(name, Kind::Choice(allowed))
}

impl Field {
    /// Sets the minimum and maximum length of a text, in characters.
    pub const fn between(mut self, min: usize, max: usize) -> Field {
        self.kind = Kind::Text { min, max };
        self
    }

    pub const fn at_most(self, max: usize) -> Field {
        self.between(0, max)
    }

    pub const fn required(mut self) -> Field {
        self.required = true;
        self
    }

    pub const fn default(mut self, value: &'static str) -> Field {
        self.default = Some(value);
        self
    }

    /// Makes the field a reference to the resource with the singular name `resource`.
    pub const fn references(mut self, resource: &'static str) -> Field {
        self.references = Some(resource);
        self
    }

    /// Gives lists a filter by the field `name` of the referenced record.
    pub const fn filters_by(mut self, name: &'static str) -> Field {
        self.filters_by = Some(name);
        self
    }

    /// Sets the description for the API reference: one sentence.
    pub const fn about(mut self, sentence: &'static str) -> Field {
        self.about = sentence;
        self
    }

    /// Sets the example value, as JSON.
    pub const fn example(mut self, json: &'static str) -> Field {
        self.example = json;
        self
    }

    /// Returns whether the search parameter `q` covers the field. It covers text and e-mail fields.
    pub const fn is_searched(&self) -> bool {
        matches!(self.kind, Kind::Text { .. } | Kind::Email)
    }

    /// Returns whether lists can be sorted and filtered by the field. All fields but `notes` are
    /// sortable.
    pub fn is_sortable(&self) -> bool {
        self.name != "notes"
    }

    pub fn default_value(&self) -> Value {
        match (self.default, self.kind) {
            (None, _) => Value::Null,
            (Some(word), Kind::Boolean) => Value::Boolean(word == "true"),
            (Some(word), _) => Value::Text(word.to_owned()),
        }
    }

    fn invalid(&self, code: FieldCode, message: String) -> ValueError {
        ValueError::Invalid(FieldError { field: self.name, code, message })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    Null,
    Integer(i64),
    Boolean(bool),
    /// Text of any kind, including dates and choices.
    Text(String),
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
        Json::Number(number) => format!("the number {}", shorten(number.as_str())).into(),
        Json::String(text) => format!("{:?}", shorten(text)).into(),
        Json::Array(_) => "an array".into(),
        Json::Object(_) => "an object".into(),
    }
}

/// Returns `text`, which a client sent, as a message shows it: cut after 40 characters, with an
/// ellipsis, if it is longer.
pub fn shorten(text: &str) -> Cow<'_, str> {
    const MAX_SHOWN: usize = 40;
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

/// Why a value is rejected.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueError {
    /// The value violates a rule of the field: an error with a field code.
    Invalid(FieldError),
    /// The value of a text field has another JSON type or contains U+0000: an error `bad_request`,
    /// which has precedence over field codes. The text is its message.
    WrongType(String),
}

impl Field {
    /// Validates `input` and returns the value to store.
    pub fn check(&self, input: &Json) -> Result<Value, ValueError> {
        if is_empty(input) {
            let is_optional = !self.required;
            return if is_optional { Ok(self.default_value()) } else { Err(self.empty(input)) };
        }
        match self.kind {
            Kind::Text { min, max } => self.check_text(input, min, max),
            Kind::Email => self.check_email(input),
            Kind::Integer => self.check_integer(input),
            Kind::Boolean => self.check_boolean(input),
            Kind::Date => match input {
                Json::String(text) if is_date(text) => Ok(Value::Text(text.to_string())),
                _ => Err(self.rejected(FieldCode::InvalidDate, input)),
            },
            Kind::Choice(allowed) => match input {
                Json::String(text) if allowed.contains(&text.as_str()) => {
                    Ok(Value::Text(text.to_string()))
                }
                _ => Err(self.rejected(FieldCode::NotInList, input)),
            },
        }
    }

    /// Validates `input` for a record that exists: an empty value does not reset a field to its
    /// default by accident.
    pub fn check_update(&self, input: &Json) -> Result<Value, ValueError> {
        if is_empty(input) && self.default.is_some() {
            Err(self.empty(input))
        } else {
            self.check(input)
        }
    }

    /// The error of an empty value where the field needs one.
    fn empty(&self, input: &Json) -> ValueError {
        let message = format!(
            "\"{}\" is required. It was {}; {}.",
            self.name,
            describe(input),
            self.expectation()
        );
        self.invalid(FieldCode::Required, message)
    }

    /// Returns the error of a required field that a POST does not contain.
    pub fn missing(&self) -> FieldError {
        let message =
            format!("\"{}\" is required and was not sent; {}.", self.name, self.expectation());
        FieldError { field: self.name, code: FieldCode::Required, message }
    }

    fn rejected(&self, code: FieldCode, input: &Json) -> ValueError {
        self.invalid(
            code,
            format!("\"{}\" was {}; {}.", self.name, describe(input), self.expectation()),
        )
    }

    /// Returns an instruction such as `send true, false, 1 or 0`, the second half of every message
    /// about a value.
    pub fn expectation(&self) -> String {
        match self.kind {
            Kind::Text { min: 0, max } => format!("send text of at most {max} characters"),
            Kind::Text { min, max } if min == max => {
                format!("send text of exactly {max} characters")
            }
            Kind::Text { min, max } => format!("send text of {min} to {max} characters"),
            Kind::Email => {
                format!(
                    "send one e-mail address of at most {MAX_EMAIL} characters, such as \"name@shop.example\""
                )
            }
            Kind::Integer => {
                "send a JSON integer in the signed 64-bit range, such as 12".to_owned()
            }
            Kind::Boolean => "send true, false, 1 or 0".to_owned(),
            Kind::Date => {
                "send a date that exists in the form YYYY-MM-DD, such as \"2026-11-20\"".to_owned()
            }
            Kind::Choice(allowed) => format!("send one of {}", allowed.join(", ")),
        }
    }

    fn check_text(&self, input: &Json, min: usize, max: usize) -> Result<Value, ValueError> {
        let Json::String(text) = input else {
            return Err(ValueError::WrongType(format!(
                "The field \"{}\" must be a JSON string, but {} was sent; {}.",
                self.name,
                describe(input),
                self.expectation()
            )));
        };
        if text.contains('\0') {
            return Err(ValueError::WrongType(format!(
                "The field \"{}\" contains the character U+0000, which text cannot hold. Send the text without it.",
                self.name
            )));
        }
        let length = text.chars().count();
        let code = match length {
            _ if length > max => FieldCode::TooLong,
            _ if length < min => FieldCode::TooShort,
            _ => return Ok(Value::Text(text.to_string())),
        };
        Err(self.invalid(
            code,
            format!("\"{}\" has {}; {}.", self.name, characters(length), self.expectation()),
        ))
    }

    fn check_email(&self, input: &Json) -> Result<Value, ValueError> {
        match input {
            Json::String(text) if text.chars().count() > MAX_EMAIL => Err(self.invalid(
                FieldCode::TooLong,
                format!(
                    "\"{}\" has {}; {}.",
                    self.name,
                    characters(text.chars().count()),
                    self.expectation()
                ),
            )),
            Json::String(text) if is_email(text) => Ok(Value::Text(text.to_string())),
            _ => Err(self.rejected(FieldCode::InvalidEmail, input)),
        }
    }

    fn check_integer(&self, input: &Json) -> Result<Value, ValueError> {
        match input {
            // `i64::from_str` also accepts a leading `+`. JSON has no such numbers.
            Json::Number(number) => number.as_str().parse().ok().map(Value::Integer),
            _ => None,
        }
        .ok_or_else(|| self.rejected(FieldCode::InvalidInt, input))
    }

    fn check_boolean(&self, input: &Json) -> Result<Value, ValueError> {
        match input {
            Json::Bool(value) => Ok(Value::Boolean(*value)),
            Json::Number(number) if number.as_str() == "1" => Ok(Value::Boolean(true)),
            Json::Number(number) if number.as_str() == "0" => Ok(Value::Boolean(false)),
            _ => Err(self.rejected(FieldCode::InvalidBool, input)),
        }
    }
}

fn characters(count: usize) -> String {
    format!("{count} {}", if count == 1 { "character" } else { "characters" })
}

/// Returns whether `text` is an existing calendar date, `YYYY-MM-DD`. The form is checked first
/// because jiff accepts others too.
pub fn is_date(text: &str) -> bool {
    let has_form = text.len() == 10
        && text.bytes().enumerate().all(|(index, byte)| {
            if index == 4 || index == 7 { byte == b'-' } else { byte.is_ascii_digit() }
        });
    has_form && text.parse::<jiff::civil::Date>().is_ok()
}

/// Returns whether `text` is one e-mail address as contract section 2 defines it.
pub fn is_email(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(local, domain)| is_local_part(local) && is_domain(domain))
}

/// The maximum length of the part before the `@`, in octets.
const MAX_LOCAL_PART: usize = 64;

/// Returns whether `local` is a dot-atom (RFC 5322 section 3.2.3), possibly with characters beyond
/// ASCII (RFC 6531 section 3.3).
fn is_local_part(local: &str) -> bool {
    local.len() <= MAX_LOCAL_PART
        && local.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_character))
}

fn is_atom_character(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c)
    } else {
        !c.is_whitespace() && !c.is_control()
    }
}

/// Returns whether the domain is valid for IDNA (UTS 46, non-transitional, STD3 rules), has at
/// least two labels, and equals its IDNA form apart from letter case and Unicode normalization.
///
/// The last rule rejects characters that UTS 46 maps to others, such as `²`, which it maps to `2`.
fn is_domain(domain: &str) -> bool {
    let (uts46, sent) = (Uts46::new(), domain.as_bytes());
    let (unicode, valid) = uts46.to_unicode(sent, AsciiDenyList::STD3, Hyphens::CheckFirstLast);
    let ascii =
        uts46.to_ascii(sent, AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify);
    let (Ok(()), Ok(ascii)) = (valid, ascii) else { return false };
    let (unicode, sent) = (normalize(&unicode), normalize(domain));
    let mut labels = sent.split('.').zip(unicode.split('.')).zip(ascii.split('.'));
    ascii.contains('.')
        && unicode.chars().all(is_domain_character)
        && labels.all(|((sent, unicode), ascii)| sent == unicode || sent == ascii)
}

/// Returns the domain in lower case and normalization form C. Each character is mapped on its own,
/// as in UTS 46: `Σ` becomes `σ` also at the end of a word.
fn normalize(domain: &str) -> String {
    domain.chars().flat_map(char::to_lowercase).nfc().collect()
}

/// Returns whether IDNA 2008 permits the character. UTS 46 also permits symbols and emoji.
fn is_domain_character(c: char) -> bool {
    /// The signs that RFC 5892 permits within words (section 2.6, appendix A). `idna` checks the
    /// context of joiners.
    const SIGNS: &str = "\u{b7}\u{375}\u{5f3}\u{5f4}\u{6fd}\u{6fe}\u{f0b}\u{200c}\u{200d}\u{30fb}";
    matches!(c, '.' | '-') || c.is_alphanumeric() || is_combining_mark(c) || SIGNS.contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_parts() {
        let longest = "a".repeat(64);
        for valid in
            ["a", "a.b+c", "müller", "उदाहरण", "x_y-z", "!#$%&'*+-/=?^_`{|}~", longest.as_str()]
        {
            assert!(is_email(&format!("{valid}@shop.example")), "{valid}");
        }
        let long = "a".repeat(65);
        let long_in_octets = "ü".repeat(33);
        for invalid in [
            "",
            ".a",
            "a.",
            "a..b",
            "a b",
            " a",
            "a\t",
            "\"a\"",
            "A <a",
            "<a",
            "a@b",
            "a,b",
            "a;b",
            "a:b",
            "(a)",
            "[a]",
            "a\\b",
            "a\0",
            "\u{3000}a",
            "a\u{a0}b",
            "\u{85}",
            long.as_str(),
            long_in_octets.as_str(),
        ] {
            assert!(!is_email(&format!("{invalid}@shop.example")), "{invalid:?}");
        }
        for invalid in ["", "@", "a", "a@", "shop.example"] {
            assert!(!is_email(invalid), "{invalid:?}");
        }
    }

    /// Returns a domain of `octets` octets. Its labels have 49 octets, the last one the remainder.
    fn domain_of(octets: usize) -> String {
        let mut domain = format!("{}.", "a".repeat(49)).repeat(octets / 50);
        domain.push_str(&"b".repeat(octets % 50));
        domain
    }

    #[test]
    fn domains() {
        let label_63 = format!("{}.example", "a".repeat(63));
        // 61 characters, and 67 octets as `xn--tdaaa…`.
        let long_in_ascii = format!("{}.example", "ü".repeat(61));
        for valid in [
            "b.example",
            "a-b.example",
            "SHOP.Example",
            "b.c1",
            "1.2",
            "a--b.example",
            "ab--c.example",
            "Bücher.example",
            "BÜCHER.EXAMPLE",
            "bu\u{308}cher.example",
            "straße.example",
            "STRAẞE.example",
            "βόλος.example",
            "ΒΌΛΟΣ.example",
            "हिन्दी.example",
            "हिन्दी.भारत",
            "क\u{93c}लम.भारत",
            "\u{958}लम.भारत",
            "தமிழ்.example",
            "ไทย.example",
            "مثال.إختبار",
            "نامه\u{200c}ای.example",
            "דוגמה.example",
            "例子.测试",
            "二〇二四.example",
            "例え・テスト.example",
            "한국.example",
            "пример.рф",
            "col·legi.example",
            "Ꭰ.example",
            "xn--bcher-kva.example",
            "XN--BCHER-KVA.example",
            "xn--strae-oqa.müller.example",
            "xn--j2bd4cyah0f.example",
            label_63.as_str(),
        ] {
            assert!(is_domain(valid), "{valid}");
        }
        for invalid in [
            "",
            ".",
            "b",
            "bücher",
            ".example",
            "b.",
            "b..example",
            "b.example.",
            "-b.example",
            "b-.example",
            "b.-example",
            "-.example",
            "ü-.example",
            "b_c.example",
            "b!c.example",
            "b c.example",
            " b.example",
            "b.example ",
            "b.example\n",
            "b\0.example",
            "[127.0.0.1]",
            "[IPv6:::1]",
            "½.example",
            "1⁄2.example",
            "²³.example",
            "①.example",
            "ﬁsch.example",
            "ｂ.example",
            "b。example",
            "a\u{ad}b.example",
            "a\u{200b}b.example",
            "a\u{200d}b.example",
            "a\u{202e}b.example",
            "\u{94d}a.example",
            "\u{308}a.example",
            "1א.example",
            "☕.example",
            "€.example",
            "xn--53h.example",
            "xn--a.example",
            "xn--abc.example",
            "xn--.example",
            "xn--bcher-kva-.example",
            "xn--shop-.example",
            "xn--\u{fc}.example",
            "\u{fffd}.example",
            long_in_ascii.as_str(),
        ] {
            assert!(!is_domain(invalid), "{invalid:?}");
        }
    }

    #[test]
    fn the_length_of_labels_and_domains_is_limited() {
        assert!(
            is_domain(&format!("{}.example", "a".repeat(63)))
                && !is_domain(&format!("{}.example", "a".repeat(64)))
        );
        assert!(domain_of(253).len() == 253 && is_domain(&domain_of(253)));
        assert!(domain_of(254).len() == 254 && !is_domain(&domain_of(254)));
    }

    #[test]
    fn dates() {
        assert!(is_date("2024-02-29") && is_date("0001-01-01") && is_date("9999-12-31"));
        for invalid in [
            "2023-02-29",
            "2024-13-01",
            "2024-1-01",
            "20240101",
            "2024-01-01T00:00:00Z",
            "+024-01-01",
            "2024-W01-1",
        ] {
            assert!(!is_date(invalid), "{invalid}");
        }
    }
}
