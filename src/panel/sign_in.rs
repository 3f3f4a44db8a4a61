//! Signing in and out.

use super::error::{PanelError, SIGN_IN_TOKEN, WRONG_CREDENTIALS};
use super::form::Form;
use super::passwords::Subject;
use super::session::{SESSION, SIGN_IN, Session, form_token, is_equal};
use super::templates::{self, Notice, SignInPage};
use super::{Panel, log_event, redirect};
use crate::http::{Request, Response};
use crate::secret;
use crate::store::registry::Action;

/// The purpose of the sign-in form's token.
const PURPOSE: &str = "sign in";

/// Maximum number of characters of a tenant's name that the form and the log repeat; valid names
/// are shorter.
const MAX_ECHO: usize = 80;

/// Renders the sign-in form, which is bound to its cookie.
pub(super) fn page(
    request: &Request,
    notice: Option<Notice>,
    tenant: &str,
    status: u16,
) -> Result<Response, PanelError> {
    let cookie = match SIGN_IN.read(request) {
        Some(cookie) => cookie.to_owned(),
        None => secret::generate_token()?,
    };
    let page = SignInPage { notice, tenant, token: &form_token(PURPOSE, &cookie) };
    Ok(SIGN_IN.set(request, &cookie, templates::page(status, &page)?))
}

/// Renders the sign-in form with an error message and the error's status.
pub(super) fn page_with_error(
    request: &Request,
    error: &PanelError,
    tenant: &str,
) -> Result<Response, PanelError> {
    page(request, Some(Notice::error(error)), tenant, error.status)
        .map(|page| error.add_headers(page))
}

/// Handles the sign-in form. Sets `signed_in` to the tenant's name after a success.
pub(super) fn sign_in(
    panel: &Panel,
    request: &Request,
    form: &Form,
    signed_in: &mut Option<String>,
) -> Result<Response, PanelError> {
    let name = form.get("tenant");
    let shown: String = name.chars().take(MAX_ECHO).collect();
    let bound = SIGN_IN
        .read(request)
        .is_some_and(|cookie| is_equal(form.get("token"), &form_token(PURPOSE, cookie)));
    if !bound {
        return page_with_error(request, &SIGN_IN_TOKEN, &shown);
    }
    match create_session(panel, request, name, form.get("password")) {
        Ok(token) => {
            log_event(request, name, Action::SignedIn, None);
            *signed_in = Some(name.to_owned());
            let response = SESSION.set(request, &token, redirect(""));
            Ok(SIGN_IN.set(request, "", response))
        }
        Err(error) => {
            if error == WRONG_CREDENTIALS {
                log_event(request, &shown, Action::FailedSignIn, None);
            }
            page_with_error(request, &error, &shown)
        }
    }
}

/// Creates a session and returns its token. Ends the previous session of the browser.
fn create_session(
    panel: &Panel,
    request: &Request,
    name: &str,
    password: &str,
) -> Result<String, PanelError> {
    let (registry, now) = (&panel.registry, request.received_at);
    let tenant = registry.find_tenant(name)?;
    let stored = tenant.as_ref().map(|tenant| tenant.password_hash.as_str());
    let matches = panel.passwords.verify(Subject::sign_in(name), request, password, stored)?;
    let Some(tenant) = tenant else { return Err(WRONG_CREDENTIALS) };
    if matches {
        if let Some(former) = Session::find(panel, request)? {
            registry.end_session(&former.hash)?;
        }
        let token = secret::generate_token()?;
        // The password may have been changed during the check.
        if registry.create_session(&tenant, &secret::hash(&token), request.client, now)? {
            return Ok(token);
        }
    }
    registry.record_failed_sign_in(tenant.id, request.client, now);
    Err(WRONG_CREDENTIALS)
}
