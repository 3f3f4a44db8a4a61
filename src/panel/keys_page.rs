//! The page of a tenant's keys. A browser without a session gets the sign-in form instead.

use super::Panel;
use super::error::PanelError;
use super::form::Form;
use super::redirect::CompletedAction;
use super::session::Session;
use super::sign_in;
use super::templates::{
    self, ConfirmPage, KeyFormValues, KeyView, KeysPage, NewKey, Notice, PasswordErrors,
    ReplacePage,
};
use crate::http::{Method, Request, Response};
use crate::model::KeyId;
use crate::store::registry::{KeyRow, KeyState};

const NO_SUCH_KEY: &str = "There is no such key any more.";

/// Number of events on the page.
const EVENTS: u32 = 20;

/// Responds to GET and HEAD.
pub(super) fn handle_get(panel: &Panel, request: &Request) -> Result<Response, PanelError> {
    let query = Form::from_query(request);
    let completed = CompletedAction::parse(query.get("done"));
    let Some(session) = Session::find(panel, request)? else {
        return sign_in::page(request, completed.map(CompletedAction::notice), "", 200);
    };
    let signed_in = SignedInRequest { panel, request, session: &session };
    if let Some(id) = query.id("revoke") {
        return signed_in.confirm(id, false);
    }
    if let Some(id) = query.id("delete") {
        return signed_in.confirm(id, true);
    }
    if let Some(id) = query.id("replace") {
        return signed_in.confirm_replacement(id);
    }
    let (notice, new_key) = match query.id("new") {
        Some(id) => signed_in.new_key(id)?,
        None => (completed.map(CompletedAction::notice), None),
    };
    signed_in.page(200, PageContext { notice, new_key, ..PageContext::default() })
}

/// A request with a session.
pub(super) struct SignedInRequest<'a> {
    pub(super) panel: &'a Panel,
    pub(super) request: &'a Request,
    pub(super) session: &'a Session,
}

/// The content of the page that is not stored in the registry.
#[derive(Debug, Default)]
pub(super) struct PageContext {
    pub(super) notice: Option<Notice>,
    pub(super) new_key: Option<NewKey>,
    pub(super) key_form: KeyFormValues,
    pub(super) password_errors: PasswordErrors,
}

impl SignedInRequest<'_> {
    /// Renders the page of the tenant's keys.
    pub(super) fn page(&self, status: u16, context: PageContext) -> Result<Response, PanelError> {
        let Session { tenant, token, .. } = self.session;
        let registry = &self.panel.registry;
        let mut keys = registry.list_keys(tenant.id)?;
        let now = self.request.received_at;
        // Active keys first, then the newest.
        keys.sort_by_key(|key| (key.state(now) != KeyState::Active, std::cmp::Reverse(key.id)));
        let page = KeysPage {
            tenant: &tenant.name,
            token,
            notice: context.notice,
            inactive: templates::inactive(tenant, &now.date()),
            new_key: context.new_key,
            keys: keys.into_iter().map(|key| KeyView::new(key, now)).collect(),
            key_form: context.key_form,
            password_errors: context.password_errors,
            events: registry.key_events(tenant.id, EVENTS)?.into_iter().map(Into::into).collect(),
        };
        templates::page(status, &page)
    }

    /// Renders the page with an error message and the error's status.
    pub(super) fn page_with_error(
        &self,
        error: &PanelError,
        context: PageContext,
    ) -> Result<Response, PanelError> {
        let context = PageContext { notice: Some(Notice::error(error)), ..context };
        Ok(error.add_headers(self.page(error.status(), context)?))
    }

    /// Renders the confirmation page for revoking or deleting a key.
    fn confirm(&self, id: KeyId, delete: bool) -> Result<Response, PanelError> {
        let Session { tenant, token, .. } = self.session;
        match self.find_key(id)? {
            Some(key) if delete || key.revoked_at.is_none() => {
                let key = KeyView::new(key, self.request.received_at);
                templates::page(200, &ConfirmPage { tenant: &tenant.name, token, key, delete })
            }
            Some(_) => self.page_with_notice(CompletedAction::Revoked.notice()),
            None => self.page_with_notice(Notice::success(NO_SUCH_KEY)),
        }
    }

    /// Renders the confirmation page for replacing a key.
    fn confirm_replacement(&self, id: KeyId) -> Result<Response, PanelError> {
        let Session { tenant, token, .. } = self.session;
        let now = self.request.received_at;
        if tenant.inactive(&now.date()).is_some() {
            // The page says why no key can be created.
            return self.page(200, PageContext::default());
        }
        match self.find_key(id)?.map(|key| KeyView::new(key, now)) {
            Some(key) if key.state == KeyState::Active => {
                templates::page(200, &ReplacePage { tenant: &tenant.name, token, key })
            }
            Some(key) => {
                let text = format!("This key is {} and cannot be replaced.", key.state.as_str());
                self.page_with_notice(Notice::success(text))
            }
            None => self.page_with_notice(Notice::success(NO_SUCH_KEY)),
        }
    }

    /// Returns a key of this tenant with its last use.
    fn find_key(&self, id: KeyId) -> Result<Option<KeyRow>, PanelError> {
        Ok(self
            .panel
            .registry
            .list_keys(self.session.tenant.id)?
            .into_iter()
            .find(|key| key.id == id))
    }

    fn page_with_notice(&self, notice: Notice) -> Result<Response, PanelError> {
        self.page(200, PageContext { notice: Some(notice), ..PageContext::default() })
    }

    /// Returns a key that was just created, once, or a notice that it was shown before. HEAD does
    /// not consume it.
    fn new_key(&self, id: KeyId) -> Result<(Option<Notice>, Option<NewKey>), PanelError> {
        let created = self.find_key(id)?;
        let Some(row) = created.filter(|_| self.request.method == Method::GET) else {
            return Ok((None, None));
        };
        let now = self.request.received_at.monotonic;
        Ok(match self.panel.pending_keys.take(self.session.hash, id, now) {
            Some(key) => (None, Some(NewKey { name: row.name, key })),
            None => {
                (Some(Notice::success("A new key is shown once and cannot be shown again.")), None)
            }
        })
    }
}
