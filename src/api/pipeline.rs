//! Requests with a key: the checks of contract section 5 in their order, and the response.
//!
//! The first check that fails decides the response, and whether the request counts against the rate
//! limit. Example: a key without `customers:write` sends a POST. The scope stands before the rate
//! limit, so the response is 403, and the request does not count. In the other order, a client with
//! a wrong key would soon get 429 in place of the reason.
//!
//! One request passes three threads. [`Api::admit`] runs in the worker that receives the request.
//! The other checks, in [`Api::respond`], run in a worker that is free when the tenant's turn
//! comes. A mutation runs in the tenant's writer thread, which also sends its response. No change
//! here may let a worker wait for a commit: 16 busy tenants on a slow disk would then occupy all
//! workers.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::json;

use super::query::Query;
use super::rate_limit::{RateLimitStatus, RateLimiter};
use super::records::{self, CheckedWrite};
use super::routes::{Action, Endpoint, insufficient_scope};
use super::{batch, changes};
use crate::http::request::{MAX_BATCH_BODY, MAX_BODY};
use crate::http::{API_VERSION, ApiError, ErrorCode, Method, Request, Responder, Response};
use crate::model::TenantId;
use crate::secret;
use crate::store::registry::{KeyState, Principal, Registry};
use crate::store::{Actor, ChangeContext, KeyLabel, Mutation, Outcome, Tenant, Tenants};

/// The result of a request's first step: of `admit`.
pub enum Admission {
    Respond(Response),
    /// The request waits in the lane until a worker runs the job, which is the second step.
    Wait(Lane, Job),
}

/// A queue of requests, with limits on those that wait and on those that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The API requests of a tenant.
    Tenant(TenantId),
    /// The panel's requests with a session of the tenant. A form holds its worker until the
    /// registry has committed, which takes long if the disk is slow.
    Panel(TenantId),
    /// The panel's forms that hash a password. No other form waits for them: a flood of sign-ins
    /// must not keep an admin from revoking a key.
    Passwords,
}

impl Lane {
    /// Whether no further job may wait. One more gets 503 `overloaded` (contract section 6).
    pub fn is_full(self, waiting: usize, waiting_of_address: impl FnOnce() -> usize) -> bool {
        match self {
            Lane::Tenant(_) => waiting >= 1024,
            Lane::Panel(_) => waiting >= 64,
            // Forty hashes take 0.8 s, one after another. A stranger who sends sign-ins without end
            // must not keep out the admins at other addresses.
            Lane::Passwords => waiting >= 40 || waiting_of_address() >= 10,
        }
    }

    /// The most jobs of the lane that run at the same time, in a pool of so many workers.
    pub fn max_running(self, workers: usize) -> usize {
        match self {
            Lane::Tenant(_) => (workers / 16).max(1),
            Lane::Panel(_) | Lane::Passwords => 1,
        }
    }
}

/// The work that answers a request.
pub enum Job {
    /// A request whose key is good, with the endpoints of its path.
    Api(Box<Principal>, &'static [Endpoint]),
    Panel,
}

/// The API of the records of every tenant.
pub struct Api {
    registry: Arc<Registry>,
    tenants: Arc<Tenants>,
    limiter: RateLimiter,
}

impl Api {
    /// An API that allows each key without a limit of its own `rate_limit` requests a minute.
    pub fn new(registry: Arc<Registry>, tenants: Arc<Tenants>, rate_limit: NonZeroU32) -> Api {
        Api { registry, tenants, limiter: RateLimiter::new(rate_limit) }
    }

    /// Looks up the key of a request to a path with these endpoints. The key names the tenant in
    /// whose lane the request waits.
    pub fn admit(
        &self,
        endpoints: &'static [Endpoint],
        request: &Request,
        responder: &mut Responder,
    ) -> Admission {
        if request.method == Method::OPTIONS {
            // A browser asks before it sends a key.
            let error = Endpoint::not_allowed(endpoints, &request.method);
            return Admission::Respond(error.into());
        }
        match authenticate(&self.registry, request) {
            Ok(principal) => {
                responder.log_tenant(&principal.tenant_name, &principal.key.prefix);
                let lane = Lane::Tenant(principal.key.tenant_id);
                Admission::Wait(lane, Job::Api(Box::new(principal), endpoints))
            }
            Err(error) => Admission::Respond(error.into()),
        }
    }

    /// Makes the other checks, and answers the request. A request that writes is answered by the
    /// tenant's writer, which makes the checks from 23 on.
    pub fn respond(
        &self,
        principal: Principal,
        endpoints: &'static [Endpoint],
        request: &Request,
        mut responder: Responder,
    ) {
        let authorized = self.authorize(&principal, endpoints, request, &mut responder);
        let (tenant, action, rate_limit) = match authorized {
            Ok(authorized) => authorized,
            Err(error) => return responder.send(error.into()),
        };
        let is_strict = records::is_strict(request);
        if is_strict {
            responder.add_headers([("Preference-Applied", "handling=strict".to_owned())]);
        }
        let scopes = principal.key.scopes;
        let response = match action {
            Action::Read(resource) => records::read(&tenant, request, resource, scopes),
            Action::Changes => changes::read(&tenant, request, scopes),
            Action::Whoami => whoami(request, &principal, rate_limit),
            Action::Batch | Action::Create(_) | Action::Update(_) | Action::Delete(_) => {
                let checked = match action.resource() {
                    Some(resource) => {
                        records::check_write(request, resource, is_strict, &mut responder)
                    }
                    None => batch::check_write(request, scopes, is_strict),
                };
                match checked {
                    Ok(write) => {
                        let key = principal.key.label();
                        return make_changes(&tenant, key, request, write, responder);
                    }
                    Err(error) => Err(error),
                }
            }
        };
        responder.send(response.unwrap_or_else(Response::from));
    }

