//! Fields: their kinds, their rules, and the check of a value against them (contract section 2).

use std::borrow::Cow;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::field_error::{FieldCode, FieldError};

/// What a field can hold, with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Length in Unicode scalar values, both ends included.
    Text {
        min: usize,
        max: usize,
    },
    Email,
    /// Signed, 64 bits.
    Integer,
    Boolean,
    /// `YYYY-MM-DD`, a day that exists.
    Date,
    /// One of these.
    Choice(&'static [&'static str]),
}

/// The most characters of an e-mail address.
pub const MAX_EMAIL: usize = 254;

/// One field, declared once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// What an absent or empty value becomes, written as in a query; null without one.
    pub default: Option<&'static str>,
    /// The name of the resource whose id this is.
    pub references: Option<&'static str>,
    /// One sentence for the reference.
    pub about: &'static str,
    /// An example value, as JSON.
    pub example: &'static str,
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: false, default: None, references: None, about: "", example: "null" }
}

/// Text of at most `usize::MAX` characters, to be narrowed by [`Field::at_most`] or [`Field::between`].
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

pub const fn choice(name: &'static str, allowed: &'static [&'static str]) -> Field {
    field(name, Kind::Choice(allowed))
}

impl Field {
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

    pub const fn references(mut self, resource: &'static str) -> Field {
        self.references = Some(resource);
        self
    }

    pub const fn about(mut self, sentence: &'static str) -> Field {
        self.about = sentence;
        self
    }

    pub const fn example(mut self, json: &'static str) -> Field {
        self.example = json;
        self
    }

    /// Whether `q` looks into it: text and e-mail.
    pub const fn is_searched(&self) -> bool {
        matches!(self.kind, Kind::Text { .. } | Kind::Email)
    }

    /// Whether a list can be sorted and filtered by it: all but `notes`.
    pub fn is_sortable(&self) -> bool {
        self.name != "notes"
    }

    /// The value of a field that was not sent, or was sent empty and is not required.
    pub fn default_value(&self) -> Value {
        match (self.default, self.kind) {
            (None, _) => Value::Null,
            (Some(word), Kind::Boolean) => Value::Boolean(word == "true"),
            (Some(word), _) => Value::Text(word.to_owned()),
        }
    }

    fn fault(&self, code: FieldCode, message: String) -> Fault {
        Fault::Invalid(FieldError { field: self.name, code, message })
    }
}

/// A value as it is stored. Dates and choices are text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    Null,
    Integer(i64),
    Boolean(bool),
    Text(String),
}

/// A value as a client sent it: JSON, or a cell of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<'a> {
    Null,
    Boolean(bool),
    /// As it was written: `12`, `-0`, `1.5`, `1e400`.
    Number(&'a str),
    Text(Cow<'a, str>),
    Array,
    Object,
}

impl Input<'_> {
    /// Null, the empty string and white space alone are empty, whatever the field's type.
    pub fn is_empty(&self) -> bool {
        match self {
            Input::Null => true,
            Input::Text(text) => text.chars().all(char::is_whitespace),
            _ => false,
        }
    }

    fn describe(&self) -> Cow<'static, str> {
        match self {
            Input::Null => "null".into(),
            Input::Boolean(value) => value.to_string().into(),
            Input::Number(number) => format!("the number {}", shortened(number)).into(),
            Input::Text(text) => format!("{:?}", shortened(text)).into(),
            Input::Array => "an array".into(),
            Input::Object => "an object".into(),
        }
    }
}

/// What was sent, short enough for a message.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

/// Why a value was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// One of the field codes.
    Invalid(FieldError),
    /// Plain text of another JSON type, or with U+0000: `bad_request`, which comes before all field codes.
    WrongType(String),
}

