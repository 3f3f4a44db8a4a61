//! The query string, decoded as forms are (contract section 3).

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::http::ApiError;
use crate::suggest;

/// The parameters of a query in the order sent, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    parameters: Vec<Parameter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    name: String,
    value: String,
    /// As it was sent, so that the next page's address can repeat it.
    raw: String,
}

impl Query {
    /// Decodes `raw`: `+` is a space, and bytes that are no UTF-8 are 400, as is a parameter that is given twice.
    pub fn parse(raw: Option<&str>) -> Result<Query, ApiError> {
        let mut query = Query::default();
        for piece in raw.unwrap_or_default().split('&').filter(|piece| !piece.is_empty()) {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            let (name, value) = (decode(name, None)?, value);
            let value = decode(value, Some(&name))?;
            if query.get(&name).is_some() {
                return Err(ApiError::bad_request(format!(
                    "The query parameter {name:?} is given twice. Send it once."
                )));
            }
            query.parameters.push(Parameter { name, value, raw: piece.to_owned() });
        }
        Ok(query)
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|parameter| parameter.name == name).map(|parameter| parameter.value.as_str())
    }

    /// Names and values in the order sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.iter().map(|parameter| (parameter.name.as_str(), parameter.value.as_str()))
    }

    /// Refuses every parameter that is not in `known`; the message has the one that was meant, where one is close.
    pub fn only<'a>(&self, known: impl Iterator<Item = &'a str> + Clone) -> Result<(), ApiError> {
        match self.parameters.iter().find(|parameter| !known.clone().any(|name| name == parameter.name)) {
            Some(parameter) => Err(ApiError::bad_request(suggest::unknown("query parameter", &parameter.name, known))),
            None => Ok(()),
        }
    }

    /// This query with another cursor, ready to stand in an address.
    pub fn with_cursor(&self, cursor: &str) -> String {
        /// What must not stand in the address of a `Link` header.
        const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`');
        let kept = self.parameters.iter().filter(|parameter| parameter.name != "cursor");
        let mut pieces: Vec<String> = kept.map(|p| utf8_percent_encode(&p.raw, UNSAFE).to_string()).collect();
        pieces.push(format!("cursor={cursor}"));
        pieces.join("&")
    }
}

fn decode(text: &str, parameter: Option<&str>) -> Result<String, ApiError> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().map(|decoded| decoded.into_owned()).map_err(|_| {
        let place = parameter.map_or("A name in the query".to_owned(), |name| format!("The query parameter {name:?}"));
        ApiError::bad_request(format!("{place} is not UTF-8 after percent-decoding. Encode it as UTF-8."))
    })
}
