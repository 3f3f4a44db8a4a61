//! Authentication by the API key in the header `Authorization` (contract section 5).

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::http::{ApiError, ErrorCode, Request};
use crate::model::Scopes;
use crate::secret;
use crate::store::registry::{Inactive, KeyState, Principal, Registry};

/// Returns the owner of the request's API key.
///
/// # Errors
///
/// The header is missing or malformed, the key is unknown, revoked or expired, or its tenant is
/// inactive.
pub(super) fn authenticate(registry: &Registry, request: &Request) -> Result<Principal, ApiError> {
    let key = bearer_token(&request.headers)?;
    if !secret::is_well_formed_key(key) {
        return Err(unauthorized(ErrorCode::MalformedApiKey));
    }
    let now = request.received_at;
    let Some(caller) = registry.find_principal(&secret::hash(key), now)? else {
        tracing::warn!(client = %request.client, request_id = %request.id, "an unknown API key");
        return Err(unauthorized(ErrorCode::InvalidApiKey));
    };
    match (caller.key.state(now), caller.inactive) {
        (KeyState::Revoked, _) => Err(unauthorized(ErrorCode::RevokedApiKey)),
        (KeyState::Expired, _) => Err(unauthorized(ErrorCode::ExpiredApiKey)),
        (KeyState::Active, Some(reason)) => Err(tenant_inactive(reason)),
        (KeyState::Active, None) => Ok(caller),
    }
}

/// Whether the headers have a key of the right form. Without one, no body is read.
pub(super) fn has_well_formed_key(headers: &HeaderMap) -> bool {
    bearer_token(headers).is_ok_and(secret::is_well_formed_key)
}

/// The scheme is case-insensitive (RFC 9110 section 11.1). Spaces and tabs may follow it, but no
/// other white space (contract section 5).
fn bearer_token(headers: &HeaderMap) -> Result<&str, ApiError> {
    const SEPARATORS: [char; 2] = [' ', '\t'];
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let missing = || unauthorized(ErrorCode::MissingAuthorization);
    let value = values.next().and_then(|value| value.to_str().ok()).ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(ApiError::bad_request(
            "The header \"Authorization\" is given twice. Send it once.",
        ));
    }
    let (scheme, rest) = value.split_once(SEPARATORS).ok_or_else(missing)?;
    let token = rest.trim_matches(SEPARATORS);
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        Ok(token)
    } else {
        Err(missing())
    }
}

/// An error of the key, with the challenge of RFC 6750 section 3.
pub(super) fn unauthorized(code: ErrorCode) -> ApiError {
    let is_absent = code == ErrorCode::MissingAuthorization;
    let challenge = if is_absent { "Bearer" } else { "Bearer error=\"invalid_token\"" };
    ApiError::from(code).header("WWW-Authenticate", challenge)
}

pub(super) fn tenant_inactive(reason: Inactive) -> ApiError {
    let message = match reason {
        Inactive::Suspended => {
            "The tenant has been suspended by the operator. Ask the operator to activate it."
        }
        Inactive::TrialOver => {
            "The tenant's trial is over. Ask the operator to activate the tenant."
        }
    };
    ApiError::new(ErrorCode::TenantInactive, message)
}

/// `insufficient_scope`: the key has none of `scopes`.
pub(super) fn insufficient_scope(scopes: Scopes) -> ApiError {
    let names = scopes.names();
    let message = format!(
        "This API key lacks \"{}\". Use a key with the scope that the request needs.",
        names.join("\", \"")
    );
    let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", names.join(" "));
    ApiError::new(ErrorCode::InsufficientScope, message).header("WWW-Authenticate", challenge)
}
