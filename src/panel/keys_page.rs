//! The page of a tenant's keys. A browser without a session gets the sign-in form instead.

use super::error::{FieldErrors, PanelError};
use super::form::Form;
use super::sign_in::{self, Session};
use super::templates::{self, ConfirmPage, KeyForm, KeyFormPage, KeysPage, Notice, ShownKey};
use super::{Panel, log_event};
use crate::http::{Method, Request, Response};
use crate::model::KeyId;
use crate::store::registry::{Action, Admin, Administration, KeyRow, KeyState};

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
    for action in ["edit", "revoke", "delete", "replace"] {
        if let Some(id) = query.id(action) {
            return signed_in.key_page(id, action);
        }
    }
    if query.has("create") {
        return signed_in.form_page(200, None, KeyForm::default(), PageContext::default());
    }
    let filter = query.get("q").trim().to_owned();
    let mut context = PageContext { notice, filter, ..PageContext::default() };
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
        "changed" => Some("The key is changed."),
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

/// The content of a page that is not stored in the registry.
#[derive(Debug, Default)]
pub(super) struct PageContext {
    pub(super) notice: Option<Notice>,
    pub(super) new_key: Option<ShownKey>,
    pub(super) filter: String,
    pub(super) errors: FieldErrors,
}

impl SignedInRequest<'_> {
    /// Renders the page of the tenant's keys.
    pub(super) fn page(&self, status: u16, context: PageContext) -> Result<Response, PanelError> {
        let Session { tenant, token, .. } = self.session;
        let (registry, now) = (&self.panel.registry, self.request.received_at);
        let PageContext { notice, new_key, filter, errors } = context;
        let mut keys = registry.list_keys(tenant.id)?;
        let total = keys.len();
        let part = filter.to_lowercase();
        keys.retain(|key| {
            key.name.to_lowercase().contains(&part) || key.prefix.starts_with(&filter)
        });
        // The newest first.
        keys.reverse();
        let (active, ended) = keys.into_iter().partition(|key| key.state(now) == KeyState::Active);
        let page = KeysPage {
            tenant: &tenant.name,
            token,
            notice,
            inactive: templates::inactive(tenant, now),
            new_key,
            active,
            ended,
            total,
            filter: &filter,
            rate_limit: self.panel.rate_limit,
            now,
            errors,
            event_lists: [
                ("changes", "Changes", registry.changes(tenant.id, CHANGES)?),
                ("sign-ins", "Sign-ins", registry.sign_ins(tenant.id, SIGN_INS)?),
            ],
        };
        templates::page(status, &page)
    }

    /// Renders the form for a new key, or for a change of `key`, which is active.
    pub(super) fn form_page(
        &self,
        status: u16,
        key: Option<KeyRow>,
        key_form: KeyForm,
        context: PageContext,
    ) -> Result<Response, PanelError> {
        let Session { tenant, token, .. } = self.session;
        let (tenant_name, rate_limit) = (&tenant.name, self.panel.rate_limit);
        if tenant.inactive(self.request.received_at).is_some() {
            // The page of the keys says why no key can be created or changed.
            return self.page(status, context);
        }
        let PageContext { notice, errors, .. } = context;
        let page =
            KeyFormPage { tenant: tenant_name, token, notice, key, key_form, rate_limit, errors };
        templates::page(status, &page)
    }

    /// Renders the form that changes a key, or the confirmation page for another action.
    fn key_page(&self, id: KeyId, action: &'static str) -> Result<Response, PanelError> {
        let Session { tenant, token, .. } = self.session;
        let now = self.request.received_at;
        let needs_active = matches!(action, "edit" | "replace");
        if needs_active && tenant.inactive(now).is_some() {
            return self.page(200, PageContext::default());
        }
        let refusal = match self.find_key(id)? {
            None => "There is no such key any more.".to_owned(),
            Some(key) => {
                let state = key.state(now);
                let is_active = state == KeyState::Active;
                if needs_active && !is_active {
                    format!("This key is {} and cannot be changed or replaced.", state.as_str())
                } else if action == "edit" {
                    let limit = key.rate_limit.map(|limit| limit.to_string()).unwrap_or_default();
                    let form = KeyForm { name: key.name.clone(), limit, ..KeyForm::default() };
                    return self.form_page(200, Some(key), form, PageContext::default());
                } else {
                    let page = ConfirmPage { tenant: &tenant.name, token, key, is_active, action };
                    return templates::page(200, &page);
                }
            }
        };
        let notice = Some(Notice::success(refusal));
        self.page(200, PageContext { notice, ..PageContext::default() })
    }

    /// The key of the tenant with this id.
    pub(super) fn find_key(&self, id: KeyId) -> Result<Option<KeyRow>, PanelError> {
        let keys = self.panel.registry.list_keys(self.session.tenant.id)?;
        Ok(keys.into_iter().find(|key| key.id == id))
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
