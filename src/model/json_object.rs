//! The parser of one JSON object: the body of POST and PUT (contract section 3), or a line of a
//! JSON Lines file.
//!
//! It builds on the raw values of serde_json. The parsed values of serde_json would round numbers
//! beyond 64 bits, reject `1e400`, and accept lone surrogates in text that no code reads.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::field::Input;

/// The maximum number of nested levels.
const MAX_DEPTH: usize = 128;

/// The members of a JSON object. If a name occurs more than once, its last value counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonObject<'a> {
    members: Vec<(Cow<'a, str>, Input<'a>)>,
}

/// A syntax error and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at line {line}, column {column}: {what}")]
pub struct JsonError {
    /// The line, from 1.
    pub line: usize,
    /// The column in bytes, from 1.
    pub column: usize,
    /// What is wrong, without a full stop.
    pub what: String,
}

impl<'a> JsonObject<'a> {
    /// Parses `body`, which must be one object, possibly after a byte order mark.
    ///
    /// # Errors
    ///
    /// [`JsonError`] if `body` is not UTF-8, is not one JSON object, or is nested too deeply.
    pub fn parse(body: &'a [u8]) -> Result<JsonObject<'a>, JsonError> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let text = str::from_utf8(body).map_err(|error| {
            let (line, column) = position(body.get(..error.valid_up_to()).unwrap_or_default());
            invalid(line, column, "the body is not UTF-8")
        })?;
        let source = Source { text };
        let whole: &RawValue =
            serde_json::from_str(text).map_err(|error| source.syntax(text, &error))?;
        if !whole.get().starts_with('{') {
            return Err(source.at(whole.get(), "the body must be one JSON object"));
        }
        let members = source.members(whole.get())?;
        let read =
            |(name, raw): (Cow<'a, str>, &'a RawValue)| Ok((name, source.input(raw.get(), 1)?));
        Ok(JsonObject {
            members: members.0.into_iter().map(read).collect::<Result<_, JsonError>>()?,
        })
    }

    /// Returns the names of all members in the order sent, with duplicates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(name, _)| name.as_ref())
    }

    /// Gives the member `name` another value, also if it is absent.
    pub fn replace(&mut self, name: &'static str, value: Input<'a>) {
        self.members.push((name.into(), value));
    }

    /// Returns the value of the member `name`, or `None` if it is absent. A null is present.
    pub fn get(&self, name: &str) -> Option<&Input<'a>> {
        self.members.iter().rev().find(|(member, _)| member == name).map(|(_, value)| value)
    }
}

/// Returns the texts of the elements of a JSON array. `array` is the text of an [`Input::Array`].
pub fn elements(array: &str) -> Vec<&str> {
    let elements: Vec<&RawValue> = serde_json::from_str(array).unwrap_or_default();
    elements.into_iter().map(RawValue::get).collect()
}

