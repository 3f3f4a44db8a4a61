//! Forms and query strings, decoded as browsers encode them.

use percent_encoding::percent_decode_str;

use super::error::Refusal;
use crate::http::{Body, Request};

/// The most of a form, in bytes (issue 3: bodies over 16 KiB are refused).
pub(super) const MAX_FORM: usize = 16 * 1024;

/// Names and values in the order sent.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The body of a POST. One that is no form is an empty one: without a token it changes nothing.
    pub(super) fn read(request: &Request) -> Result<Form, Refusal> {
        let body = match &request.body {
            Body::Whole(body) if body.len() <= MAX_FORM => body,
            Body::Whole(_) | Body::TooLarge => return Err(Refusal::TooLarge),
        };
        let media_type = request.header("content-type").and_then(|value| value.split(';').next()).unwrap_or_default();
        if !media_type.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Ok(Form::default());
        }
        Ok(std::str::from_utf8(body).map(Form::parse).unwrap_or_default())
    }

    /// A query, whose unknown parameters are ignored.
    pub(super) fn query(request: &Request) -> Form {
        Form::parse(request.query.as_deref().unwrap_or_default())
    }

    /// A field that is not UTF-8 is left out.
    fn parse(text: &str) -> Form {
        let fields = text.split('&').filter(|piece| !piece.is_empty()).filter_map(|piece| {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            Some((decode(name)?, decode(value)?))
        });
        Form(fields.collect())
    }

    /// The first value of a field; empty where there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Every value of a field.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The id in a field: digits alone.
    pub(super) fn id(&self, name: &str) -> Option<i64> {
        let text = self.get(name);
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    }
}

fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(|decoded| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_as_browsers_encode_them() {
        let form = Form::parse("name=a+b%26c&scope=x&scope=y&bad=%ff&empty=&bare&id=7&minus=-7");
        assert_eq!(form.get("name"), "a b&c");
        assert_eq!(form.all("scope").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!((form.get("bad"), form.get("empty"), form.get("bare"), form.get("none")), ("", "", "", ""));
        assert_eq!((form.id("id"), form.id("minus"), form.id("none")), (Some(7), None, None));
    }
}
