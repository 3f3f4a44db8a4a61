//! Sessions, and the tokens against cross-site request forgery.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Panel;
use super::cookies::Cookie;
use super::error::PanelError;
use crate::http::Request;
use crate::secret;
use crate::store::registry::TenantRow;

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
    /// Returns the session of the request's cookie.
    pub(super) fn find(panel: &Panel, request: &Request) -> Result<Option<Session>, PanelError> {
        let Some(token) = Cookie::Session.read(request) else { return Ok(None) };
        let hash = secret::hash(token);
        let tenant = panel.registry.find_session(&hash, request.received_at)?;
        Ok(tenant.map(|tenant| Session { tenant, hash, token: form_token("session", token) }))
    }

    /// Whether `token` is the token of this session's forms.
    pub(super) fn is_form_token(&self, token: &str) -> bool {
        is_equal(token, &self.token)
    }
}

/// Derives the token of the forms that belong to a cookie. It cannot be derived without the cookie
/// and does not reveal it. `purpose` separates the kinds of forms.
pub(super) fn form_token(purpose: &str, cookie: &str) -> String {
    URL_SAFE_NO_PAD.encode(
        Sha256::new()
            .chain_update("tenantdesk form ")
            .chain_update(purpose)
            .chain_update([0])
            .chain_update(cookie)
            .finalize(),
    )
}

/// Compares in constant time.
pub(super) fn is_equal(given: &str, expected: &str) -> bool {
    given.as_bytes().ct_eq(expected.as_bytes()).into()
}
