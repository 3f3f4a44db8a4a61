//! Forms and query strings: how they are read, and what each form of a signed-in admin does (contract
//! sections 9 and 14).

use std::num::NonZeroU32;

use jiff::Span;

use super::pages::{
    FOREIGN_FORM, METHOD_NOT_ALLOWED, NOT_A_VISIT, Notice, SESSION_ENDED, TOO_LARGE, View,
};
use super::redirect;
use super::session::{AdminRequest, set_cookie, sign_in_page};
use crate::clock::{Moment, Timestamp};
use crate::http::request::{decode_form, form_pairs};
use crate::http::{Body, Method, Request, Response};
use crate::model::validation::{is_date, is_positive_integer};
use crate::model::{KeyId, Scopes};
use crate::secret;
use crate::store::registry::{EventKind, KeyRow, NewKey, Replacement, check_key_name};
use crate::words::capitalize;

/// Maximum size of a form in bytes (contract section 9).
const MAX_BODY: usize = 16 * 1024;

/// Names and values in the order sent.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The form in the body of a POST, or the query of a GET.
    ///
    /// A browser says in `Sec-Fetch-Dest` whether a person opens the page (`document`), or a script
    /// or a frame asks for it. The script of `/docs` has the same origin. It must not read a page
    /// or make a key.
    ///
    /// # Errors
    ///
    /// [`NOT_A_VISIT`], [`METHOD_NOT_ALLOWED`], [`FOREIGN_FORM`] or [`TOO_LARGE`].
    pub(super) fn read(request: &Request) -> Result<Form, Notice> {
        if request.header("sec-fetch-dest").is_some_and(|purpose| purpose != "document") {
            return Err(NOT_A_VISIT);
        }
        match request.method {
            Method::GET | Method::HEAD => {
                Ok(Form::parse(request.query.as_deref().unwrap_or_default()))
            }
            Method::POST if !is_of_this_origin(request) => Err(FOREIGN_FORM),
            Method::POST => match &request.body {
                // A body that is no form has no action, and changes nothing.
                Body::Whole(body) if body.len() <= MAX_BODY => {
                    Ok(std::str::from_utf8(body).map(Form::parse).unwrap_or_default())
                }
                Body::Whole(_) | Body::TooLarge => Err(TOO_LARGE),
            },
            _ => Err(METHOD_NOT_ALLOWED),
        }
    }

    /// Skips fields that are not UTF-8.
    fn parse(text: &str) -> Form {
        let mut form = Form::default();
        for (_, name, value) in form_pairs(text) {
            if let (Ok(name), Ok(value)) = (decode_form(name), decode_form(value)) {
                form.0.push((name, value));
            }
        }
        form
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Form {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The first value of a field, or an empty string.
    pub(super) fn get(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn contains(&self, name: &str, value: &str) -> bool {
        self.all(name).any(|own| own == value)
    }

    /// The id in a field. Returns `None` unless it consists of digits only.
    pub(super) fn id(&self, name: &str) -> Option<KeyId> {
        let text = self.get(name);
        if is_positive_integer(text) { text.parse().map(KeyId).ok() } else { None }
    }
}

/// Whether a page of this server sent the form, or its user did without a page (`none`). Otherwise
/// a foreign page could send a form with the cookie of an admin who visits it.
///
/// Browsers send `Sec-Fetch-Site` over HTTPS and to this machine. To another machine over HTTP, they
/// name the page's address in `Origin`, unless the page has the policy `no-referrer`.
fn is_of_this_origin(request: &Request) -> bool {
    if let Some(site) = request.header("sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    let origin = request.header("origin").and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, host)| request.header("host") == Some(host))
}

impl AdminRequest<'_> {
    pub(super) fn post(&self, form: &Form) -> Result<Response, Notice> {
        self.act(form).or_else(|error| self.show_error(error, form))
    }

    /// Shows an error on the page that the form was sent from.
    fn show_error(&self, error: Notice, form: &Form) -> Result<Response, Notice> {
        match form.get("action") {
            _ if error == SESSION_ENDED => Ok(sign_in_page(error, "")),
            "create" if self.check_active().is_ok() => Ok(self.form_page(error, None, form)),
            "edit" if let Ok(key) = self.changeable_key(key_id(form)) => {
                Ok(self.form_page(error, Some(&key), form))
            }
            "password" => Ok(self.page("Password", error, View::Password)),
            _ => self.keys_page(error),
        }
    }

    fn act(&self, form: &Form) -> Result<Response, Notice> {
        match form.get("action") {
            "sign-out" => {
                self.panel.registry.end_session(&self.session.hash)?;
                Ok(set_cookie(self.request, "", redirect("?done=signed-out")))
            }
            "create" => self.create(form),
            "edit" => self.edit(form),
            "replace" => self.replace(form),
            "revoke" => {
                let key = self.administer().revoke_key(key_id(form))?;
                self.log(EventKind::KeyRevoked, Some(key.id));
                Ok(redirect(&format!("?done=revoked&key={}", key.id)))
            }
            "delete" => {
                let key = self.administer().delete_key(key_id(form))?;
                self.log(EventKind::KeyDeleted, Some(key.id));
                Ok(redirect(&format!("?done=deleted&key={}", key.id)))
            }
            "password" => self.change_password(form),
            _ => Err(Notice::invalid("This page has no such form. Nothing was changed.")),
        }
    }

    fn create(&self, form: &Form) -> Result<Response, Notice> {
        self.check_active()?;
        let (row, key) = self.administer().create_key(&self.read_key(form, None)?)?;
        Ok(self.show_once(row, key, None))
    }

    fn edit(&self, form: &Form) -> Result<Response, Notice> {
        let key = self.changeable_key(key_id(form))?;
        let NewKey { name, expires_at, rate_limit, .. } = self.read_key(form, Some(&key))?;
        let (_, actions) = self.administer().change_key(key.id, |key| {
            name.clone_into(&mut key.name);
            key.rate_limit = rate_limit;
            if changes_end(form) {
                key.expires_at = expires_at;
            }
        })?;
        for action in actions {
            self.log(action, Some(key.id));
        }
        Ok(redirect(&format!("?done=changed&key={}", key.id)))
    }

    /// Reads the form for a new key, or for a change of `key`, whose scopes stay.
    fn read_key<'f>(&self, form: &'f Form, key: Option<&KeyRow>) -> Result<NewKey<'f>, Notice> {
        let mut fields = Vec::new();
        let mut new = NewKey::new(form.get("name"), Scopes::default());
        if let Err(rule) = check_key_name(new.name) {
            fields.push(("name", sentence(rule)));
        }
        for scopes in form.all("scope").filter_map(Scopes::parse) {
            new.scopes = new.scopes.union(scopes);
        }
        if key.is_none() && new.scopes.is_empty() {
            fields.push(("scopes", "Select at least one scope.".to_owned()));
        }
        if key.is_none() || changes_end(form) {
            match key_end(form.get("expires"), form.get("date"), self.request.received_at) {
                Ok(end) => new.expires_at = end,
                Err((field, error)) => fields.push((field, error.to_owned())),
            }
        }
        // The operator may have given the key more than the server's limit.
        let own_limit = key.and_then(|key| key.rate_limit).unwrap_or(self.panel.rate_limit);
        match parse_limit(form.get("limit"), self.panel.rate_limit.max(own_limit)) {
            Ok(limit) => new.rate_limit = limit,
            Err(error) => fields.push(("limit", error)),
        }
        if fields.is_empty() {
            return Ok(new);
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
        let Replacement { old, new, key } = self.administer().replace_key(key_id(form), overlap)?;
        self.log(EventKind::KeyReplaced, Some(old.id));
        Ok(self.show_once(new, key, Some(old)))
    }

    /// Changes the password after a check of the current one, and ends every session of the tenant.
    fn change_password(&self, form: &Form) -> Result<Response, Notice> {
        let (new, tenant) = (form.get("new"), &self.session.tenant);
        let mut fields = Vec::new();
        if let Err(rule) = secret::check_password(new) {
            fields.push(("new", sentence(rule)));
        }
        if form.get("again") != new {
            fields.push(("again", "This is not the same password.".to_owned()));
        }
        if fields.is_empty() {
            let (attempts, stored) = (&self.panel.attempts, Some(&*tenant.password_hash));
            let current = form.get("current");
            if attempts.verify(self.session.hash, self.request, current, stored)? {
                let hash = secret::hash_password(new).map_err(|error| Notice::internal(&error))?;
                self.administer().set_password(&hash)?;
                self.log(EventKind::PasswordChanged, None);
                return Ok(set_cookie(self.request, "", redirect("?done=password-changed")));
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

/// Whether the form for a change of a key gives it another end. Without JavaScript, a date can be
/// entered beside "No change".
fn changes_end(form: &Form) -> bool {
    form.get("expires") != "keep" || !form.get("date").is_empty()
}

/// 0 is not the id of any key.
fn key_id(form: &Form) -> KeyId {
    form.id("key").unwrap_or(KeyId(0))
}

/// When a key expires: values and labels.
pub(super) const ENDS: [(&str, &str); 5] = [
    ("30d", "In 30 days"),
    ("90d", "In 90 days"),
    ("1y", "In a year"),
    ("date", "On a date"),
    ("never", "Never"),
];

/// How long a replaced key is still accepted: values and labels.
pub(super) const OVERLAPS: [(&str, &str); 4] =
    [("0", "At once"), ("1h", "In an hour"), ("1d", "In a day"), ("7d", "In a week")];

/// The end of a key that is created at `now`; `None` for a key without an end. `date` is the other
/// field of the form.
///
/// # Errors
///
/// The invalid field, and for the user the fault and the remedy.
pub(super) fn key_end(
    choice: &str,
    date: &str,
    now: Moment,
) -> Result<Option<Timestamp>, (&'static str, &'static str)> {
    if choice != "date" && !date.is_empty() {
        return Err(("expires", "Select “On a date”, or leave the date empty."));
    }
    let end = match choice {
        "never" => return Ok(None),
        "date" if !is_date(date) => return Err(("date", "Enter a date.")),
        "date" => Timestamp::end_of_day(date),
        "30d" | "90d" | "1y" => choice.parse().ok().and_then(|span| now.after(span)),
        _ => return Err(("expires", "Select one of these.")),
    };
    match end {
        None => Err(("date", "This end is too far away.")),
        Some(end) if end <= now.timestamp() => Err(("date", "This date is in the past.")),
        Some(end) => Ok(Some(end)),
    }
}

/// The limit of a key, in requests a minute; `None` for the server's. The operator alone gives more
/// than `most`.
///
/// # Errors
///
/// The remedy, for the user.
pub(super) fn parse_limit(text: &str, most: NonZeroU32) -> Result<Option<NonZeroU32>, String> {
    match text.trim().parse() {
        _ if text.trim().is_empty() => Ok(None),
        Ok(limit) if limit <= most => Ok(Some(limit)),
        _ => Err(format!("Enter a number from 1 to {most}, or leave it empty.")),
    }
}

/// The overlap of a form, if it is one of [`OVERLAPS`].
pub(super) fn overlap(choice: &str) -> Option<Span> {
    match choice {
        "0" => Some(Span::new()),
        "1h" | "1d" | "7d" => choice.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_as_browsers_encode_them() {
        let form = Form::parse("name=a+b%26c&scope=x&scope=y&bad=%ff&empty=&bare&id=7&minus=-7");
        assert_eq!(form.get("name"), "a b&c");
        assert_eq!(form.all("scope").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(
            (form.get("bad"), form.get("empty"), form.get("bare"), form.get("none")),
            ("", "", "", "")
        );
        assert_eq!(
            (form.id("id"), form.id("minus"), form.id("none")),
            (Some(KeyId(7)), None, None)
        );
    }
}