/// The members of an object in order, with values that are not parsed yet.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A string, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<Name<'de>, &RawValue>()? {
                    members.push((name.0, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// The whole text, from which the positions of errors are computed.
#[derive(Clone, Copy)]
struct Source<'a> {
    text: &'a str,
}

impl<'a> Source<'a> {
    /// Parses a value. The contents of arrays and objects are only checked for syntax errors.
    fn input(self, raw: &'a str, depth: usize) -> Result<Input<'a>, JsonError> {
        match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<Name<'a>>(raw)
                .map(|text| Input::Text(text.0))
                .map_err(|error| self.syntax(raw, &error)),
            Some(b'{') => self.check_inside(raw, depth).map(|()| Input::Object(raw)),
            Some(b'[') => self.check_inside(raw, depth).map(|()| Input::Array(raw)),
            Some(b't') => Ok(Input::Boolean(true)),
            Some(b'f') => Ok(Input::Boolean(false)),
            Some(b'n') => Ok(Input::Null),
            _ => Ok(Input::Number(raw)),
        }
    }

    fn members(self, raw: &'a str) -> Result<Members<'a>, JsonError> {
        serde_json::from_str(raw).map_err(|error| self.syntax(raw, &error))
    }

    /// Checks the depth of an array or object, and every text in it. serde_json has checked its
    /// syntax. One pass: a body may have 1 MiB and many levels.
    fn check_inside(self, raw: &'a str, depth: usize) -> Result<(), JsonError> {
        let (mut rest, mut depth) = (raw, depth);
        while let Some(found) = rest.find(['"', '{', '[', '}', ']']).and_then(|at| rest.get(at..)) {
            let mut length = 1;
            if found.starts_with('"') {
                let text = leading_string(found);
                serde_json::from_str::<Name<'a>>(text)
                    .map_err(|error| self.syntax(text, &error))?;
                length = text.len();
            } else if found.starts_with(['{', '[']) {
                if depth >= MAX_DEPTH {
                    return Err(self.at(found, &format!("more than {MAX_DEPTH} levels of nesting")));
                }
                depth += 1;
            } else {
                depth = depth.saturating_sub(1);
            }
            rest = found.get(length..).unwrap_or_default();
        }
        Ok(())
    }

    /// Returns line and column of the start of `part`, which is a slice of the whole text.
    fn before(self, part: &str) -> (usize, usize) {
        let offset = part.as_ptr().addr().saturating_sub(self.text.as_ptr().addr());
        position(self.text.as_bytes().get(..offset).unwrap_or_default())
    }

    fn at(self, part: &str, what: &str) -> JsonError {
        let (line, column) = self.before(part);
        invalid(line, column, what)
    }

    /// Converts an error of serde_json, whose position is relative to `part`.
    fn syntax(self, part: &str, error: &serde_json::Error) -> JsonError {
        let (line, column) = self.before(part);
        let what = error.to_string();
        let what = reworded(what.split(" at line ").next().unwrap_or_default());
        match error.line() {
            0 | 1 => invalid(line, (column + error.column()).saturating_sub(1).max(1), what),
            lines => invalid(line + lines - 1, error.column(), what),
        }
    }
}

/// Returns the JSON string at the beginning of `text`, with its quotes.
fn leading_string(text: &str) -> &str {
    let mut is_escaped = false;
    let closing = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    closing.and_then(|closing| text.get(..closing + 2)).unwrap_or(text)
}

/// Returns a message of serde_json in the words of the API. Messages that are not listed are
/// returned unchanged.
fn reworded(what: &str) -> &str {
    match what {
        "EOF while parsing a value"
        | "EOF while parsing an object"
        | "EOF while parsing a list" => "the body ends too early",
        "EOF while parsing a string" => {
            "the body ends within a text; its closing double quote is missing"
        }
        "key must be a string" => {
            "a name in double quotes is missing (a comma before a closing brace is one too many)"
        }
        "expected ident" | "expected value" => {
            "there is no JSON value here (the words are true, false and null)"
        }
        "trailing characters" => "something follows the object",
        "trailing comma" => "this comma is one too many",
        "invalid number" => "this is not a number as JSON writes it",
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            "half of a surrogate pair in a text; send both halves, or the character itself"
        }
        "invalid escape" => "there is no such escape in a text; write a backslash as two",
        _ if what.starts_with("control character") => {
            "a control character in a text, such as a line break; write it as an escape, such as \\n"
        }
        other => other,
    }
}

/// Returns line and column, from 1, of the position after `text`. Columns count bytes.
fn position(text: &[u8]) -> (usize, usize) {
    let line = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = text.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    (line, column)
}

fn invalid(line: usize, column: usize, what: &str) -> JsonError {
    JsonError { line, column, what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> String {
        JsonObject::parse(body).unwrap_err().to_string()
    }

    #[test]
    fn numbers_keep_their_text() {
        let object =
            JsonObject::parse(br#"{"a": 1e400, "b": -0, "c": 99999999999999999999, "a": 12.0}"#)
                .unwrap();
        assert_eq!(object.get("a"), Some(&Input::Number("12.0")));
        assert_eq!(object.get("b"), Some(&Input::Number("-0")));
        assert_eq!(object.get("c"), Some(&Input::Number("99999999999999999999")));
        assert_eq!(object.get("d"), None);
    }

    #[test]
    fn errors_are_found_at_any_depth_with_their_position() {
        assert!(message(b"{\"a\": [1, {\"b\":\n \"\\ud800\"}]}").contains("line 2"));
        assert!(message(br#"{"a": {"\udc00": 1}}"#).contains("line 1"));
        let escapes = br#"{"a": [{}, "[\"{\\", {"b": "\udc00"}]}"#;
        assert!(message(escapes).starts_with("at line 1, column 34"), "{}", message(escapes));
        assert!(message(b"{\"a\": 1,}").contains("line 1, column 9"));
        assert!(message(b"{\n\"a\": tru}").contains("line 2"));
        assert!(message(b"{\"a\": \"\xff\"}").contains("not UTF-8"));
        for body in [
            &b""[..],
            b"null",
            b"[]",
            b"\"a\"",
            b"{} {}",
            b"{\"a\": 01}",
            b"{'a': 1}",
            b"\xef\xbb\xbf",
        ] {
            assert!(JsonObject::parse(body).is_err(), "{body:?}");
        }
        assert!(JsonObject::parse(b"\xef\xbb\xbf{}").is_ok());
        assert!(JsonObject::parse(br#"{"a": "\ud83d\ude00"}"#).is_ok());
    }

    #[test]
    fn nesting_is_limited_to_128_levels() {
        let nested = |levels: usize| {
            format!("{{\"a\": {}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1))
        };
        assert!(JsonObject::parse(nested(100).as_bytes()).is_ok());
        assert!(JsonObject::parse(nested(128).as_bytes()).is_ok());
        assert!(message(nested(129).as_bytes()).contains("nesting"));
        assert!(JsonObject::parse(nested(30_000).as_bytes()).is_err());
    }
}
