//! The checks of contract section 5, in their order.

use std::sync::Arc;

use super::Api;
use super::authentication;
use super::changes;
use super::errors;
use super::operations;
use super::rate_limit::RateLimitStatus;
use super::routes::{self, Operation, PAGE_METHODS, RECORD_METHODS};
use super::whoami;
use crate::http::{ApiError, Method, Request, Responder, Response};
use crate::model::{Resource, Scope};
use crate::store::registry::Principal;
use crate::store::{KeyLabel, MutationError, Origin, Tenant, Writing};

impl Api {
    /// Responds to a request on the path of `resource`. `prefix` is `/v1` if the path begins with it.
    ///
    /// The response to a mutation is sent from another thread after the commit.
    pub fn respond(&self, request: &Request, resource: &'static Resource, prefix: &'static str, mut reply: Responder) {
        let operation = routes::find_operation(request.method);
        let scope = operation.map(|(_, access)| Scope { resource, access });
        match self.admit(request, scope.as_slice(), &mut reply) {
            Ok(admitted) => {
                admitted.perform(request, operation.map(|(operation, _)| operation), resource, prefix, reply)
            }
            Err(error) => reply.send(error.into()),
        }
    }

    /// Responds to a request on the path of the journal.
    pub fn respond_changes(&self, request: &Request, mut reply: Responder) {
        let is_read = matches!(request.method, Method::Get | Method::Head);
        let scopes = if is_read { changes::scopes().to_vec() } else { Vec::new() };
        let response = self.admit(request, &scopes, &mut reply).and_then(|AdmittedRequest { tenant, caller }| {
            if !is_read {
                return Err(ApiError::method_not_allowed(PAGE_METHODS));
            }
            let oldest = changes::oldest(request.received_at, self.tenants.keep_changes());
            changes::read(&tenant, request, caller.scopes, oldest)
        });
        reply.send(response.unwrap_or_else(Response::from));
    }

    /// Responds to a request on `/whoami.php`, which needs no scope.
    pub fn respond_whoami(&self, request: &Request, mut reply: Responder) {
        let response = self.identify(request, &mut reply).and_then(|(caller, _)| {
            let rate_limit = self.count(&caller, request, &mut reply)?;
            whoami::respond(&self.registry, request, &caller, rate_limit)
        });
        reply.send(response.unwrap_or_else(Response::from));
    }

    /// Checks authentication, tenant, database, scope and rate limit. The key needs one of `scopes`, or none if there are none.
    pub(super) fn admit(
        &self,
        request: &Request,
        scopes: &[Scope],
        reply: &mut Responder,
    ) -> Result<AdmittedRequest, ApiError> {
        let (caller, tenant) = self.identify(request, reply)?;
        if !scopes.is_empty() && !scopes.iter().any(|scope| caller.scopes.contains(*scope)) {
            return Err(errors::insufficient_scope(scopes));
        }
        self.count(&caller, request, reply)?;
        Ok(AdmittedRequest { tenant, caller })
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
pub(super) struct AdmittedRequest {
    tenant: Arc<Tenant>,
    pub(super) caller: Principal,
}

impl AdmittedRequest {
    /// Runs the operation, `None` if the endpoint lacks the method. The operation checks the rest: idempotency key, content type,
    /// body, query and fields.
    fn perform(
        self,
        request: &Request,
        operation: Option<Operation>,
        resource: &'static Resource,
        prefix: &'static str,
        reply: Responder,
    ) {
        let checked = match operation {
            None => Err(ApiError::method_not_allowed(RECORD_METHODS)),
            Some(Operation::Read) => {
                let response = operations::read(&self.tenant, request, resource);
                return reply.send(response.unwrap_or_else(Response::from));
            }
            Some(Operation::Create) => operations::create(request, resource),
            Some(Operation::Update) => operations::update(request, resource),
            Some(Operation::Delete) => operations::delete(request, resource),
        };
        match checked {
            Ok(change) => self.mutate(request, reply, move |writing, origin| change.run(writing, prefix, origin)),
            Err(error) => reply.send(Response::from(error)),
        }
    }

    /// Runs `work` in the tenant's writer and responds after the commit.
    pub(super) fn mutate(
        self,
        request: &Request,
        reply: Responder,
        work: impl FnOnce(&Writing<'_>, &Origin) -> Result<Response, MutationError<ApiError>> + Send + 'static,
    ) {
        let Principal { key_id: id, key_name: name, prefix: key_prefix, .. } = self.caller;
        let origin = Origin::new(request.received_at, KeyLabel { id, name, prefix: key_prefix }, request.id);
        self.tenant.mutate(
            move |writing| work(writing, &origin),
            |outcome| {
                let response = outcome.unwrap_or_else(|error| Err(error.into()));
                reply.send(response.unwrap_or_else(Response::from));
            },
        );
    }
}
