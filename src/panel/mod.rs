//! The panel at `/api_keys.php`: a server-rendered page on which a tenant's administrator signs in
//! and creates, changes, replaces, revokes and deletes API keys (contract sections 9 and 14).
//!
//! A successful form is answered with a redirect, so reloading the page does not repeat it. The
//! page works without JavaScript. An error is shown on the page that the form was sent from, or on
//! a page of its own.

mod actions;
mod error;
mod form;
mod keys_page;
mod passwords;
mod pending_keys;
mod sign_in;
mod templates;

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use crate::api::routes::PANEL_PATH;
use crate::clock::Moment;
use crate::html::{self, BASE_STYLE, Policy};
use crate::http::responder::printable;
use crate::http::{Method, Request, Response};
use crate::model::KeyId;
use crate::store::registry::{Action, Registry};
use error::{METHOD_NOT_ALLOWED, OVERLOADED};
use form::Form;
use passwords::Passwords;
use pending_keys::PendingKeys;
use templates::{SCRIPT, STYLE};

/// The value of the header `Allow`.
const METHODS: &str = "GET, HEAD, POST";

static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new(&[BASE_STYLE, STYLE], &[SCRIPT]));

/// The panel and its state in memory, which is bounded and lost by a restart.
#[derive(Debug)]
pub struct Panel {
    registry: Arc<Registry>,
    /// The requests a minute of a key without a limit of its own.
    rate_limit: NonZeroU32,
    passwords: Passwords,
    pending_keys: PendingKeys,
}

impl Panel {
    /// A panel for the tenants of `registry`. A key without a limit of its own has `rate_limit`
    /// requests a minute.
    pub fn new(registry: Arc<Registry>, rate_limit: NonZeroU32) -> Panel {
        let (passwords, pending_keys) = (Passwords::default(), PendingKeys::default());
        Panel { registry, rate_limit, passwords, pending_keys }
    }

    /// The response where more sign-ins wait than the processor can hash (contract section 9).
    pub fn overloaded() -> Response {
        page(templates::error_page(&OVERLOADED))
    }

    /// Whether the request is a form that hashes a password. Such forms run one at a time. No other
    /// form waits for them: a flood of sign-ins must not keep an admin from revoking a key.
    pub fn hashes_password(request: &Request) -> bool {
        let hashes = |form: Form| ["sign-in", "password"].contains(&form.get("action"));
        request.method == Method::POST && Form::from_body(request).is_ok_and(hashes)
    }

    /// Returns a page or a redirect for a request on the panel's path, whatever its method, and the
    /// name of the tenant that is signed in.
    pub fn respond(&self, request: &Request) -> (Response, Option<String>) {
        let mut tenant = None;
        let outcome = match request.method {
            Method::GET | Method::HEAD => keys_page::handle_get(self, request, &mut tenant),
            Method::POST => actions::handle_post(self, request, &mut tenant),
            _ => Err(METHOD_NOT_ALLOWED),
        };
        (page(outcome.unwrap_or_else(|error| templates::error_page(&error))), tenant)
    }

    /// Removes new keys that nobody fetched in time. The server calls it once a minute.
    pub fn forget_unfetched_keys(&self, now: Moment) {
        self.pending_keys.purge(now.monotonic);
    }

    /// The number of passwords checked or hashed since the start, including those for unknown
    /// tenants.
    pub fn passwords_hashed(&self) -> u64 {
        self.passwords.hashed()
    }
}

fn page(response: Response) -> Response {
    html::protect(response, &POLICY)
}

/// A redirect to the panel, which the browser requests with GET (RFC 9110 section 15.4.4).
fn redirect(query: &str) -> Response {
    Response::empty(303).header("Location", format!("{PANEL_PATH}{query}"))
}

/// Logs an event. `docs/operations.md` describes the line, for programs that match it. `tenant` may
/// be any text from a request.
fn log_event(request: &Request, tenant: &str, action: Action, key: Option<KeyId>) {
    tracing::info!(
        tenant = &*printable(tenant),
        action = action.as_str(),
        key = key.map(|KeyId(id)| id),
        client = %request.client,
        request_id = %request.id,
        "panel event"
    );
}
