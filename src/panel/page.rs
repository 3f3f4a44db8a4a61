//! What a browser sends and gets: forms and query strings, a notice about the request, and the data
//! that the template renders.

use std::borrow::Cow;
use std::error::Error;
use std::num::NonZeroU32;

use askama::Template;

use crate::api::routes::PANEL_PATH;
use crate::clock::{Moment, Timestamp};
use crate::http::request::{decode_form, form_pairs};
use crate::http::response::HTML;
use crate::http::{Body, Method, Request, Response};
use crate::model::validation::is_positive_integer;
use crate::model::{Access, KeyId, Scope, Scopes};
use crate::store::registry::{Event, EventKind, Inactive, KeyRow, KeyState, MAX_KEYS};
use crate::store::{StoreCode, StoreError};
use crate::words;

pub(super) const STYLE: &str = include_str!("style.css");
pub(super) const SCRIPT: &str = include_str!("script.js");

/// The value of the header `Allow`.
const METHODS: &str = "GET, HEAD, POST";

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

const BUSY: Notice = Notice::new(
    503,
    "A command of the operator is changing keys or tenants. Nothing was changed. Please try again in a few seconds.",
);

impl Notice {
    const fn new(status: u16, text: &'static str) -> Notice {
        Notice { status, text: Cow::Borrowed(text), fields: Vec::new() }
    }

    pub(super) fn success(text: impl Into<Cow<'static, str>>) -> Notice {
        Notice { text: text.into(), ..NO_NOTICE }
    }

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

    pub(super) fn no_key() -> Notice {
        Notice::new(404, "There is no such key. Nothing was changed.")
    }

    pub(super) const fn is_error(&self) -> bool {
        self.status >= 400
    }

    fn error_of(&self, field: &str) -> &str {
        self.fields.iter().find(|(name, _)| *name == field).map_or("", |(_, error)| error)
    }

    /// Whether the field is the first invalid field of the form. The browser puts the cursor there.
    fn begins_with(&self, field: &str) -> bool {
        self.fields.first().is_some_and(|(name, _)| *name == field)
    }
}

impl From<StoreError> for Notice {
    fn from(error: StoreError) -> Notice {
        match error.code {
            StoreCode::NoKey => Notice::no_key(),
            StoreCode::KeyEnded(state) => Notice::invalid(format!(
                "This key is {state} and cannot be changed or replaced. Nothing was changed."
            )),
            StoreCode::SessionEnded => SESSION_ENDED,
            StoreCode::Busy => BUSY,
            StoreCode::Inactive(reason) => Notice::inactive(&inactivity(reason, None)),
            StoreCode::TooManyKeys => Notice::invalid(format!(
                "This tenant has {MAX_KEYS} keys, the most it can have, revoked and expired ones \
                 included. No key was created. Delete one first."
            )),
            StoreCode::DiskFull | StoreCode::DiskFailed => Notice {
                status: 503,
                text: "The server's disk is full or refuses to write. Nothing was changed. \
                       Please ask the operator."
                    .into(),
                ..Notice::internal(&error)
            },
            _ => Notice::internal(&error),
        }
    }
}

pub(super) fn inactivity(reason: Inactive, trial_until: Option<&str>) -> String {
    match (reason, trial_until) {
        (Inactive::TrialOver, Some(last_day)) => {
            format!("The trial of this tenant ended on {last_day} (UTC).")
        }
        (Inactive::Moving, _) => {
            "This tenant is on its way to another machine, which takes some minutes.".to_owned()
        }
        _ => "The operator has suspended this tenant.".to_owned(),
    }
}

/// Maximum size of a form in bytes (contract section 9).
const MAX_BODY: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct Form {
    /// Whether it is the body of a POST. A query changes nothing.
    is_sent: bool,
    /// Names and values in the order sent.
    fields: Vec<(String, String)>,
}

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
                    let form = std::str::from_utf8(body).map(Form::parse).unwrap_or_default();
                    Ok(Form { is_sent: true, ..form })
                }
                Body::Whole(_) | Body::TooLarge => Err(TOO_LARGE),
            },
            _ => Err(METHOD_NOT_ALLOWED),
        }
    }

    /// Skips fields that are not UTF-8.
    fn parse(text: &str) -> Form {
        let mut form = Form::default();
        for (name, value) in form_pairs(text) {
            if let (Ok(name), Ok(value)) = (decode_form(name), decode_form(value)) {
                form.fields.push((name, value));
            }
        }
        form
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Form {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What a form does; empty for a query.
    pub(super) fn action(&self) -> &str {
        if self.is_sent { self.get("action") } else { "" }
    }

    /// The first value of a field, or an empty string.
    pub(super) fn get(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
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
    [("0s", "At once"), ("1h", "In an hour"), ("1d", "In a day"), ("7d", "In a week")];

/// A page: the same frame and notice around any content.
#[derive(Template)]
#[template(path = "panel/page.html")]
pub(super) struct Page<'a> {
    /// The tenant whose admin has signed in.
    pub(super) signed_in: Option<&'a str>,
    pub(super) title: &'a str,
    pub(super) notice: Notice,
    pub(super) content: View<'a>,
}

pub(super) enum View<'a> {
    SignIn {
        /// The tenant's name as it was typed.
        tenant: &'a str,
    },
    Keys {
        /// The active keys first, then the newest.
        keys: Vec<KeyRow>,
        /// Why the tenant is inactive, if it is.
        inactive: Option<String>,
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
        /// The keys that can be edited.
        active: Vec<KeyId>,
    },
    Password,
    /// The notice alone.
    Failure,
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

/// Whether a page with this title is behind a tab. Every other page belongs to the first tab.
fn is_tab(title: &str) -> bool {
    TABS.iter().any(|(_, name)| *name == title)
}

/// A redirect to the panel, which the browser requests with GET (RFC 9110 section 15.4.4).
pub(super) fn redirect(query: &str) -> Response {
    Response::empty(303).header("Location", format!("{PANEL_PATH}{query}"))
}

fn scopes(key: &KeyRow) -> String {
    match key.scopes {
        scopes if scopes == Scopes::every() => "all scopes".to_owned(),
        scopes if scopes == Scopes::read_only() => "read only".to_owned(),
        scopes => scopes.names().join(", "),
    }
}

/// An event in words, up to the number of its key.
fn sentence(event: &Event) -> String {
    let failed = event.action == EventKind::FailedSignIn.as_str();
    let who = match event.client {
        Some(client) if failed => format!("Somebody at {client}"),
        Some(client) => format!("An admin at {client}"),
        None if event.actor == "panel" => "An admin".to_owned(),
        None => "The operator".to_owned(),
    };
    match event.action.split_once(' ') {
        Some(("key", "expiry changed")) => format!("{who} changed the end of key"),
        Some(("key", "limit changed")) => format!("{who} changed the limit of key"),
        Some(("key", done)) => format!("{who} {done} key"),
        Some(("password", "changed")) => format!("{who} changed the password"),
        _ if failed => format!("{who} failed to sign in"),
        _ => format!("{who} {}", event.action),
    }
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
