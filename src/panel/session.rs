//! Who uses the panel: the sign-in, its throttle, sessions and their cookie.

use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

use super::Panel;
use super::page::{Form, Notice, Page, TOO_MANY_ATTEMPTS, View, WRONG_CREDENTIALS, redirect};
use crate::http::request::{address_of, encode_unprintable};
use crate::http::{Request, Responder, Response};
use crate::model::KeyId;
use crate::secret;
use crate::store::registry::{EventKind, Registry, SESSION_SECONDS, TenantRow};

/// Maximum number of characters of a tenant's name that the form and the log repeat; valid names
/// are shorter.
const MAX_ECHO: usize = 80;

/// Length of a session's token in characters ([`secret::generate_token`]).
const TOKEN_LENGTH: usize = 43;

/// Over HTTPS the name begins with `__Host-`. Browsers accept such a cookie from this host only, so
/// another host of the domain cannot set it (RFC 6265bis section 4.1.3.2).
fn cookie_name(request: &Request) -> &'static str {
    if request.secure { "__Host-tenantdesk-session" } else { "tenantdesk-session" }
}

fn read_cookie(request: &Request) -> Option<&str> {
    for pair in request.headers("cookie").flat_map(|header| header.split(';')) {
        if let Some((name, token)) = pair.trim().split_once('=')
            && name == cookie_name(request)
            && token.len() == TOKEN_LENGTH
        {
            return Some(token);
        }
    }
    None
}

/// Sets the session's cookie to `token`, or deletes it if that is empty.
pub(super) fn set_cookie(request: &Request, token: &str, response: Response) -> Response {
    let name = cookie_name(request);
    let seconds = if token.is_empty() { 0 } else { SESSION_SECONDS };
    let secure = if request.secure { "; Secure" } else { "" };
    let cookie =
        format!("{name}={token}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}");
    response.header("Set-Cookie", cookie)
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) tenant: TenantRow,
    /// The SHA-256 of the cookie's token, as stored.
    pub(super) hash: [u8; 32],
}

impl Session {
    pub(super) fn find(registry: &Registry, request: &Request) -> Result<Option<Session>, Notice> {
        let Some(token) = read_cookie(request) else { return Ok(None) };
        let hash = secret::hash(token);
        let tenant = registry.find_session(&hash, request.received_at)?;
        Ok(tenant.map(|tenant| Session { tenant, hash }))
    }
}

pub(super) fn sign_in_page(notice: Notice, tenant: &str) -> Response {
    Page { signed_in: None, title: "Sign in", notice, content: View::SignIn { tenant } }.respond()
}

impl Panel {
    pub(super) fn sign_in(
        &self,
        request: &Request,
        form: &Form,
        responder: &mut Responder,
    ) -> Response {
        let name = form.get("tenant");
        match self.create_session(request, name, form.get("password")) {
            Ok(token) => {
                log_event(request, name, EventKind::SignedIn, None);
                responder.log_tenant(name, "");
                set_cookie(request, &token, redirect(""))
            }
            Err(error) => {
                let shown: String = name.chars().take(MAX_ECHO).collect();
                if error == WRONG_CREDENTIALS {
                    log_event(request, &shown, EventKind::FailedSignIn, None);
                }
                sign_in_page(error, &shown)
            }
        }
    }

    /// Creates a session and returns its token. Ends the previous session of the browser.
    fn create_session(
        &self,
        request: &Request,
        name: &str,
        password: &str,
    ) -> Result<String, Notice> {
        let (registry, client, now) = (&self.registry, request.client, request.received_at);
        let tenant = registry.find_tenant(name)?;
        let stored = tenant.as_ref().map(|tenant| tenant.password_hash.as_str());
        let matches = self.attempts.verify(secret::hash(name), request, password, stored)?;
        let Some(tenant) = tenant else { return Err(WRONG_CREDENTIALS) };
        if matches {
            if let Some(former) = Session::find(registry, request)? {
                registry.end_session(&former.hash)?;
            }
            let token = secret::generate_token().map_err(|error| Notice::internal(&error))?;
            // The password may have been changed during the check.
            if registry.create_session(&tenant, &secret::hash(&token), client, now)? {
                return Ok(token);
            }
        }
        registry.record_failed_sign_in(tenant.id, client, now);
        Err(WRONG_CREDENTIALS)
    }
}

/// Logs an event. `docs/operations.md` describes the line, for programs that match it. `tenant` may
/// be any text from a request.
pub(super) fn log_event(request: &Request, tenant: &str, action: EventKind, key: Option<KeyId>) {
    tracing::info!(
        tenant = &*encode_unprintable(tenant),
        action = action.as_str(),
        key = key.map(|KeyId(id)| id),
        client = %request.client,
        request_id = %request.id,
        "panel event"
    );
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
    failures: Mutex<Vec<FailedAttempt>>,
}

#[derive(Debug)]
struct FailedAttempt {
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
        let matches = secret::verify_password(password, stored);
        if !matches {
            self.failures.lock().push(FailedAttempt { subject, address, at: now });
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
