//! The templates of the pages and their data.

use std::fmt::Display;
use std::num::NonZeroU32;

use askama::Template;

use super::error::{FieldErrors, PanelError};
use super::form::{ENDS, OVERLAPS};
use crate::clock::Moment;
use crate::html::HTML;
use crate::http::Response;
use crate::model::{Scope, Scopes};
use crate::store::registry::{Event, Inactive, KeyRow, KeyState, TenantRow};
use crate::words::capitalize;

/// The style of every page, after [`crate::html::BASE_STYLE`].
pub(super) const STYLE: &str = include_str!("style.css");
/// The script of every page.
pub(super) const SCRIPT: &str = include_str!("script.js");

/// With more keys than these, the page has a filter.
const MANY: usize = 9;

/// A message at the top of a page.
#[derive(Debug)]
pub(super) struct Notice {
    text: String,
    is_error: bool,
}

impl Notice {
    pub(super) fn success(text: impl Into<String>) -> Notice {
        Notice { text: text.into(), is_error: false }
    }

    pub(super) fn error(error: &PanelError) -> Notice {
        Notice { text: error.message.to_string(), is_error: true }
    }
}

/// The sign-in form.
#[derive(Debug, Template)]
#[template(path = "panel/sign_in.html")]
pub(super) struct SignInPage<'a> {
    pub(super) notice: Option<Notice>,
    /// The tenant's name as it was typed.
    pub(super) tenant: &'a str,
    pub(super) token: &'a str,
}

/// The page of a tenant's keys.
#[derive(Debug, Template)]
#[template(path = "panel/keys.html")]
pub(super) struct KeysPage<'a> {
    pub(super) tenant: &'a str,
    pub(super) token: &'a str,
    pub(super) notice: Option<Notice>,
    /// Why the tenant is inactive, if it is.
    pub(super) inactive: Option<String>,
    pub(super) new_key: Option<ShownKey>,
    /// The active keys that the filter shows.
    pub(super) active: Vec<KeyRow>,
    /// The revoked and expired keys that the filter shows.
    pub(super) ended: Vec<KeyRow>,
    /// The number of all keys.
    pub(super) total: usize,
    /// A part of the names or prefixes, or empty.
    pub(super) filter: &'a str,
    pub(super) rate_limit: NonZeroU32,
    pub(super) now: Moment,
    pub(super) errors: FieldErrors,
    /// The id and the title of each list, and its events, the newest first.
    pub(super) event_lists: [(&'static str, &'static str, Vec<Event>); 2],
}

impl KeysPage<'_> {
    /// The title, which screen readers read first.
    fn title(&self) -> &'static str {
        match (&self.notice, &self.new_key) {
            (Some(notice), _) if notice.is_error => "Error – API keys",
            (_, Some(_)) => "Your new key – API keys",
            _ => "API keys",
        }
    }
}

/// The form for a new key, or the page of one key with the form that changes it.
#[derive(Debug, Template)]
#[template(path = "panel/key_form.html")]
pub(super) struct KeyFormPage<'a> {
    pub(super) tenant: &'a str,
    pub(super) token: &'a str,
    pub(super) notice: Option<Notice>,
    /// The key that is changed, or `None` for a new one.
    pub(super) key: Option<KeyRow>,
    pub(super) key_form: KeyForm,
    pub(super) rate_limit: NonZeroU32,
    pub(super) errors: FieldErrors,
}

/// Whether it is the first field with an error. The browser goes there.
fn is_first_error(errors: &FieldErrors, field: &str) -> bool {
    let order = ["name", "scopes", "end", "limit", "current", "new", "again"];
    order.into_iter().find(|name| errors.contains_key(name)) == Some(field)
}

/// The scopes of a key in few words.
fn scopes(key: &KeyRow) -> String {
    match key.scopes {
        scopes if scopes == Scopes::every() => "all scopes".to_owned(),
        scopes if scopes == Scopes::read_only() => "read only".to_owned(),
        scopes => scopes.names().join(", "),
    }
}

/// The confirmation page for revoking, deleting or replacing a key.
#[derive(Debug, Template)]
#[template(path = "panel/confirm.html")]
pub(super) struct ConfirmPage<'a> {
    pub(super) tenant: &'a str,
    pub(super) token: &'a str,
    pub(super) key: KeyRow,
    pub(super) is_active: bool,
    /// `revoke`, `delete` or `replace`.
    pub(super) action: &'static str,
}

/// An error page without a form.
#[derive(Debug, Template)]
#[template(path = "panel/error.html")]
struct ErrorPage<'a> {
    message: &'a str,
}

/// A new key, shown once.
#[derive(Debug)]
pub(super) struct ShownKey {
    pub(super) name: String,
    pub(super) key: String,
}

/// A timestamp in RFC 3339, shown with minutes and time zone. A line can break between its parts.
#[derive(Debug, Template)]
#[template(
    ext = "html",
    source = "{% let (date, time) = self.parts() %}<time datetime=\"{{ self.0 }}\">\
              <span>{{ date }}</span> <span>{{ time }} UTC</span></time>"
)]
struct Time(String);

impl Time {
    fn new(at: impl Display) -> Time {
        Time(at.to_string())
    }

    /// The date, and the hour with the minute.
    fn parts(&self) -> (&str, &str) {
        let (date, time) = self.0.split_once('T').unwrap_or_default();
        (date, time.get(..5).unwrap_or_default())
    }
}

/// The values of the form for a key.
#[derive(Debug, Default)]
pub(super) struct KeyForm {
    pub(super) name: String,
    pub(super) scopes: Scopes,
    pub(super) end: String,
    pub(super) date: String,
    pub(super) limit: String,
}

/// Why the tenant is inactive, for its administrator.
pub(super) fn inactive(tenant: &TenantRow, now: Moment) -> Option<String> {
    tenant.inactive(now).map(|reason| match (reason, &tenant.trial_until) {
        (Inactive::TrialOver, Some(last_day)) => {
            format!("The trial of this tenant ended on {last_day} (UTC).")
        }
        _ => "The operator has suspended this tenant.".to_owned(),
    })
}

/// Turns an error message of another module into a sentence.
pub(super) fn sentence(message: impl Display) -> String {
    format!("{}.", capitalize(&message.to_string()))
}

/// Renders a page.
pub(super) fn page(status: u16, template: &impl Template) -> Result<Response, PanelError> {
    Ok(Response::new(status, HTML, template.render()?.into_bytes()))
}

/// Renders an error page. If that fails too, the page is the bare message.
pub(super) fn error_page(error: &PanelError) -> Response {
    let page = ErrorPage { message: &error.message }.render();
    let page = page.unwrap_or_else(|_| error.message.to_string());
    error.add_headers(Response::new(error.status, HTML, page.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_with_their_zone() {
        let shown = Time("2026-11-20T19:30:42Z".to_owned()).render().unwrap();
        let expected = "<time datetime=\"2026-11-20T19:30:42Z\">\
                        <span>2026-11-20</span> <span>19:30 UTC</span></time>";
        assert_eq!(shown, expected);
    }

    #[test]
    fn messages_become_sentences() {
        assert_eq!(sentence("a key's name must not be empty"), "A key's name must not be empty.");
    }
}
