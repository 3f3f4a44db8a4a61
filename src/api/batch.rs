//! Batches: several changes in one transaction, all or none (contract section 15).
//!
//! An operation may refer to the record of an earlier operation, whose id is not known before it
//! has run. Example: operation 0 creates a customer, and operation 1 creates an employee with
//! `"customer_id": {"result": 0}`. [`Batch::check`] runs without the database. It notes the
//! reference and puts the id 1 in its place, because the checks of the fields accept only an id.
//! Before operation 1 runs, [`Batch::apply`] replaces the 1 with the customer's id.
//!
//! The answer to a batch is the error of the first operation that fails. Example: operation 1 has
//! an invalid e-mail address. That is not the answer yet, because operation 0 could delete a
//! customer that does not exist. So `check` keeps the error, and `apply` returns it if operation 0
//! succeeds. The writer then rolls back operation 0.

use super::change::Change;
use super::errors;
use super::idempotency::{self, IdempotencyKey};
use super::operations::json_object;
use super::precondition::IfMatch;
use super::query::Query;
use super::routes::{self, Route};
use super::unknown_members::{self, Handling};
use crate::http::{ApiError, ErrorCode, Method, Request};
use crate::json_writer::JsonWriter;
use crate::model::validation::shorten;
use crate::model::{ALL, Access, Field, Json, JsonObject, RecordId, Resource, Scope, Scopes};
use crate::store::{Answer, ChangeContext, MutationError, MutationSize, Writing};
use crate::words;

/// The most operations of a batch. Other mutations of the tenant wait until all of them have run.
pub const MAX_OPERATIONS: usize = 100;

/// The member of `{"result": 0}`, which stands for the id of operation 0's record.
const RESULT: &str = "result";

/// A batch after the checks that need no database.
#[derive(Debug)]
pub struct Batch {
    operations: Vec<Operation>,
    /// `None` without the header. Also `None` if an operation is invalid: such a batch cannot
    /// succeed, and only a success is stored for a replay.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// One change of a batch. [`routes::Operation`] is another concept: a method of a path.
#[derive(Debug)]
struct Operation {
    method: Method,
    resource: &'static Resource,
    /// `/v1` if its path begins with it.
    prefix: &'static str,
    /// Each field that refers to an earlier operation's record, with the number of that operation.
    result_references: Vec<(&'static Field, usize)>,
    /// The checked change, with the id 1 in place of each reference. An error is kept until the
    /// operations before have succeeded.
    change: Result<Change, ApiError>,
}

impl Batch {
    /// Makes the checks that need no database, in the order of contract section 15. `scopes` are
    /// the scopes of the request's key. An invalid operation 0 is an error at once, because no
    /// operation runs before it.
    pub fn check(request: &Request, scopes: Scopes) -> Result<Batch, ApiError> {
        let key = idempotency::parse_key(request)?;
        let (body, object) = json_object(request)?;
        Query::parse(request.query.as_deref())?.only(&[])?;
        let operations = parse(object, Handling::of(request))?;
        for (number, operation) in operations.iter().enumerate() {
            let needed = Scope { resource: operation.resource, access: Access::Write };
            if !scopes.contains(needed) {
                return Err(with_operation(number, errors::insufficient_scope(needed.into())));
            }
        }
        if let Some(Operation { change: Err(error), .. }) = operations.first() {
            return Err(with_operation(0, error.clone()));
        }
        let may_succeed = operations.iter().all(|operation| operation.change.is_ok());
        let key = key.filter(|_| may_succeed);
        let idempotency_key = key.map(|key| IdempotencyKey::new(key, request, "", body));
        Ok(Batch { operations, idempotency_key })
    }

    pub fn size(&self) -> MutationSize {
        let mut changes = self.operations.iter().flat_map(|operation| &operation.change);
        let frees_space = changes.all(Change::frees_space);
        MutationSize { operations: self.operations.len(), frees_space }
    }

