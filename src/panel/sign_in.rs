//! Signing in and out, and the check of a password that both sign-in and a change of it go through.

use super::Panel;
use super::cookies::Cookie;
use super::error::Refusal;
use super::form::Form;
use super::hash_limiter::Busy;
use super::keys_page::{self, Done};
use super::login_throttle::{Exhausted, Subject};
use super::session::{Session, form_token, is_same};
use super::templates::{self, Notice, SignInPage};
use crate::api::routes::PANEL_PATH;
use crate::http::{Request, Response};
use crate::{password, secret};

/// What the sign-in form's token is for.
const PURPOSE: &str = "sign in";

/// The most of a name that is sent back, in characters: as long as a tenant's can be, and a bit.
const ECHOED: usize = 80;

/// The form to sign in, bound to its cookie.
pub(super) fn page(request: &Request, notice: Option<Notice>, tenant: &str, status: u16) -> Result<Response, Refusal> {
    let cookie = match Cookie::SignIn.read(request) {
        Some(cookie) => cookie.to_owned(),
        None => secret::generate_token()?,
    };
    let tenant: String = tenant.chars().take(ECHOED).collect();
    let page = SignInPage { notice, tenant: &tenant, token: &form_token(PURPOSE, &cookie) };
    Ok(Cookie::SignIn.set(request, &cookie, templates::page(status, &page)?))
}

/// The form again, with why it was refused. A cookie of a session that is over goes.
pub(super) fn refuse(request: &Request, refusal: &Refusal, tenant: &str) -> Result<Response, Refusal> {
    page(request, Some(Notice::refused(refusal)), tenant, refusal.status()).map(|page| refusal.mark(page))
}

/// Takes the sign-in form.
pub(super) fn sign_in(panel: &Panel, request: &Request, form: &Form) -> Result<Response, Refusal> {
    let name = form.get("tenant");
    let bound =
        Cookie::SignIn.read(request).is_some_and(|cookie| is_same(form.get("token"), &form_token(PURPOSE, cookie)));
    if !bound {
        return refuse(request, &Refusal::SignInToken, name);
    }
    match check(panel, request, name, form.get("password")) {
        Ok(token) => {
            let response = Cookie::Session.set(request, &token, keys_page::redirect(PANEL_PATH));
            Ok(Cookie::SignIn.clear(request, response))
        }
        Err(refusal) => {
            if refusal == Refusal::WrongSignIn {
                tracing::warn!(client = %request.client, request_id = %request.id, "a sign-in to the panel failed");
            }
            refuse(request, &refusal, name)
        }
    }
}

/// The token of a new session. The one that the browser had ends.
fn check(panel: &Panel, request: &Request, name: &str, password: &str) -> Result<String, Refusal> {
    let tenant = panel.registry.find_tenant(name)?;
    let stored = tenant.as_ref().map(|tenant| tenant.password_hash.as_str());
    let matches = verify(panel, request, Subject::sign_in(name), password, stored)?;
    let Some(tenant) = tenant.filter(|_| matches) else { return Err(Refusal::WrongSignIn) };
    if let Some(former) = Session::find(panel, request)? {
        end(panel, &former)?;
    }
    let token = secret::generate_token()?;
    if panel.registry.create_session(&tenant, &secret::hash(&token), request.received_at)? {
        Ok(token)
    } else {
        // The password was changed while this one was checked.
        Err(Refusal::WrongSignIn)
    }
}

/// Signs out.
pub(super) fn sign_out(panel: &Panel, request: &Request, session: &Session) -> Result<Response, Refusal> {
    end(panel, session)?;
    Ok(Cookie::Session.clear(request, Done::SignedOut.redirect()))
}

fn end(panel: &Panel, session: &Session) -> Result<(), Refusal> {
    panel.registry.end_session(&session.hash)?;
    panel.new_keys.forget(session.hash);
    Ok(())
}

/// Whether `password` is the one that `stored` was made from; without one, which is an unknown tenant's, no after the same
/// work. Wrong ones are counted, and the work waits its turn.
pub(super) fn verify(
    panel: &Panel,
    request: &Request,
    subject: Subject,
    password: &str,
    stored: Option<&str>,
) -> Result<bool, Refusal> {
    let now = request.received_at.monotonic;
    panel.attempts.check(&subject, now)?;
    panel.hashing.run(request.client, |memory| {
        let attempt = panel.attempts.begin(subject, now)?;
        let matches = password::verify(password, stored, memory);
        if !matches {
            attempt.fail();
        }
        Ok(matches)
    })?
}

impl From<Exhausted> for Refusal {
    fn from(Exhausted: Exhausted) -> Refusal {
        Refusal::TooManyAttempts
    }
}

impl From<Busy> for Refusal {
    fn from(Busy: Busy) -> Refusal {
        Refusal::Busy
    }
}
