//! What a signed-in admin sees and does: the pages behind the tabs, and the forms on them (contract
//! sections 9 and 14).

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::page::{
    Form, NO_NOTICE, Notice, OVERLAPS, Page, SESSION_ENDED, View, inactivity, redirect,
};
use super::session::{Session, log_event, set_cookie, sign_in_page};
use super::{Panel, failure_page};
use crate::clock::{Moment, Timestamp, last_second};
use crate::http::{Method, Request, Response};
use crate::model::validation::is_date;
use crate::model::{KeyId, Scopes};
use crate::secret;
use crate::store::registry::{
    Admin, Administration, EventKind, KeyRow, KeyState, NewKey, Replacement, check_key_name,
};
use crate::words::{capitalize, printable};

/// The numbers of changes and of sign-ins on their page.
const EVENTS: usize = 50;

/// How long a new key waits for the page that shows it.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Maximum number of new keys that wait. The oldest is dropped first.
const CAPACITY: usize = 1_000;

/// A new key between the form that creates it and the page that shows it once.
pub(super) struct PendingKey {
    /// The hash of the session that created it.
    session: [u8; 32],
    row: KeyRow,
    secret: String,
    /// The key that the new one replaces, with its new end.
    old: Option<KeyRow>,
    /// Monotonic.
    since: Duration,
}

/// New keys that no page has shown yet, the oldest first.
pub(super) type NewKeys = Mutex<VecDeque<PendingKey>>;

/// A request with a session.
pub(super) struct Visit<'a> {
    pub(super) panel: &'a Panel,
    pub(super) request: &'a Request,
    pub(super) session: Session,
}

impl Visit<'_> {
    pub(super) fn answer(&self, form: &Form) -> Response {
        let page = match self.request.method {
            Method::POST => self.act(form).or_else(|error| self.show_error(error, form)),
            _ => self.find_page(form).or_else(|error| self.keys_page(error)),
        };
        page.unwrap_or_else(failure_page)
    }

    /// The key of the tenant with this id. A key of another tenant is treated as unknown.
    fn find_key(&self, id: KeyId) -> Result<KeyRow, Notice> {
        let keys = self.panel.registry.list_keys(self.session.tenant.id)?;
        keys.into_iter().find(|key| key.id == id).ok_or_else(Notice::no_key)
    }

    fn changeable_key(&self, id: KeyId) -> Result<KeyRow, Notice> {
        self.check_active()?;
        Ok(self.find_key(id)?.require_active(self.request.received_at)?)
    }

    /// An inactive tenant gets no new key, and its keys are not changed.
    fn check_active(&self) -> Result<(), Notice> {
        match self.inactive() {
            Some(reason) => Err(Notice::inactive(&reason)),
            None => Ok(()),
        }
    }

    fn inactive(&self) -> Option<String> {
        let tenant = &self.session.tenant;
        let reason = tenant.inactive(self.request.received_at)?;
        Some(inactivity(reason, tenant.trial_until.as_deref()))
    }

    fn administer(&self) -> Administration<'_> {
        let (tenant, actor) = (self.session.tenant.id, Admin::Panel(self.request.client));
        let now = self.request.received_at;
        self.panel.registry.administer(tenant, actor, now).in_session(&self.session.hash)
    }

    fn log(&self, action: EventKind, key: Option<KeyId>) {
        log_event(self.request, &self.session.tenant.name, action, key);
    }
}

