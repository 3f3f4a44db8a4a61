//! The forms of a signed-in admin: one function for each.

use super::form::{Form, key_end, overlap, parse_limit, shown};
use super::notice::{FORM_TOKEN, NO_NOTICE, Notice};
use super::pending_keys::PendingKey;
use super::redirect;
use super::session::{SESSION, is_equal};
use super::signed_in::SignedInRequest;
use crate::http::Response;
use crate::model::{KeyId, Scopes};
use crate::password;
use crate::store::registry::{Action, KeyRow, NewKey, Replacement, check_key_name};
use crate::words::capitalize;

impl SignedInRequest<'_> {
    pub(super) fn post(&self, form: &Form) -> Result<Response, Notice> {
        self.act(form).or_else(|error| self.show_error(error, form))
    }

    /// Shows an error on the page that the form was sent from.
    fn show_error(&self, error: Notice, form: &Form) -> Result<Response, Notice> {
        match form.get("action") {
            "create" if self.check_active().is_ok() => Ok(self.form_page(error, None, form)),
            "edit" if let Ok(key) = self.changeable_key(key_id(form)) => {
                Ok(self.form_page(error, Some(&key), form))
            }
            _ => self.keys_page(error, "", None),
        }
    }

    /// Does what a form asks for.
    fn act(&self, form: &Form) -> Result<Response, Notice> {
        if !is_equal(form.get("token"), &self.session.token) {
            return Err(FORM_TOKEN);
        }
        match form.get("action") {
            "sign-out" => {
                self.panel.registry.end_session(&self.session.hash)?;
                Ok(SESSION.set(self.request, "", redirect("?done=signed-out")))
            }
            "create" => self.create(form),
            "edit" => self.edit(form),
            "replace" => self.replace(form),
            "revoke" => self.revoke(form),
            "delete" => self.delete(form),
            "password" => self.change_password(form),
            // A browser without JavaScript ticks the boxes by `select-all` and `select-read`.
            other => match other.strip_prefix("select-").and_then(Scopes::parse) {
                Some(scopes) => {
                    self.check_active()?;
                    let form = form.clone().with("scope", scopes.names());
                    Ok(self.form_page(NO_NOTICE, None, &form))
                }
                None => Err(Notice::invalid("This page has no such form. Nothing was changed.")),
            },
        }
    }

    fn create(&self, form: &Form) -> Result<Response, Notice> {
        self.check_active()?;
        let (row, key) = self.admin().create_key(&self.read_key(form, None)?)?;
        Ok(self.show_once(row, key))
    }

    fn edit(&self, form: &Form) -> Result<Response, Notice> {
        let key = self.changeable_key(key_id(form))?;
        let NewKey { name, expires_at, rate_limit, .. } = self.read_key(form, Some(&key))?;
        let (_, actions) = self.admin().change_key(key.id, |key| {
            *key = KeyRow { name: name.to_owned(), expires_at, rate_limit, ..key.clone() };
        })?;
        for action in actions {
            self.log(action, Some(key.id));
        }
        Ok(redirect("?done=changed"))
    }

    /// Reads the form for a new key, or for a change of `key`.
    ///
    /// A value that the admin has not changed in the form stays as it is in the registry. Example:
    /// two tabs show the same key. One renames the key, and the other changes its limit. Without
    /// this rule, the second form would restore the old name.
    fn read_key<'f>(&self, form: &'f Form, key: Option<&'f KeyRow>) -> Result<NewKey<'f>, Notice> {
        let mut fields = Vec::new();
        let unchanged = |field| key.filter(|_| form.contains(&shown(field), form.get(field)));
        let name = unchanged("name").map_or_else(|| form.get("name"), |key| &*key.name);
        if let Err(rule) = check_key_name(name) {
            fields.push(("name", sentence(rule)));
        }
        let given = form.all("scope").filter_map(Scopes::parse);
        let given = given.fold(Scopes::default(), Scopes::union);
        let scopes = key.map_or(given, |key| key.scopes);
        if scopes.is_empty() {
            fields.push(("scopes", "Select at least one scope.".to_owned()));
        }
        let end = match (form.get("expires"), key) {
            ("keep", Some(key)) => Ok(key.expires_at),
            (choice, _) => key_end(choice, form.get("date"), self.request.received_at),
        };
        let expires_at = end.unwrap_or_else(|error| {
            fields.push(("end", error.to_owned()));
            None
        });
        let server = self.panel.rate_limit;
        let most = key.and_then(|key| key.rate_limit).map_or(server, |limit| limit.max(server));
        let limit = match unchanged("limit") {
            Some(key) => Ok(key.rate_limit),
            None => parse_limit(form.get("limit"), most),
        };
        let rate_limit = limit.unwrap_or_else(|error| {
            fields.push(("limit", error));
            None
        });
        if fields.is_empty() {
            return Ok(NewKey { name, scopes, expires_at, rate_limit });
        }
        let outcome = if key.is_some() { "Nothing was changed." } else { "No key was created." };
        let text = format!("{outcome} Please check the form below.");
        Err(Notice { fields, ..Notice::invalid(text) })
    }

    fn replace(&self, form: &Form) -> Result<Response, Notice> {
        self.check_active()?;
        let overlap = overlap(form.get("overlap")).ok_or_else(|| {
            Notice::invalid("Select when the old key expires. Nothing was changed.")
        })?;
        let Replacement { old, new, key } = self.admin().replace_key(key_id(form), overlap)?;
        self.log(Action::KeyReplaced, Some(old.id));
        Ok(self.show_once(new, key))
    }

    /// Keeps a new key for the page after the redirect, which shows it.
    fn show_once(&self, KeyRow { id, name, .. }: KeyRow, secret: String) -> Response {
        self.log(Action::KeyCreated, Some(id));
        let (session, since) = (self.session.hash, self.request.received_at.monotonic);
        self.panel.pending_keys.put(PendingKey { session, id, name, secret, since });
        redirect(&format!("?new={id}"))
    }

    fn revoke(&self, form: &Form) -> Result<Response, Notice> {
        let key = self.admin().revoke_key(key_id(form))?;
        self.log(Action::KeyRevoked, Some(key.id));
        Ok(redirect("?done=revoked"))
    }

    fn delete(&self, form: &Form) -> Result<Response, Notice> {
        let key = self.admin().delete_key(key_id(form))?;
        self.log(Action::KeyDeleted, Some(key.id));
        Ok(redirect("?done=deleted"))
    }

    /// Changes the password after a check of the current one, and ends every session of the tenant.
    fn change_password(&self, form: &Form) -> Result<Response, Notice> {
        let (new, tenant) = (form.get("new"), &self.session.tenant);
        let mut fields = Vec::new();
        if let Err(rule) = password::check(new) {
            fields.push(("new", sentence(rule)));
        }
        if form.get("again") != new {
            fields.push(("again", "This is not the same password.".to_owned()));
        }
        if fields.is_empty() {
            let (passwords, stored) = (&self.panel.passwords, Some(&*tenant.password_hash));
            let current = form.get("current");
            if passwords.verify(self.session.hash, self.request, current, stored)? {
                let hash = password::hash(new).map_err(|error| Notice::internal(&error))?;
                self.admin().set_password(&hash)?;
                self.log(Action::PasswordChanged, None);
                return Ok(SESSION.set(self.request, "", redirect("?done=password-changed")));
            }
            fields.push(("current", "This is not the current password.".to_owned()));
        }
        let text = "The password was not changed. Please check the form below.";
        Err(Notice { fields, ..Notice::invalid(text) })
    }
}

/// Turns a rule of another module into a sentence.
fn sentence(rule: impl std::fmt::Display) -> String {
    format!("{}.", capitalize(&rule.to_string()))
}

/// 0 is not the id of any key.
fn key_id(form: &Form) -> KeyId {
    form.id("key").unwrap_or(KeyId(0))
}
