//! Query strings (contract section 3).

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::http::ApiError;
use crate::http::request::{decode_form, form_pairs};
use crate::model::RecordId;
use crate::model::validation::{is_positive_integer, shorten};
use crate::words;

/// The parameters of a query in the order sent. Each occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    parameters: Vec<Parameter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    name: String,
    value: String,
    /// The encoded pair from the request, for the link to the next page.
    raw: String,
}

impl Query {
    /// Parses a query string.
    ///
    /// # Errors
    ///
    /// `bad_request` if a name or value is not UTF-8, or if a parameter occurs twice.
    pub fn parse(raw: Option<&str>) -> Result<Query, ApiError> {
        let mut query = Query::default();
        for (raw, name, value) in form_pairs(raw.unwrap_or_default()) {
            let name = decode(name, None)?;
            let value = decode(value, Some(&name))?;
            if query.get(&name).is_some() {
                return Err(ApiError::bad_request(format!(
                    "The query parameter {name:?} is given twice. Send it once."
                )));
            }
            query.parameters.push(Parameter { name, value, raw: raw.to_owned() });
        }
        Ok(query)
    }

    /// The names of the parameters in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.parameters.iter().map(|parameter| parameter.name.as_str())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        parameters.find(|parameter| parameter.name == name).map(|found| found.value.as_str())
    }

    /// The parameter `id`: decimal digits without sign or leading zero.
    ///
    /// # Errors
    ///
    /// `bad_request` for any other text.
    pub fn id(&self) -> Result<Option<RecordId>, ApiError> {
        let Some(text) = self.get("id") else { return Ok(None) };
        if is_positive_integer(text) {
            // No record has an id beyond 64 bits, and none has the last one.
            return Ok(Some(RecordId(text.parse().unwrap_or(i64::MAX))));
        }
        let expectation = "send a positive integer without sign or leading zero, such as 12";
        Err(invalid_parameter("id", text, expectation))
    }

    /// Checks that every parameter is in `known`.
    ///
    /// # Errors
    ///
    /// `bad_request` for an unknown parameter; the message suggests a similar known one.
    pub fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.names().find(|name| !known.contains(name)) {
            Some(name) => {
                let message = words::unknown("query parameter", name, known.iter().copied());
                Err(ApiError::bad_request(message))
            }
            None => Ok(()),
        }
    }

    /// The value of `Link` (RFC 8288) for the page from `cursor` on. `path` is the request's path.
    pub fn link_to_next(&self, path: &str, cursor: &str) -> String {
        format!("<{path}?{}>; rel=\"next\"", self.with_cursor(cursor))
    }

    /// This query with another cursor, encoded for the header `Link`.
    pub fn with_cursor(&self, cursor: &str) -> String {
        /// Characters that a URI in the header `Link` must not contain (RFC 8288 section 3).
        const UNSAFE: &AsciiSet =
            &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`');
        let kept = self.parameters.iter().filter(|parameter| parameter.name != "cursor");
        let mut pieces: Vec<String> =
            kept.map(|p| utf8_percent_encode(&p.raw, UNSAFE).to_string()).collect();
        pieces.push(format!("cursor={cursor}"));
        pieces.join("&")
    }
}

/// `bad_request` for the value of a query parameter. `expectation` says what to send.
pub fn invalid_parameter(name: &str, sent: &str, expectation: &str) -> ApiError {
    ApiError::bad_request(format!(
        "The query parameter \"{name}\" was {:?}; {expectation}.",
        shorten(sent)
    ))
}

fn decode(text: &str, parameter: Option<&str>) -> Result<String, ApiError> {
    decode_form(text).map_err(|_| {
        let subject = match parameter {
            Some(name) => format!("The query parameter {name:?}"),
            None => "A name in the query".to_owned(),
        };
        let message = format!("{subject} is not UTF-8 after percent-decoding. Encode it as UTF-8.");
        ApiError::bad_request(message)
    })
}
