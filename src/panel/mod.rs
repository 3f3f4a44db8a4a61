//! The panel at `/api_keys.php`: a server-rendered page on which a tenant's administrator signs in
//! and creates, replaces, revokes and deletes API keys (contract sections 9 and 14).
//!
//! A successful form is answered with a redirect, so reloading the page does not repeat it. The
//! page works without JavaScript. An error is shown on the page that the form was sent from, or on
//! a page of its own.

mod actions;
mod choices;
mod cookies;
mod error;
mod form;
mod hasher;
mod keys_page;
mod login_throttle;
mod pending_keys;
mod redirect;
mod session;
mod sign_in;
mod templates;

use std::sync::{Arc, LazyLock};

use crate::html::{self, BASE_STYLE, Policy};
use crate::http::{Method, Request, Response};
use crate::store::registry::Registry;
use error::PanelError;
use hasher::Hasher;
use login_throttle::LoginThrottle;
use pending_keys::PendingKeys;
use templates::{SCRIPT, STYLE};

/// The value of the header `Allow`.
const METHODS: &str = "GET, HEAD, POST";

static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new(&[BASE_STYLE, STYLE], &[SCRIPT]));

/// The panel and its state in memory, which is bounded and lost by a restart.
#[derive(Debug)]
pub struct Panel {
    registry: Arc<Registry>,
    throttle: LoginThrottle,
    hasher: Hasher,
    pending_keys: PendingKeys,
}

impl Panel {
    /// A panel for the tenants of `registry`.
    pub fn new(registry: Arc<Registry>) -> Panel {
        Panel {
            registry,
            throttle: LoginThrottle::default(),
            hasher: Hasher::default(),
            pending_keys: PendingKeys::default(),
        }
    }

    /// The response where more sign-ins wait than the processor can hash (contract section 9).
    pub fn overloaded(&self) -> Response {
        page(templates::error_page(&PanelError::Overloaded))
    }

    /// Returns a page or a redirect for a request on the panel's path, whatever its method.
    pub fn respond(&self, request: &Request) -> Response {
        let outcome = match request.method {
            Method::GET | Method::HEAD => keys_page::handle_get(self, request),
            Method::POST => actions::handle_post(self, request),
            _ => Err(PanelError::MethodNotAllowed),
        };
        page(outcome.unwrap_or_else(|error| templates::error_page(&error)))
    }

    /// The number of passwords checked or hashed since the start, including those for unknown
    /// tenants.
    pub fn passwords_hashed(&self) -> u64 {
        self.hasher.finished()
    }
}

fn page(response: Response) -> Response {
    html::protect(response.header("Cache-Control", "no-store"), &POLICY)
}