    /// Makes the checks 10 to 13 of contract section 5. Checks 4 to 9 are in [`authenticate`].
    fn authorize(
        &self,
        principal: &Principal,
        endpoints: &'static [Endpoint],
        request: &Request,
        responder: &mut Responder,
    ) -> Result<(Arc<Tenant>, Action, RateLimitStatus), ApiError> {
        let (key, now) = (&principal.key, request.received_at);
        // Tenant database.
        let tenant = self.tenants.open(key.tenant_id)?;
        // Scope. If the path does not have the method, no scope is needed: the check of the method
        // answers 405.
        let endpoint = Endpoint::find(endpoints, &request.method);
        if let Some(scopes) = endpoint.map(Endpoint::scopes)
            && !scopes.is_empty()
            && !key.scopes.intersects(scopes)
        {
            return Err(insufficient_scope(scopes, "or"));
        }
        // Rate limit. From here on the request counts, and every response has the headers on the
        // key's end and limit.
        self.registry.record_use(key, now);
        responder.add_headers(key.near_end(now).map(|end| ("X-Key-Expires", end.to_string())));
        let rate_limit = self.limiter.count(key.id, key.rate_limit, now)?;
        responder.add_headers(rate_limit.headers());
        // Method.
        let endpoint = endpoint.ok_or_else(|| Endpoint::not_allowed(endpoints, &request.method))?;
        Ok((tenant, endpoint.action, rate_limit))
    }
}

fn make_changes(
    tenant: &Tenant,
    key: KeyLabel,
    request: &Request,
    write: CheckedWrite,
    responder: Responder,
) {
    let CheckedWrite { changes, paths, is_batch, idempotency_key } = write;
    let actor = Actor::Key { key, request_id: request.id };
    tenant.mutate(Mutation {
        changes,
        idempotency_key,
        context: ChangeContext { at: request.received_at.timestamp(), actor },
        since: Instant::now(),
        make_response: Box::new(move |changed| match (changed, paths.as_slice()) {
            ([changed], [path]) if !is_batch => records::stored_response(changed, path),
            (_, paths) => batch::stored_response(changed, paths),
        }),
        send: Box::new(move |outcome| responder.send(response_to(outcome, is_batch))),
    });
}

fn response_to(outcome: Outcome, is_batch: bool) -> Response {
    match outcome {
        Outcome::Changed(stored) => records::response(stored),
        Outcome::Replayed(stored) => {
            records::response(stored).header("Idempotent-Replayed", "true")
        }
        Outcome::KeyReused => ApiError::from(ErrorCode::IdempotencyKeyReused).into(),
        Outcome::Rejected(number, rejection) if is_batch => {
            ApiError::from(rejection).of_operation(number).into()
        }
        Outcome::Rejected(_, rejection) => ApiError::from(rejection).into(),
        Outcome::Failed(error) => ApiError::from(error).into(),
    }
}

fn authenticate(registry: &Registry, request: &Request) -> Result<Principal, ApiError> {
    let key = bearer_token(&request.headers)?;
    if !secret::is_well_formed_key(key) {
        return Err(unauthorized(ErrorCode::MalformedApiKey));
    }
    let now = request.received_at;
    let Some(principal) = registry
        .find_principal(&secret::hash(key), now)
        .map_err(|error| ApiError::of_service(&error))?
    else {
        tracing::warn!(client = %request.client, request_id = %request.id, "an unknown API key");
        return Err(unauthorized(ErrorCode::InvalidApiKey));
    };
    match (principal.key.state(now), principal.inactive) {
        (KeyState::Revoked, _) => Err(unauthorized(ErrorCode::RevokedApiKey)),
        (KeyState::Expired, _) => Err(unauthorized(ErrorCode::ExpiredApiKey)),
        (KeyState::Active, Some(reason)) => Err(reason.into()),
        (KeyState::Active, None) => Ok(principal),
    }
}

/// What a client can learn about its own key (contract section 14).
fn whoami(
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

/// The longest body in bytes that a path takes of a request with these headers. Without a key that
/// has the form of one, the request is refused whatever its body is.
pub fn max_body(endpoints: &[Endpoint], headers: &HeaderMap) -> usize {
    match endpoints {
        _ if !bearer_token(headers).is_ok_and(secret::is_well_formed_key) => 0,
        [Endpoint { action: Action::Batch, .. }] => MAX_BATCH_BODY,
        _ => MAX_BODY,
    }
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
fn unauthorized(code: ErrorCode) -> ApiError {
    let is_absent = code == ErrorCode::MissingAuthorization;
    let challenge = if is_absent { "Bearer" } else { "Bearer error=\"invalid_token\"" };
    ApiError::from(code).header("WWW-Authenticate", challenge)
}
