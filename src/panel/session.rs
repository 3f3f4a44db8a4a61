//! Who uses the panel: the sign-in, its throttle, sessions, their cookies, and the tokens against
//! cross-site request forgery.
//!
//! Over HTTPS the names of the cookies begin with `__Host-`. Browsers accept such a cookie from
//! this host only, so another host of the domain cannot set it (RFC 6265bis section 4.1.3.2).

use std::net::IpAddr;
use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::form::Form;
use super::page::{Content, Notice, Page, SIGN_IN_TOKEN, TOO_MANY_ATTEMPTS, WRONG_CREDENTIALS};
use super::{Panel, log_event, redirect};
use crate::http::request::address_of;
use crate::http::{Request, Responder, Response};
use crate::password;
use crate::secret;
use crate::store::registry::{EventKind, RegistryError, SESSION_SECONDS, TenantRow};

/// Maximum number of characters of a tenant's name that the form and the log repeat; valid names
/// are shorter.
const MAX_ECHO: usize = 80;

/// Length of every token in characters ([`secret::generate_token`]).
const TOKEN_LENGTH: usize = 43;

/// A cookie of the panel, which holds a token.
pub(super) struct Cookie {
    name: &'static str,
    seconds: i64,
}

pub(super) const SESSION: Cookie = Cookie { name: "tenantdesk-session", seconds: SESSION_SECONDS };

/// The sign-in form is bound to it.
const SIGN_IN: Cookie = Cookie { name: "tenantdesk-sign-in", seconds: 60 * 60 };

impl Cookie {
    fn full_name(&self, request: &Request) -> String {
        format!("{}{}", if request.secure { "__Host-" } else { "" }, self.name)
    }

    /// Returns the token in this cookie.
    fn read<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let full_name = self.full_name(request);
        for pair in request.headers("cookie").flat_map(|header| header.split(';')) {
            if let Some((name, token)) = pair.trim().split_once('=')
                && name == full_name
                && token.len() == TOKEN_LENGTH
            {
                return Some(token);
            }
        }
        None
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
    pub(super) fn find(panel: &Panel, request: &Request) -> Result<Option<Session>, Notice> {
        let Some(token) = SESSION.read(request) else { return Ok(None) };
        let hash = secret::hash(token);
        let tenant = panel.registry.find_session(&hash, request.received_at)?;
        Ok(tenant.map(|tenant| Session { tenant, hash, token: SESSION.form_token(token) }))
    }

    /// Whether a form came from a page of this session.
    pub(super) fn sent(&self, form: &Form) -> bool {
        is_equal(form.get("token"), &self.token)
    }
}

/// Compares in constant time.
fn is_equal(given: &str, expected: &str) -> bool {
    given.as_bytes().ct_eq(expected.as_bytes()).into()
}

/// The sign-in page. Its form is bound to its cookie.
pub(super) fn sign_in_page(
    request: &Request,
    notice: Notice,
    tenant: &str,
) -> Result<Response, Notice> {
    let cookie = match SIGN_IN.read(request) {
        Some(cookie) => cookie.to_owned(),
        None => secret::generate_token().map_err(RegistryError::from)?,
    };
    let content = Content::SignIn { tenant, token: &SIGN_IN.form_token(&cookie) };
    let page = Page { session: None, title: "Sign in", notice, content };
    Ok(SIGN_IN.set(request, &cookie, page.respond()))
}

/// Handles the sign-in form.
pub(super) fn sign_in(
    panel: &Panel,
    request: &Request,
    form: &Form,
    responder: &mut Responder,
) -> Result<Response, Notice> {
    let name = form.get("tenant");
    let shown: String = name.chars().take(MAX_ECHO).collect();
    let expected = SIGN_IN.read(request).map(|cookie| SIGN_IN.form_token(cookie));
    if !expected.is_some_and(|expected| is_equal(form.get("token"), &expected)) {
        return sign_in_page(request, SIGN_IN_TOKEN, &shown);
    }
    match create_session(panel, request, name, form.get("password")) {
        Ok(token) => {
            log_event(request, name, EventKind::SignedIn, None);
            responder.log_tenant(name, "");
            let response = SESSION.set(request, &token, redirect(""));
            Ok(SIGN_IN.set(request, "", response))
        }
        Err(error) => {
            if error == WRONG_CREDENTIALS {
                log_event(request, &shown, EventKind::FailedSignIn, None);
            }
            sign_in_page(request, error, &shown)
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
    let matches = panel.attempts.verify(secret::hash(name), request, password, stored)?;
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

/// Failures within [`WINDOW`] from which on one address is refused.
const MAX_OF_ADDRESS: usize = 5;

/// Failures within [`WINDOW`] from which on every address is refused.
const MAX_OF_SUBJECT: usize = 50;

const WINDOW: Duration = Duration::from_secs(60);

/// Throttles wrong passwords (contract section 9). One form with a password runs at a time
/// (`Lane::Passwords`), so attempts at the same time cannot exceed the limits together.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The failures of the last minute, the oldest first. Each has taken the time of a hash, so
    /// there are some thousand at most.
    failures: Mutex<Vec<Failure>>,
}

#[derive(Debug)]
struct Failure {
    /// The hash of the name as the user typed it, or at a change of the password the session's.
    subject: [u8; 32],
    /// See [`address_of`].
    address: IpAddr,
    /// Monotonic.
    at: Duration,
}

impl Attempts {
    /// Whether `password` matches the hash `stored`. Without a hash, which means an unknown tenant,
    /// the same work is done and the result is `false`.
    ///
    /// # Errors
    ///
    /// [`TOO_MANY_ATTEMPTS`] after too many failures, without any work.
    pub(super) fn verify(
        &self,
        subject: [u8; 32],
        request: &Request,
        password: &str,
        stored: Option<&str>,
    ) -> Result<bool, Notice> {
        let (now, address) = (request.received_at.monotonic, address_of(request.client));
        let (mut of_subject, mut of_address) = (0, 0);
        let mut failures = self.failures.lock();
        failures.retain(|failure| now.saturating_sub(failure.at) < WINDOW);
        for failure in failures.iter().filter(|failure| failure.subject == subject) {
            of_subject += 1;
            of_address += usize::from(failure.address == address);
        }
        drop(failures);
        if of_address >= MAX_OF_ADDRESS || of_subject >= MAX_OF_SUBJECT {
            return Err(TOO_MANY_ATTEMPTS);
        }
        let matches = password::verify(password, stored);
        if !matches {
            self.failures.lock().push(Failure { subject, address, at: now });
        }
        Ok(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::http::Method;

    #[test]
    fn fifty_failures_from_wherever_are_enough() {
        let attempts = Attempts::default();
        let tried = (0..60).filter(|last| {
            let now = Clock::system().now();
            let client = IpAddr::from([192, 0, 2, *last]);
            let request = Request { client, ..Request::new(Method::POST, "/", now) };
            attempts.verify([1; 32], &request, "wrong", None).is_ok()
        });
        assert_eq!(tried.count(), 50);
    }
}