    /// Makes the changes in their order, inside one savepoint of the writer. The first error ends
    /// the batch, and the writer rolls back all its changes.
    pub fn apply(
        self,
        writing: &Writing<'_>,
        context: &ChangeContext,
    ) -> Result<Answer, MutationError<ApiError>> {
        let mut ids = Vec::with_capacity(self.operations.len());
        let mut body = JsonWriter::default();
        body.begin_object();
        body.name("results");
        body.begin_array();
        for (number, operation) in self.operations.into_iter().enumerate() {
            let applied = operation.apply(&ids, writing, context);
            let (id, answer) = applied.map_err(|error| match error {
                MutationError::Rejected(error) => with_operation(number, error).into(),
                failure @ MutationError::Database(_) => failure,
            })?;
            ids.push(id);
            write_result(&mut body, &answer);
        }
        body.end_array();
        body.end_object();
        Ok(Answer { status: 200, location: None, etag: None, body: body.take() })
    }
}

/// Adds the number of the failed operation to its error.
fn with_operation(number: usize, error: ApiError) -> ApiError {
    error.member("operation", number)
}

fn write_result(json: &mut JsonWriter, answer: &Answer) {
    let Answer { status, location, etag, body } = answer;
    json.begin_object();
    json.member("status", status);
    json.member("location", location);
    json.member("etag", etag);
    json.name("body");
    json.raw(if body.is_empty() { b"null" } else { body });
    json.end_object();
}

/// Reads the operations of a batch.
///
/// # Errors
///
/// `bad_request`. If the fault is in one operation, the message names the operation.
fn parse(mut batch: JsonObject, handling: Handling) -> Result<Vec<Operation>, ApiError> {
    check_members(&batch, &["operations"]).map_err(ApiError::bad_request)?;
    let Some(Json::Array(declared)) = batch.remove("operations") else {
        return Err(ApiError::bad_request(
            "The member \"operations\" is no array. Send an array of operations.",
        ));
    };
    if declared.is_empty() || declared.len() > MAX_OPERATIONS {
        let count = declared.len();
        return Err(ApiError::bad_request(format!(
            "The batch has {count} operations. Send 1 to {MAX_OPERATIONS}."
        )));
    }
    let mut operations = Vec::with_capacity(declared.len());
    for (number, operation) in declared.into_iter().enumerate() {
        let operation = Operation::parse(operation, &operations, handling)
            .map_err(|fault| ApiError::bad_request(format!("Operation {number}: {fault}")))?;
        operations.push(operation);
    }
    Ok(operations)
}

/// Checks that an object has no other members than `known`.
fn check_members(object: &JsonObject, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(words::unknown("member", &shorten(name), known.iter().copied())),
        None => Ok(()),
    }
}

/// The resource with this path, and `/v1` if the path begins with it.
fn resource_at(path: &str) -> Option<(&'static Resource, &'static str)> {
    let (path, Route::Api(_), prefix) = routes::find(path)? else { return None };
    Some((ALL.into_iter().find(|resource| resource.path == path)?, prefix))
}

impl Operation {
    /// Reads and checks an operation. An `Err` is a fault in the form of the batch, which rejects
    /// the whole batch at once. An error of the operation itself is kept in `change`.
    fn parse(
        operation: Json,
        earlier: &[Operation],
        handling: Handling,
    ) -> Result<Operation, String> {
        let Json::Object(mut object) = operation else {
            return Err("It must be a JSON object.".to_owned());
        };
        check_members(&object, &["method", "path", "body", "if_match"])?;
        let mut text = |name: &str| match object.remove(name) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("The member \"{name}\" must be text.")),
        };
        let (method, target, if_match) = (text("method")?, text("path")?, text("if_match")?);
        let name = method.unwrap_or_default();
        let methods = [Method::POST, Method::PUT, Method::DELETE];
        let method = methods.into_iter().find(|method| method.as_str() == name);
        let method = method.ok_or("The member \"method\" must be POST, PUT or DELETE.")?;
        let target = target.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let Some((resource, prefix)) = resource_at(path) else {
            let paths = ALL.map(|resource| resource.path).join(", ");
            return Err(format!(
                "The member \"path\" was {:?}; send one of {paths}.",
                shorten(path)
            ));
        };
        let mut body = match object.remove("body") {
            _ if method == Method::DELETE => Ok(JsonObject::new()),
            Some(Json::Object(body)) => Ok(body),
            _ => Err(body_not_object()),
        };
        let result_references = match &mut body {
            Ok(body) => take_result_references(resource, body, earlier)?,
            Err(_) => Vec::new(),
        };
        let if_match = IfMatch(if_match.into_iter().collect());
        let change = body.and_then(|body| {
            unknown_members::check(handling, resource, &body)?;
            Change::check(&method, resource, &Query::parse(Some(query))?, &body, if_match)
        });
        Ok(Operation { method, resource, prefix, result_references, change })
    }

    /// Makes the change. `ids` has the id of each earlier operation's record.
    fn apply(
        self,
        ids: &[RecordId],
        writing: &Writing<'_>,
        context: &ChangeContext,
    ) -> Result<(RecordId, Answer), MutationError<ApiError>> {
        let mut change = self.change?;
        for (field, number) in self.result_references {
            if let Some(id) = ids.get(number) {
                change.refer(field, *id);
            }
        }
        change.apply(writing, self.prefix, context)
    }
}

fn body_not_object() -> ApiError {
    let message = "The member \"body\" of the operation is no JSON object. Send the fields of the \
                   record as one JSON object.";
    ApiError::new(ErrorCode::InvalidJson, message)
}

/// Finds the references of the form `{"result": N}`, and puts the id 1 in their place.
fn take_result_references(
    resource: &'static Resource,
    body: &mut JsonObject,
    earlier: &[Operation],
) -> Result<Vec<(&'static Field, usize)>, String> {
    let mut references = Vec::new();
    for field in resource.fields {
        let (Some(target), Some(Json::Object(object))) = (field.references, body.get(field.name))
        else {
            continue;
        };
        let Some(sent) = object.get(RESULT) else { continue };
        check_members(object, &[RESULT])?;
        let creates_target = |number: &usize| {
            let of = earlier.get(*number);
            of.is_some_and(|of| of.method == Method::POST && of.resource == target)
        };
        let number = sent.as_number().and_then(|number| number.as_str().parse().ok());
        let Some(number) = number.filter(creates_target) else {
            return Err(format!(
                "\"{}\" refers to the result of operation {}; send the number of an earlier POST \
                 to {}.",
                field.name,
                shorten(&sent.to_string()),
                target.path
            ));
        };
        // Any valid id does: `apply` replaces it before the change looks for the record.
        body.insert(field.name.to_owned(), Json::from(1));
        references.push((field, number));
    }
    Ok(references)
}
