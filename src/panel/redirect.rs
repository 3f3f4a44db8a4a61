//! Redirects after a form, so that reloading the page does not repeat it.

use super::templates::Notice;
use crate::api::routes::PANEL_PATH;
use crate::http::Response;
use crate::model::KeyId;

/// What a form did. The page after the redirect reports it.
#[derive(Clone, Copy, Debug)]
pub(super) enum CompletedAction {
    Revoked,
    Deleted,
    SignedOut,
    PasswordChanged,
}

impl CompletedAction {
    const ALL: [CompletedAction; 4] = [
        CompletedAction::Revoked,
        CompletedAction::Deleted,
        CompletedAction::SignedOut,
        CompletedAction::PasswordChanged,
    ];

    /// The action with this name in a query.
    pub(super) fn parse(name: &str) -> Option<CompletedAction> {
        CompletedAction::ALL.into_iter().find(|action| action.name() == name)
    }

    const fn name(self) -> &'static str {
        match self {
            CompletedAction::Revoked => "revoked",
            CompletedAction::Deleted => "deleted",
            CompletedAction::SignedOut => "signed-out",
            CompletedAction::PasswordChanged => "password-changed",
        }
    }

    /// The message of the page after the redirect.
    pub(super) fn notice(self) -> Notice {
        Notice::success(match self {
            CompletedAction::Revoked => {
                "The key is revoked. Requests with it are refused from now on."
            }
            CompletedAction::Deleted => "The key is deleted.",
            CompletedAction::SignedOut => "You are signed out.",
            CompletedAction::PasswordChanged => {
                "The password is changed and every session has ended. Sign in with the new one."
            }
        })
    }

    /// A redirect to the page that reports the action.
    pub(super) fn redirect(self) -> Response {
        see_other(&format!("{PANEL_PATH}?done={}", self.name()))
    }
}

/// A redirect to the page that shows a new key once.
pub(super) fn to_new_key(id: KeyId) -> Response {
    see_other(&format!("{PANEL_PATH}?new={id}"))
}

/// A redirect to `location`, which the browser requests with GET (RFC 9110 section 15.4.4).
pub(super) fn see_other(location: &str) -> Response {
    Response::empty(303).header("Location", location.to_owned())
}
