//! Signing in and out, and the verification of passwords.

use super::Panel;
use super::cookies::Cookie;
use super::error::PanelError;
use super::form::Form;
use super::login_throttle::{ThrottleKey, Throttled};
use super::redirect::{self, CompletedAction};
use super::session::{Session, form_token, is_equal};
use super::templates::{self, Notice, SignInPage};
use crate::api::routes::PANEL_PATH;
use crate::http::{Request, Response};
use crate::{password, secret};

/// The purpose of the sign-in form's token.
const PURPOSE: &str = "sign in";

/// Maximum number of characters of a tenant's name that the form repeats; valid names are shorter.
const MAX_ECHO: usize = 80;

/// Renders the sign-in form, which is bound to its cookie.
pub(super) fn page(
    request: &Request,
    notice: Option<Notice>,
    tenant: &str,
    status: u16,
) -> Result<Response, PanelError> {
    let cookie = match Cookie::SignIn.read(request) {
        Some(cookie) => cookie.to_owned(),
        None => secret::generate_token()?,
    };
    let tenant: String = tenant.chars().take(MAX_ECHO).collect();
    let page = SignInPage { notice, tenant: &tenant, token: &form_token(PURPOSE, &cookie) };
    Ok(Cookie::SignIn.set(request, &cookie, templates::page(status, &page)?))
}

/// Renders the sign-in form with an error message and the error's status.
pub(super) fn page_with_error(
    request: &Request,
    error: &PanelError,
    tenant: &str,
) -> Result<Response, PanelError> {
    page(request, Some(Notice::error(error)), tenant, error.status())
        .map(|page| error.add_headers(page))
}

/// Handles the sign-in form.
pub(super) fn sign_in(
    panel: &Panel,
    request: &Request,
    form: &Form,
) -> Result<Response, PanelError> {
    let name = form.get("tenant");
    let bound = Cookie::SignIn
        .read(request)
        .is_some_and(|cookie| is_equal(form.get("token"), &form_token(PURPOSE, cookie)));
    if !bound {
        return page_with_error(request, &PanelError::SignInToken, name);
    }
    match create_session(panel, request, name, form.get("password")) {
        Ok(token) => {
            let response = Cookie::Session.set(request, &token, redirect::see_other(PANEL_PATH));
            Ok(Cookie::SignIn.clear(request, response))
        }
        Err(error) => {
            if error == PanelError::WrongCredentials {
                tracing::warn!(client = %request.client, request_id = %request.id, "a sign-in to the panel failed");
            }
            page_with_error(request, &error, name)
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
    let tenant = panel.registry.find_tenant(name)?;
    let stored = tenant.as_ref().map(|tenant| tenant.password_hash.as_str());
    let matches = verify(panel, request, ThrottleKey::sign_in(name), password, stored)?;
    let Some(tenant) = tenant.filter(|_| matches) else { return Err(PanelError::WrongCredentials) };
    if let Some(former) = Session::find(panel, request)? {
        end(panel, &former)?;
    }
    let token = secret::generate_token()?;
    if panel.registry.create_session(&tenant, &secret::hash(&token), request.received_at)? {
        Ok(token)
    } else {
        // The password was changed during the check.
        Err(PanelError::WrongCredentials)
    }
}

/// Signs out.
pub(super) fn sign_out(
    panel: &Panel,
    request: &Request,
    session: &Session,
) -> Result<Response, PanelError> {
    end(panel, session)?;
    Ok(Cookie::Session.clear(request, CompletedAction::SignedOut.redirect()))
}

fn end(panel: &Panel, session: &Session) -> Result<(), PanelError> {
    panel.registry.end_session(&session.hash)?;
    panel.pending_keys.forget(session.hash);
    Ok(())
}

/// Whether `password` matches the hash `stored`. Without a hash, which means an unknown tenant, the
/// same work is done and the result is `false`. Failures count towards the throttle.
///
/// # Errors
///
/// [`PanelError::TooManyAttempts`] if the throttle is active.
pub(super) fn verify(
    panel: &Panel,
    request: &Request,
    key: ThrottleKey,
    password: &str,
    stored: Option<&str>,
) -> Result<bool, PanelError> {
    let now = request.received_at.monotonic;
    panel.throttle.check(&key, now)?;
    panel.hasher.run(|memory| {
        let attempt = panel.throttle.begin(key, now)?;
        let matches = password::verify(password, stored, memory);
        if !matches {
            attempt.fail();
        }
        Ok(matches)
    })
}

impl From<Throttled> for PanelError {
    fn from(Throttled: Throttled) -> PanelError {
        PanelError::TooManyAttempts
    }
}
