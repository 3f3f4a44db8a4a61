//! One JSON object: the body of POST and PUT (contract section 3), or a line of a JSON Lines file.
//!
//! serde_json keeps the text of numbers (feature `arbitrary_precision`), rejects lone surrogates,
//! takes the last of several members of one name, and limits the nesting to 127 levels.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor,
};
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
    let mut text = serde_json::Deserializer::from_slice(body);
    let object = text.deserialize_map(AnyValue).and_then(|value| {
        text.end()?;
        match value {
            Json::Object(object) => Ok(object),
            _ => Err(serde_json::Error::custom("no object")),
        }
    });
    object.map_err(|error| {
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

/// Reads any value, as serde_json's own type does, with one difference: an object is never a
/// number.
///
/// With `arbitrary_precision`, the parser of serde_json hands over a number beyond 64 bits or with a
/// fraction as an object, `{"$serde_json::private::Number": "1.5"}`. Its own type then takes the
/// same object in a body for a number, even with `"12"`. [`MemberName`] tells them apart.
struct AnyValue;

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Json, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Json, E> {
        Ok(truth.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(number.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(AnyValue)? {
            array.push(element);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut object = JsonObject::new();
        while let Some(name) = members.next_key_seed(MemberName)? {
            let Some(name) = name else {
                let number: String = members.next_value()?;
                return number.parse().map(Json::Number).map_err(A::Error::custom);
            };
            object.insert(name, members.next_value_seed(AnyValue)?);
        }
        Ok(object.into())
    }
}

/// Reads the name of a member, and `None` in place of the name under which the parser hands over a
/// number. A name in the text can be asked for as an option. The other name is always a text.
struct MemberName;

impl<'de> DeserializeSeed<'de> for MemberName {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Option<String>, D::Error> {
        name.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for MemberName {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_some<D: Deserializer<'de>>(self, name: D) -> Result<Option<String>, D::Error> {
        String::deserialize(name).map(Some)
    }

    fn visit_str<E>(self, _: &str) -> Result<Option<String>, E> {
        Ok(None)
    }
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

    /// Neither is the feature `raw_value` in force: with it, the text would be parsed, with a limit
    /// of the nesting of its own.
    #[test]
    fn an_object_is_never_another_value() {
        for name in ["RawValue", "Number", "\\u004eumber"] {
            let body = format!(r#"{{"a": {{"$serde_json::private::{name}": "12"}}}}"#);
            assert!(parse_object(body.as_bytes()).unwrap()["a"].is_object(), "{name}");
        }
    }
}
