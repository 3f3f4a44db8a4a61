//! One JSON object: the body of POST and PUT (contract section 3), or a line of a JSON Lines file.
//!
//! serde_json keeps the text of numbers (feature `arbitrary_precision`), rejects lone surrogates,
//! takes the last of several members of one name, and limits the nesting to 127 levels.

use serde_json::Map;
pub use serde_json::Value as Json;

/// The members of a JSON object, in the order in which they were sent.
pub type JsonObject = Map<String, Json>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at line {line}, column {column}: {what}")]
pub struct JsonError {
    /// From 1.
    pub line: usize,
    /// In bytes, from 1.
    pub column: usize,
    /// Without a full stop.
    pub what: String,
}

/// Parses `body`, which must be one object in UTF-8, possibly after a byte order mark.
pub fn parse_object(body: &[u8]) -> Result<JsonObject, JsonError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let text = str::from_utf8(body).map_err(|error| {
        let (line, column) = position(body.get(..error.valid_up_to()).unwrap_or_default());
        let what = "the body is not UTF-8; encode it as UTF-8".to_owned();
        JsonError { line, column, what }
    })?;
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let what = match message.split(" at line ").next().unwrap_or_default() {
            _ if error.is_data() => "the body must be one JSON object",
            what => reworded(what),
        };
        JsonError { line: error.line(), column: error.column().max(1), what: what.to_owned() }
    })
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
        "recursion limit exceeded" => "more than 127 levels of nesting",
        "invalid escape" => "there is no such escape in a text; write a backslash as two",
        _ if what.starts_with("control character") => {
            "a control character in a text, such as a line break; write it as an escape, such as \
             \\n"
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> String {
        parse_object(body).unwrap_err().to_string()
    }

    /// The feature `arbitrary_precision` is in force, also where the same member came before.
    #[test]
    fn numbers_keep_their_text() {
        let body = br#"{"a": 1e400, "b": -0, "c": 99999999999999999999, "a": 12.0}"#;
        let object = parse_object(body).unwrap();
        let texts = ["a", "b", "c"].map(|name| object[name].to_string());
        assert_eq!(texts, ["12.0", "-0", "99999999999999999999"]);
    }

    #[test]
    fn errors_are_found_at_any_depth_with_their_position() {
        assert!(message(b"{\"a\": [1, {\"b\":\n \"\\ud800\"}]}").contains("line 2"));
        assert!(message(br#"{"a": {"\udc00": 1}}"#).contains("line 1"));
        assert!(message(b"{\"a\": 1,}").contains("line 1, column 9"));
        assert!(message(b"{\n\"a\": tru}").contains("line 2"));
        assert!(
            message(b"{\"a\":\n \"\xff\"}").contains("line 2, column 3: the body is not UTF-8")
        );
        let bodies: [&[u8]; 8] =
            [b"", b"null", b"[]", b"\"a\"", b"{} {}", b"{\"a\": 01}", b"{'a': 1}", b"\xef\xbb\xbf"];
        for body in bodies {
            assert!(parse_object(body).is_err(), "{body:?}");
        }
        assert!(parse_object(b"\xef\xbb\xbf{}").is_ok());
        assert!(parse_object(br#"{"a": "\ud83d\ude00"}"#).is_ok());
    }

    #[test]
    fn the_nesting_is_limited() {
        let nested = |levels: usize| {
            format!("{{\"a\": {}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1))
        };
        assert!(parse_object(nested(100).as_bytes()).is_ok());
        assert!(message(nested(129).as_bytes()).contains("nesting"));
        assert!(parse_object(nested(30_000).as_bytes()).is_err());
    }
}
