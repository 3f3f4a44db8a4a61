//! What POST does: one function for each form. All but the one to sign in need a session and its token.

use super::Panel;
use super::cookies::Cookie;
use super::error::Refusal;
use super::form::Form;
use super::keys_page::{self, Done, Filled, Keys};
use super::login_throttle::Subject;
use super::session::Session;
use super::sign_in;
use super::templates::{Draft, PasswordForm, sentence};
use crate::http::{Request, Response};
use crate::model::Scopes;
use crate::password;
use crate::store::registry::{Actor, check_key_name};

/// The most of a key's name that is sent back, in characters; twice what one may have.
const ECHOED: usize = 200;

/// Answers POST. Checks in this order: size, session, token, then the form itself.
pub(super) fn take(panel: &Panel, request: &Request) -> Result<Response, Refusal> {
    let form = Form::read(request)?;
    let action = form.get("action");
    if action == "sign-in" {
        return sign_in::sign_in(panel, request, &form);
    }
    let Some(session) = Session::find(panel, request)? else {
        return sign_in::refuse(request, &Refusal::SessionOver, "");
    };
    let keys = Keys { panel, request, session: &session };
    if !session.made(form.get("token")) {
        return keys.refuse(&Refusal::Token, Filled::default());
    }
    match action {
        "sign-out" => sign_in::sign_out(panel, request, &session),
        "select-all" => select(&keys, &form, Scopes::every()),
        "select-read" => select(&keys, &form, Scopes::read_only()),
        "create" => create(&keys, &form),
        "revoke" => change(&keys, &form, Done::Revoked),
        "delete" => change(&keys, &form, Done::Deleted),
        "password" => change_password(&keys, &form),
        _ => keys.refuse(&Refusal::Unfit("This page has no such form. Nothing was changed.".into()), Filled::default()),
    }
}

/// Ticks boxes for a browser without JavaScript; nothing is made.
fn select(keys: &Keys<'_>, form: &Form, scopes: Scopes) -> Result<Response, Refusal> {
    let draft = Draft { scopes, ..draft(form) };
    keys.page(200, Filled { draft, ..Filled::default() })
}

fn draft(form: &Form) -> Draft {
    let scopes = form.all("scope").filter_map(Scopes::parse).fold(Scopes::default(), Scopes::union);
    Draft { name: form.get("name").chars().take(ECHOED).collect(), scopes, ..Draft::default() }
}

/// Makes a key; the page after shows it.
fn create(keys: &Keys<'_>, form: &Form) -> Result<Response, Refusal> {
    let (panel, session, now) = (keys.panel, keys.session, keys.request.received_at);
    let mut draft = draft(form);
    if let Some(why) = session.tenant.inactive(&now.date()) {
        return keys.refuse(&Refusal::Inactive(why), Filled { draft, ..Filled::default() });
    }
    draft.name_error = check_key_name(form.get("name")).err().map(sentence);
    draft.scopes_error = draft.scopes.is_empty().then_some("Tick at least one scope.");
    if draft.name_error.is_some() || draft.scopes_error.is_some() {
        let refusal = Refusal::Unfit("No key was made. Please see the form below.".into());
        return keys.refuse(&refusal, Filled { draft, ..Filled::default() });
    }
    let (row, key) = panel.registry.create_key(session.tenant.id, form.get("name"), draft.scopes, Actor::Panel, now)?;
    panel.new_keys.put(session.hash, row.id, key, now.monotonic);
    Ok(keys_page::redirect_to_new_key(row.id))
}

/// Revokes or deletes a key of this tenant. Another tenant's is like none.
fn change(keys: &Keys<'_>, form: &Form, what: Done) -> Result<Response, Refusal> {
    let (registry, tenant, now) = (&*keys.panel.registry, keys.session.tenant.id, keys.request.received_at);
    // No key has the id 0.
    let id = form.id("key").unwrap_or_default();
    let changed = match what {
        Done::Deleted => registry.delete_key(tenant, id, Actor::Panel, now),
        _ => registry.revoke_key(tenant, id, Actor::Panel, now),
    };
    match changed.map_err(Refusal::from) {
        Ok(_) => Ok(what.redirect()),
        Err(refusal @ Refusal::Unfit(_)) => keys.refuse(&refusal, Filled::default()),
        Err(refusal) => Err(refusal),
    }
}

/// Sets a new password, for which the present one is asked, and ends every session of the tenant.
fn change_password(keys: &Keys<'_>, form: &Form) -> Result<Response, Refusal> {
    let (panel, tenant) = (keys.panel, &keys.session.tenant);
    let (present, new) = (form.get("present"), form.get("new"));
    let mut errors = PasswordForm {
        new_error: password::check(new).err().map(sentence),
        again_error: (form.get("again") != new).then_some("This is not the same password."),
        ..PasswordForm::default()
    };
    if !errors.has_errors() {
        let subject = Subject::password_change(tenant.id);
        match sign_in::verify(panel, keys.request, subject, present, Some(&tenant.password_hash)) {
            Ok(true) => return set_password(keys, new),
            Ok(false) => errors.present_error = Some("This is not the present password."),
            Err(refusal) => return keys.refuse(&refusal, Filled::default()),
        }
    }
    let refusal = Refusal::Unfit("The password was not changed. Please see the form below.".into());
    keys.refuse(&refusal, Filled { password: errors, ..Filled::default() })
}

fn set_password(keys: &Keys<'_>, new: &str) -> Result<Response, Refusal> {
    let (panel, now) = (keys.panel, keys.request.received_at);
    match panel.hashing.run(keys.request.client, |memory| password::hash_in(new, memory)) {
        Ok(hash) => panel.registry.set_password(keys.session.tenant.id, &hash?, Actor::Panel, now)?,
        Err(busy) => return keys.refuse(&busy.into(), Filled::default()),
    }
    panel.new_keys.forget(keys.session.hash);
    Ok(Cookie::Session.clear(keys.request, Done::PasswordChanged.redirect()))
}
