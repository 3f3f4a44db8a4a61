//! The sign-in page.

use super::form::Form;
use super::notice::{Notice, SIGN_IN_TOKEN, WRONG_CREDENTIALS};
use super::page::{Content, Page};
use super::session::{SESSION, SIGN_IN, Session, is_equal};
use super::{Panel, log_event, redirect};
use crate::http::{Request, Response};
use crate::secret;
use crate::store::registry::{Action, RegistryError};

/// Maximum number of characters of a tenant's name that the form and the log repeat; valid names
/// are shorter.
const MAX_ECHO: usize = 80;

/// The sign-in page. Its form is bound to its cookie.
pub(super) fn page(request: &Request, notice: Notice, tenant: &str) -> Result<Response, Notice> {
    let cookie = match SIGN_IN.read(request) {
        Some(cookie) => cookie.to_owned(),
        None => secret::generate_token().map_err(RegistryError::from)?,
    };
    let content = Content::SignIn { tenant, token: &SIGN_IN.form_token(&cookie) };
    let page = Page { session: None, title: "Sign in", notice, content };
    Ok(SIGN_IN.set(request, &cookie, page.respond()))
}

/// Handles the sign-in form. Sets `signed_in` to the tenant's name after a success.
pub(super) fn sign_in(
    panel: &Panel,
    request: &Request,
    form: &Form,
    signed_in: &mut Option<String>,
) -> Result<Response, Notice> {
    let name = form.get("tenant");
    let shown: String = name.chars().take(MAX_ECHO).collect();
    let expected = SIGN_IN.read(request).map(|cookie| SIGN_IN.form_token(cookie));
    if !expected.is_some_and(|expected| is_equal(form.get("token"), &expected)) {
        return page(request, SIGN_IN_TOKEN, &shown);
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
            page(request, error, &shown)
        }
    }
}

/// Creates a session and returns its token. Ends the previous session of the browser.
fn create_session(
    panel: &Panel,
    request: &Request,
    name: &str,
    password: &str,
) -> Result<String, Notice> {
    let (registry, now) = (&panel.registry, request.received_at);
    let tenant = registry.find_tenant(name)?;
    let stored = tenant.as_ref().map(|tenant| tenant.password_hash.as_str());
    let matches = panel.passwords.verify(secret::hash(name), request, password, stored)?;
    let Some(tenant) = tenant else { return Err(WRONG_CREDENTIALS) };
    if matches {
        if let Some(former) = Session::find(panel, request)? {
            registry.end_session(&former.hash)?;
        }
        let token = secret::generate_token().map_err(RegistryError::from)?;
        // The password may have been changed during the check.
        if registry.create_session(&tenant, &secret::hash(&token), request.client, now)? {
            return Ok(token);
        }
    }
    registry.record_failed_sign_in(tenant.id, request.client, now);
    Err(WRONG_CREDENTIALS)
}
