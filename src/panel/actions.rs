//! The forms of the panel: one function for each. Every form except the sign-in form needs a
//! session and its token.

use super::error::{FORM_TOKEN, PanelError, SESSION_ENDED};
use super::form::{Form, key_end, overlap};
use super::keys_page::{PageContext, SignedInRequest};
use super::sign_in::{self, SESSION, Session, is_equal};
use super::templates::{self, KeyForm, Notice, ShownKey, sentence};
use super::{Panel, redirect};
use crate::http::{Request, Response};
use crate::model::{KeyId, Scopes};
use crate::password;
use crate::store::registry::{self, Action, KeyRow, Replacement, check_key_name};

/// Maximum number of characters of a key's name that the page repeats: twice the longest valid
/// name.
const MAX_ECHO: usize = 200;

/// Responds to POST. The checks run in this order: size, session, token, form.
pub(super) fn handle_post(
    panel: &Panel,
    request: &Request,
    tenant: &mut Option<String>,
) -> Result<Response, PanelError> {
    let form = Form::from_body(request)?;
    if form.get("action") == "sign-in" {
        return sign_in::sign_in(panel, request, &form, tenant);
    }
    let Some(session) = Session::find(panel, request)? else {
        return sign_in::page_with_error(request, &SESSION_ENDED, "");
    };
    *tenant = Some(session.tenant.name.clone());
    let signed_in = SignedInRequest { panel, request, session: &session };
    match signed_in.act(&form) {
        Err(error) if error.status < 500 => {
            let context = PageContext {
                notice: Some(Notice::error(&error)),
                key_form: key_form(&form),
                errors: error.fields.clone(),
                new_key: None,
            };
            Ok(error.add_headers(signed_in.page(error.status, context)?))
        }
        outcome => outcome,
    }
}

fn key_form(form: &Form) -> KeyForm {
    let echo = |field: &str| form.get(field).chars().take(MAX_ECHO).collect();
    let scopes = form.all("scope").filter_map(Scopes::parse).fold(Scopes::default(), Scopes::union);
    KeyForm { name: echo("name"), scopes, end: echo("expires"), date: echo("date") }
}

impl SignedInRequest<'_> {
    /// Does what a form asks for. A 4xx error is shown on the page.
    fn act(&self, form: &Form) -> Result<Response, PanelError> {
        if !is_equal(form.get("token"), &self.session.token) {
            return Err(FORM_TOKEN);
        }
        match form.get("action") {
            "sign-out" => {
                self.panel.registry.end_session(&self.session.hash)?;
                Ok(SESSION.set(self.request, "", redirect("?done=signed-out")))
            }
            "select-all" => self.select_scopes(form, Scopes::every()),
            "select-read" => self.select_scopes(form, Scopes::read_only()),
            "create" => self.create(form),
            "replace" => self.replace(form),
            "revoke" => self.revoke(form),
            "delete" => self.delete(form),
            "password" => self.change_password(form),
            _ => Err(PanelError::invalid("This page has no such form. Nothing was changed.")),
        }
    }

    /// Selects scopes for a browser without JavaScript. Creates nothing.
    fn select_scopes(&self, form: &Form, scopes: Scopes) -> Result<Response, PanelError> {
        let key_form = KeyForm { scopes, ..key_form(form) };
        self.page(200, PageContext { key_form, ..PageContext::default() })
    }

    fn create(&self, form: &Form) -> Result<Response, PanelError> {
        self.check_active()?;
        let now = self.request.received_at;
        let (name, scopes) = (form.get("name"), key_form(form).scopes);
        let mut error = PanelError::invalid("No key was created. Please check the form below.");
        if let Err(rule) = check_key_name(name) {
            error.fields.insert("name", sentence(rule));
        }
        if scopes.is_empty() {
            error.fields.insert("scopes", "Select at least one scope.".to_owned());
        }
        let end = key_end(form.get("expires"), form.get("date"), now);
        let expires_at = end.unwrap_or_else(|message| {
            error.fields.insert("end", message.to_owned());
            None
        });
        if !error.fields.is_empty() {
            return Err(error);
        }
        let new = registry::NewKey { expires_at, ..registry::NewKey::new(name, scopes) };
        let (row, key) = self.admin().create_key(&new).map_err(PanelError::refused)?;
        Ok(self.show_once(row, key))
    }

    fn replace(&self, form: &Form) -> Result<Response, PanelError> {
        self.check_active()?;
        let overlap = overlap(form.get("overlap")).ok_or_else(|| {
            PanelError::invalid("Select when the old key ends. Nothing was changed.")
        })?;
        let replaced = self.admin().replace_key(key_id(form), overlap);
        let Replacement { old, new, key } = replaced.map_err(PanelError::refused)?;
        self.log(Action::KeyReplaced, Some(old.id));
        Ok(self.show_once(new, key))
    }

    /// Keeps a new key for the page after the redirect, which shows it.
    fn show_once(&self, row: KeyRow, key: String) -> Response {
        self.log(Action::KeyCreated, Some(row.id));
        let (new, now) = (ShownKey { name: row.name, key }, self.request.received_at.monotonic);
        self.panel.pending_keys.put(self.session.hash, row.id, new, now);
        redirect(&format!("?new={}", row.id))
    }

    /// A key of another tenant is treated as unknown.
    fn revoke(&self, form: &Form) -> Result<Response, PanelError> {
        let key = self.admin().revoke_key(key_id(form)).map_err(PanelError::refused)?;
        self.log(Action::KeyRevoked, Some(key.id));
        Ok(redirect("?done=revoked"))
    }

    fn delete(&self, form: &Form) -> Result<Response, PanelError> {
        let key = self.admin().delete_key(key_id(form)).map_err(PanelError::refused)?;
        self.log(Action::KeyDeleted, Some(key.id));
        Ok(redirect("?done=deleted"))
    }

    /// Changes the password after a check of the current one, and ends every session of the tenant.
    fn change_password(&self, form: &Form) -> Result<Response, PanelError> {
        let SignedInRequest { panel, request, session } = self;
        let (tenant, new) = (&session.tenant, form.get("new"));
        let mut error =
            PanelError::invalid("The password was not changed. Please check the form below.");
        if let Err(rule) = password::check(new) {
            error.fields.insert("new", sentence(rule));
        }
        if form.get("again") != new {
            error.fields.insert("again", "This is not the same password.".to_owned());
        }
        if !error.fields.is_empty() {
            return Err(error);
        }
        let stored = Some(&*tenant.password_hash);
        if !panel.passwords.verify(session.hash, request, form.get("current"), stored)? {
            error.fields.insert("current", "This is not the current password.".to_owned());
            return Err(error);
        }
        let hash = panel.passwords.hash(new)?;
        self.admin().set_password(&hash)?;
        self.log(Action::PasswordChanged, None);
        Ok(SESSION.set(request, "", redirect("?done=password-changed")))
    }

    /// An inactive tenant gets no new key.
    fn check_active(&self) -> Result<(), PanelError> {
        match templates::inactive(&self.session.tenant, self.request.received_at) {
            Some(reason) => {
                let message = format!("{reason} No key was created.");
                Err(PanelError { status: 403, ..PanelError::invalid(message) })
            }
            None => Ok(()),
        }
    }
}

/// The key of a form. 0 is not the id of any key.
fn key_id(form: &Form) -> KeyId {
    form.id("key").unwrap_or(KeyId(0))
}
