//! The pages of a signed-in admin.

use super::form::{Form, shown};
use super::notice::{NO_NOTICE, Notice};
use super::page::{Content, KeyList, Page};
use super::pending_keys::PendingKey;
use super::session::Session;
use super::{Panel, log_event};
use crate::http::{Method, Request, Response};
use crate::model::KeyId;
use crate::store::registry::{
    Action, Admin, Administration, Inactive, KeyRow, KeyState, RegistryError,
};
use crate::words::capitalize;

/// The numbers of changes and of sign-ins on the page.
const CHANGES: usize = 20;
const SIGN_INS: usize = 10;

/// A request with a session.
pub(super) struct SignedInRequest<'a> {
    pub(super) panel: &'a Panel,
    pub(super) request: &'a Request,
    pub(super) session: &'a Session,
}

/// The notice after the redirect of a form.
pub(super) fn notice_of(query: &Form) -> Notice {
    Notice::success(match query.get("done") {
        "changed" => "The key is changed.",
        "revoked" => "The key is revoked. Requests with it are refused from now on.",
        "deleted" => "The key is deleted.",
        "signed-out" => "You are signed out.",
        "password-changed" => {
            "The password is changed and every session has ended. Sign in with the new one."
        }
        _ => "",
    })
}

impl SignedInRequest<'_> {
    pub(super) fn get(&self, query: &Form) -> Result<Response, Notice> {
        for action in ["edit", "revoke", "delete", "replace"] {
            if let Some(id) = query.id(action) {
                let page = self.key_page(id, action);
                return page.or_else(|error| self.keys_page(error, "", None));
            }
        }
        if query.contains("create", "") {
            let form = Form::default().with("expires", ["1y"]);
            let page = self.check_active().map(|()| self.form_page(NO_NOTICE, None, &form));
            return page.or_else(|error| self.keys_page(error, "", None));
        }
        let mut notice = notice_of(query);
        let mut new_key = None;
        // HEAD does not consume a new key.
        if let Some(id) = query.id("new").filter(|_| self.request.method == Method::GET) {
            let now = self.request.received_at.monotonic;
            new_key = self.panel.pending_keys.take(self.session.hash, id, now);
            if new_key.is_none() {
                notice = Notice::success("A new key is shown once and cannot be shown again.");
            }
        }
        self.keys_page(notice, query.get("q").trim(), new_key)
    }

    pub(super) fn keys_page(
        &self,
        notice: Notice,
        filter: &str,
        new_key: Option<PendingKey>,
    ) -> Result<Response, Notice> {
        let (registry, now) = (&self.panel.registry, self.request.received_at);
        let tenant = &self.session.tenant;
        let mut keys = registry.list_keys(tenant.id)?;
        let total = keys.len();
        let part = filter.to_lowercase();
        keys.retain(|key| {
            key.name.to_lowercase().contains(&part) || key.prefix.starts_with(filter)
        });
        // The newest first.
        keys.reverse();
        let (active, ended) = keys.into_iter().partition(|key| key.state(now) == KeyState::Active);
        let event_lists = [
            ("changes", "Changes", registry.admin_changes(tenant.id, CHANGES)?),
            ("sign-ins", "Sign-ins", registry.sign_ins(tenant.id, SIGN_INS)?),
        ];
        let title = if new_key.is_some() { "Your new key" } else { "API keys" };
        let keys = KeyList {
            tenant: &tenant.name,
            inactive: self.inactive(),
            new_key,
            active,
            ended,
            total,
            filter,
            rate_limit: self.panel.rate_limit,
            event_lists,
        };
        Ok(self.page(title, notice, Content::Keys(&keys)))
    }

    /// The page with the form for a new key, or for a change of `key`.
    pub(super) fn form_page(&self, notice: Notice, key: Option<&KeyRow>, form: &Form) -> Response {
        let (title, action) = key.map_or(("New key", "create"), |_| ("Edit a key", "edit"));
        let rate_limit = self.panel.rate_limit;
        self.page(title, notice, Content::KeyForm { key, form, action, rate_limit })
    }

    /// The form that changes a key, or the confirmation of another action.
    fn key_page(&self, id: KeyId, action: &str) -> Result<Response, Notice> {
        if action == "edit" {
            let key = self.changeable_key(id)?;
            let limit = key.rate_limit.map(|limit| limit.to_string()).unwrap_or_default();
            let mut form = Form::default().with("expires", ["keep"]);
            for (field, value) in [("name", &key.name), ("limit", &limit)] {
                form = form.with(field, [value]).with(&shown(field), [value]);
            }
            return Ok(self.form_page(NO_NOTICE, Some(&key), &form));
        }
        let find = if action == "replace" { Self::changeable_key } else { Self::find_key };
        let key = &find(self, id)?;
        let title = format!("{} a key", capitalize(action));
        let is_active = key.state(self.request.received_at) == KeyState::Active;
        let content = Content::Confirmation { key, action, is_active };
        Ok(self.page(&title, NO_NOTICE, content))
    }

    fn page(&self, title: &str, notice: Notice, content: Content<'_>) -> Response {
        Page { session: Some(self.session), title, notice, content }.respond()
    }

    /// The key of the tenant with this id. A key of another tenant is treated as unknown.
    fn find_key(&self, id: KeyId) -> Result<KeyRow, Notice> {
        let keys = self.panel.registry.list_keys(self.session.tenant.id)?;
        Ok(keys.into_iter().find(|key| key.id == id).ok_or(RegistryError::NoKey(id))?)
    }

    /// An active key of an active tenant.
    pub(super) fn changeable_key(&self, id: KeyId) -> Result<KeyRow, Notice> {
        self.check_active()?;
        let key = self.find_key(id)?;
        match key.state(self.request.received_at) {
            KeyState::Active => Ok(key),
            state => Err(RegistryError::KeyEnded { id, state: state.as_str() }.into()),
        }
    }

    /// An inactive tenant gets no new key, and its keys are not changed.
    pub(super) fn check_active(&self) -> Result<(), Notice> {
        self.inactive().map_or(Ok(()), |reason| {
            let text = format!("{reason} Nothing was changed.");
            Err(Notice { status: 403, ..Notice::invalid(text) })
        })
    }

    /// Why the tenant is inactive, for its admin.
    fn inactive(&self) -> Option<String> {
        let tenant = &self.session.tenant;
        let reason = tenant.inactive(self.request.received_at)?;
        Some(match (reason, &tenant.trial_until) {
            (Inactive::TrialOver, Some(last_day)) => {
                format!("The trial of this tenant ended on {last_day} (UTC).")
            }
            _ => "The operator has suspended this tenant.".to_owned(),
        })
    }

    /// The tenant's admin, who changes keys and the password.
    pub(super) fn admin(&self) -> Administration<'_> {
        let (tenant, actor) = (self.session.tenant.id, Admin::Panel(self.request.client));
        self.panel.registry.administer(tenant, actor, self.request.received_at)
    }

    pub(super) fn log(&self, action: Action, key: Option<KeyId>) {
        log_event(self.request, &self.session.tenant.name, action, key);
    }
}
