//! `/whoami.php`: what a client can learn about its own key (contract section 14).

use serde_json::json;

use super::query::Query;
use super::rate_limit::RateLimitStatus;
use crate::http::{API_VERSION, ApiError, Request, Response};
use crate::store::registry::Principal;

/// Checks the query, and describes the key.
pub(super) fn whoami(
    request: &Request,
    principal: &Principal,
    rate_limit: RateLimitStatus,
) -> Result<Response, ApiError> {
    Query::parse(request.query.as_deref())?.only(&[])?;
    let key = &principal.key;
    let document = json!({
        "tenant": principal.tenant_name,
        "key": {
            "id": key.id,
            "name": key.name,
            "prefix": key.prefix,
            "scopes": key.scopes.names(),
            "created_at": key.created_at,
            "expires_at": key.expires_at,
        },
        "rate_limit": rate_limit.limit,
        "api_version": API_VERSION,
        "server": env!("CARGO_PKG_VERSION"),
    });
    Ok(Response::json(200, &document))
}
