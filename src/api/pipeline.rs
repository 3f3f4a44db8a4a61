//! Requests with a key: the checks of contract section 5 in their order, and the answer.

use std::sync::Arc;

use super::authentication;
use super::batch::Batch;
use super::idempotency::{self, IdempotencyKey};
use super::operations;
use super::routes::{Action, Operation};
use super::unknown_members::Handling;
use super::{Api, changes, errors};
use crate::http::{ApiError, Job, Lane, Request, Responder, Response};
use crate::store::registry::Principal;
use crate::store::{
    Actor, Answer, ChangeContext, Demand, KeyLabel, MutationError, Tenant, Writing,
};

impl Api {
    /// Looks up the key of a request to a path with these operations, and returns the job that will
    /// answer the request. Without a good key, the request is answered at once. `prefix` is `/v1`
    /// if the path begins with it.
    ///
    /// The key comes first because each tenant's jobs wait in a lane of their own. The response to a
    /// mutation is sent from another thread after the commit.
    pub fn admit(
        self: &Arc<Api>,
        operations: &'static [Operation],
        prefix: &'static str,
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
            AuthenticatedRequest { api: &api, caller, request: &request, reply }
                .respond(operations, prefix);
        };
        let rejection = || ApiError::overloaded().into();
        Some(Job { lane, request, responder, run: Box::new(run), rejection })
    }
}

/// A request whose key is good.
struct AuthenticatedRequest<'a> {
    api: &'a Api,
    caller: Principal,
    request: &'a Request,
    reply: Responder,
}

/// The rest of the work for a request that passed its checks.
enum NextStep {
    Respond(Response),
    /// Runs in the tenant's writer, once for each idempotency key.
    Write(Demand, Option<IdempotencyKey>, Work),
}

type Work =
    Box<dyn FnOnce(&Writing<'_>, &ChangeContext) -> Result<Answer, MutationError<ApiError>> + Send>;

impl AuthenticatedRequest<'_> {
    fn respond(mut self, operations: &'static [Operation], prefix: &'static str) {
        match self.check(operations, prefix) {
            Err(error) => self.reply.send(error.into()),
            Ok((_, NextStep::Respond(response))) => self.reply.send(response),
            Ok((tenant, NextStep::Write(demand, once, work))) => {
                self.write(&tenant, demand, once, work);
            }
        }
    }

    /// Makes the checks in the order of the list in contract section 5, and answers a request that
    /// reads. The first checks are in [`authentication::authenticate`]. Checks that need a write
    /// transaction are in the [`Work`].
    fn check(
        &mut self,
        operations: &'static [Operation],
        prefix: &'static str,
    ) -> Result<(Arc<Tenant>, NextStep), ApiError> {
        let AuthenticatedRequest { api, caller, request, reply } = self;
        let (key, now) = (&caller.key, request.received_at);
        // Tenant database.
        let tenant = api.tenants.open(key.tenant_id)?;
        // Scope. A method that the path does not have needs none.
        let operation = Operation::find(operations, &request.method);
        if let Some(scopes) = operation.map(Operation::scopes)
            && !scopes.is_empty()
            && !key.scopes.intersects(scopes)
        {
            return Err(errors::insufficient_scope(scopes));
        }
        // Rate limit. From here on the request counts, and the response has the key's headers.
        api.registry.record_use(key.id, now);
        reply.add_headers(key.near_end(now).map(|end| ("X-Key-Expires", end.to_string())));
        let rate_limit = api.limiter.check(key.id, key.rate_limit, now)?;
        reply.add_headers(rate_limit.headers());
        // Method.
        let operation = operation.ok_or_else(|| Operation::not_allowed(operations))?;
        reply.add_headers(Handling::of(request).header());
        // The operation's own checks.
        let accepted = match operation.action {
            Action::Read(resource) => {
                NextStep::Respond(operations::read(&tenant, request, resource, key.scopes)?)
            }
            Action::Create(resource) | Action::Update(resource) | Action::Delete(resource) => {
                let (change, once) = operations::check(request, resource, reply)?;
                let demand = Demand { operations: 1, frees_space: change.frees_space() };
                let work: Work =
                    Box::new(move |writing, at| Ok(change.apply(writing, prefix, at)?.1));
                NextStep::Write(demand, once, work)
            }
            Action::Changes => {
                let oldest = now.timestamp().before(api.tenants.keep_changes());
                NextStep::Respond(changes::read(&tenant, request, key.scopes, oldest)?)
            }
            Action::Whoami => {
                NextStep::Respond(authentication::whoami(request, caller, rate_limit)?)
            }
            Action::Batch => {
                let batch = Batch::check(request, key.scopes)?;
                let (demand, once) = (batch.demand(), batch.key);
                NextStep::Write(demand, once, Box::new(|writing, at| batch.apply(writing, at)))
            }
        };
        Ok((tenant, accepted))
    }

    /// Runs `work` in the tenant's writer, and responds after the commit.
    fn write(self, tenant: &Tenant, demand: Demand, once: Option<IdempotencyKey>, work: Work) {
        let AuthenticatedRequest { caller: Principal { key, .. }, request, reply, .. } = self;
        let actor = Actor::Key { key: KeyLabel::from(key), request_id: request.id };
        let context = ChangeContext { at: request.received_at.timestamp(), actor };
        tenant.mutate(
            demand,
            move |writing| {
                idempotency::run_once(writing, once, &context, || work(writing, &context))
            },
            |outcome| {
                let response = outcome.unwrap_or_else(|error| Err(error.into()));
                reply.send(response.unwrap_or_else(Response::from));
            },
        );
    }
}
