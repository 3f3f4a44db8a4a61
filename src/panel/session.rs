//! Who is signed in, and the tokens that show that a form came from our own page.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Panel;
use super::cookies::Cookie;
use super::error::Refusal;
use crate::http::Request;
use crate::secret;
use crate::store::registry::TenantRow;

/// A session that lasts.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) tenant: TenantRow,
    /// What is stored of its token.
    pub(super) hash: [u8; 32],
    /// What its forms carry.
    pub(super) token: String,
}

impl Session {
    /// The session of the request's cookie.
    pub(super) fn find(panel: &Panel, request: &Request) -> Result<Option<Session>, Refusal> {
        let Some(token) = Cookie::Session.read(request) else { return Ok(None) };
        let hash = secret::hash(token);
        let tenant = panel.registry.find_session(&hash, request.received_at)?;
        Ok(tenant.map(|tenant| Session { tenant, hash, token: form_token("session", token) }))
    }

    /// Whether a form with this token came from a page of this session.
    pub(super) fn made(&self, token: &str) -> bool {
        is_same(token, &self.token)
    }
}

/// The token of the forms that belong to a cookie: whoever cannot read the cookie cannot make it, and it does not betray the
/// cookie. `purpose` keeps one kind of form from standing for another.
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

/// Compares without telling by its time how much was right.
pub(super) fn is_same(given: &str, expected: &str) -> bool {
    given.as_bytes().ct_eq(expected.as_bytes()).into()
}
