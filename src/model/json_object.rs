//! One JSON object: the body of POST and PUT (contract section 3), or a line of a JSON Lines file.
//!
//! serde_json rejects lone surrogates, takes the last of several members of one name, and limits
//! the nesting to 127 levels.

use std::fmt;

use serde_json::Map;
pub use serde_json::Value as Json;
use serde_json::error::Category;

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

/// Parses `body`, which must be one object in UTF-8, possibly after a byte order mark.
pub fn parse_object(body: &[u8]) -> Result<JsonObject, JsonError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    serde_json::from_slice(body).map_err(JsonError)
}
