//! The forms of the panel: one function for each. Every form except the sign-in form needs a
//! session and its token.

use super::Panel;
use super::choices::{EndChoice, OverlapChoice};
use super::cookies::Cookie;
use super::error::PanelError;
use super::form::Form;
use super::keys_page::{PageContext, SignedInRequest};
use super::login_throttle::ThrottleKey;
use super::redirect::{self, CompletedAction};
use super::session::Session;
use super::sign_in;
use super::templates::{KeyFormValues, PasswordErrors, sentence};
use crate::clock::Moment;
use crate::http::{Request, Response};
use crate::model::Scopes;
use crate::password;
use crate::store::registry::{Actor, Expiry, NewKey, Replacement, check_key_name};

/// Maximum number of characters of a key's name that the page repeats: twice the longest valid
/// name.
const MAX_ECHO: usize = 200;

/// Responds to POST. The checks run in this order: size, session, token, form.
pub(super) fn handle_post(panel: &Panel, request: &Request) -> Result<Response, PanelError> {
    let form = Form::from_body(request)?;
    let action = form.get("action");
    if action == "sign-in" {
        return sign_in::sign_in(panel, request, &form);
    }
    let Some(session) = Session::find(panel, request)? else {
        return sign_in::page_with_error(request, &PanelError::SessionEnded, "");
    };
    let signed_in = SignedInRequest { panel, request, session: &session };
    if !session.is_form_token(form.get("token")) {
        return signed_in.page_with_error(&PanelError::FormToken, PageContext::default());
    }
    match action {
        "sign-out" => sign_in::sign_out(panel, request, &session),
        "select-all" => select_scopes(&signed_in, &form, Scopes::every()),
        "select-read" => select_scopes(&signed_in, &form, Scopes::read_only()),
        "create" => create(&signed_in, &form),
        "replace" => replace(&signed_in, &form),
        "revoke" => revoke_or_delete(&signed_in, &form, CompletedAction::Revoked),
        "delete" => revoke_or_delete(&signed_in, &form, CompletedAction::Deleted),
        "password" => change_password(&signed_in, &form),
        _ => signed_in.page_with_error(
            &PanelError::Invalid("This page has no such form. Nothing was changed.".into()),
            PageContext::default(),
        ),
    }
}

/// Selects scopes for a browser without JavaScript. Creates nothing.
fn select_scopes(
    signed_in: &SignedInRequest<'_>,
    form: &Form,
    scopes: Scopes,
) -> Result<Response, PanelError> {
    let key_form = KeyFormValues { scopes, ..key_form(form) };
    signed_in.page(200, PageContext { key_form, ..PageContext::default() })
}

fn key_form(form: &Form) -> KeyFormValues {
    let scopes = form.all("scope").filter_map(Scopes::parse).fold(Scopes::default(), Scopes::union);
    let echo = |field: &str| form.get(field).chars().take(MAX_ECHO).collect();
    let end = EndChoice::parse(form.get("expires")).unwrap_or_default();
    KeyFormValues {
        name: echo("name"),
        scopes,
        end,
        date: echo("date"),
        ..KeyFormValues::default()
    }
}

/// Creates a key. The page after the redirect shows it.
fn create(signed_in: &SignedInRequest<'_>, form: &Form) -> Result<Response, PanelError> {
    let (panel, session, now) = (signed_in.panel, signed_in.session, signed_in.request.received_at);
    let mut key_form = key_form(form);
    if let Some(reason) = session.tenant.inactive(&now.date()) {
        return signed_in.page_with_error(
            &PanelError::Inactive(reason),
            PageContext { key_form, ..PageContext::default() },
        );
    }
    key_form.name_error = check_key_name(form.get("name")).err().map(sentence);
    key_form.scopes_error = key_form.scopes.is_empty().then_some("Select at least one scope.");
    let expires_at = expiry(form, now).unwrap_or_else(|message| {
        key_form.end_error = Some(message);
        None
    });
    if key_form.has_errors() {
        let error = PanelError::Invalid("No key was created. Please check the form below.".into());
        return signed_in
            .page_with_error(&error, PageContext { key_form, ..PageContext::default() });
    }
    let new = NewKey { expires_at, ..NewKey::new(form.get("name"), key_form.scopes) };
    let (row, key) = panel.registry.create_key(session.tenant.id, new, Actor::Panel, now)?;
    panel.pending_keys.put(session.hash, row.id, key, now.monotonic);
    Ok(redirect::to_new_key(row.id))
}

