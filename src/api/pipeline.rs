//! Requests with a key: the checks of contract section 5 in their order, and the answer.
//!
//! The first check that fails decides the answer, and whether the request counts against the rate
//! limit. Example: a key without `customers:write` sends a POST. The scope stands before the rate
//! limit, so the answer is 403, and the request does not count. In the other order, a client with a
//! wrong key would soon get 429 in place of the reason.
//!
//! One request passes three threads. [`Api::admit`] runs in the worker that receives the request.
//! The other checks, in [`Api::respond`], run in a worker that is free when the tenant's turn
//! comes. A mutation runs in the tenant's writer thread, which also sends its response. No change
//! here may let a worker wait for a commit: 16 busy tenants on a slow disk would then occupy all
//! workers.

use std::sync::Arc;

use super::authentication;
use super::batch::{self, Batch};
use super::change::Endpoint;
use super::headers::Handling;
use super::idempotency::{self, IdempotencyKey};
use super::operations;
use super::routes::{Action, Operation};
use super::{Api, changes, whoami};
use crate::http::{ApiError, Request, Responder, Response};
use crate::store::registry::Principal;
use crate::store::{
    Actor, Answer, Change, ChangeContext, ChangeError, Changed, KeyLabel, MutationError,
    MutationSize, Rejection, Tenant, Writing,
};

/// A request whose key is good.
pub struct ApiCall {
    pub caller: Principal,
    operations: &'static [Operation],
}

impl Api {
    /// Looks up the key of a request to a path with these operations.
    ///
    /// The key is looked up before the request waits, because it names the tenant in whose lane the
    /// request waits.
    pub fn admit(
        &self,
        operations: &'static [Operation],
        request: &Request,
    ) -> Result<ApiCall, ApiError> {
        let caller = authentication::authenticate(&self.registry, request)?;
        Ok(ApiCall { caller, operations })
    }

    /// Makes the other checks, and answers the request.
    pub fn respond(&self, call: ApiCall, request: &Request, responder: Responder) {
        let ApiCall { caller, operations } = call;
        AuthenticatedRequest { api: self, caller, request, responder }.respond(operations);
    }
}

/// A call with its request and the way back.
struct AuthenticatedRequest<'a> {
    api: &'a Api,
    caller: Principal,
    request: &'a Request,
    responder: Responder,
}

/// The rest of the work for a request that passed its checks.
enum NextStep {
    Respond(Response),
    /// The work runs in the tenant's writer. If a request with the same idempotency key has
    /// succeeded, the client gets the stored response, and the work does not run.
    Write(MutationSize, Option<IdempotencyKey>, Work),
}