impl Visit<'_> {
    fn find_page(&self, query: &Form) -> Result<Response, Notice> {
        for action in ["edit", "revoke", "delete", "replace"] {
            if let Some(id) = query.id(action) {
                return self.key_page(id, action);
            }
        }
        if query.contains("create", "") {
            self.check_active()?;
            let form = Form::default().with("expires", "1y");
            return Ok(self.form_page(NO_NOTICE, None, &form));
        }
        if query.contains("activity", "") {
            let (registry, tenant) = (&self.panel.registry, self.session.tenant.id);
            let changes = registry.admin_changes(tenant, EVENTS)?;
            let sign_ins = registry.sign_ins(tenant, EVENTS)?;
            let keys = registry.list_keys(tenant)?.into_iter();
            let now = self.request.received_at;
            let active = keys.filter(|key| key.state(now) == KeyState::Active);
            let active = active.map(|key| key.id).collect();
            let content = View::Activity { changes, sign_ins, active };
            return Ok(self.page("Activity", NO_NOTICE, content));
        }
        if query.contains("password", "") {
            return Ok(self.page("Password", NO_NOTICE, View::Password));
        }
        // HEAD does not consume a new key.
        if let Some(id) = query.id("new").filter(|_| self.request.method == Method::GET) {
            return self.new_key_page(id);
        }
        self.keys_page(self.outcome(query)?)
    }

    /// What the form before this page did to the key of the query. An event has the name of a deleted
    /// key, too.
    fn outcome(&self, query: &Form) -> Result<Notice, Notice> {
        let outcome = match query.get("done") {
            "changed" => "is changed.",
            "revoked" => "is revoked. Requests with it are refused from now on.",
            "deleted" => "is deleted. Requests with it are refused.",
            _ => return Ok(NO_NOTICE),
        };
        let events = self.panel.registry.admin_changes(self.session.tenant.id, EVENTS)?;
        let mut keys = events.into_iter().filter_map(|event| event.key);
        Ok(match keys.find(|key| Some(key.id) == query.id("key")) {
            Some(key) => {
                Notice::success(format!("Key {} “{}” {outcome}", key.id, printable(&key.name)))
            }
            None => Notice::success(format!("The key {outcome}")),
        })
    }

    fn page(&self, title: &str, notice: Notice, content: View<'_>) -> Response {
        let signed_in = Some(&*self.session.tenant.name);
        Page { signed_in, title, notice, content }.respond()
    }

    fn keys_page(&self, notice: Notice) -> Result<Response, Notice> {
        let now = self.request.received_at;
        let mut keys = self.panel.registry.list_keys(self.session.tenant.id)?;
        keys.sort_by_key(|key| (key.state(now) != KeyState::Active, Reverse(key.id)));
        let content = View::Keys { keys, inactive: self.inactive(), now };
        Ok(self.page("API keys", notice, content))
    }

    /// Shows a new key, if it belongs to this session and was not shown before.
    fn new_key_page(&self, id: KeyId) -> Result<Response, Notice> {
        let mut keys = self.new_keys();
        let place =
            keys.iter().position(|key| (key.session, key.row.id) == (self.session.hash, id));
        let key = place.and_then(|place| keys.remove(place));
        drop(keys);
        let Some(PendingKey { row, secret, old, .. }) = key else {
            let notice = Notice::success("A new key is shown once and cannot be shown again.");
            return self.keys_page(notice);
        };
        let title = format!("Your new key “{}”", printable(&row.name));
        let content = View::NewKey {
            key: &row,
            secret: &secret,
            old: old.as_ref(),
            now: self.request.received_at,
            server: &self.server(),
        };
        Ok(self.page(&title, NO_NOTICE, content))
    }

    /// The address of this server, as the browser names it. A shell must not run a part of it.
    fn server(&self) -> String {
        let is_harmless = |sign: char| sign.is_ascii_alphanumeric() || ".:-[]".contains(sign);
        let host = self.request.header("host").filter(|host| host.chars().all(is_harmless));
        let scheme = if self.request.secure { "https" } else { "http" };
        format!("{scheme}://{}", host.unwrap_or("localhost"))
    }

    /// The page with the form for a new key, or for a change of `key`.
    fn form_page(&self, notice: Notice, key: Option<&KeyRow>, form: &Form) -> Response {
        let title = if key.is_some() { "Edit a key" } else { "New key" };
        let (now, rate_limit) = (self.request.received_at, self.panel.rate_limit);
        self.page(title, notice, View::KeyForm { key, form, rate_limit, now })
    }

    fn key_page(&self, id: KeyId, action: &str) -> Result<Response, Notice> {
        if action == "edit" {
            let key = self.changeable_key(id)?;
            let limit = key.rate_limit.map(|limit| limit.to_string()).unwrap_or_default();
            let form = Form::default().with("name", &key.name).with("limit", &limit);
            let form = form.with("expires", "keep");
            return Ok(self.form_page(NO_NOTICE, Some(&key), &form));
        }
        let key = &if action == "replace" { self.changeable_key(id)? } else { self.find_key(id)? };
        let title = format!("{} a key", capitalize(action));
        let content = View::Confirmation { key, action, now: self.request.received_at };
        Ok(self.page(&title, NO_NOTICE, content))
    }

    /// Keeps a new key for the page after the redirect, which shows it.
    fn show_once(&self, row: KeyRow, secret: String, old: Option<KeyRow>) -> Response {
        let id = row.id;
        self.log(EventKind::KeyCreated, Some(id));
        let (session, since) = (self.session.hash, self.request.received_at.monotonic);
        let mut keys = self.new_keys();
        keys.push_back(PendingKey { session, row, secret, old, since });
        if keys.len() > CAPACITY {
            keys.pop_front();
        }
        redirect(&format!("?new={id}"))
    }

    /// The new keys without those that nobody fetched in time.
    fn new_keys(&self) -> MutexGuard<'_, VecDeque<PendingKey>> {
        let now = self.request.received_at.monotonic;
        let mut keys = self.panel.new_keys.lock();
        keys.retain(|key| now.saturating_sub(key.since) < LIFETIME);
        keys
    }
}

