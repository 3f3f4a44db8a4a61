//! What a browser gets: a notice about its request, and the data that the templates render.

use std::borrow::Cow;
use std::error::Error;
use std::num::NonZeroU32;

use askama::Template;

use super::METHODS;
use super::form::{ENDS, Form, OVERLAPS};
use super::session::Session;
use crate::clock::{Moment, Timestamp};
use crate::http::Response;
use crate::http::response::HTML;
use crate::model::{Access, Scope, Scopes};
use crate::store::registry::{
    Event, EventKind, Inactive, KeyRow, KeyState, MAX_KEYS, RegistryError,
};
use crate::words;

pub(super) const STYLE: &str = include_str!("style.css");
pub(super) const SCRIPT: &str = include_str!("script.js");

/// A message at the top of a page. An error is a notice, too.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// The status of the response. From 400 on, the notice is an error.
    pub(super) status: u16,
    /// The fault or the success, and the next step. Without text, the page shows no notice.
    pub(super) text: Cow<'static, str>,
    /// The invalid fields of the form and their errors, in the order of the form.
    pub(super) fields: Vec<(&'static str, String)>,
}

pub(super) const NO_NOTICE: Notice = Notice::new(200, "");
/// The response does not say which of both is wrong.
pub(super) const WRONG_CREDENTIALS: Notice =
    Notice::new(401, "The tenant or the password is wrong.");
pub(super) const SESSION_ENDED: Notice =
    Notice::new(403, "Your session is over. Nothing was changed. Please sign in again.");
pub(super) const FOREIGN_FORM: Notice = Notice::new(
    403,
    "Your browser does not say that this form came from this page. Nothing was changed. \
     Open the page itself, and send the form from there.",
);
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

    pub(super) fn success(text: impl Into<Cow<'static, str>>) -> Notice {
        Notice { text: text.into(), ..NO_NOTICE }
    }

    /// The error of a form that cannot be accepted.
    pub(super) fn invalid(text: impl Into<Cow<'static, str>>) -> Notice {
        Notice { text: text.into(), ..Notice::new(422, "") }
    }

    /// The error of a change that only an active tenant may make.
    pub(super) fn inactive(reason: &str) -> Notice {
        Notice { status: 403, ..Notice::invalid(format!("{reason} Nothing was changed.")) }
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
    fn error_of(&self, field: &str) -> &str {
        self.fields.iter().find(|(name, _)| *name == field).map_or("", |(_, error)| error)
    }

    /// Whether the field is the first invalid field of the form. The browser puts the cursor there.
    fn begins_with(&self, field: &str) -> bool {
        self.fields.first().is_some_and(|(name, _)| *name == field)
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
            RegistryError::SessionEnded => SESSION_ENDED,
            RegistryError::Inactive(reason) => Notice::inactive(&inactivity(reason, None)),
            RegistryError::TooManyKeys => Notice::invalid(format!(
                "This tenant has {MAX_KEYS} keys, the most it can have, revoked and expired ones \
                 included. No key was created. Delete one first."
            )),
            error if error.is_of_disk() => Notice {
                status: 503,
                text: "The server's disk is full or refuses to write. Nothing was changed. \
                       Please ask the operator."
                    .into(),
                ..Notice::internal(&error)
            },
            error => Notice::internal(&error),
        }
    }
}

/// Why a tenant is inactive, for its admin.
pub(super) fn inactivity(reason: Inactive, trial_until: Option<&str>) -> String {
    match (reason, trial_until) {
        (Inactive::TrialOver, Some(last_day)) => {
            format!("The trial of this tenant ended on {last_day} (UTC).")
        }
        (Inactive::Moving, _) => {
            "This tenant is on its way to another machine. Try again in a minute.".to_owned()
        }
        _ => "The operator has suspended this tenant.".to_owned(),
    }
}

/// A page: the same frame and notice around any content.
#[derive(Template)]
#[template(path = "panel/layout.html")]
pub(super) struct Page<'a> {
    /// `None` before the sign-in.
    pub(super) session: Option<&'a Session>,
    pub(super) title: &'a str,
    pub(super) notice: Notice,
    pub(super) content: Content<'a>,
}

