//! The checks of contract section 5, in their order.

use std::sync::Arc;

use super::Api;
use super::authentication;
use super::errors;
use super::operations::{self, Outcome};
use super::rate_limit::RateLimitStatus;
use super::routes::{self, Operation, RECORD_METHODS};
use crate::http::{ApiError, Request, Responder, Response};
use crate::model::{Resource, Scope};
use crate::store::Tenant;

impl Api {
    /// Responds to a request on the path of `resource`. `prefix` is `/v1` if the path begins with it.
    ///
    /// The response to a mutation is sent from another thread after the commit.
    pub fn respond(&self, request: &Request, resource: &'static Resource, prefix: &'static str, mut reply: Responder) {
        match self.admit(request, resource, &mut reply) {
            Ok(admitted) => {
                reply.add_headers(admitted.rate_limit.headers());
                admitted.perform(request, resource, prefix, reply);
            }
            Err(error) => reply.send(error.into()),
        }
    }

    /// Checks authentication, tenant, database, scope and rate limit.
    fn admit(
        &self,
        request: &Request,
        resource: &'static Resource,
        reply: &mut Responder,
    ) -> Result<AdmittedRequest, ApiError> {
        let caller = authentication::authenticate(&self.registry, request)?;
        reply.caller(&caller.tenant_name, &caller.prefix);
        let tenant = self.tenants.open(caller.tenant_id)?;
        let operation = routes::find_operation(request.method);
        if let Some((_, access)) = operation {
            let scope = Scope { resource, access };
            if !caller.scopes.contains(scope) {
                return Err(errors::insufficient_scope(scope));
            }
        }
        self.registry.record_use(caller.key_id, request.received_at);
        let rate_limit =
            self.limiter.check(caller.key_id, request.received_at).inspect_err(|_| self.metrics.rate_limited.add(1))?;
        Ok(AdmittedRequest { tenant, operation: operation.map(|(operation, _)| operation), rate_limit })
    }
}

/// A request that passed every check up to the rate limit. Only its response has the headers `X-RateLimit-*`.
struct AdmittedRequest {
    tenant: Arc<Tenant>,
    /// `None` if the endpoint lacks the method.
    operation: Option<Operation>,
    rate_limit: RateLimitStatus,
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
