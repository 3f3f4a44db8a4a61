//! Signing in and out, sessions with their cookies, and the tokens against cross-site request
//! forgery.
//!
//! Over HTTPS the names of the cookies begin with `__Host-`: browsers accept such a cookie from
//! this host only, so another host of the domain cannot set one (RFC 6265bis section 4.1.3.2).

use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::form::Form;
use super::notice::{Notice, SIGN_IN_TOKEN, WRONG_CREDENTIALS};
use super::page::{Content, Page};
use super::{Panel, log_event, redirect};
use crate::http::{Request, Response};
use crate::secret;
use crate::store::registry::{Action, RegistryError, SESSION_SECONDS, TenantRow};

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

    /// Derives the token of the forms that belong to the cookie with this token. The token of the
    /// forms does not reveal the token of the cookie, and cannot be derived without it.
    fn form_token(&self, token: &str) -> String {
        let text = format!("tenantdesk form {}\0{token}", self.name);
        Base64UrlUnpadded::encode_string(&Sha256::digest(text))
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
    pub(super) fn find(panel: &Panel, request: &Request) -> Result<Option<Session>, Notice> {
        let Some(token) = SESSION.read(request) else { return Ok(None) };
        let hash = secret::hash(token);
        let tenant = panel.registry.find_session(&hash, request.received_at)?;
        Ok(tenant.map(|tenant| Session { tenant, hash, token: SESSION.form_token(token) }))
    }
}

/// Compares in constant time.
pub(super) fn is_equal(given: &str, expected: &str) -> bool {
    given.as_bytes().ct_eq(expected.as_bytes()).into()
}

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
