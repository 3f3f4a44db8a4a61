//! Signing in and out, sessions with their cookies, and the tokens against cross-site request
//! forgery.
//!
//! Over HTTPS the names of the cookies begin with `__Host-`: browsers accept such a cookie from
//! this host only, so another host of the domain cannot set one (RFC 6265bis section 4.1.3.2).

use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::error::{PanelError, SIGN_IN_TOKEN, WRONG_CREDENTIALS};
use super::form::Form;
use super::templates::{self, Notice, SignInPage};
use super::{Panel, log_event, redirect};
use crate::http::{Request, Response};
use crate::secret;
use crate::store::registry::{Action, SESSION_SECONDS, TenantRow};

/// A cookie of the panel, which holds a token.
pub(super) struct Cookie {
    name: &'static str,
    seconds: i64,
}

pub(super) const SESSION: Cookie = Cookie { name: "tenantdesk-session", seconds: SESSION_SECONDS };

/// The sign-in form is bound to it.
pub(super) const SIGN_IN: Cookie = Cookie { name: "tenantdesk-sign-in", seconds: 60 * 60 };

/// Length of every token in characters ([`secret::generate_token`]).
const TOKEN_LENGTH: usize = 43;

impl Cookie {
    fn full_name(&self, request: &Request) -> String {
        format!("{}{}", if request.secure { "__Host-" } else { "" }, self.name)
    }

    /// Returns the token in this cookie.
    pub(super) fn read<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let name = self.full_name(request);
        request
            .headers("cookie")
            .flat_map(|header| header.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .find(|(n, value)| *n == name && value.len() == TOKEN_LENGTH)
            .map(|(_, value)| value)
    }

    /// Sets the cookie to `token`, or deletes it if that is empty.
    pub(super) fn set(&self, request: &Request, token: &str, response: Response) -> Response {
        let secure = if request.secure { "; Secure" } else { "" };
        let seconds = if token.is_empty() { 0 } else { self.seconds };
        let name = self.full_name(request);
        let cookie =
            format!("{name}={token}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}");
        response.header("Set-Cookie", cookie)
    }
}

/// A valid session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) tenant: TenantRow,
    /// The SHA-256 of the cookie's token, as stored.
    pub(super) hash: [u8; 32],
    /// The token in its forms.
    pub(super) token: String,
}

impl Session {
    /// Returns the session of the request's cookie.
    pub(super) fn find(panel: &Panel, request: &Request) -> Result<Option<Session>, PanelError> {
        let Some(token) = SESSION.read(request) else { return Ok(None) };
        let hash = secret::hash(token);
        let tenant = panel.registry.find_session(&hash, request.received_at)?;
        Ok(tenant.map(|tenant| Session { tenant, hash, token: form_token("session", token) }))
    }
}

/// Derives the token of the forms that belong to a cookie. It cannot be derived without the cookie
/// and does not reveal it. `purpose` separates the kinds of forms.
pub(super) fn form_token(purpose: &str, cookie: &str) -> String {
    Base64UrlUnpadded::encode_string(
        &Sha256::new()
            .chain_update("tenantdesk form ")
            .chain_update(purpose)
            .chain_update([0])
            .chain_update(cookie)
            .finalize(),
    )
}

/// Compares in constant time.
pub(super) fn is_equal(given: &str, expected: &str) -> bool {
    given.as_bytes().ct_eq(expected.as_bytes()).into()
}

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
    let matches = panel.passwords.verify(secret::hash(name), request, password, stored)?;
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