impl Field {
    /// The value to store for `input`, or what is wrong with it.
    pub fn check(&self, input: &Input<'_>) -> Result<Value, Fault> {
        if input.is_empty() {
            return match self.required {
                true => Err(self.fault(
                    FieldCode::Required,
                    format!("\"{}\" is required. It was {}; {}.", self.name, input.describe(), self.expectation()),
                )),
                false => Ok(self.default_value()),
            };
        }
        match self.kind {
            Kind::Text { min, max } => self.check_text(input, min, max),
            Kind::Email => self.check_email(input),
            Kind::Integer => self.check_integer(input),
            Kind::Boolean => self.check_boolean(input),
            Kind::Date => match input {
                Input::Text(text) if is_date(text) => Ok(Value::Text(text.to_string())),
                _ => Err(self.refused(FieldCode::InvalidDate, input)),
            },
            Kind::Choice(allowed) => match input {
                Input::Text(text) if allowed.contains(&text.as_ref()) => Ok(Value::Text(text.to_string())),
                _ => Err(self.refused(FieldCode::NotInList, input)),
            },
        }
    }

    /// The fault of a required field that a POST does not name.
    pub fn missing(&self) -> FieldError {
        let message = format!("\"{}\" is required and was not sent; {}.", self.name, self.expectation());
        FieldError { field: self.name, code: FieldCode::Required, message }
    }

    fn refused(&self, code: FieldCode, input: &Input<'_>) -> Fault {
        self.fault(code, format!("\"{}\" was {}; {}.", self.name, input.describe(), self.expectation()))
    }

    /// What would be right, in words: the second half of every message about a value.
    pub fn expectation(&self) -> String {
        match self.kind {
            Kind::Text { min: 0, max } => format!("send text of at most {max} characters"),
            Kind::Text { min, max } if min == max => format!("send text of exactly {max} characters"),
            Kind::Text { min, max } => format!("send text of {min} to {max} characters"),
            Kind::Email => {
                format!("send one e-mail address of at most {MAX_EMAIL} characters, such as \"name@shop.example\"")
            }
            Kind::Integer => "send a JSON integer in the signed 64-bit range, such as 12".to_owned(),
            Kind::Boolean => "send true, false, 1 or 0".to_owned(),
            Kind::Date => "send a date that exists in the form YYYY-MM-DD, such as \"2026-11-20\"".to_owned(),
            Kind::Choice(allowed) => format!("send one of {}", allowed.join(", ")),
        }
    }

