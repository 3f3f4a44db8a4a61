//! A request's way from top to bottom: the checks of contract section 5 in their order.

use std::sync::Arc;

use super::caller;
use super::errors;
use super::operations::{self, Outcome};
use super::pages;
use super::rate_limit::Allowance;
use super::routes::{self, Operation, RECORD_METHODS, Route};
use crate::app::App;
use crate::http::{ApiError, Reply, Request, Response};
use crate::model::Resource;
use crate::panel;
use crate::store::Tenant;

/// Answers a request, now or when what it changes is on disk.
pub fn answer(app: &Arc<App>, request: &Request, mut reply: Reply) {
    match routes::find(&request.path) {
        None => reply.send(ApiError::endpoint_not_found().into()),
        Some(Route::Page(page)) => {
            // `/docs` has the host of the request in it, and `/readyz` is about this moment: a cache must keep neither.
            reply.add_headers(no_store());
            reply.send(pages::answer(app, page, request));
        }
        Some(Route::Panel) => reply.send(panel::answer(app, request)),
        Some(Route::Records { resource, prefix }) => {
            reply.add_headers(no_store());
            match admit(app, request, resource, &mut reply) {
                Ok(admitted) => {
                    reply.add_headers(admitted.allowance.headers());
                    admitted.perform(request, resource, prefix, reply);
                }
                Err(error) => reply.send(error.into()),
            }
        }
    }
}

/// The header that keeps an answer out of every cache.
fn no_store() -> [(&'static str, String); 1] {
    [("Cache-Control", "no-store".to_owned())]
}

/// A request that passed every check up to the rate limit. What fails before it has no `X-RateLimit-*`; what comes after it
/// always has, success or error.
struct Admitted {
    tenant: Arc<Tenant>,
    /// `None` for a method that the endpoint lacks.
    operation: Option<Operation>,
    allowance: Allowance,
}

/// Header, key, tenant, database, scope, rate limit: contract section 5, line by line.
fn admit(app: &App, request: &Request, resource: &'static Resource, reply: &mut Reply) -> Result<Admitted, ApiError> {
    let caller = caller::identify(app, request)?;
    reply.caller(&caller.tenant_name, &caller.prefix);
    let tenant = app.tenants.open(caller.tenant_id)?;
    let (operation, scope) = routes::operation(resource, request.method).unzip();
    if let Some(scope) = scope.filter(|scope| !caller.scopes.contains(*scope)) {
        return Err(errors::insufficient_scope(scope));
    }
    app.registry.note_use(caller.key_id, request.received_at);
    let allowance =
        app.limiter.take(caller.key_id, request.received_at).inspect_err(|_| app.metrics.rate_limited.add(1))?;
    Ok(Admitted { tenant, operation, allowance })
}

impl Admitted {
    /// Method, idempotency key form, content type, body, query, fields: the operations' checks. Then the work.
    fn perform(self, request: &Request, resource: &'static Resource, prefix: &'static str, reply: Reply) {
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
