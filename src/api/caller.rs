//! Who asks: the API key in the header `Authorization` (contract section 5).

use std::sync::Arc;

use super::errors;
use crate::app::App;
use crate::http::{ApiError, Request};
use crate::secret;
use crate::store::registry::Caller;

/// The caller that the request's key stands for: known, not revoked, of an active tenant.
pub fn identify(app: &App, request: &Request) -> Result<Arc<Caller>, ApiError> {
    let key = bearer_token(request)?;
    if !secret::is_well_formed_key(key) {
        return Err(errors::malformed_api_key());
    }
    let caller = app.registry.find_caller(&secret::hash(key))?.ok_or_else(errors::invalid_api_key)?;
    if caller.revoked {
        return Err(errors::revoked_api_key());
    }
    match caller.inactive(|| request.received_at.date()) {
        Some(why) => Err(errors::tenant_inactive(why)),
        None => Ok(caller),
    }
}

/// The scheme is matched without regard to case. Any number of spaces or tabs may follow it, but no other white space
/// (contract section 5).
fn bearer_token(request: &Request) -> Result<&str, ApiError> {
    const SEPARATORS: [char; 2] = [' ', '\t'];
    let mut given = request.headers("authorization");
    let value = given.next().ok_or_else(errors::missing_authorization)?;
    if given.next().is_some() {
        return Err(ApiError::bad_request("The header \"Authorization\" is given twice. Send it once."));
    }
    let (scheme, rest) = value.split_once(SEPARATORS).ok_or_else(errors::missing_authorization)?;
    let token = rest.trim_matches(SEPARATORS);
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        Ok(token)
    } else {
        Err(errors::missing_authorization())
    }
}
