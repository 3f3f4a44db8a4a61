//! The page of a tenant's keys. A browser without a session gets the sign-in form instead.

use super::error::{FieldErrors, PanelError};
use super::form::Form;
use super::sign_in::{self, Session};
use super::templates::{self, ConfirmPage, KeyForm, KeysPage, Notice, ShownKey};
use super::{Panel, log_event};
use crate::http::{Method, Request, Response};
use crate::model::KeyId;
use crate::store::registry::{Action, Admin, Administration, KeyState};

/// The numbers of changes and of sign-ins on the page.
const CHANGES: usize = 20;
const SIGN_INS: usize = 10;

/// Responds to GET and HEAD. Sets `tenant` to the name of the tenant that is signed in.
pub(super) fn handle_get(
    panel: &Panel,
    request: &Request,
    tenant: &mut Option<String>,
) -> Result<Response, PanelError> {
    let query = Form::from_query(request);
    let notice = done(query.get("done")).map(Notice::success);
    let Some(session) = Session::find(panel, request)? else {
        return sign_in::page(request, notice, "", 200);
    };
    *tenant = Some(session.tenant.name.clone());
    let signed_in = SignedInRequest { panel, request, session: &session };
    for action in ["revoke", "delete", "replace"] {
        if let Some(id) = query.id(action) {
            return signed_in.confirm(id, action);
        }
    }
    let mut context = PageContext { notice, ..PageContext::default() };
    // HEAD does not consume a new key.
    if let Some(id) = query.id("new").filter(|_| request.method == Method::GET) {
        let now = request.received_at.monotonic;
        context.new_key = panel.pending_keys.take(session.hash, id, now);
        if context.new_key.is_none() {
            let text = "A new key is shown once and cannot be shown again.";
            context.notice = Some(Notice::success(text));
        }
    }
    signed_in.page(200, context)
}

/// The message of the page after the redirect of a form.
fn done(name: &str) -> Option<&'static str> {
    match name {
        "revoked" => Some("The key is revoked. Requests with it are refused from now on."),
        "deleted" => Some("The key is deleted."),
        "signed-out" => Some("You are signed out."),
        "password-changed" => {
            Some("The password is changed and every session has ended. Sign in with the new one.")
        }
        _ => None,
    }
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
    pub(super) new_key: Option<ShownKey>,
    pub(super) key_form: KeyForm,
    pub(super) errors: FieldErrors,
}

impl SignedInRequest<'_> {
    /// Renders the page of the tenant's keys.
    pub(super) fn page(&self, status: u16, context: PageContext) -> Result<Response, PanelError> {
        let Session { tenant, token, .. } = self.session;
        let (registry, now) = (&self.panel.registry, self.request.received_at);
        let mut keys = registry.list_keys(tenant.id)?;
        // Active keys first, then the newest.
        keys.sort_by_key(|key| (key.state(now) != KeyState::Active, std::cmp::Reverse(key.id)));
        let PageContext { notice, new_key, key_form, errors } = context;
        let page = KeysPage {
            tenant: &tenant.name,
            token,
            notice,
            inactive: templates::inactive(tenant, now),
            new_key,
            keys,
            now,
            key_form,
            errors,
            event_lists: [
                ("changes", "Changes", registry.changes(tenant.id, CHANGES)?),
                ("sign-ins", "Sign-ins", registry.sign_ins(tenant.id, SIGN_INS)?),
            ],
        };
        templates::page(status, &page)
    }

    /// Renders the confirmation page for revoking, deleting or replacing a key.
    fn confirm(&self, id: KeyId, action: &'static str) -> Result<Response, PanelError> {
        let Session { tenant, token, .. } = self.session;
        let now = self.request.received_at;
        if action == "replace" && tenant.inactive(now).is_some() {
            // The page says why no key can be created.
            return self.page(200, PageContext::default());
        }
        let keys = self.panel.registry.list_keys(tenant.id)?;
        let refusal = match keys.into_iter().find(|key| key.id == id) {
            None => "There is no such key any more.".to_owned(),
            Some(key) => {
                let state = key.state(now);
                let is_active = state == KeyState::Active;
                if is_active || action != "replace" {
                    let page = ConfirmPage { tenant: &tenant.name, token, key, is_active, action };
                    return templates::page(200, &page);
                }
                format!("This key is {} and cannot be replaced.", state.as_str())
            }
        };
        let notice = Some(Notice::success(refusal));
        self.page(200, PageContext { notice, ..PageContext::default() })
    }

    /// The tenant's admin, as whoever changes keys and the password.
    pub(super) fn admin(&self) -> Administration<'_> {
        let (tenant, actor) = (self.session.tenant.id, Admin::Panel(self.request.client));
        self.panel.registry.administer(tenant, actor, self.request.received_at)
    }

    pub(super) fn log(&self, action: Action, key: Option<KeyId>) {
        log_event(self.request, &self.session.tenant.name, action, key);
    }
}
