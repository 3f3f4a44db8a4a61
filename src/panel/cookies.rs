//! The two cookies of the panel: the session, and a short-lived one that the sign-in form is bound
//! to.
//!
//! Over HTTPS their names begin with `__Host-`: browsers accept such a cookie from this host only,
//! so another host of the domain cannot set one (RFC 6265bis section 4.1.3.2).

use crate::http::{Request, Response};
use crate::store::registry::SESSION_SECONDS;

/// A cookie of the panel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cookie {
    Session,
    SignIn,
}

/// Lifetime of a sign-in form in seconds.
const SIGN_IN_SECONDS: i64 = 60 * 60;

/// Length of every token in characters ([`crate::secret::generate_token`]).
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

    /// Returns the token in this cookie if it is well-formed.
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

    /// Sets the cookie to `token`.
    pub(super) fn set(self, request: &Request, token: &str, response: Response) -> Response {
        self.write(request, token, self.seconds(), response)
    }

    /// Deletes the cookie.
    pub(super) fn clear(self, request: &Request, response: Response) -> Response {
        self.write(request, "", 0, response)
    }

    fn write(self, request: &Request, value: &str, seconds: i64, response: Response) -> Response {
        let secure = if request.secure { "; Secure" } else { "" };
        let name = self.name(request.secure);
        let cookie =
            format!("{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}");
        response.header("Set-Cookie", cookie)
    }
}

fn is_token(value: &str) -> bool {
    value.len() == TOKEN_LENGTH
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}
