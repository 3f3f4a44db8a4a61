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

use crate::app::App;
use crate::http::{Method, Request, Response};
use error::Refusal;
use hash_limiter::Hashing;
use login_throttle::Attempts;
use new_keys::NewKeys;

/// Where the panel is.
pub const PATH: &str = "/api_keys.php";

/// `Allow` of the panel.
const METHODS: &str = "GET, HEAD, POST";

/// What the panel keeps in memory, all of it bounded; a restart forgets it.
#[derive(Debug, Default)]
pub struct State {
    attempts: Attempts,
    hashing: Hashing,
    new_keys: NewKeys,
}

impl State {
    /// How many passwords were checked or hashed since the start. What an unknown tenant's sign-in costs shows here.
    pub fn passwords_worked_on(&self) -> u64 {
        self.hashing.finished()
    }
}

/// Answers any request on the panel's path, always with a page or a redirect.
pub fn answer(app: &App, request: &Request) -> Response {
    let answered = match request.method {
        Method::Get | Method::Head => keys_page::show(app, request),
        Method::Post => forms::take(app, request),
        Method::Put | Method::Delete | Method::Other => Err(Refusal::Method),
    };
    headers::protect(answered.unwrap_or_else(|refusal| templates::refused(&refusal)))
}
