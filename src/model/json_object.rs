//! One JSON object: the body of POST and PUT (contract section 3), or a line of a JSON Lines file.
//!
//! serde_json keeps the text of numbers (feature `arbitrary_precision`), rejects lone surrogates,
//! takes the last of several members of one name, and limits the nesting to 127 levels.

use serde_json::Map;
pub use serde_json::Value as Json;
use serde_json::error::Category;

/// The members of a JSON object, in the order in which they were sent.
pub type JsonObject = Map<String, Json>;

/// The fault in a text that is not a JSON object, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at line {line} column {column}")]
pub struct JsonError {
    pub fault: String,
    pub line: usize,
    pub column: usize,
}

/// Parses `body`, which must be one object in UTF-8, possibly after a byte order mark.
pub fn parse_object(body: &[u8]) -> Result<JsonObject, JsonError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let place = format!(" at line {line} column {column}");
        let fault = match error.classify() {
            // serde_json's own message repeats the value.
            Category::Data => "another value".to_owned(),
            Category::Eof => "the text ends before the object is complete".to_owned(),
            Category::Syntax | Category::Io => error.to_string().replace(&place, ""),
        };
        JsonError { fault, line, column }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> String {
        parse_object(body).unwrap_err().to_string()
    }

    /// The feature `arbitrary_precision` is in force, even for a member that is given twice.
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
        assert!(message(b"{\"a\": 1,}").contains("line 1 column 9"));
        assert!(message(b"{\n\"a\": tru}").contains("line 2"));
        assert!(message(b"{\"a\":\n \"\xff\"}").contains("line 2"));
        let bodies: [&[u8]; 8] =
            [b"", b"null", b"[]", b"\"a\"", b"{} {}", b"{\"a\": 01}", b"{'a': 1}", b"\xef\xbb\xbf"];
        for body in bodies {
            assert!(parse_object(body).is_err(), "{body:?}");
        }
        assert!(parse_object(b"\xef\xbb\xbf{}").is_ok());
        assert!(parse_object(br#"{"a": "\ud83d\ude00"}"#).is_ok());
    }

    /// The feature `raw_value` is not in force: with it, the text would be parsed, with a limit of
    /// the nesting of its own.
    #[test]
    fn text_is_never_parsed() {
        let object = parse_object(br#"{"a": {"$serde_json::private::RawValue": "[1"}}"#).unwrap();
        assert!(object["a"].is_object());
    }

    #[test]
    fn the_nesting_is_limited() {
        let nested = |levels: usize| {
            format!("{{\"a\": {}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1))
        };
        assert!(parse_object(nested(100).as_bytes()).is_ok());
        assert!(message(nested(129).as_bytes()).contains("recursion"));
        assert!(parse_object(nested(30_000).as_bytes()).is_err());
    }
}