/// The end of the key that a form describes.
fn expiry(form: &Form, now: Moment) -> Result<Option<Expiry>, &'static str> {
    let end = EndChoice::parse(form.get("expires")).ok_or("Select one of these.")?;
    end.expiry(form.get("date"), now)
}

/// Replaces a key of this tenant. The page after the redirect shows the new key.
fn replace(signed_in: &SignedInRequest<'_>, form: &Form) -> Result<Response, PanelError> {
    let (panel, session, now) = (signed_in.panel, signed_in.session, signed_in.request.received_at);
    if let Some(reason) = session.tenant.inactive(&now.date()) {
        return signed_in.page_with_error(&PanelError::Inactive(reason), PageContext::default());
    }
    let Some(overlap) = OverlapChoice::parse(form.get("overlap")) else {
        let error =
            PanelError::Invalid("Select when the old key ends. Nothing was changed.".into());
        return signed_in.page_with_error(&error, PageContext::default());
    };
    // 0 is not the id of any key.
    let id = form.id("key").unwrap_or_default();
    let replaced =
        panel.registry.replace_key(session.tenant.id, id, overlap.span(), Actor::Panel, now);
    match replaced.map_err(PanelError::from) {
        Ok(Replacement { new, key, .. }) => {
            panel.pending_keys.put(session.hash, new.id, key, now.monotonic);
            Ok(redirect::to_new_key(new.id))
        }
        Err(error @ PanelError::Invalid(_)) => {
            signed_in.page_with_error(&error, PageContext::default())
        }
        Err(error) => Err(error),
    }
}

/// Revokes or deletes a key of this tenant. A key of another tenant is treated as unknown.
fn revoke_or_delete(
    signed_in: &SignedInRequest<'_>,
    form: &Form,
    action: CompletedAction,
) -> Result<Response, PanelError> {
    let (registry, now) = (&signed_in.panel.registry, signed_in.request.received_at);
    let tenant = signed_in.session.tenant.id;
    // 0 is not the id of any key.
    let id = form.id("key").unwrap_or_default();
    let changed = match action {
        CompletedAction::Deleted => registry.delete_key(tenant, id, Actor::Panel, now),
        _ => registry.revoke_key(tenant, id, Actor::Panel, now),
    };
    match changed.map_err(PanelError::from) {
        Ok(_) => Ok(action.redirect()),
        Err(error @ PanelError::Invalid(_)) => {
            signed_in.page_with_error(&error, PageContext::default())
        }
        Err(error) => Err(error),
    }
}

/// Changes the password after a check of the current one, and ends every session of the tenant.
fn change_password(signed_in: &SignedInRequest<'_>, form: &Form) -> Result<Response, PanelError> {
    let (panel, tenant) = (signed_in.panel, &signed_in.session.tenant);
    let (current, new) = (form.get("current"), form.get("new"));
    let mut errors = PasswordErrors {
        new_error: password::check(new).err().map(sentence),
        again_error: (form.get("again") != new).then_some("This is not the same password."),
        ..PasswordErrors::default()
    };
    if !errors.has_errors() {
        let key = ThrottleKey::password_change(tenant.id);
        match sign_in::verify(panel, signed_in.request, key, current, Some(&tenant.password_hash)) {
            Ok(true) => return set_password(signed_in, new),
            Ok(false) => errors.current_error = Some("This is not the current password."),
            Err(error) => return signed_in.page_with_error(&error, PageContext::default()),
        }
    }
    let error =
        PanelError::Invalid("The password was not changed. Please check the form below.".into());
    signed_in
        .page_with_error(&error, PageContext { password_errors: errors, ..PageContext::default() })
}

fn set_password(signed_in: &SignedInRequest<'_>, new: &str) -> Result<Response, PanelError> {
    let (panel, now) = (signed_in.panel, signed_in.request.received_at);
    let hash = panel.hasher.run(|memory| password::hash_in(new, memory))?;
    panel.registry.set_password(signed_in.session.tenant.id, &hash, Actor::Panel, now)?;
    panel.pending_keys.forget(signed_in.session.hash);
    Ok(Cookie::Session.clear(signed_in.request, CompletedAction::PasswordChanged.redirect()))
}
