//! Batches: several changes in one transaction, all or none (contract section 15).

mod declaration;

use std::io::Write as _;

use serde_json::json;

use super::change::{Applied, Change};
use super::errors;
use super::idempotency::{self, IdempotencyKey};
use super::operations::json_object;
use super::pipeline::Call;
use super::query::Query;
use super::routes::{BATCH_METHODS, BATCH_PATH};
use crate::http::request::MAX_BATCH_BODY;
use crate::http::{ApiError, Method, Request, Response};
use crate::model::{ALL, Access, Field, Scope, Scopes};
use crate::store::{ChangeContext, Demand, MutationError, Writing};
use declaration::Declaration;

/// The most operations of a batch.
pub const MAX_OPERATIONS: usize = 100;

/// The scopes that operations may need.
pub fn scopes() -> [Scope; ALL.len()] {
    ALL.map(|resource| Scope { resource, access: Access::Write })
}

impl Call<'_> {
    /// The response to a batch that runs is sent from another thread after the commit.
    pub(super) fn respond_batch(mut self) {
        let checked = self.admit(&[]).and_then(|tenant| {
            let batch = CheckedBatch::of(self.request, self.caller.key.scopes)?;
            Ok((tenant, batch))
        });
        match checked {
            Ok((tenant, batch)) => {
                let CheckedBatch { operations, fault, key } = batch;
                let demand = Demand {
                    operations: operations.len(),
                    frees_space: operations.iter().all(|one| one.change.frees_space()),
                };
                // Whether the key is known is asked only of a batch that may succeed.
                let key = key.filter(|_| fault.is_none());
                self.mutate(&tenant, demand, key, move |writing, context| {
                    let results = apply(operations, writing, context)?;
                    match fault {
                        Some(fault) => Err(fault.into()),
                        None => Ok(respond(&results)),
                    }
                });
            }
            Err(error) => self.reply.send(error.into()),
        }
    }
}

/// A batch after the checks that need no database.
#[derive(Debug)]
pub struct CheckedBatch {
    /// The operations before the first that is not valid.
    operations: Vec<CheckedOperation>,
    /// The error of the first operation that is not valid.
    fault: Option<ApiError>,
    key: Option<IdempotencyKey>,
}

/// An operation whose values are valid.
#[derive(Debug)]
struct CheckedOperation {
    change: Change,
    /// `/v1` if its path begins with it.
    prefix: &'static str,
    /// The fields that refer to the record of an earlier operation, and the number of that
    /// operation.
    results: Vec<(&'static Field, usize)>,
}

impl CheckedBatch {
    /// Checks a request by a key with `scopes`, in the order of contract section 15. An operation
    /// that is not valid is an error only if it is the first: whether those before it fail depends
    /// on the database.
    pub fn of(request: &Request, scopes: Scopes) -> Result<CheckedBatch, ApiError> {
        if request.method != Method::POST {
            return Err(ApiError::method_not_allowed(BATCH_METHODS));
        }
        let key = idempotency::parse_key(request)?;
        let (body, object) = json_object(request, MAX_BATCH_BODY)?;
        Query::parse(request.query.as_deref())?.only([].into_iter())?;
        let declared = declaration::parse(object)?;
        check_scopes(&declared, scopes)?;
        let key = key.map(|key| IdempotencyKey::new(key, &request.method, BATCH_PATH, "", body));
        let (operations, fault) = check(declared);
        match fault {
            Some(fault) if operations.is_empty() => Err(fault),
            fault => Ok(CheckedBatch { operations, fault, key }),
        }
    }
}

fn check_scopes(declared: &[Declaration], scopes: Scopes) -> Result<(), ApiError> {
    for (number, declaration) in declared.iter().enumerate() {
        let scope = declaration.scope();
        if !scopes.contains(scope) {
            return Err(of_operation(number, errors::insufficient_scope(&[scope])));
        }
    }
    Ok(())
}

/// Checks the operations up to the first that is not valid. Returns those before it and its error.
fn check(declared: Vec<Declaration>) -> (Vec<CheckedOperation>, Option<ApiError>) {
    let mut operations = Vec::with_capacity(declared.len());
    for (number, declaration) in declared.into_iter().enumerate() {
        let (prefix, results) = (declaration.prefix, declaration.results.clone());
        match declaration.check() {
            Ok(change) => operations.push(CheckedOperation { change, prefix, results }),
            Err(error) => return (operations, Some(of_operation(number, error))),
        }
    }
    (operations, None)
}

/// Makes the changes in their order.
fn apply(
    operations: Vec<CheckedOperation>,
    writing: &Writing<'_>,
    context: &ChangeContext,
) -> Result<Vec<Applied>, MutationError<ApiError>> {
    let mut applied: Vec<Applied> = Vec::with_capacity(operations.len());
    for CheckedOperation { mut change, prefix, results } in operations {
        for (field, number) in results {
            if let Some(made) = applied.get(number) {
                change.refer(field, made.id);
            }
        }
        let outcome = change.apply(writing, prefix, context);
        applied.push(outcome.map_err(|error| rejected(applied.len(), error))?);
    }
    Ok(applied)
}

fn rejected(number: usize, error: MutationError<ApiError>) -> MutationError<ApiError> {
    match error {
        MutationError::Rejected(error) => MutationError::Rejected(of_operation(number, error)),
        MutationError::Database(error) => MutationError::Database(error),
    }
}

/// The error of an operation as the error of its batch.
fn of_operation(number: usize, error: ApiError) -> ApiError {
    error.member("operation", number)
}

/// The response of a batch whose operations all succeeded.
fn respond(results: &[Applied]) -> Response {
    /// Enough for a result without its record, and for the head of the response.
    const MEMBERS: usize = 128;
    let length = results.iter().map(|result| result.body.len() + MEMBERS).sum::<usize>();
    let mut body = Vec::with_capacity(length + 8 * MEMBERS);
    body.extend_from_slice(b"{\"results\":[");
    for (number, Applied { status, location, etag, body: record, .. }) in results.iter().enumerate()
    {
        if number > 0 {
            body.push(b',');
        }
        let (location, etag) = (json!(location), json!(etag));
        // Writing to a `Vec` cannot fail.
        let _ =
            write!(body, "{{\"status\":{status},\"location\":{location},\"etag\":{etag},\"body\":");
        body.extend_from_slice(if record.is_empty() { b"null" } else { record });
        body.push(b'}');
    }
    body.extend_from_slice(b"]}");
    Response::json_bytes(200, body)
}
