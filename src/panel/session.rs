//! Sessions, their cookies, and the tokens against cross-site request forgery.
//!
//! Over HTTPS the names of the cookies begin with `__Host-`. Browsers accept such a cookie from
//! this host only, so another host of the domain cannot set it (RFC 6265bis section 4.1.3.2).

use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Panel;
use super::notice::Notice;
use crate::http::{Request, Response};
use crate::secret;
use crate::store::registry::{SESSION_SECONDS, TenantRow};

/// A cookie of the panel, which holds a token.
pub(super) struct Cookie {
    name: &'static str,
    seconds: i64,
}

pub(super) const SESSION: Cookie = Cookie { name: "tenantdesk-session", seconds: SESSION_SECONDS };

/// The sign-in form is bound to it.
pub(super) const SIGN_IN: Cookie = Cookie { name: "tenantdesk-sign-in", seconds: 60 * 60 };

/// Length of every token in characters ([`secret::generate_token`]).
const TOKEN_LENGTH: usize = 43;

impl Cookie {
    fn full_name(&self, request: &Request) -> String {
        format!("{}{}", if request.secure { "__Host-" } else { "" }, self.name)
    }

    /// Returns the token in this cookie.
    pub(super) fn read<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let name = self.full_name(request);
        request
            .headers("cookie")
            .flat_map(|header| header.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .find(|(n, value)| *n == name && value.len() == TOKEN_LENGTH)
            .map(|(_, value)| value)
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
    pub(super) fn form_token(&self, token: &str) -> String {
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
}

/// Compares in constant time.
pub(super) fn is_equal(given: &str, expected: &str) -> bool {
    given.as_bytes().ct_eq(expected.as_bytes()).into()
}
