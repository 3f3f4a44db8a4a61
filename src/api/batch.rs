//! Batches: several changes in one transaction, all or none (contract section 15).
//!
//! An operation may refer to the record of an earlier operation, whose id is not known before it
//! has run. Example: operation 0 creates a customer, and operation 1 creates an employee with
//! `"customer_id": {"result": 0}`. [`check`] runs without the database. It notes the
//! reference in the change and puts the id 1 in its place, because the checks of the fields accept
//! only an id. Before operation 1 runs, the store replaces the 1 with the customer's id.
//!
//! The answer to a batch is the error of the first operation that fails. Example: operation 1 has
//! an invalid e-mail address. That is not the answer yet, because operation 0 could delete a
//! customer that does not exist. So `check` keeps the error. If operation 0 succeeds, it is rolled
//! back, and the error is the answer.

use super::operations::json_object;
use super::operations::{self, CheckedWrite};
use super::parameters::Query;
use super::parameters::{self, Handling};
use super::pipeline::insufficient_scope;
use super::routes;
use crate::http::{ApiError, ErrorCode, Method, Request};
use crate::json_writer::JsonWriter;
use crate::model::validation::shorten;
use crate::model::{ALL, Access, Field, Json, JsonObject, Resource, Scope, Scopes};
use crate::store::{Answer, Change, Changed, Precondition};
use crate::words;

/// The most operations of a batch. Other mutations of the tenant wait until all of them have run.
pub const MAX_OPERATIONS: usize = 100;

/// The member of `{"result": 0}`, which stands for the id of operation 0's record.
const RESULT: &str = "result";

/// One element of the array `operations`.
#[derive(Debug)]
struct BatchEntry {
    method: Method,
    resource: &'static Resource,
    path: String,
    /// The checked change. An error is kept until the operations before have succeeded.
    change: Result<Change, ApiError>,
}

/// Makes the checks that need no database, in the order of contract section 15. `scopes` are
/// the scopes of the request's key. An invalid operation 0 is an error at once, because no
/// operation runs before it.
pub fn check(request: &Request, scopes: Scopes) -> Result<CheckedWrite, ApiError> {
    let key = parameters::parse_idempotency_key(request)?;
    let (body, object) = json_object(request)?;
    Query::parse(request.query.as_deref())?.only(&[])?;
    let entries = parse(object, Handling::parse(request))?;
    for (number, entry) in entries.iter().enumerate() {
        let needed = Scope { resource: entry.resource, access: Access::Write };
        if !scopes.contains(needed) {
            return Err(insufficient_scope(needed.into()).of_operation(number));
        }
    }
    let mut changes = Vec::with_capacity(entries.len());
    let mut paths = Vec::with_capacity(entries.len());
    let mut invalid = None;
    for (number, entry) in entries.into_iter().enumerate() {
        match entry.change {
            Ok(change) => changes.push(change),
            Err(error) if number == 0 => return Err(error.of_operation(0)),
            Err(error) => {
                invalid = Some(error.of_operation(number));
                break;
            }
        }
        paths.push(entry.path);
    }
    // A batch that cannot succeed has nothing to replay: only a success is stored.
    let key = key.filter(|_| invalid.is_none());
    let idempotency_key = key.map(|key| parameters::idempotency_key(key, request, "", body));
    Ok(CheckedWrite { changes, paths, is_batch: true, invalid, idempotency_key })
}

/// The response to a batch that made these changes.
pub fn answer(changes: &[Changed], paths: &[String]) -> Answer {
    let mut body = JsonWriter::default();
    body.begin_object();
    body.name("results");
    body.begin_array();
    for (changed, path) in changes.iter().zip(paths) {
        write_result(&mut body, &operations::answer(changed, path));
    }
    body.end_array();
    body.end_object();
    Answer { status: 200, location: None, etag: None, body: body.take() }
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
fn parse(mut batch: JsonObject, handling: Handling) -> Result<Vec<BatchEntry>, ApiError> {
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
    let mut entries = Vec::with_capacity(declared.len());
    for (number, operation) in declared.into_iter().enumerate() {
        let entry = BatchEntry::parse(operation, &entries, handling)
            .map_err(|fault| ApiError::bad_request(format!("Operation {number}: {fault}")))?;
        entries.push(entry);
    }
    Ok(entries)
}

/// Checks that an object has no other members than `known`.
fn check_members(object: &JsonObject, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(words::unknown("member", &shorten(name), known.iter().copied())),
        None => Ok(()),
    }
}

