//! What a browser gets: the pages behind the tabs, a notice about the request, and the data that the
//! templates render.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::error::Error;
use std::num::NonZeroU32;
use std::time::Duration;

use askama::Template;

use super::forms::{ENDS, Form, OVERLAPS};
use super::session::{AdminRequest, Session};
use super::{METHODS, Panel, redirect};
use crate::clock::{Moment, Timestamp};
use crate::http::response::HTML;
use crate::http::{Method, Response};
use crate::model::{Access, KeyId, Scope, Scopes};
use crate::store::registry::{Event, EventKind, Inactive, KeyRow, KeyState, MAX_KEYS};
use crate::store::{StoreCode, StoreError};
use crate::words::{self, capitalize, printable};

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

    pub(super) fn no_key() -> Notice {
        Notice::new(404, "There is no such key. Nothing was changed.")
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

impl From<StoreError> for Notice {
    fn from(error: StoreError) -> Notice {
        match error.code {
            StoreCode::NoKey => Notice::no_key(),
            StoreCode::KeyEnded(state) => Notice::invalid(format!(
                "This key is {state} and cannot be changed or replaced. Nothing was changed."
            )),
            StoreCode::SessionEnded => SESSION_ENDED,
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
#[template(path = "panel/page.html")]
pub(super) struct Page<'a> {
    /// `None` before the sign-in.
    pub(super) session: Option<&'a Session>,
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
        /// The keys that can be edited.
        active: Vec<KeyId>,
    },
    Password,
    /// The notice alone.
    Failure,
}

impl View<'_> {
    /// The title of the tab to which the page belongs.
    fn tab(&self) -> &'static str {
        match self {
            View::SignIn { .. } | View::Failure => "",
            View::Activity { .. } => "Activity",
            View::Password => "Password",
            View::Keys { .. }
            | View::NewKey { .. }
            | View::KeyForm { .. }
            | View::Confirmation { .. } => "API keys",
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

/// The numbers of changes and of sign-ins on their page.
const EVENTS: usize = 50;

/// How long a new key waits for the page that shows it.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Maximum number of new keys that wait. The oldest is dropped first.
const CAPACITY: usize = 1_000;

/// A new key between the form that creates it and the page that shows it once.
pub(super) struct PendingKey {
    /// The hash of the session that created it.
    session: [u8; 32],
    row: KeyRow,
    secret: String,
    /// The key that the new one replaces, with its new end.
    old: Option<KeyRow>,
    /// Monotonic.
    since: Duration,
}

impl Panel {
    /// Removes new keys that nobody fetched in time. The server calls it once a minute.
    pub fn forget_unfetched_keys(&self, now: Moment) {
        self.pending_keys.lock().retain(|key| now.monotonic.saturating_sub(key.since) < LIFETIME);
    }
}

impl AdminRequest<'_> {
    pub(super) fn get(&self, query: &Form) -> Result<Response, Notice> {
        let page = self.find_page(query);
        page.or_else(|error| self.keys_page(error))
    }

    fn find_page(&self, query: &Form) -> Result<Response, Notice> {
        for action in ["edit", "revoke", "delete", "replace"] {
            if let Some(id) = query.id(action) {
                return self.key_page(id, action);
            }
        }
        if query.contains("create", "") {
            self.check_active()?;
            let form = Form::default().with("expires", "1y");
            return Ok(self.form_page(NO_NOTICE, None, &form));
        }
        if query.contains("activity", "") {
            let (registry, tenant) = (&self.panel.registry, self.session.tenant.id);
            let changes = registry.admin_changes(tenant, EVENTS)?;
            let sign_ins = registry.sign_ins(tenant, EVENTS)?;
            let keys = registry.list_keys(tenant)?.into_iter();
            let active = keys.filter(|key| is_active(key, &self.request.received_at));
            let active = active.map(|key| key.id).collect();
            let content = View::Activity { changes, sign_ins, active };
            return Ok(self.page("Activity", NO_NOTICE, content));
        }
        if query.contains("password", "") {
            return Ok(self.page("Password", NO_NOTICE, View::Password));
        }
        // HEAD does not consume a new key.
        if let Some(id) = query.id("new").filter(|_| self.request.method == Method::GET) {
            return self.new_key_page(id);
        }
        self.keys_page(self.outcome(query)?)
    }

    /// What the form before this page did to the key of the query. An event has the name of a deleted
    /// key, too.
    fn outcome(&self, query: &Form) -> Result<Notice, Notice> {
        let outcome = match query.get("done") {
            "changed" => "is changed.",
            "revoked" => "is revoked. Requests with it are refused from now on.",
            "deleted" => "is deleted. Requests with it are refused from now on.",
            _ => return Ok(NO_NOTICE),
        };
        let events = self.panel.registry.admin_changes(self.session.tenant.id, EVENTS)?;
        let mut keys = events.into_iter().filter_map(|event| event.key);
        Ok(match keys.find(|key| Some(key.id) == query.id("key")) {
            Some(key) => {
                Notice::success(format!("Key {} “{}” {outcome}", key.id, printable(&key.name)))
            }
            None => Notice::success(format!("The key {outcome}")),
        })
    }

    pub(super) fn page(&self, title: &str, notice: Notice, content: View<'_>) -> Response {
        Page { session: Some(self.session), title, notice, content }.respond()
    }

    pub(super) fn keys_page(&self, notice: Notice) -> Result<Response, Notice> {
        let (now, rate_limit) = (self.request.received_at, self.panel.rate_limit);
        let mut keys = self.panel.registry.list_keys(self.session.tenant.id)?;
        keys.sort_by_key(|key| (key.state(now) != KeyState::Active, Reverse(key.id)));
        let content = View::Keys { keys, inactive: self.inactive(), rate_limit, now };
        Ok(self.page("API keys", notice, content))
    }

    /// Shows a new key, if it belongs to this session and was not shown before.
    fn new_key_page(&self, id: KeyId) -> Result<Response, Notice> {
        self.panel.forget_unfetched_keys(self.request.received_at);
        let mut keys = self.panel.pending_keys.lock();
        let place =
            keys.iter().position(|key| (key.session, key.row.id) == (self.session.hash, id));
        let key = place.and_then(|place| keys.remove(place));
        drop(keys);
        let Some(PendingKey { row, secret, old, .. }) = key else {
            let notice = Notice::success("A new key is shown once and cannot be shown again.");
            return self.keys_page(notice);
        };
        let title = format!("Your new key “{}”", printable(&row.name));
        let content = View::NewKey {
            key: &row,
            secret: &secret,
            old: old.as_ref(),
            now: self.request.received_at,
            server: &self.server(),
        };
        Ok(self.page(&title, NO_NOTICE, content))
    }

    /// The address of this server, as the browser names it. A shell must not run a part of it.
    fn server(&self) -> String {
        let is_harmless = |sign: char| sign.is_ascii_alphanumeric() || ".:-[]".contains(sign);
        let host = self.request.header("host").filter(|host| host.chars().all(is_harmless));
        let scheme = if self.request.secure { "https" } else { "http" };
        format!("{scheme}://{}", host.unwrap_or("localhost"))
    }

    /// The page with the form for a new key, or for a change of `key`.
    pub(super) fn form_page(&self, notice: Notice, key: Option<&KeyRow>, form: &Form) -> Response {
        let (title, action) = key.map_or(("New key", "create"), |_| ("Edit a key", "edit"));
        let (now, rate_limit) = (self.request.received_at, self.panel.rate_limit);
        self.page(title, notice, View::KeyForm { key, form, action, rate_limit, now })
    }

    /// The form that changes a key, or the confirmation of another action.
    fn key_page(&self, id: KeyId, action: &str) -> Result<Response, Notice> {
        if action == "edit" {
            let key = self.changeable_key(id)?;
            let limit = key.rate_limit.map(|limit| limit.to_string()).unwrap_or_default();
            let form = Form::default().with("name", &key.name).with("limit", &limit);
            let form = form.with("expires", "keep");
            return Ok(self.form_page(NO_NOTICE, Some(&key), &form));
        }
        let key = &if action == "replace" { self.changeable_key(id)? } else { self.find_key(id)? };
        let title = format!("{} a key", capitalize(action));
        let content = View::Confirmation { key, action, now: self.request.received_at };
        Ok(self.page(&title, NO_NOTICE, content))
    }

    /// Keeps a new key for the page after the redirect, which shows it.
    pub(super) fn show_once(&self, row: KeyRow, secret: String, old: Option<KeyRow>) -> Response {
        let id = row.id;
        self.log(EventKind::KeyCreated, Some(id));
        let (session, since) = (self.session.hash, self.request.received_at.monotonic);
        let mut keys = self.panel.pending_keys.lock();
        keys.push_back(PendingKey { session, row, secret, old, since });
        if keys.len() > CAPACITY {
            keys.pop_front();
        }
        redirect(&format!("?new={id}"))
    }
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
