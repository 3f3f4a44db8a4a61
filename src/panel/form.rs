//! Forms and query strings of the panel.

use super::error::{PanelError, TOO_LARGE};
use crate::http::form_encoding::{decode, pairs};
use crate::http::{Body, Request};
use crate::model::KeyId;
use crate::model::validation::is_positive_integer;

/// Maximum size of a form in bytes (contract section 9).
pub(super) const MAX_BODY: usize = 16 * 1024;

/// Names and values in the order sent.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The form in the body of a POST. A body that is not a form becomes an empty form, which has
    /// no token and changes nothing.
    ///
    /// # Errors
    ///
    /// [`TOO_LARGE`] if the body exceeds [`MAX_BODY`].
    pub(super) fn from_body(request: &Request) -> Result<Form, PanelError> {
        let body = match &request.body {
            Body::Whole(body) if body.len() <= MAX_BODY => body,
            Body::Whole(_) | Body::TooLarge => return Err(TOO_LARGE),
        };
        let media_type = request
            .header("content-type")
            .and_then(|value| value.split(';').next())
            .unwrap_or_default();
        if !media_type.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Ok(Form::default());
        }
        Ok(std::str::from_utf8(body).map(Form::parse).unwrap_or_default())
    }

    /// The query string as a form.
    pub(super) fn from_query(request: &Request) -> Form {
        Form::parse(request.query.as_deref().unwrap_or_default())
    }

    /// Skips fields that are not UTF-8.
    fn parse(text: &str) -> Form {
        Form(
            pairs(text)
                .filter_map(|(_, name, value)| Some((decode(name).ok()?, decode(value).ok()?)))
                .collect(),
        )
    }

    /// The first value of a field, or an empty string.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Every value of a field.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The id in a field. Returns `None` unless it consists of digits only.
    pub(super) fn id(&self, name: &str) -> Option<KeyId> {
        let text = self.get(name);
        if is_positive_integer(text) { text.parse().map(KeyId).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_as_browsers_encode_them() {
        let form = Form::parse("name=a+b%26c&scope=x&scope=y&bad=%ff&empty=&bare&id=7&minus=-7");
        assert_eq!(form.get("name"), "a b&c");
        assert_eq!(form.all("scope").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(
            (form.get("bad"), form.get("empty"), form.get("bare"), form.get("none")),
            ("", "", "", "")
        );
        assert_eq!(
            (form.id("id"), form.id("minus"), form.id("none")),
            (Some(KeyId(7)), None, None)
        );
    }
}
