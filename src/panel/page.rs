//! The data of the pages, which the templates render.

use std::num::NonZeroU32;

use askama::Template;

use super::form::{ENDS, Form, OVERLAPS};
use super::notice::Notice;
use super::pending_keys::PendingKey;
use super::session::Session;
use crate::html::{self, HTML};
use crate::http::Response;
use crate::model::{Scope, Scopes};
use crate::store::registry::{Event, KeyRow};

/// The style of every page, after [`html::BASE_STYLE`].
pub(super) const STYLE: &str = include_str!("style.css");
/// The script of every page.
pub(super) const SCRIPT: &str = include_str!("script.js");

/// With more keys than these, the page of the keys has a filter.
const MANY: usize = 9;

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
        /// The token of the form.
        token: &'a str,
    },
    Keys(&'a KeyList<'a>),
    KeyForm {
        /// The key that is changed, or `None` for a new key.
        key: Option<&'a KeyRow>,
        form: &'a Form,
        /// `create` or `edit`.
        action: &'a str,
        /// The server's limit.
        rate_limit: NonZeroU32,
    },
    /// A form that confirms an action on a key.
    Confirmation {
        key: &'a KeyRow,
        /// `revoke`, `delete` or `replace`.
        action: &'a str,
        is_active: bool,
    },
    /// The notice alone.
    Failure,
}

pub(super) struct KeyList<'a> {
    pub(super) tenant: &'a str,
    /// Why the tenant is inactive, if it is.
    pub(super) inactive: Option<String>,
    pub(super) new_key: Option<PendingKey>,
    pub(super) active: Vec<KeyRow>,
    pub(super) ended: Vec<KeyRow>,
    pub(super) total: usize,
    /// A part of the names or prefixes, or empty.
    pub(super) filter: &'a str,
    /// The server's limit.
    pub(super) rate_limit: NonZeroU32,
    /// The id and the title of each list, and its events, the newest first.
    pub(super) event_lists: [(&'static str, &'static str, Vec<Event>); 2],
}

impl Page<'_> {
    /// The response with this page. Writing to a `String` does not fail.
    pub(super) fn respond(&self) -> Response {
        let body = self.render().unwrap_or_default();
        self.notice.add_headers(Response::new(self.notice.status, HTML, body.into_bytes()))
    }
}

fn scopes(key: &KeyRow) -> String {
    match key.scopes {
        scopes if scopes == Scopes::every() => "all scopes".to_owned(),
        scopes if scopes == Scopes::read_only() => "read only".to_owned(),
        scopes => scopes.names().join(", "),
    }
}