/// Makes the changes of one request inside the writer's transaction. After an error, the writer
/// rolls back these changes alone.
type Work =
    Box<dyn FnOnce(&Writing<'_>, &ChangeContext) -> Result<Answer, MutationError<ApiError>> + Send>;

impl AuthenticatedRequest<'_> {
    fn respond(mut self, operations: &'static [Operation]) {
        match self.check(operations) {
            Err(error) => self.responder.send(error.into()),
            Ok((_, NextStep::Respond(response))) => self.responder.send(response),
            Ok((tenant, NextStep::Write(size, idempotency_key, work))) => {
                self.write(&tenant, size, idempotency_key, work);
            }
        }
    }

    /// Makes the checks from 10 on in contract section 5, and answers a request that reads. Checks
    /// 4 to 9 are in [`authentication::authenticate`]. Checks that need a write transaction, from
    /// 24 on, are in the [`Work`].
    fn check(
        &mut self,
        operations: &'static [Operation],
    ) -> Result<(Arc<Tenant>, NextStep), ApiError> {
        let AuthenticatedRequest { api, caller, request, responder } = self;
        let (key, now) = (&caller.key, request.received_at);
        // Tenant database.
        let tenant = api.tenants.open(key.tenant_id)?;
        // Scope. If the path does not have the method, no scope is needed: the check of the method
        // answers 405.
        let operation = Operation::find(operations, &request.method);
        if let Some(scopes) = operation.map(Operation::scopes)
            && !scopes.is_empty()
            && !key.scopes.intersects(scopes)
        {
            return Err(authentication::insufficient_scope(scopes));
        }
        // Rate limit. From here on the request counts, and every response has the headers on the
        // key's end and limit.
        api.registry.record_use(key.id, now);
        responder.add_headers(key.near_end(now).map(|end| ("X-Key-Expires", end.to_string())));
        let rate_limit = api.limiter.check(key.id, key.rate_limit, now)?;
        responder.add_headers(rate_limit.headers());
        // Method.
        let operation = operation.ok_or_else(|| Operation::not_allowed(operations))?;
        // If the client asks for strict handling, every response from here on says so.
        responder.add_headers(Handling::of(request).header());
        // The operation's own checks.
        let next_step = match operation.action {
            Action::Read(resource) => {
                NextStep::Respond(operations::read(&tenant, request, resource, key.scopes)?)
            }
            Action::Create(resource) | Action::Update(resource) | Action::Delete(resource) => {
                let (change, idempotency_key) = operations::check(request, resource, responder)?;
                let size = MutationSize { operations: 1, frees_space: change.frees_space() };
                let endpoint = Endpoint { resource, path: request.path.clone() };
                let work: Work = Box::new(move |writing, context| {
                    let changed =
                        apply_all(writing, vec![change], context).map_err(|(_, error)| error)?;
                    changed
                        .first()
                        .map(|changed| endpoint.answer(changed))
                        .ok_or_else(|| ApiError::internal().into())
                });
                NextStep::Write(size, idempotency_key, work)
            }
            Action::Changes => {
                let oldest = now.timestamp().before(api.tenants.keep_changes());
                NextStep::Respond(changes::read(&tenant, request, key.scopes, oldest)?)
            }
            Action::Whoami => NextStep::Respond(whoami::whoami(request, caller, rate_limit)?),
            Action::Batch => {
                let batch = Batch::check(request, key.scopes)?;
                let Batch { changes, endpoints, invalid, idempotency_key } = batch;
                let frees_space = changes.iter().all(Change::frees_space);
                let size = MutationSize { operations: changes.len(), frees_space };
                let work: Work = Box::new(move |writing, context| {
                    let changed = apply_all(writing, changes, context).map_err(
                        |(number, error)| match error {
                            MutationError::Rejected(error) => {
                                batch::with_operation(number, error).into()
                            }
                            failure @ MutationError::Database(_) => failure,
                        },
                    )?;
                    match invalid {
                        Some(error) => Err(error.into()),
                        None => Ok(batch::answer(&endpoints, &changed)),
                    }
                });
                NextStep::Write(size, idempotency_key, work)
            }
        };
        // Idempotency key.
        if let NextStep::Write(_, Some(key), _) = &next_step
            && let Some(response) = idempotency::replay(&tenant, request, key)?
        {
            return Ok((tenant, NextStep::Respond(response)));
        }
        Ok((tenant, next_step))
    }

    /// Runs `work` in the tenant's writer, and responds after the commit.
    fn write(
        self,
        tenant: &Tenant,
        size: MutationSize,
        idempotency_key: Option<IdempotencyKey>,
        work: Work,
    ) {
        let AuthenticatedRequest { caller: Principal { key, .. }, request, responder, .. } = self;
        let actor = Actor::Key { key: KeyLabel::from(key), request_id: request.id };
        let context = ChangeContext { at: request.received_at.timestamp(), actor };
        tenant.mutate(
            size,
            move |writing| {
                let run = || work(writing, &context);
                idempotency::run_once(writing, idempotency_key, &context, run)
            },
            // The outer error is the store's: nothing was committed. The inner error is the
            // rejection of this request.
            |outcome| {
                let response = outcome.unwrap_or_else(|error| Err(error.into()));
                responder.send(response.unwrap_or_else(Response::from));
            },
        );
    }
}

/// Makes changes. An error comes with the number of its change.
fn apply_all(
    writing: &Writing<'_>,
    changes: Vec<Change>,
    context: &ChangeContext,
) -> Result<Vec<Changed>, (usize, MutationError<ApiError>)> {
    let resources: Vec<_> = changes.iter().map(|change| change.resource).collect();
    writing.apply_all(changes, context).map_err(|(number, error)| {
        let error = match error {
            ChangeError::Database(error) => error.into(),
            ChangeError::Rejected(Rejection::PreconditionFailed {
                id: Some(id),
                has_only_weak_tags,
                ..
            }) => {
                // Earlier operations of a batch may have changed the record. They are rolled back,
                // and their versions are used again.
                let present = writing.undo().and_then(|()| match resources.get(number) {
                    Some(resource) => writing.version(resource, id),
                    None => Ok(None),
                });
                match present {
                    Ok(present) => MutationError::Rejected(
                        Rejection::PreconditionFailed { id: Some(id), present, has_only_weak_tags }
                            .into(),
                    ),
                    Err(error) => error.into(),
                }
            }
            ChangeError::Rejected(rejection) => MutationError::Rejected(rejection.into()),
        };
        (number, error)
    })
}

impl From<ApiError> for MutationError<ApiError> {
    fn from(error: ApiError) -> MutationError<ApiError> {
        MutationError::Rejected(error)
    }
}