pub(super) enum Content<'a> {
    SignIn {
        /// The tenant's name as it was typed.
        tenant: &'a str,
    },
    Keys {
        /// The active keys first, then the newest.
        keys: Vec<KeyRow>,
        /// Why the tenant is inactive, if it is.
        inactive: Option<String>,
        /// The server's limit.
        rate_limit: NonZeroU32,
        now: Moment,
    },
    NewKey {
        key: &'a KeyRow,
        secret: &'a str,
        /// The key that the new one replaces.
        old: Option<&'a KeyRow>,
        now: Moment,
        /// The address of this server, such as `https://desk.example`.
        server: &'a str,
    },
    KeyForm {
        /// The key that is changed, or `None` for a new key.
        key: Option<&'a KeyRow>,
        form: &'a Form,
        /// `create` or `edit`.
        action: &'a str,
        /// The server's limit.
        rate_limit: NonZeroU32,
        now: Moment,
    },
    /// A form that confirms an action on a key.
    Confirmation {
        key: &'a KeyRow,
        /// `revoke`, `delete` or `replace`.
        action: &'a str,
        now: Moment,
    },
    Activity {
        changes: Vec<Event>,
        sign_ins: Vec<Event>,
    },
    Password,
    /// The notice alone.
    Failure,
}

impl Content<'_> {
    /// The title of the tab to which the page belongs.
    fn tab(&self) -> &'static str {
        match self {
            Content::SignIn { .. } | Content::Failure => "",
            Content::Activity { .. } => "Activity",
            Content::Password => "Password",
            Content::Keys { .. }
            | Content::NewKey { .. }
            | Content::KeyForm { .. }
            | Content::Confirmation { .. } => "API keys",
        }
    }
}

impl Page<'_> {
    /// The response with this page. Writing to a `String` does not fail.
    pub(super) fn respond(&self) -> Response {
        let body = self.render().unwrap_or_default();
        let response = Response::new(self.notice.status, HTML, body.into_bytes());
        match self.notice.status {
            405 => response.header("Allow", METHODS),
            429 => response.header("Retry-After", "60"),
            503 => response.header("Retry-After", "1"),
            _ => response,
        }
    }
}

/// The addresses and the titles of the pages behind the tabs.
const TABS: [(&str, &str); 3] =
    [("/api_keys.php", "API keys"), ("?activity", "Activity"), ("?password", "Password")];

fn scopes(key: &KeyRow) -> String {
    match key.scopes {
        scopes if scopes == Scopes::every() => "all scopes".to_owned(),
        scopes if scopes == Scopes::read_only() => "read only".to_owned(),
        scopes => scopes.names().join(", "),
    }
}

fn is_active(key: &KeyRow, now: &Moment) -> bool {
    key.state(*now) == KeyState::Active
}

fn is_near(key: &KeyRow, now: &Moment) -> bool {
    key.near_end(*now).is_some()
}

/// The time from now to then: `in 10 days`, `3 hours ago`.
fn relative(then: &Timestamp, now: &Moment) -> String {
    let seconds = then.unix() - now.unix_seconds();
    let distance = seconds.unsigned_abs();
    let (unit, length) = match distance {
        0..5_400 => ("minute", 60),
        5_400..84_600 => ("hour", 3_600),
        84_600..5_184_000 => ("day", 86_400),
        5_184_000..63_072_000 => ("month", 2_629_746),
        _ => ("year", 31_556_952),
    };
    let number = ((distance + length / 2) / length).max(1);
    let time = words::count(number, unit);
    if seconds > 0 { format!("in {time}") } else { format!("{time} ago") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_distance_is_told_in_the_unit_that_people_use() {
        let now = Clock::manual("2026-11-20T19:30:42Z".parse().unwrap()).now();
        for (then, expected) in [
            ("2026-11-20T19:30:00Z", "1 minute ago"),
            ("2026-11-20T20:15:42Z", "in 45 minutes"),
            ("2026-11-20T23:59:59Z", "in 4 hours"),
            ("2026-11-21T19:30:42Z", "in 1 day"),
            ("2026-11-30T23:59:59Z", "in 10 days"),
            ("2026-10-01T00:00:00Z", "51 days ago"),
            ("2027-11-20T19:30:42Z", "in 12 months"),
            ("2999-06-30T23:59:59Z", "in 973 years"),
        ] {
            assert_eq!(relative(&then.parse().unwrap(), &now), expected);
        }
    }
}
