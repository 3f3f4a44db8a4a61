//! The checks of contract section 5, in their order.

use std::sync::Arc;

use super::authentication;
use super::batch::Batch;
use super::change::Change;
use super::idempotency::{self, IdempotencyKey};
use super::operations;
use super::rate_limit::RateLimitStatus;
use super::routes::Endpoint;
use super::{Api, changes, errors};
use crate::http::{ApiError, Job, Lane, Method, Request, Responder, Response};
use crate::store::registry::Principal;
use crate::store::{
    Actor, Answer, ChangeContext, Demand, KeyLabel, MutationError, Tenant, Writing,
};

impl Api {
    /// Looks up the key of a request, and returns the job that will answer the request. Without a
    /// good key, the request is answered at once.
    ///
    /// The response to a mutation is sent from another thread after the commit.
    pub fn admit(
        self: &Arc<Api>,
        endpoint: Endpoint,
        request: Request,
        mut responder: Responder,
    ) -> Option<Job> {
        let caller = match authentication::authenticate(&self.registry, &request) {
            Ok(caller) => caller,
            Err(error) => {
                responder.send(error.into());
                return None;
            }
        };
        responder.caller(&caller.tenant_name, &caller.key.prefix);
        let (api, lane) = (Arc::clone(self), Lane::Tenant(caller.key.tenant_id));
        let run = move |request: Request, reply: Responder| {
            Call { api: &api, caller, request: &request, reply }.respond(endpoint);
        };
        let rejection = || ApiError::overloaded().into();
        Some(Job { lane, request, responder, run: Box::new(run), rejection })
    }
}

/// A request whose key is good.
struct Call<'a> {
    api: &'a Api,
    caller: Principal,
    request: &'a Request,
    reply: Responder,
}

/// What remains to be done for a request that passed its checks.
enum Checked {
    Respond(Response),
    /// `prefix` is `/v1` if the path begins with it.
    Change {
        change: Change,
        prefix: &'static str,
        key: Option<IdempotencyKey>,
    },
    Batch(Batch),
}

impl Call<'_> {
    fn respond(mut self, endpoint: Endpoint) {
        let admitted = self.admit(endpoint);
        let checked = admitted.and_then(|(tenant, rate_limit)| {
            Ok((self.check(endpoint, &tenant, rate_limit)?, tenant))
        });
        match checked {
            Err(error) => self.reply.send(error.into()),
            Ok((Checked::Respond(response), _)) => self.reply.send(response),
            Ok((Checked::Change { change, prefix, key }, tenant)) => {
                let demand = Demand { operations: 1, frees_space: change.frees_space() };
                self.mutate(&tenant, demand, key, move |writing, context| {
                    Ok(change.apply(writing, prefix, context)?.1)
                });
            }
            Ok((Checked::Batch(batch), tenant)) => {
                self.mutate(&tenant, batch.demand(), batch.key, move |writing, context| {
                    batch.apply(writing, context)
                });
            }
        }
    }

    /// Checks database, scope, rate limit and method. A method that the endpoint lacks needs no
    /// scope.
    ///
    /// A request that passed the scope check counts as a use of the key and against its rate limit.
    /// Only the response to such a request has the headers `X-RateLimit-*` and, near the end of the
    /// key, `X-Key-Expires`.
    fn admit(&mut self, endpoint: Endpoint) -> Result<(Arc<Tenant>, RateLimitStatus), ApiError> {
        let Call { api, caller: Principal { key, .. }, request, reply } = self;
        let tenant = api.tenants.open(key.tenant_id)?;
        let methods = endpoint.methods();
        let is_known = methods.split(", ").any(|known| known == request.method.as_str());
        let scopes = endpoint.scopes(&request.method);
        if is_known && !scopes.is_empty() && !key.scopes.intersects(scopes) {
            return Err(errors::insufficient_scope(scopes));
        }
        let now = request.received_at;
        api.registry.record_use(key.id, now);
        reply.add_headers(key.near_end(now).map(|end| ("X-Key-Expires", end.to_string())));
        let status = api.limiter.check(key.id, key.rate_limit, now)?;
        reply.add_headers(status.headers());
        if !is_known {
            return Err(ApiError::method_not_allowed(methods));
        }
        Ok((tenant, status))
    }

    /// Makes the checks from the idempotency key on, and answers a request that reads.
    fn check(
        &self,
        endpoint: Endpoint,
        tenant: &Tenant,
        rate_limit: RateLimitStatus,
    ) -> Result<Checked, ApiError> {
        let (request, scopes) = (self.request, self.caller.key.scopes);
        let response = match endpoint {
            Endpoint::Records { resource, prefix } => match request.method {
                Method::GET | Method::HEAD => operations::read(tenant, request, resource, scopes)?,
                _ => {
                    let (change, key) = operations::check(request, resource)?;
                    return Ok(Checked::Change { change, prefix, key });
                }
            },
            Endpoint::Changes => {
                let keep = self.api.tenants.keep_changes();
                let oldest = request.received_at.timestamp().before(keep);
                changes::read(tenant, request, scopes, oldest)?
            }
            Endpoint::Whoami => authentication::whoami(request, &self.caller, rate_limit)?,
            Endpoint::Batch => return Ok(Checked::Batch(Batch::check(request, scopes)?)),
        };
        Ok(Checked::Respond(response))
    }

    /// Runs `work` in the tenant's writer, once for each idempotency key, and responds after the
    /// commit.
    fn mutate(
        self,
        tenant: &Tenant,
        demand: Demand,
        once: Option<IdempotencyKey>,
        work: impl FnOnce(&Writing<'_>, &ChangeContext) -> Result<Answer, MutationError<ApiError>>
        + Send
        + 'static,
    ) {
        let Call { caller: Principal { key, .. }, request, reply, .. } = self;
        let actor = Actor::Key { key: KeyLabel::from(key), request_id: request.id };
        let context = ChangeContext { at: request.received_at.timestamp(), actor };
        tenant.mutate(
            demand,
            move |writing| idempotency::once(writing, once, &context, || work(writing, &context)),
            |outcome| {
                let response = outcome.unwrap_or_else(|error| Err(error.into()));
                reply.send(response.unwrap_or_else(Response::from));
            },
        );
    }
}
