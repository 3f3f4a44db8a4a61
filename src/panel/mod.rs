//! The panel at `/api_keys.php`: one server-rendered page on which a tenant admin signs in, makes keys, revokes and deletes
//! them (contract section 9).
//!
//! A form that changed something is answered by a redirect, so reloading repeats nothing. The page works without JavaScript;
//! the little there is copies the new key and ticks boxes. A refusal is a page too, the one that was asked from where there
//! is one.

mod cookies;
mod error;
mod form;
mod forms;
mod hash_limiter;
mod headers;
mod keys_page;
mod login_throttle;
mod new_keys;
mod session;
mod sign_in;
mod templates;

use std::sync::Arc;

use crate::http::{Method, Request, Response};
use crate::store::registry::Registry;
use error::Refusal;
use hash_limiter::Hashing;
use login_throttle::Attempts;
use new_keys::NewKeys;

/// The value of the header `Allow`.
const METHODS: &str = "GET, HEAD, POST";

/// The panel and what it keeps in memory: all of it is bounded, and a restart forgets it.
#[derive(Debug)]
pub struct Panel {
    registry: Arc<Registry>,
    attempts: Attempts,
    hashing: Hashing,
    new_keys: NewKeys,
}

impl Panel {
    /// A panel for the tenants of `registry`.
    pub fn new(registry: Arc<Registry>) -> Panel {
        Panel { registry, attempts: Attempts::default(), hashing: Hashing::default(), new_keys: NewKeys::default() }
    }

    /// Returns a page or a redirect for a request on the panel's path, whatever its method.
    pub fn respond(&self, request: &Request) -> Response {
        let outcome = match request.method {
            Method::Get | Method::Head => keys_page::show(self, request),
            Method::Post => forms::take(self, request),
            Method::Put | Method::Delete | Method::Other => Err(Refusal::Method),
        };
        headers::protect(outcome.unwrap_or_else(|refusal| templates::refused(&refusal)))
    }

    /// The number of passwords checked or hashed since the start, also those of unknown tenants.
    pub fn passwords_hashed(&self) -> u64 {
        self.hashing.finished()
    }
}
