//! Who asks: the API key in the header `Authorization` (contract section 5).

use std::sync::Arc;

use crate::app::App;
use crate::error::Error;
use crate::http::Request;
use crate::secret;
use crate::store::registry::Caller;

/// The caller that the request's key stands for: known, not revoked, of an active tenant.
pub fn identify(app: &App, request: &Request) -> Result<Arc<Caller>, Error> {
    let key = bearer_token(request)?;
    if !secret::is_well_formed_key(key) {
        return Err(Error::MalformedApiKey);
    }
    let caller = app.registry.find_caller(&secret::hash(key))?.ok_or(Error::InvalidApiKey)?;
    if caller.revoked {
        return Err(Error::RevokedApiKey);
    }
    match caller.inactive(|| request.received_at.date()) {
        Some(why) => Err(Error::TenantInactive(why)),
        None => Ok(caller),
    }
}

/// The scheme is matched without regard to case, and any number of spaces may follow it.
fn bearer_token(request: &Request) -> Result<&str, Error> {
    let mut given = request.headers("authorization");
    let value = given.next().ok_or(Error::MissingAuthorization)?;
    if given.next().is_some() {
        return Err(Error::BadRequest("The header \"Authorization\" is given twice. Send it once.".to_owned()));
    }
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => Ok(token.trim()),
        _ => Err(Error::MissingAuthorization),
    }
}
