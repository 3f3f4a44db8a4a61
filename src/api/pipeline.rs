//! The checks of contract section 5, in their order.

use std::sync::Arc;

use super::Api;
use super::authentication;
use super::changes;
use super::errors;
use super::idempotency::{self, IdempotencyKey};
use super::operations;
use super::rate_limit::RateLimitStatus;
use super::routes::{self, Endpoint, PAGE_METHODS, RECORD_METHODS};
use crate::http::{ApiError, Method, Request, Responder, Response};
use crate::model::{Access, Resource, Scope};
use crate::store::registry::Principal;
use crate::store::{Actor, ChangeContext, Demand, KeyLabel, MutationError, Tenant, Writing};
use crate::turns::{Owner, Turns};

impl Api {
    /// Responds to a request that needs a key, now or when its tenant has a turn.
    ///
    /// The response to a mutation is sent from another thread after the commit.
    pub fn respond(
        self: &Arc<Api>,
        endpoint: Endpoint,
        request: Request,
        mut reply: Responder,
        turns: &Turns,
    ) {
        let caller = match authentication::authenticate(&self.registry, &request) {
            Ok(caller) => caller,
            Err(error) => return reply.send(error.into()),
        };
        reply.caller(&caller.tenant_name, &caller.key.prefix);
        let api = Arc::clone(self);
        turns.run(Owner::Tenant(caller.key.tenant_id), request.client, move |turn| {
            if turn.is_err() {
                return reply.send(ApiError::overloaded().into());
            }
            // The client may have left while the request waited.
            if !reply.is_wanted() {
                return;
            }
            let call = Call { api: &api, caller, request: &request, reply };
            match endpoint {
                Endpoint::Records { resource, prefix } => call.respond_records(resource, prefix),
                Endpoint::Changes => call.respond_changes(),
                Endpoint::Whoami => call.respond_whoami(),
                Endpoint::Batch => call.respond_batch(),
            }
        });
    }
}

/// A request whose key is good.
pub(super) struct Call<'a> {
    api: &'a Api,
    pub(super) caller: Principal,
    pub(super) request: &'a Request,
    pub(super) reply: Responder,
}

impl Call<'_> {
    fn respond_records(mut self, resource: &'static Resource, prefix: &'static str) {
        let access = routes::record_access(&self.request.method);
        let scope = access.map(|access| Scope { resource, access });
        match self.admit(scope.as_slice()) {
            Ok(tenant) => self.perform(&tenant, access, resource, prefix),
            Err(error) => self.reply.send(error.into()),
        }
    }

    fn respond_changes(mut self) {
        let request = self.request;
        let is_read = matches!(request.method, Method::GET | Method::HEAD);
        let scopes = if is_read { changes::scopes().to_vec() } else { Vec::new() };
        let keep = self.api.tenants.keep_changes();
        let response = self.admit(&scopes).and_then(|tenant| {
            if !is_read {
                return Err(ApiError::method_not_allowed(PAGE_METHODS));
            }
            let oldest = request.received_at.timestamp().before(keep);
            changes::read(&tenant, request, self.caller.key.scopes, oldest)
        });
        self.reply.send(response.unwrap_or_else(Response::from));
    }

    /// Needs no scope.
    fn respond_whoami(mut self) {
        let response = self.open().and_then(|_| {
            let rate_limit = self.count()?;
            authentication::whoami(self.request, &self.caller, rate_limit)
        });
        self.reply.send(response.unwrap_or_else(Response::from));
    }

    /// Checks database, scope and rate limit. The key needs one of `scopes`, or none if there are
    /// none.
    pub(super) fn admit(&mut self, scopes: &[Scope]) -> Result<Arc<Tenant>, ApiError> {
        let tenant = self.open()?;
        if !scopes.is_empty() && !scopes.iter().any(|scope| self.caller.key.scopes.contains(*scope))
        {
            return Err(errors::insufficient_scope_of_any(scopes));
        }
        self.count()?;
        Ok(tenant)
    }

    fn open(&self) -> Result<Arc<Tenant>, ApiError> {
        Ok(self.api.tenants.open(self.caller.key.tenant_id)?)
    }

    /// Counts a request that passed the scope check as a use of the key and against its rate limit.
    /// Only the response to such a request has the headers `X-RateLimit-*` and, near the end of the
    /// key, `X-Key-Expires`.
    fn count(&mut self) -> Result<RateLimitStatus, ApiError> {
        let Call { api, caller, request, reply } = self;
        let now = request.received_at;
        api.registry.record_use(caller.key.id, now);
        let near_end = caller.key.near_end(now);
        reply.add_headers(near_end.map(|end| ("X-Key-Expires", end.to_string())));
        let status = api.limiter.check(caller.key.id, caller.key.rate_limit, now)?;
        reply.add_headers(status.headers());
        Ok(status)
    }

    /// Runs the operation. It needs `access`, `None` if the endpoint lacks the method, and checks
    /// the rest: idempotency key, content type, body, query and fields.
    fn perform(
        self,
        tenant: &Tenant,
        access: Option<Access>,
        resource: &'static Resource,
        prefix: &'static str,
    ) {
        let request = self.request;
        let checked = match access {
            None => Err(ApiError::method_not_allowed(RECORD_METHODS)),
            Some(Access::Read) => {
                let response = operations::read(tenant, request, resource, self.caller.key.scopes);
                return self.reply.send(response.unwrap_or_else(Response::from));
            }
            Some(Access::Write) => operations::check(request, resource),
        };
        match checked {
            Ok((change, key)) => {
                let demand = Demand { operations: 1, frees_space: change.frees_space() };
                self.mutate(tenant, demand, key, move |writing, context| {
                    Ok(change.apply(writing, prefix, context)?.into())
                });
            }
            Err(error) => self.reply.send(error.into()),
        }
    }

    /// Runs `work` in the tenant's writer, once for each idempotency key, and responds after the
    /// commit.
    pub(super) fn mutate(
        self,
        tenant: &Tenant,
        demand: Demand,
        once: Option<IdempotencyKey>,
        work: impl FnOnce(&Writing<'_>, &ChangeContext) -> Result<Response, MutationError<ApiError>>
        + Send
        + 'static,
    ) {
        let Call { caller: Principal { key, .. }, request, reply, .. } = self;
        let key = KeyLabel { id: key.id, name: key.name, prefix: key.prefix };
        let actor = Actor::Key { key, request_id: request.id };
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
