//! Forms and query strings of the panel, and the choices in the forms (contract section 14).

use std::num::NonZeroU32;

use jiff::Span;

use super::page::{FOREIGN_FORM, METHOD_NOT_ALLOWED, NOT_A_VISIT, Notice, TOO_LARGE};
use crate::clock::{Moment, Timestamp};
use crate::http::request::{decode_form, form_pairs};
use crate::http::{Body, Method, Request};
use crate::model::KeyId;
use crate::model::validation::{is_date, is_positive_integer};

/// Maximum size of a form in bytes (contract section 9).
const MAX_BODY: usize = 16 * 1024;

/// Names and values in the order sent.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The form in the body of a POST, or the query of a GET.
    ///
    /// A browser says in `Sec-Fetch-Dest` whether a person opens the page (`document`), or a script
    /// or a frame asks for it. The script of `/docs` has the same origin. It must not read a page
    /// or make a key.
    ///
    /// # Errors
    ///
    /// [`NOT_A_VISIT`], [`METHOD_NOT_ALLOWED`], [`FOREIGN_FORM`] or [`TOO_LARGE`].
    pub(super) fn read(request: &Request) -> Result<Form, Notice> {
        if request.header("sec-fetch-dest").is_some_and(|purpose| purpose != "document") {
            return Err(NOT_A_VISIT);
        }
        match request.method {
            Method::GET | Method::HEAD => {
                Ok(Form::parse(request.query.as_deref().unwrap_or_default()))
            }
            Method::POST if !is_of_this_origin(request) => Err(FOREIGN_FORM),
            Method::POST => match &request.body {
                // A body that is no form has no action, and changes nothing.
                Body::Whole(body) if body.len() <= MAX_BODY => {
                    Ok(std::str::from_utf8(body).map(Form::parse).unwrap_or_default())
                }
                Body::Whole(_) | Body::TooLarge => Err(TOO_LARGE),
            },
            _ => Err(METHOD_NOT_ALLOWED),
        }
    }

    /// Skips fields that are not UTF-8.
    fn parse(text: &str) -> Form {
        let mut form = Form::default();
        for (_, name, value) in form_pairs(text) {
            if let (Ok(name), Ok(value)) = (decode_form(name), decode_form(value)) {
                form.0.push((name, value));
            }
        }
        form
    }

    /// The form with one more field.
    pub(super) fn with(mut self, name: &str, value: &str) -> Form {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The first value of a field, or an empty string.
    pub(super) fn get(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    /// Every value of a field.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn contains(&self, name: &str, value: &str) -> bool {
        self.all(name).any(|own| own == value)
    }

    /// The id in a field. Returns `None` unless it consists of digits only.
    pub(super) fn id(&self, name: &str) -> Option<KeyId> {
        let text = self.get(name);
        if is_positive_integer(text) { text.parse().map(KeyId).ok() } else { None }
    }
}

/// Whether a page of this server sent the form, or its user did without a page (`none`). Otherwise
/// a foreign page could send a form with the cookie of an admin who visits it.
///
/// Browsers send `Sec-Fetch-Site` over HTTPS and to this machine. To another machine over HTTP, they
/// name the page's address in `Origin`, unless the page has the policy `no-referrer`.
fn is_of_this_origin(request: &Request) -> bool {
    if let Some(site) = request.header("sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    let origin = request.header("origin").and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, host)| request.header("host") == Some(host))
}

/// When a key expires: values and labels.
pub(super) const ENDS: [(&str, &str); 5] = [
    ("30d", "In 30 days"),
    ("90d", "In 90 days"),
    ("1y", "In a year"),
    ("date", "On a date"),
    ("never", "Never"),
];

/// How long a replaced key is still accepted: values and labels.
pub(super) const OVERLAPS: [(&str, &str); 4] =
    [("0", "At once"), ("1h", "In an hour"), ("1d", "In a day"), ("7d", "In a week")];

/// The end of a key that is created at `now`; `None` for a key without an end. `date` is the other
/// field of the form.
///
/// # Errors
///
/// The invalid field, and for the user the fault and the remedy.
pub(super) fn key_end(
    choice: &str,
    date: &str,
    now: Moment,
) -> Result<Option<Timestamp>, (&'static str, &'static str)> {
    if choice != "date" && !date.is_empty() {
        return Err(("expires", "Select “On a date”, or leave the date empty."));
    }
    let end = match choice {
        "never" => return Ok(None),
        "date" if !is_date(date) => return Err(("date", "Enter a date.")),
        "date" => Timestamp::end_of_day(date),
        "30d" | "90d" | "1y" => choice.parse().ok().and_then(|span| now.after(span)),
        _ => return Err(("expires", "Select one of these.")),
    };
    match end {
        None => Err(("date", "This end is too far away.")),
        Some(end) if end <= now.timestamp() => Err(("date", "This date is in the past.")),
        Some(end) => Ok(Some(end)),
    }
}

/// The limit of a key, in requests a minute; `None` for the server's. The operator alone gives more
/// than `most`.
///
/// # Errors
///
/// The remedy, for the user.
pub(super) fn parse_limit(text: &str, most: NonZeroU32) -> Result<Option<NonZeroU32>, String> {
    match text.trim().parse() {
        _ if text.trim().is_empty() => Ok(None),
        Ok(limit) if limit <= most => Ok(Some(limit)),
        _ => Err(format!("Enter a number from 1 to {most}, or leave it empty.")),
    }
}

/// The overlap of a form, if it is one of [`OVERLAPS`].
pub(super) fn overlap(choice: &str) -> Option<Span> {
    match choice {
        "0" => Some(Span::new()),
        "1h" | "1d" | "7d" => choice.parse().ok(),
        _ => None,
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
