//! The checks of contract section 5, in their order.

use std::sync::Arc;

use super::Api;
use super::authentication;
use super::errors;
use super::operations::{self, Outcome};
use super::rate_limit::RateLimitStatus;
use super::routes::{self, Operation, RECORD_METHODS};
use super::whoami;
use crate::http::{ApiError, Request, Responder, Response};
use crate::model::{Resource, Scope};
use crate::store::Tenant;
use crate::store::registry::Principal;

impl Api {
    /// Responds to a request on the path of `resource`. `prefix` is `/v1` if the path begins with it.
    ///
    /// The response to a mutation is sent from another thread after the commit.
    pub fn respond(&self, request: &Request, resource: &'static Resource, prefix: &'static str, mut reply: Responder) {
        match self.admit(request, resource, &mut reply) {
            Ok(admitted) => admitted.perform(request, resource, prefix, reply),
            Err(error) => reply.send(error.into()),
        }
    }

    /// Responds to a request on `/whoami.php`, which needs no scope.
    pub fn respond_to_whoami(&self, request: &Request, mut reply: Responder) {
        let response = self.identify(request, &mut reply).and_then(|(caller, _)| {
            let rate_limit = self.count(&caller, request, &mut reply)?;
            whoami::respond(&self.registry, request, &caller, rate_limit)
        });
        reply.send(response.unwrap_or_else(Response::from));
    }

    /// Checks authentication, tenant, database, scope and rate limit.
    fn admit(
        &self,
        request: &Request,
        resource: &'static Resource,
        reply: &mut Responder,
    ) -> Result<AdmittedRequest, ApiError> {
        let (caller, tenant) = self.identify(request, reply)?;
        let operation = routes::find_operation(request.method);
        if let Some((_, access)) = operation {
            let scope = Scope { resource, access };
            if !caller.scopes.contains(scope) {
                return Err(errors::insufficient_scope(scope));
            }
        }
        self.count(&caller, request, reply)?;
        Ok(AdmittedRequest { tenant, operation: operation.map(|(operation, _)| operation) })
    }

    /// Checks authentication, tenant and database.
    fn identify(&self, request: &Request, reply: &mut Responder) -> Result<(Principal, Arc<Tenant>), ApiError> {
        let caller = authentication::authenticate(&self.registry, request)?;
        reply.caller(&caller.tenant_name, &caller.prefix);
        let tenant = self.tenants.open(caller.tenant_id)?;
        Ok((caller, tenant))
    }

    /// Counts a request that passed the scope check as a use of the key and against its rate limit. Only the response to such a
    /// request has the headers `X-RateLimit-*` and, near the end of the key, `X-Key-Expires`.
    fn count(&self, caller: &Principal, request: &Request, reply: &mut Responder) -> Result<RateLimitStatus, ApiError> {
        let now = request.received_at;
        self.registry.record_use(caller.key_id, now);
        let near_end = caller.expires_at.filter(|end| end.is_near(now));
        reply.add_headers(near_end.map(|end| ("X-Key-Expires", end.to_string())));
        let status = self
            .limiter
            .check(caller.key_id, caller.rate_limit, now)
            .inspect_err(|_| self.metrics.rate_limited.add(1))?;
        reply.add_headers(status.headers());
        Ok(status)
    }
}

/// A request that passed every check up to the rate limit.
struct AdmittedRequest {
    tenant: Arc<Tenant>,
    /// `None` if the endpoint lacks the method.
    operation: Option<Operation>,
}

impl AdmittedRequest {
    /// Runs the operation. The operation checks the rest: idempotency key, content type, body, query and fields.
    fn perform(self, request: &Request, resource: &'static Resource, prefix: &'static str, reply: Responder) {
        let outcome = match self.operation {
            None => Err(ApiError::method_not_allowed(RECORD_METHODS)),
            Some(Operation::Read) => operations::read(&self.tenant, request, resource),
            Some(Operation::Create) => operations::create(request, resource, prefix),
            Some(Operation::Update) => operations::update(request, resource),
            Some(Operation::Delete) => operations::delete(request, resource),
        };
        match outcome {
            Ok(Outcome::Response(response)) => reply.send(response),
            Ok(Outcome::Mutation(mutation)) => self.tenant.mutate(mutation, |outcome| {
                let response = outcome.unwrap_or_else(|error| Err(error.into()));
                reply.send(response.unwrap_or_else(Response::from));
            }),
            Err(error) => reply.send(Response::from(error)),
        }
    }
}