/// The resource whose records are at this path.
fn resource_at(path: &str) -> Option<&'static Resource> {
    let (bare, _) = routes::find(path)?;
    ALL.into_iter().find(|resource| resource.path == bare)
}

impl BatchEntry {
    /// Reads and checks an operation. An `Err` is a fault in the form of the batch, which rejects
    /// the whole batch at once. An error of the operation itself is kept in `change`.
    fn parse(
        operation: Json,
        earlier: &[BatchEntry],
        handling: Handling,
    ) -> Result<BatchEntry, String> {
        let Json::Object(mut object) = operation else {
            return Err("It must be a JSON object.".to_owned());
        };
        check_members(&object, &["method", "path", "body", "if_match"])?;
        let method = take_text(&mut object, "method")?.unwrap_or_default();
        let target = take_text(&mut object, "path")?.unwrap_or_default();
        let if_match = take_text(&mut object, "if_match")?;
        let method = match method.as_str() {
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "DELETE" => Method::DELETE,
            _ => return Err("The member \"method\" must be POST, PUT or DELETE.".to_owned()),
        };
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let Some(resource) = resource_at(path) else {
            let paths = ALL.map(|resource| resource.path).join(", ");
            let path = shorten(path);
            return Err(format!("The member \"path\" was {path:?}; send one of {paths}."));
        };
        let path = path.to_owned();
        let mut body = match object.remove("body") {
            _ if method == Method::DELETE => JsonObject::new(),
            Some(Json::Object(body)) => body,
            _ => return Ok(BatchEntry { method, resource, path, change: Err(body_not_object()) }),
        };
        let results = take_results(resource, &mut body, earlier)?;
        let precondition =
            if_match.map_or(Precondition::None, |sent| parameters::parse_if_match(&sent));
        let change = parameters::check_members(handling, resource, &body)
            .and_then(|_| Query::parse(Some(query)))
            .and_then(|query| {
                operations::check_change(&method, resource, &query, &body, precondition)
            })
            .map(|change| Change { results, ..change });
        Ok(BatchEntry { method, resource, path, change })
    }
}

/// Takes a member that is a text, or null like an absent one.
fn take_text(object: &mut JsonObject, name: &str) -> Result<Option<String>, String> {
    match object.remove(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("The member \"{name}\" must be text.")),
    }
}

fn body_not_object() -> ApiError {
    let message = "The member \"body\" of the operation is no JSON object. Send the fields of the \
                   record as one JSON object.";
    ApiError::new(ErrorCode::InvalidJson, message)
}

/// Finds the references of the form `{"result": N}`, and puts the id 1 in their place.
fn take_results(
    resource: &'static Resource,
    body: &mut JsonObject,
    earlier: &[BatchEntry],
) -> Result<Vec<(&'static Field, usize)>, String> {
    let mut results = Vec::new();
    for field in resource.fields {
        let (Some(target), Some(Json::Object(object))) = (field.references, body.get(field.name))
        else {
            continue;
        };
        let Some(sent) = object.get(RESULT) else { continue };
        check_members(object, &[RESULT])?;
        let number = sent.as_u64().and_then(|number| usize::try_from(number).ok());
        let entry = number.and_then(|number| earlier.get(number));
        match (number, entry) {
            (Some(number), Some(BatchEntry { method: Method::POST, resource: created, .. }))
                if *created == target =>
            {
                results.push((field, number));
            }
            _ => {
                return Err(format!(
                    "\"{}\" refers to the result of operation {}; send the number of an earlier \
                     POST to {}.",
                    field.name,
                    shorten(&sent.to_string()),
                    target.path
                ));
            }
        }
        // Any valid id does, because the store replaces it.
        body.insert(field.name.to_owned(), Json::from(1));
    }
    Ok(results)
}
