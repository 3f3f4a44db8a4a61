//! Errors of the panel and their HTTP responses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;

use super::METHODS;
use crate::http::Response;
use crate::store::registry::{MAX_KEYS, RegistryError};

/// What is wrong with the fields of a form, by their names.
pub(super) type FieldErrors = BTreeMap<&'static str, String>;

/// Why a request failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PanelError {
    pub(super) status: u16,
    /// For the user: what went wrong and what to do.
    pub(super) message: Cow<'static, str>,
    pub(super) fields: FieldErrors,
}

/// The response does not say which of both is wrong.
pub(super) const WRONG_CREDENTIALS: PanelError =
    PanelError::new(401, "The tenant or the password is wrong.");
pub(super) const SIGN_IN_TOKEN: PanelError = PanelError::new(
    403,
    "This form was too old, or your browser blocks cookies. Please try again.",
);
pub(super) const SESSION_ENDED: PanelError =
    PanelError::new(403, "Your session is over. Nothing was changed. Please sign in again.");
pub(super) const FORM_TOKEN: PanelError = PanelError::new(
    403,
    "This form was too old or did not come from this page. Nothing was changed.",
);
pub(super) const METHOD_NOT_ALLOWED: PanelError =
    PanelError::new(405, "This page supports only GET, HEAD and POST.");
pub(super) const TOO_LARGE: PanelError =
    PanelError::new(413, "The form is too large. Nothing was changed.");
pub(super) const TOO_MANY_ATTEMPTS: PanelError =
    PanelError::new(429, "Too many wrong passwords. Please wait a minute, then try again.");
pub(super) const OVERLOADED: PanelError = PanelError::new(
    503,
    "Too many people are signing in at the moment. Please try again in a few seconds.",
);

impl PanelError {
    const fn new(status: u16, message: &'static str) -> PanelError {
        PanelError { status, message: Cow::Borrowed(message), fields: FieldErrors::new() }
    }

    /// A form that cannot be accepted.
    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> PanelError {
        PanelError { status: 422, message: message.into(), fields: FieldErrors::new() }
    }

    /// A change of a key that the registry refused.
    pub(super) fn refused(error: RegistryError) -> PanelError {
        match error {
            RegistryError::NoKey(_) => {
                PanelError::invalid("There is no such key any more. Nothing was changed.")
            }
            RegistryError::KeyEnded { state, .. } => PanelError::invalid(format!(
                "This key is {state} and cannot be changed or replaced. Nothing was changed."
            )),
            RegistryError::TooManyKeys => PanelError::invalid(format!(
                "This tenant has {MAX_KEYS} keys, the most it can have, revoked and expired ones \
                 included. No key was created. Delete one first."
            )),
            error => error.into(),
        }
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

/// An internal error. The log has the cause.
impl<E: Error> From<E> for PanelError {
    fn from(error: E) -> PanelError {
        tracing::error!(%error, "a request to the panel failed");
        PanelError::new(
            500,
            "Something went wrong on our side. Please try again, or ask the operator.",
        )
    }
}
