//! Errors of the panel and their HTTP responses.

use std::borrow::Cow;

use super::METHODS;
use crate::http::Response;
use crate::password::HashError;
use crate::secret::RandomnessError;
use crate::store::registry::Inactive;
use crate::store::registry::RegistryError;

/// Why a request failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PanelError {
    /// The tenant or the password is wrong. The response does not say which.
    WrongCredentials,
    /// The sign-in form's token is missing, wrong or too old.
    SignInToken,
    /// The session of the form has ended.
    SessionEnded,
    /// The form's token does not match the session.
    FormToken,
    /// The tenant is inactive, so it cannot create keys.
    Inactive(Inactive),
    /// A field of the form is not valid; with the message.
    Invalid(Cow<'static, str>),
    /// Not GET, HEAD or POST.
    MethodNotAllowed,
    /// The body exceeds [`super::form::MAX_BODY`].
    TooLarge,
    /// Five wrong passwords within a minute.
    TooManyAttempts,
    /// Too many password checks are queued.
    Overloaded,
    /// An internal error; the log has the cause.
    Internal,
}

impl PanelError {
    /// The HTTP status.
    pub(super) const fn status(&self) -> u16 {
        match self {
            PanelError::WrongCredentials => 401,
            PanelError::SignInToken
            | PanelError::SessionEnded
            | PanelError::FormToken
            | PanelError::Inactive(_) => 403,
            PanelError::MethodNotAllowed => 405,
            PanelError::TooLarge => 413,
            PanelError::Invalid(_) => 422,
            PanelError::TooManyAttempts => 429,
            PanelError::Internal => 500,
            PanelError::Overloaded => 503,
        }
    }

    /// The message for the user: what went wrong and what to do.
    pub(super) fn message(&self) -> &str {
        match self {
            PanelError::WrongCredentials => "The tenant or the password is wrong.",
            PanelError::SignInToken => {
                "This form was too old, or your browser blocks cookies. Please try again."
            }
            PanelError::SessionEnded => {
                "Your session is over. Nothing was changed. Please sign in again."
            }
            PanelError::FormToken => {
                "This form was too old or did not come from this page. Nothing was changed."
            }
            PanelError::Inactive(Inactive::Suspended) => {
                "This tenant is suspended, so no key was created."
            }
            PanelError::Inactive(Inactive::TrialOver) => {
                "This tenant’s trial is over, so no key was created."
            }
            PanelError::Invalid(message) => message,
            PanelError::MethodNotAllowed => "This page supports only GET, HEAD and POST.",
            PanelError::TooLarge => "The form is too large. Nothing was changed.",
            PanelError::TooManyAttempts => {
                "Too many wrong passwords. Please wait a minute, then try again."
            }
            PanelError::Overloaded => {
                "Too many people are signing in at the moment. Please try again in a few seconds."
            }
            PanelError::Internal => {
                "Something went wrong on our side. Please try again, or ask the operator."
            }
        }
    }

    /// Adds the headers that belong to the status.
    pub(super) fn add_headers(&self, response: Response) -> Response {
        match self {
            PanelError::MethodNotAllowed => response.header("Allow", METHODS),
            PanelError::TooManyAttempts => response.header("Retry-After", "60"),
            PanelError::Overloaded => response.header("Retry-After", "1"),
            _ => response,
        }
    }
}

impl From<RegistryError> for PanelError {
    fn from(error: RegistryError) -> PanelError {
        match error {
            RegistryError::NoKey(_) => PanelError::Invalid(Cow::Borrowed(
                "There is no such key any more. Nothing was changed.",
            )),
            RegistryError::NotReplaceable { state, .. } => PanelError::Invalid(
                format!("This key is {state} and cannot be replaced. Nothing was changed.").into(),
            ),
            error => failed(&error),
        }
    }
}

impl From<RandomnessError> for PanelError {
    fn from(error: RandomnessError) -> PanelError {
        failed(&error)
    }
}

impl From<HashError> for PanelError {
    fn from(error: HashError) -> PanelError {
        failed(&error)
    }
}

impl From<askama::Error> for PanelError {
    fn from(error: askama::Error) -> PanelError {
        failed(&error)
    }
}

fn failed(error: &dyn std::error::Error) -> PanelError {
    tracing::error!(%error, "a request to the panel failed");
    PanelError::Internal
}
