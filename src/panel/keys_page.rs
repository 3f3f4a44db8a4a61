//! What GET shows: the keys to whoever is signed in, else the form to sign in.

use super::Panel;
use super::error::Refusal;
use super::form::Form;
use super::session::Session;
use super::sign_in;
use super::templates::{self, ConfirmPage, Draft, KeysPage, NewKey, Notice, PasswordForm};
use crate::api::routes::PANEL_PATH;
use crate::http::{Method, Request, Response};

/// How many events stand at the foot of the page.
const EVENTS: u32 = 20;

/// What a form did, told by the page after the redirect.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Revoked,
    Deleted,
    SignedOut,
    PasswordChanged,
}

impl Done {
    const ALL: [Done; 4] = [Done::Revoked, Done::Deleted, Done::SignedOut, Done::PasswordChanged];

    const fn name(self) -> &'static str {
        match self {
            Done::Revoked => "revoked",
            Done::Deleted => "deleted",
            Done::SignedOut => "signed-out",
            Done::PasswordChanged => "password-changed",
        }
    }

    fn notice(self) -> Notice {
        Notice::done(match self {
            Done::Revoked => "The key is revoked. Requests with it are refused from now on.",
            Done::Deleted => "The key is deleted.",
            Done::SignedOut => "You are signed out.",
            Done::PasswordChanged => "The password is changed and every session has ended. Sign in with the new one.",
        })
    }

    /// To the page that tells it.
    pub(super) fn redirect(self) -> Response {
        redirect(&format!("{PANEL_PATH}?done={}", self.name()))
    }
}

/// To the page that shows a new key once.
pub(super) fn redirect_to_new_key(id: i64) -> Response {
    redirect(&format!("{PANEL_PATH}?new={id}"))
}

/// To another page of the panel, which is then fetched with GET.
pub(super) fn redirect(place: &str) -> Response {
    Response::empty(303).header("Location", place.to_owned())
}

/// Answers GET and HEAD.
pub(super) fn show(panel: &Panel, request: &Request) -> Result<Response, Refusal> {
    let query = Form::query(request);
    let done = Done::ALL.into_iter().find(|done| done.name() == query.get("done"));
    let Some(session) = Session::find(panel, request)? else {
        return sign_in::page(request, done.map(Done::notice), "", 200);
    };
    let keys = Keys { panel, request, session: &session };
    if let Some(id) = query.id("revoke") {
        return keys.confirm(id, false);
    }
    if let Some(id) = query.id("delete") {
        return keys.confirm(id, true);
    }
    let (notice, new_key) = match query.id("new") {
        Some(id) => keys.new_key(id)?,
        None => (done.map(Done::notice), None),
    };
    keys.page(200, Filled { notice, new_key, ..Filled::default() })
}

/// The page of one tenant's keys.
pub(super) struct Keys<'a> {
    pub(super) panel: &'a Panel,
    pub(super) request: &'a Request,
    pub(super) session: &'a Session,
}

/// What the page shows beside what is stored.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pub(super) notice: Option<Notice>,
    pub(super) new_key: Option<NewKey>,
    pub(super) draft: Draft,
    pub(super) password: PasswordForm,
}

impl Keys<'_> {
    pub(super) fn page(&self, status: u16, filled: Filled) -> Result<Response, Refusal> {
        let Session { tenant, token, .. } = self.session;
        let registry = &self.panel.registry;
        let mut keys = registry.list_keys(tenant.id)?;
        // Keys that work come first, and of these the newest.
        keys.sort_by_key(|key| (key.revoked_at.is_some(), std::cmp::Reverse(key.id)));
        let page = KeysPage {
            tenant: &tenant.name,
            token,
            notice: filled.notice,
            inactive: templates::inactive(tenant, &self.request.received_at.date()),
            new_key: filled.new_key,
            keys: keys.into_iter().map(Into::into).collect(),
            draft: filled.draft,
            password: filled.password,
            events: registry.key_events(tenant.id, EVENTS)?.into_iter().map(Into::into).collect(),
        };
        templates::page(status, &page)
    }

    /// The page again, with what was refused and why.
    pub(super) fn refuse(&self, refusal: &Refusal, filled: Filled) -> Result<Response, Refusal> {
        let filled = Filled { notice: Some(Notice::refused(refusal)), ..filled };
        Ok(refusal.mark(self.page(refusal.status(), filled)?))
    }

    /// The question before a key is revoked or deleted.
    fn confirm(&self, id: i64, delete: bool) -> Result<Response, Refusal> {
        let Session { tenant, token, .. } = self.session;
        let mut keys = self.panel.registry.list_keys(tenant.id)?.into_iter();
        match keys.find(|key| key.id == id) {
            Some(key) if delete || key.revoked_at.is_none() => {
                templates::page(200, &ConfirmPage { tenant: &tenant.name, token, key: key.into(), delete })
            }
            Some(_) => self.page(200, Filled { notice: Some(Done::Revoked.notice()), ..Filled::default() }),
            None => {
                let notice = Some(Notice::done("There is no such key any more."));
                self.page(200, Filled { notice, ..Filled::default() })
            }
        }
    }

    /// The key that the form before has made, if this is the first page to ask. HEAD does not use it up.
    fn new_key(&self, id: i64) -> Result<(Option<Notice>, Option<NewKey>), Refusal> {
        let made = self.panel.registry.list_keys(self.session.tenant.id)?.into_iter().find(|key| key.id == id);
        let Some(row) = made.filter(|_| self.request.method == Method::Get) else { return Ok((None, None)) };
        let now = self.request.received_at.monotonic;
        Ok(match self.panel.new_keys.take(self.session.hash, id, now) {
            Some(key) => (None, Some(NewKey { name: row.name, key })),
            None => (Some(Notice::done("A new key is shown once and cannot be shown again.")), None),
        })
    }
}
