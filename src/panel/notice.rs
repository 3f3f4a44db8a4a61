//! Notices: what a page tells the user about a request. An error is a notice, too.

use std::borrow::Cow;
use std::error::Error;

use super::METHODS;
use crate::http::Response;
use crate::store::registry::{MAX_KEYS, RegistryError};

/// A message at the top of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// The status of the response. From 400 on, the notice is an error.
    pub(super) status: u16,
    /// The fault or the success, and the next step. Without text, the page shows no notice.
    pub(super) text: Cow<'static, str>,
    /// The invalid fields of the form and their errors, in the order of the form.
    pub(super) fields: Vec<(&'static str, String)>,
}

pub(super) const NO_NOTICE: Notice = Notice::success("");
/// The response does not say which of both is wrong.
pub(super) const WRONG_CREDENTIALS: Notice =
    Notice::new(401, "The tenant or the password is wrong.");
pub(super) const SIGN_IN_TOKEN: Notice =
    Notice::new(403, "This form was too old, or your browser blocks cookies. Please try again.");
pub(super) const SESSION_ENDED: Notice =
    Notice::new(403, "Your session is over. Nothing was changed. Please sign in again.");
pub(super) const FORM_TOKEN: Notice =
    Notice::new(403, "This form was too old or did not come from this page. Nothing was changed.");
pub(super) const NOT_A_VISIT: Notice = Notice::new(
    403,
    "A script or a frame asked for this page. Nothing was changed. Open the page itself.",
);
pub(super) const METHOD_NOT_ALLOWED: Notice =
    Notice::new(405, "This page supports only GET, HEAD and POST.");
pub(super) const TOO_LARGE: Notice =
    Notice::new(413, "The form is too large. Nothing was changed.");
pub(super) const TOO_MANY_ATTEMPTS: Notice =
    Notice::new(429, "Too many wrong passwords. Please wait a minute, then try again.");
pub(super) const OVERLOADED: Notice = Notice::new(
    503,
    "Too many requests are waiting at the moment. Nothing was changed. Please try again in a few seconds.",
);

impl Notice {
    const fn new(status: u16, text: &'static str) -> Notice {
        Notice { status, text: Cow::Borrowed(text), fields: Vec::new() }
    }

    pub(super) const fn success(text: &'static str) -> Notice {
        Notice::new(200, text)
    }

    /// The error of a form that cannot be accepted.
    pub(super) fn invalid(text: impl Into<Cow<'static, str>>) -> Notice {
        Notice { text: text.into(), ..Notice::new(422, "") }
    }

    /// An internal error. The log has the cause.
    pub(super) fn internal(error: &dyn Error) -> Notice {
        tracing::error!(%error, "a request to the panel failed");
        let text = "Something went wrong on our side. Please try again, or ask the operator.";
        Notice::new(500, text)
    }

    pub(super) const fn is_error(&self) -> bool {
        self.status >= 400
    }

    /// The error of a field, or an empty text.
    pub(super) fn error_of(&self, field: &str) -> &str {
        self.fields.iter().find(|(name, _)| *name == field).map_or("", |(_, error)| error)
    }

    /// Whether the field is the first invalid field of the form. The browser puts the cursor there.
    pub(super) fn begins_with(&self, field: &str) -> bool {
        self.fields.first().is_some_and(|(name, _)| *name == field)
    }

    /// Adds the headers that belong to the status.
    pub(super) fn add_headers(&self, response: Response) -> Response {
        match self.status {
            405 => response.header("Allow", METHODS),
            429 => response.header("Retry-After", "60"),
            503 => response.header("Retry-After", "1"),
            _ => response,
        }
    }
}

/// The error of a request that the registry rejects.
impl From<RegistryError> for Notice {
    fn from(error: RegistryError) -> Notice {
        match error {
            RegistryError::NoKey(_) => {
                Notice::new(404, "There is no such key. Nothing was changed.")
            }
            RegistryError::KeyEnded { state, .. } => Notice::invalid(format!(
                "This key is {state} and cannot be changed or replaced. Nothing was changed."
            )),
            RegistryError::TooManyKeys => Notice::invalid(format!(
                "This tenant has {MAX_KEYS} keys, the most it can have, revoked and expired ones \
                 included. No key was created. Delete one first."
            )),
            error => Notice::internal(&error),
        }
    }
}
