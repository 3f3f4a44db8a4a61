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

    /// The feature `arbitrary_precision` is in force, even for a member that is given twice.
    #[test]
    fn numbers_keep_their_text() {
        let body = br#"{"a": 1e400, "b": -0, "c": 99999999999999999999, "a": 12.0}"#;
        let object = parse_object(body).unwrap();
        let texts = ["a", "b", "c"].map(|name| object[name].to_string());
        assert_eq!(texts, ["12.0", "-0", "99999999999999999999"]);
    }

    /// The feature `raw_value` is not in force: with it, the text would be parsed, with a limit of
    /// the nesting of its own.
    #[test]
    fn text_is_never_parsed() {
        let object = parse_object(br#"{"a": {"$serde_json::private::RawValue": "[1"}}"#).unwrap();
        assert!(object["a"].is_object());
    }
}
