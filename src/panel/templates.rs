//! The templates of the pages and their data.

use std::fmt::Display;
use std::num::NonZeroU32;

use askama::Template;

use super::choices::{EndChoice, OverlapChoice};
use super::error::PanelError;
use crate::capitalize::capitalize;
use crate::clock::{Moment, Timestamp};
use crate::html::HTML;
use crate::http::Response;
use crate::model::{KeyId, Scope, Scopes};
use crate::store::registry::{EventKey, Inactive, KeyEvent, KeyRow, KeyState, TenantRow};

/// The style of every page, after [`crate::html::BASE_STYLE`].
pub(super) const STYLE: &str = include_str!("style.css");
/// The script of the keys page.
pub(super) const SCRIPT: &str = include_str!("script.js");

/// A message at the top of a page.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) is_error: bool,
}

impl Notice {
    pub(super) fn success(text: impl Into<String>) -> Notice {
        Notice { text: text.into(), is_error: false }
    }

    pub(super) fn error(error: &PanelError) -> Notice {
        Notice { text: error.message().to_owned(), is_error: true }
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
    pub(super) new_key: Option<NewKey>,
    pub(super) keys: Vec<KeyView>,
    pub(super) key_form: KeyFormValues,
    pub(super) password_errors: PasswordErrors,
    pub(super) events: Vec<EventView>,
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

/// The confirmation page for revoking or deleting a key.
#[derive(Debug, Template)]
#[template(path = "panel/confirm.html")]
pub(super) struct ConfirmPage<'a> {
    pub(super) tenant: &'a str,
    pub(super) token: &'a str,
    pub(super) key: KeyView,
    /// Whether the key is to be deleted; otherwise it is to be revoked.
    pub(super) delete: bool,
}

/// An error page without a form.
#[derive(Debug, Template)]
#[template(path = "panel/error.html")]
struct ErrorPage<'a> {
    message: &'a str,
}

/// A new key, shown once.
#[derive(Debug)]
pub(super) struct NewKey {
    pub(super) name: String,
    pub(super) key: String,
}

/// The confirmation page for replacing a key.
#[derive(Debug, Template)]
#[template(path = "panel/replace.html")]
pub(super) struct ReplacePage<'a> {
    pub(super) tenant: &'a str,
    pub(super) token: &'a str,
    pub(super) key: KeyView,
}

#[derive(Debug)]
pub(super) struct KeyView {
    pub(super) id: KeyId,
    pub(super) name: String,
    pub(super) prefix: String,
    pub(super) scopes: Scopes,
    pub(super) created: Time,
    pub(super) last_used: Option<Time>,
    pub(super) revoked: Option<Time>,
    pub(super) expires: Option<Time>,
    /// The key's own limit.
    pub(super) rate_limit: Option<NonZeroU32>,
    pub(super) state: KeyState,
}

impl KeyView {
    /// The key as it is at `now`.
    pub(super) fn new(key: KeyRow, now: Moment) -> KeyView {
        KeyView {
            state: key.state(now),
            id: key.id,
            name: key.name,
            prefix: key.prefix,
            scopes: key.scopes,
            created: Time::new(key.created_at),
            last_used: key.last_used_at.map(Time::new),
            revoked: key.revoked_at.map(Time::new),
            expires: key.expires_at.map(|end| Time(end.to_string())),
            rate_limit: key.rate_limit,
        }
    }

    fn is_active(&self) -> bool {
        self.state == KeyState::Active
    }
}

#[derive(Debug)]
pub(super) struct EventView {
    pub(super) at: Time,
    /// `Created`
    pub(super) action: String,
    pub(super) key: Option<EventKey>,
    /// `panel`
    pub(super) actor: String,
}

impl From<KeyEvent> for EventView {
    fn from(event: KeyEvent) -> EventView {
        let KeyEvent { at, actor, action, key } = event;
        EventView { at: Time::new(at), action: capitalize(&action), key, actor }
    }
}

/// A stored timestamp (RFC 3339, UTC). It is shown with minutes and time zone; a line can break
/// between date and time.
#[derive(Debug, Template)]
#[template(
    ext = "html",
    source = r#"<time datetime="{{ self.0 }}"><span>{{ self.date() }}</span> <span>{{ self.minute() }} UTC</span></time>"#
)]
pub(super) struct Time(String);

impl Time {
    fn new(at: Timestamp) -> Time {
        Time(at.to_string())
    }

    fn date(&self) -> &str {
        self.0.split('T').next().unwrap_or_default()
    }

    fn minute(&self) -> &str {
        self.0.split('T').nth(1).and_then(|time| time.get(..5)).unwrap_or_default()
    }
}

/// The values of the form for a new key, and their errors.
#[derive(Debug, Default)]
pub(super) struct KeyFormValues {
    pub(super) name: String,
    pub(super) scopes: Scopes,
    pub(super) end: EndChoice,
    /// The date of [`EndChoice::Date`] as it was typed.
    pub(super) date: String,
    pub(super) name_error: Option<String>,
    pub(super) scopes_error: Option<&'static str>,
    pub(super) end_error: Option<&'static str>,
}

impl KeyFormValues {
    /// Whether a field is not valid.
    pub(super) fn has_errors(&self) -> bool {
        self.name_error.is_some() || self.scopes_error.is_some() || self.end_error.is_some()
    }

    /// The checkboxes: scope and whether it is checked.
    fn checkboxes(&self) -> Vec<(String, bool)> {
        Scope::all().map(|scope| (scope.to_string(), self.scopes.contains(scope))).collect()
    }
}

/// The errors of the form for a new password. The page never repeats a password.
#[derive(Debug, Default)]
pub(super) struct PasswordErrors {
    pub(super) current_error: Option<&'static str>,
    pub(super) new_error: Option<String>,
    pub(super) again_error: Option<&'static str>,
}

impl PasswordErrors {
    /// Whether a field is not valid.
    pub(super) fn has_errors(&self) -> bool {
        self.current_error.is_some() || self.new_error.is_some() || self.again_error.is_some()
    }
}

/// Why the tenant is inactive, for its administrator. `today` is a date in UTC.
pub(super) fn inactive(tenant: &TenantRow, today: &str) -> Option<String> {
    tenant.inactive(today).map(|reason| match (reason, &tenant.trial_until) {
        (Inactive::TrialOver, Some(last_day)) => {
            format!("The trial of this tenant ended on {last_day} (UTC).")
        }
        (Inactive::TrialOver, None) => "The trial of this tenant is over.".to_owned(),
        (Inactive::Suspended, _) => "The operator has suspended this tenant.".to_owned(),
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
    let page = ErrorPage { message: error.message() }
        .render()
        .unwrap_or_else(|_| error.message().to_owned());
    error.add_headers(Response::new(error.status(), HTML, page.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_with_their_zone() {
        let shown = Time("2026-11-20T19:30:42Z".to_owned()).render().unwrap();
        let expected = r#"<time datetime="2026-11-20T19:30:42Z"><span>2026-11-20</span> <span>19:30 UTC</span></time>"#;
        assert_eq!(shown, expected);
    }

    #[test]
    fn messages_become_sentences() {
        assert_eq!(sentence("a key's name must not be empty"), "A key's name must not be empty.");
    }
}