impl Visit<'_> {
    /// Shows an error on the page that the form was sent from.
    fn show_error(&self, error: Notice, form: &Form) -> Result<Response, Notice> {
        match form.action() {
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
        match form.action() {
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
            if form.get("expires") != "keep" {
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
        match key_end(form, key, self.request.received_at) {
            Ok(end) => new.expires_at = end,
            Err((field, error)) => fields.push((field, error.to_owned())),
        }
        // The operator may have given the key more than the server's limit.
        let (limit, own) = (self.panel.rate_limit, key.and_then(|key| key.rate_limit));
        match parse_limit(form.get("limit"), own.map_or(limit, |own| own.max(limit))) {
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
        let choice = OVERLAPS.iter().find(|(value, _)| *value == form.get("overlap"));
        let Some(overlap) = choice.and_then(|(value, _)| value.parse().ok()) else {
            let text = "Select when the old key expires. Nothing was changed.";
            return Err(Notice::invalid(text));
        };
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

/// 0 is not the id of any key.
fn key_id(form: &Form) -> KeyId {
    form.id("key").unwrap_or(KeyId(0))
}

/// The end of a new key, or of `key`; `None` for a key without an end. Without JavaScript, a date
/// can be entered beside any choice.
///
/// # Errors
///
/// The invalid field, and for the user the fault and the remedy.
fn key_end(
    form: &Form,
    key: Option<&KeyRow>,
    now: Moment,
) -> Result<Option<Timestamp>, (&'static str, &'static str)> {
    let (choice, date) = (form.get("expires"), form.get("date"));
    if choice != "date" && !date.is_empty() {
        return Err(("expires", "Select “On a date”, or leave the date empty."));
    }
    let end = match choice {
        "never" => return Ok(None),
        "keep" if let Some(key) = key => return Ok(key.expires_at),
        "date" if !is_date(date) => return Err(("date", "Enter a date.")),
        "date" => last_second(date).and_then(|end| end.parse().ok()),
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
fn parse_limit(text: &str, most: NonZeroU32) -> Result<Option<NonZeroU32>, String> {
    match text.trim().parse() {
        _ if text.trim().is_empty() => Ok(None),
        Ok(limit) if limit <= most => Ok(Some(limit)),
        _ => Err(format!("Enter a number from 1 to {most}, or leave it empty.")),
    }
}
