//! The forms of the panel: one function for each. Every form except the sign-in form needs a
//! session and its token.

use std::num::NonZeroU32;

use super::error::{FORM_TOKEN, FieldErrors, PanelError, SESSION_ENDED};
use super::form::{Form, key_end, overlap, parse_limit};
use super::keys_page::{PageContext, SignedInRequest};
use super::sign_in::{self, SESSION, Session, is_equal};
use super::templates::{self, KeyForm, Notice, ShownKey, sentence};
use super::{Panel, redirect};
use crate::clock::Timestamp;
use crate::http::{Request, Response};
use crate::model::{KeyId, Scopes};
use crate::password;
use crate::store::registry::{
    Action, KeyRow, KeyState, NewKey, RegistryError, Replacement, check_key_name,
};

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
            let notice = Some(Notice::error(&error));
            let context =
                PageContext { notice, errors: error.fields.clone(), ..PageContext::default() };
            let key = signed_in.find_key(key_id(&form))?;
            let key = key.filter(|key| key.state(request.received_at) == KeyState::Active);
            let page = match (form.get("action"), key) {
                ("create", _) => signed_in.form_page(error.status, None, key_form(&form), context),
                ("edit", key @ Some(_)) => {
                    signed_in.form_page(error.status, key, key_form(&form), context)
                }
                _ => signed_in.page(error.status, context),
            };
            page.map(|page| error.add_headers(page))
        }
        outcome => outcome,
    }
}

fn key_form(form: &Form) -> KeyForm {
    let echo = |field: &str| form.get(field).chars().take(MAX_ECHO).collect();
    let scopes = form.all("scope").filter_map(Scopes::parse).fold(Scopes::default(), Scopes::union);
    let (name, end, date, limit) = (echo("name"), echo("expires"), echo("date"), echo("limit"));
    KeyForm { name, scopes, end, date, limit }
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
            "edit" => self.edit(form),
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
        self.form_page(200, None, key_form, PageContext::default())
    }

    fn create(&self, form: &Form) -> Result<Response, PanelError> {
        self.check_active()?;
        let scopes = key_form(form).scopes;
        let mut error = PanelError::invalid("No key was created. Please check the form below.");
        let (expires_at, rate_limit) = self.read_settings(form, None, &mut error.fields);
        if scopes.is_empty() {
            error.fields.insert("scopes", "Select at least one scope.".to_owned());
        }
        if !error.fields.is_empty() {
            return Err(error);
        }
        let new = NewKey { name: form.get("name"), scopes, expires_at, rate_limit };
        let (row, key) = self.admin().create_key(&new).map_err(PanelError::refused)?;
        Ok(self.show_once(row, key))
    }

    fn edit(&self, form: &Form) -> Result<Response, PanelError> {
        self.check_active()?;
        let (id, name) = (key_id(form), form.get("name"));
        let key =
            self.find_key(id)?.ok_or(RegistryError::NoKey(id)).map_err(PanelError::refused)?;
        let mut error = PanelError::invalid("Nothing was changed. Please check the form below.");
        let (expires_at, rate_limit) = self.read_settings(form, Some(&key), &mut error.fields);
        if !error.fields.is_empty() {
            return Err(error);
        }
        let changed = self.admin().change_key(id, |key| {
            *key = KeyRow { name: name.to_owned(), expires_at, rate_limit, ..key.clone() };
        });
        for action in changed.map_err(PanelError::refused)?.1 {
            self.log(action, Some(id));
        }
        Ok(redirect("?done=changed"))
    }

    /// Reads the end and the limit that a form gives to a new key, or to `key`. Adds what is wrong
    /// with them and with the name to `errors`.
    fn read_settings(
        &self,
        form: &Form,
        key: Option<&KeyRow>,
        errors: &mut FieldErrors,
    ) -> (Option<Timestamp>, Option<NonZeroU32>) {
        if let Err(rule) = check_key_name(form.get("name")) {
            errors.insert("name", sentence(rule));
        }
        let end = match (form.get("expires"), key) {
            ("keep", Some(key)) => Ok(key.expires_at),
            (choice, _) => key_end(choice, form.get("date"), self.request.received_at),
        };
        let server = self.panel.rate_limit;
        let most = key.and_then(|key| key.rate_limit).map_or(server, |limit| limit.max(server));
        let limit = parse_limit(form.get("limit"), most);
        if let Err(message) = end {
            errors.insert("end", message.to_owned());
        }
        if let Err(message) = &limit {
            errors.insert("limit", message.clone());
        }
        (end.unwrap_or_default(), limit.unwrap_or_default())
    }

    fn replace(&self, form: &Form) -> Result<Response, PanelError> {
        self.check_active()?;
        let overlap = overlap(form.get("overlap")).ok_or_else(|| {
            PanelError::invalid("Select when the old key expires. Nothing was changed.")
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
                let message = format!("{reason} Nothing was changed.");
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
