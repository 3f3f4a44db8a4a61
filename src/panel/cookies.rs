//! The panel's two cookies: a session's, and the short-lived one that the sign-in form is bound to.
//!
//! Over HTTPS their names begin with `__Host-`: a browser then takes them from this very host alone, so that a neighbouring
//! host can plant neither a session nor a sign-in form.

use crate::http::{Request, Response};
use crate::store::registry::SESSION_SECONDS;

/// One of the cookies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cookie {
    Session,
    SignIn,
}

/// How long a sign-in form can be sent: one hour.
const SIGN_IN_SECONDS: i64 = 60 * 60;

/// The characters of every token of ours ([`crate::secret::generate_token`]).
const TOKEN_LENGTH: usize = 43;

impl Cookie {
    const fn name(self, secure: bool) -> &'static str {
        match (self, secure) {
            (Cookie::Session, true) => "__Host-tenantdesk-session",
            (Cookie::Session, false) => "tenantdesk-session",
            (Cookie::SignIn, true) => "__Host-tenantdesk-sign-in",
            (Cookie::SignIn, false) => "tenantdesk-sign-in",
        }
    }

    const fn seconds(self) -> i64 {
        match self {
            Cookie::Session => SESSION_SECONDS,
            Cookie::SignIn => SIGN_IN_SECONDS,
        }
    }

    /// The token in this cookie, where it has the form of one.
    pub(super) fn read(self, request: &Request) -> Option<&str> {
        let name = self.name(request.secure);
        request
            .headers("cookie")
            .flat_map(|header| header.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value)
            .filter(|value| is_token(value))
    }

    /// Gives the browser `token` for as long as this cookie lasts.
    pub(super) fn set(self, request: &Request, token: &str, response: Response) -> Response {
        self.write(request, token, self.seconds(), response)
    }

    /// Takes the cookie from the browser.
    pub(super) fn clear(self, request: &Request, response: Response) -> Response {
        self.write(request, "", 0, response)
    }

    fn write(self, request: &Request, value: &str, seconds: i64, response: Response) -> Response {
        let secure = if request.secure { "; Secure" } else { "" };
        let name = self.name(request.secure);
        let cookie = format!("{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}");
        response.header("Set-Cookie", cookie)
    }
}

fn is_token(value: &str) -> bool {
    value.len() == TOKEN_LENGTH
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}
