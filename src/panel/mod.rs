//! The panel at `/api_keys.php`: a server-rendered page on which a tenant's administrator signs in
//! and creates, changes, replaces, revokes and deletes API keys (contract sections 9 and 14).
//!
//! A successful form is answered with a redirect, so reloading the page does not repeat it. The
//! page works without JavaScript. An error is shown on the page that the form was sent from, or on
//! a page of its own.

mod admin;
mod page;
mod session;

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use base64ct::{Base64, Encoding as _};
use sha2::{Digest as _, Sha256};

use crate::api::{Admission, Job, Lane};
use crate::http::{Method, Request, Responder, Response};
use crate::store::registry::Registry;
use admin::{NewKeys, Visit};
use page::{Form, NO_NOTICE, Notice, OVERLOADED, Page, SCRIPT, SESSION_ENDED, STYLE, View};
use session::{Attempts, Session, sign_in_page};

/// The page loads nothing. It applies its own style and script, and sends forms to this host.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let [style, script] =
        [STYLE, SCRIPT].map(|text| Base64::encode_string(&Sha256::digest(text.as_bytes())));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; \
         img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
});

/// The panel and its state in memory, which is bounded and lost by a restart.
pub struct Panel {
    registry: Arc<Registry>,
    /// The requests a minute of a key without a limit of its own.
    rate_limit: NonZeroU32,
    attempts: Attempts,
    new_keys: NewKeys,
}

impl Panel {
    /// A panel for the tenants of `registry`. A key without a limit of its own has `rate_limit`
    /// requests a minute.
    pub fn new(registry: Arc<Registry>, rate_limit: NonZeroU32) -> Panel {
        let (attempts, new_keys) = (Attempts::default(), NewKeys::default());
        Panel { registry, rate_limit, attempts, new_keys }
    }

    /// The response if too many requests wait (contract section 9).
    pub fn overloaded() -> Response {
        protect(failure_page(OVERLOADED))
    }

    /// The first step of a request. It reads the session, and changes nothing.
    pub fn admit(&self, request: &Request, responder: &mut Responder) -> Admission {
        let lane = match self.read(request) {
            Step::SignIn(_) => Lane::Passwords,
            Step::Visit(form, Session { tenant, .. }) => {
                responder.log_tenant(&tenant.name, "");
                let is_password = form.action() == "password";
                if is_password { Lane::Passwords } else { Lane::Panel(tenant.id) }
            }
            Step::Respond(page) => return Admission::Respond(protect(page)),
        };
        Admission::Wait(lane, Job::Panel)
    }

    /// Answers a request on the panel's path, whatever its method.
    /// `responder` gets the name of a tenant that has signed in, for the log.
    pub fn respond(&self, request: &Request, responder: &mut Responder) -> Response {
        // The session may have ended while the request waited.
        protect(match self.read(request) {
            Step::SignIn(form) => self.sign_in(request, &form, responder),
            Step::Visit(form, session) => Visit { panel: self, request, session }.answer(&form),
            Step::Respond(page) => page,
        })
    }

    fn read(&self, request: &Request) -> Step {
        let read = || {
            let form = Form::read(request)?;
            if form.action() == "sign-in" {
                return Ok(Step::SignIn(form));
            }
            Ok(match Session::find(&self.registry, request)? {
                Some(session) => Step::Visit(form, session),
                None => Step::Respond(signed_out(request, &form)),
            })
        };
        read().unwrap_or_else(|notice| Step::Respond(failure_page(notice)))
    }
}

/// What follows from the form and the session of a request.
enum Step {
    SignIn(Form),
    Visit(Form, Session),
    Respond(Response),
}

/// The page of a request without a session. It tells nothing of what another admin has done in this
/// browser, even after a step back.
fn signed_out(request: &Request, form: &Form) -> Response {
    let notice = match form.get("done") {
        _ if request.method == Method::POST => SESSION_ENDED,
        "signed-out" => Notice::success("You are signed out."),
        "password-changed" => Notice::success(
            "The password is changed and every session has ended. Sign in with the new one.",
        ),
        _ => NO_NOTICE,
    };
    sign_in_page(notice, "")
}

/// Adds the security headers. `/docs` has the same origin, and runs a script of another project. The
/// last header separates a window of `/docs` from one of the panel.
fn protect(response: Response) -> Response {
    response.protect(&POLICY).header("Cross-Origin-Opener-Policy", "same-origin")
}

/// The page of an error that no other page shows.
fn failure_page(notice: Notice) -> Response {
    Page { signed_in: None, title: "The request failed", notice, content: View::Failure }.respond()
}
