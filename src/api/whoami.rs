//! `/whoami.php`: what a client can learn about its own key (contract section 14).

use serde_json::{Value, json};

use super::query::Query;
use super::rate_limit::RateLimitStatus;
use super::routes::PAGE_METHODS;
use crate::http::{API_VERSION, ApiError, Method, Request, Response};
use crate::store::registry::{KeyRow, Principal};

/// Responds to a request that was counted against the rate limit: checks the method and the query,
/// and describes the key.
pub(super) fn respond(
    request: &Request,
    caller: &Principal,
    rate_limit: RateLimitStatus,
) -> Result<Response, ApiError> {
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed(PAGE_METHODS));
    }
    Query::parse(request.query.as_deref())?.only([].into_iter())?;
    Ok(Response::json(200, &document(&caller.tenant_name, &caller.key, rate_limit.limit)))
}

fn document(tenant: &str, key: &KeyRow, rate_limit: u32) -> Value {
    json!({
        "tenant": tenant,
        "key": {
            "id": key.id,
            "name": key.name,
            "prefix": key.prefix,
            "scopes": key.scopes.names(),
            "created_at": key.created_at,
            "expires_at": key.expires_at,
        },
        "rate_limit": rate_limit,
        "api_version": API_VERSION,
        "server": env!("CARGO_PKG_VERSION"),
    })
}