    fn check_text(&self, input: &Input<'_>, min: usize, max: usize) -> Result<Value, Fault> {
        let Input::Text(text) = input else {
            return Err(Fault::WrongType(format!(
                "The field \"{}\" must be a JSON string, but {} was sent; {}.",
                self.name,
                input.describe(),
                self.expectation()
            )));
        };
        if text.contains('\0') {
            return Err(Fault::WrongType(format!(
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
        Err(self.fault(code, format!("\"{}\" has {}; {}.", self.name, characters(length), self.expectation())))
    }

    fn check_email(&self, input: &Input<'_>) -> Result<Value, Fault> {
        match input {
            Input::Text(text) if text.chars().count() > MAX_EMAIL => Err(self.fault(
                FieldCode::TooLong,
                format!("\"{}\" has {}; {}.", self.name, characters(text.chars().count()), self.expectation()),
            )),
            Input::Text(text) if is_email(text) => Ok(Value::Text(text.to_string())),
            _ => Err(self.refused(FieldCode::InvalidEmail, input)),
        }
    }

    fn check_integer(&self, input: &Input<'_>) -> Result<Value, Fault> {
        match input {
            // `i64::from_str` also takes a leading `+`, which JSON has not, so no number comes here with one.
            Input::Number(number) => number.parse().ok().map(Value::Integer),
            _ => None,
        }
        .ok_or_else(|| self.refused(FieldCode::InvalidInt, input))
    }

    fn check_boolean(&self, input: &Input<'_>) -> Result<Value, Fault> {
        match input {
            Input::Boolean(value) => Ok(Value::Boolean(*value)),
            Input::Number("1") => Ok(Value::Boolean(true)),
            Input::Number("0") => Ok(Value::Boolean(false)),
            _ => Err(self.refused(FieldCode::InvalidBool, input)),
        }
    }
}

fn characters(count: usize) -> String {
    format!("{count} {}", if count == 1 { "character" } else { "characters" })
}

/// Whether `text` is a calendar date that exists, `YYYY-MM-DD`. The shape comes first: jiff reads other forms too.
pub fn is_date(text: &str) -> bool {
    let shape = text.len() == 10
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() });
    shape && text.parse::<jiff::civil::Date>().is_ok()
}

/// Whether `text` is one address as contract section 2 takes it.
pub fn is_email(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(local, domain)| is_local_part(local) && is_domain(domain))
}

/// The most octets of what stands before the `@`.
const MAX_LOCAL_PART: usize = 64;

/// Whether it is a dot-atom (RFC 5322 section 3.2.3), with characters beyond ASCII (RFC 6531 section 3.3).
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

/// Whether IDNA takes the domain (UTS 46, non-transitional, STD3 rules), it has at least two labels, and is sent in the form
/// that it has for IDNA, apart from letter case and Unicode normalization.
///
/// The last rule refuses characters that UTS 46 replaces by others, such as `²`, which becomes `2`.
fn is_domain(domain: &str) -> bool {
    let (uts46, sent) = (Uts46::new(), domain.as_bytes());
    let (unicode, valid) = uts46.to_unicode(sent, AsciiDenyList::STD3, Hyphens::CheckFirstLast);
    let ascii = uts46.to_ascii(sent, AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify);
    let (Ok(()), Ok(ascii)) = (valid, ascii) else { return false };
    let (unicode, sent) = (normalize(&unicode), normalize(domain));
    let mut labels = sent.split('.').zip(unicode.split('.')).zip(ascii.split('.'));
    ascii.contains('.')
        && unicode.chars().all(is_domain_character)
        && labels.all(|((sent, unicode), ascii)| sent == unicode || sent == ascii)
}

/// In small letters and normalization form C. Letters are taken one by one, as UTS 46 does: `Σ` becomes `σ` at a word's end
/// too.
fn normalize(domain: &str) -> String {
    domain.chars().flat_map(char::to_lowercase).nfc().collect()
}

/// UTS 46 takes symbols and emoji too, IDNA 2008 does not.
fn is_domain_character(c: char) -> bool {
    /// The signs that RFC 5892 permits within words (section 2.6, appendix A). `idna` checks where joiners stand.
    const SIGNS: &str = "\u{b7}\u{375}\u{5f3}\u{5f4}\u{6fd}\u{6fe}\u{f0b}\u{200c}\u{200d}\u{30fb}";
    matches!(c, '.' | '-') || c.is_alphanumeric() || is_combining_mark(c) || SIGNS.contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_parts() {
        let longest = "a".repeat(64);
        for good in ["a", "a.b+c", "müller", "उदाहरण", "x_y-z", "!#$%&'*+-/=?^_`{|}~", longest.as_str()] {
            assert!(is_email(&format!("{good}@shop.example")), "{good}");
        }
        let long = "a".repeat(65);
        let long_in_octets = "ü".repeat(33);
        for bad in [
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
            assert!(!is_email(&format!("{bad}@shop.example")), "{bad:?}");
        }
        for bad in ["", "@", "a", "a@", "shop.example"] {
            assert!(!is_email(bad), "{bad:?}");
        }
    }

    /// A domain of `octets` octets, whose last label has those that remain after labels of 49.
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
        for good in [
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
            assert!(is_domain(good), "{good}");
        }
        for bad in [
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
            assert!(!is_domain(bad), "{bad:?}");
        }
    }

    #[test]
    fn labels_and_domains_have_a_longest() {
        assert!(
            is_domain(&format!("{}.example", "a".repeat(63))) && !is_domain(&format!("{}.example", "a".repeat(64)))
        );
        assert!(domain_of(253).len() == 253 && is_domain(&domain_of(253)));
        assert!(domain_of(254).len() == 254 && !is_domain(&domain_of(254)));
    }

    #[test]
    fn dates() {
        assert!(is_date("2024-02-29") && is_date("0001-01-01") && is_date("9999-12-31"));
        for bad in
            ["2023-02-29", "2024-13-01", "2024-1-01", "20240101", "2024-01-01T00:00:00Z", "+024-01-01", "2024-W01-1"]
        {
            assert!(!is_date(bad), "{bad}");
        }
    }
}
