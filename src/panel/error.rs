//! Why the panel does not do what was asked, and how HTTP says it.

use std::borrow::Cow;

use super::METHODS;
use crate::http::Response;
use crate::password::HashError;
use crate::secret::NoRandomness;
use crate::store::registry::Inactive;
use crate::store::registry::RegistryError;

/// One refusal. A status code of the panel's is written here or at its pages' successes, nowhere else.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Tenant and password do not belong together; which of them is wrong is not said.
    WrongSignIn,
    /// The sign-in form's token is missing, wrong or too old.
    SignInToken,
    /// The session that the form was made for is over.
    SessionOver,
    /// The form's token is not its session's.
    Token,
    /// An inactive tenant makes no keys.
    Inactive(Inactive),
    /// Something in the form cannot be accepted; the message is beside it or says all.
    Unfit(Cow<'static, str>),
    /// Not GET, HEAD or POST.
    Method,
    /// The body is over [`super::form::MAX_FORM`].
    TooLarge,
    /// Five wrong passwords within a minute.
    TooManyAttempts,
    /// Too many passwords wait to be checked.
    Busy,
    /// The service failed; the log has the cause.
    Failed,
}

impl Refusal {
    pub(super) const fn status(&self) -> u16 {
        match self {
            Refusal::WrongSignIn => 401,
            Refusal::SignInToken | Refusal::SessionOver | Refusal::Token | Refusal::Inactive(_) => 403,
            Refusal::Method => 405,
            Refusal::TooLarge => 413,
            Refusal::Unfit(_) => 422,
            Refusal::TooManyAttempts => 429,
            Refusal::Failed => 500,
            Refusal::Busy => 503,
        }
    }

    /// What went wrong and what to do, in one or two sentences.
    pub(super) fn message(&self) -> &str {
        match self {
            Refusal::WrongSignIn => "The tenant or the password is wrong.",
            Refusal::SignInToken => "This form was too old, or your browser blocks cookies. Please try again.",
            Refusal::SessionOver => "Your session is over. Nothing was changed. Please sign in again.",
            Refusal::Token => "This form was too old or did not come from this page. Nothing was changed.",
            Refusal::Inactive(Inactive::Suspended) => "This tenant is suspended, so no key was made.",
            Refusal::Inactive(Inactive::TrialOver) => "This tenant’s trial is over, so no key was made.",
            Refusal::Unfit(message) => message,
            Refusal::Method => "This page can be read and its forms sent, nothing else.",
            Refusal::TooLarge => "What was sent is too large for any form of this page. Nothing was changed.",
            Refusal::TooManyAttempts => "Too many wrong passwords. Please wait a minute, then try again.",
            Refusal::Busy => "Too many people sign in at this moment. Please try again in a few seconds.",
            Refusal::Failed => "Something went wrong on our side. Please try again, or ask the operator.",
        }
    }

    /// Adds what HTTP wants beside the status.
    pub(super) fn mark(&self, response: Response) -> Response {
        match self {
            Refusal::Method => response.header("Allow", METHODS),
            Refusal::TooManyAttempts => response.header("Retry-After", "60"),
            Refusal::Busy => response.header("Retry-After", "1"),
            _ => response,
        }
    }
}

impl From<RegistryError> for Refusal {
    fn from(error: RegistryError) -> Refusal {
        match error {
            RegistryError::NoKey(_) => {
                Refusal::Unfit(Cow::Borrowed("There is no such key any more. Nothing was changed."))
            }
            error => failed(&error),
        }
    }
}

impl From<NoRandomness> for Refusal {
    fn from(error: NoRandomness) -> Refusal {
        failed(&error)
    }
}

impl From<HashError> for Refusal {
    fn from(error: HashError) -> Refusal {
        failed(&error)
    }
}

impl From<askama::Error> for Refusal {
    fn from(error: askama::Error) -> Refusal {
        failed(&error)
    }
}

fn failed(error: &dyn std::error::Error) -> Refusal {
    tracing::error!(%error, "the panel failed");
    Refusal::Failed
}
