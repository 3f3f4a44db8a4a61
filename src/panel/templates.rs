//! What the pages show, and the templates that show it.

use std::fmt::Display;

use askama::Template;

use super::error::Refusal;
use crate::html::HTML;
use crate::http::Response;
use crate::model::{Scope, Scopes};
use crate::store::registry::{EventKey, Inactive, KeyEvent, KeyRow, TenantRow};

/// Stands in every page after what all pages share; the policy knows it by its hash.
pub(super) const STYLE: &str = include_str!("style.css");
/// Stands at the end of the pages that it can do something for.
pub(super) const SCRIPT: &str = include_str!("script.js");

/// A message at the top of a page.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) refused: bool,
}

impl Notice {
    pub(super) fn done(text: impl Into<String>) -> Notice {
        Notice { text: text.into(), refused: false }
    }

    pub(super) fn refused(refusal: &Refusal) -> Notice {
        Notice { text: refusal.message().to_owned(), refused: true }
    }
}

/// The form to sign in.
#[derive(Debug, Template)]
#[template(path = "panel/sign_in.html")]
pub(super) struct SignInPage<'a> {
    pub(super) notice: Option<Notice>,
    /// The name as it was typed.
    pub(super) tenant: &'a str,
    pub(super) token: &'a str,
}

/// A tenant's keys and all that can be done with them.
#[derive(Debug, Template)]
#[template(path = "panel/keys.html")]
pub(super) struct KeysPage<'a> {
    pub(super) tenant: &'a str,
    pub(super) token: &'a str,
    pub(super) notice: Option<Notice>,
    /// Why the tenant's keys are refused and none is made.
    pub(super) inactive: Option<String>,
    pub(super) new_key: Option<NewKey>,
    pub(super) keys: Vec<KeyView>,
    pub(super) draft: Draft,
    pub(super) password: PasswordForm,
    pub(super) events: Vec<EventView>,
}

impl KeysPage<'_> {
    /// What a screen reader says first.
    fn title(&self) -> &'static str {
        match (&self.notice, &self.new_key) {
            (Some(notice), _) if notice.refused => "Not done – API keys",
            (_, Some(_)) => "Your new key – API keys",
            _ => "API keys",
        }
    }
}

/// The question before a key is revoked or deleted.
#[derive(Debug, Template)]
#[template(path = "panel/confirm.html")]
pub(super) struct ConfirmPage<'a> {
    pub(super) tenant: &'a str,
    pub(super) token: &'a str,
    pub(super) key: KeyView,
    /// Delete it, else revoke it.
    pub(super) delete: bool,
}

/// A refusal that has no page to stand on.
#[derive(Debug, Template)]
#[template(path = "panel/refused.html")]
struct RefusedPage<'a> {
    message: &'a str,
}

/// A key that is shown for the only time.
#[derive(Debug)]
pub(super) struct NewKey {
    pub(super) name: String,
    pub(super) key: String,
}

#[derive(Debug)]
pub(super) struct KeyView {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) prefix: String,
    pub(super) scopes: Scopes,
    pub(super) created: Time,
    pub(super) last_used: Option<Time>,
    pub(super) revoked: Option<Time>,
}

impl From<KeyRow> for KeyView {
    fn from(key: KeyRow) -> KeyView {
        KeyView {
            id: key.id,
            name: key.name,
            prefix: key.prefix,
            scopes: key.scopes,
            created: Time(key.created_at),
            last_used: key.last_used_at.map(Time),
            revoked: key.revoked_at.map(Time),
        }
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
        EventView { at: Time(at), action: capitalised(&action), key, actor }
    }
}

/// A stored moment, RFC 3339 in UTC. It is shown to the minute and with its zone; where it is narrow it breaks in two.
#[derive(Debug, Template)]
#[template(
    ext = "html",
    source = r#"<time datetime="{{ self.0 }}"><span>{{ self.date() }}</span> <span>{{ self.minute() }} UTC</span></time>"#
)]
pub(super) struct Time(String);

impl Time {
    fn date(&self) -> &str {
        self.0.split('T').next().unwrap_or_default()
    }

    fn minute(&self) -> &str {
        self.0.split('T').nth(1).and_then(|time| time.get(..5)).unwrap_or_default()
    }
}

/// The form for a new key, as it was filled in.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) scopes: Scopes,
    pub(super) name_error: Option<String>,
    pub(super) scopes_error: Option<&'static str>,
}

impl Draft {
    /// The boxes: name and whether it is ticked.
    fn boxes(&self) -> Vec<(String, bool)> {
        Scope::all().map(|scope| (scope.to_string(), self.scopes.contains(scope))).collect()
    }
}

/// The form for a new password. What was typed is never sent back.
#[derive(Debug, Default)]
pub(super) struct PasswordForm {
    pub(super) present_error: Option<&'static str>,
    pub(super) new_error: Option<String>,
    pub(super) again_error: Option<&'static str>,
}

impl PasswordForm {
    pub(super) fn has_errors(&self) -> bool {
        self.present_error.is_some() || self.new_error.is_some() || self.again_error.is_some()
    }
}

/// Why the tenant is inactive, for its admin.
pub(super) fn inactive(tenant: &TenantRow, today: &str) -> Option<String> {
    tenant.inactive(today).map(|why| match (why, &tenant.trial_until) {
        (Inactive::TrialOver, Some(last_day)) => format!("The trial of this tenant ended on {last_day} (UTC)."),
        (Inactive::TrialOver, None) => "The trial of this tenant is over.".to_owned(),
        (Inactive::Suspended, _) => "The operator has suspended this tenant.".to_owned(),
    })
}

/// A message of the registry's or the password's rule as a sentence of its own.
pub(super) fn sentence(message: impl Display) -> String {
    format!("{}.", capitalised(&message.to_string()))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A page.
pub(super) fn page(status: u16, template: &impl Template) -> Result<Response, Refusal> {
    Ok(Response::new(status, HTML, template.render()?.into_bytes()))
}

/// A refusal as a page of its own. It cannot fail: what shows a failure must not.
pub(super) fn refused(refusal: &Refusal) -> Response {
    let page = RefusedPage { message: refusal.message() }.render().unwrap_or_else(|_| refusal.message().to_owned());
    refusal.mark(Response::new(refusal.status(), HTML, page.into_bytes()))
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
