//! Batches: several changes in one transaction, all or none (contract section 15).
//!
//! An operation may refer to the record of an earlier operation, whose id is not known before it
//! has run. Example: operation 0 creates a customer, and operation 1 creates an employee with
//! `"customer_id": {"result": 0}`. `check_write` runs without the database. It notes the
//! reference in the change and puts the id 1 in its place, because the checks of the fields accept
//! only an id. Before operation 1 runs, the store replaces the 1 with the customer's id.
//!
//! Nothing runs before every operation has passed its checks, so the response names all operations
//! that fail them.

use super::query::Query;
use super::records::{self, CheckedWrite, Conditions};
use super::routes::{self, insufficient_scope};
use crate::http::{ApiError, ErrorCode, Method, Request};
use crate::json_writer::JsonWriter;
use crate::model::validation::shorten;
use crate::model::{ALL, Access, Field, Json, JsonObject, Resource, Scope, Scopes};
use crate::store::{Change, Changed, StoredResponse};
use crate::words;

/// The most operations of a batch. Other mutations of the tenant wait until all of them have run.
pub const MAX_OPERATIONS: usize = 100;

/// The member of `{"result": 0}`, which stands for the id of operation 0's record.
const RESULT: &str = "result";

/// One element of the array `operations`.
#[derive(Debug)]
struct Operation {
    method: Method,
    resource: &'static Resource,
    path: String,
    query: String,
    body: Option<Json>,
    if_match: Option<String>,
    if_none_match: Option<String>,
}

/// Makes the checks that need no database, in the order of contract section 15. `scopes` are
/// the scopes of the request's key.
pub(super) fn check_write(
    request: &Request,
    scopes: Scopes,
    is_strict: bool,
) -> Result<CheckedWrite, ApiError> {
    let uuid = records::parse_idempotency_key(request)?;
    let (bytes, object) = records::json_object(request)?;
    Query::parse(request.query.as_deref())?.only(&[])?;
    Conditions::of(request).check_no_if_none_match()?;
    let operations = parse(object)?;
    for (number, operation) in operations.iter().enumerate() {
        let needed = Scope { resource: operation.resource, access: Access::Write };
        if !scopes.contains(needed) {
            return Err(insufficient_scope(needed.into(), "and").of_operation(number));
        }
    }
    let mut changes = Vec::with_capacity(operations.len());
    let mut failed = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        match operation.check(operations.get(..number).unwrap_or_default(), is_strict) {
            Ok(change) => changes.push(change),
            Err(error) => failed.push((number, error)),
        }
    }
    if let Some(error) = ApiError::of_operations(failed) {
        return Err(error);
    }
    Ok(CheckedWrite {
        changes,
        paths: operations.into_iter().map(|operation| operation.path).collect(),
        is_batch: true,
        idempotency_key: uuid.map(|uuid| records::idempotency_key(uuid, request, "", bytes)),
    })
}

/// The response to a batch that made these changes.
pub fn stored_response(changes: &[Changed], paths: &[String]) -> StoredResponse {
    let mut body = JsonWriter::default();
    body.begin_object();
    body.name("results");
    body.begin_array();
    for (changed, path) in changes.iter().zip(paths) {
        write_result(&mut body, &records::stored_response(changed, path));
    }
    body.end_array();
    body.end_object();
    StoredResponse { status: 200, location: None, etag: None, body: body.take() }
}

fn write_result(json: &mut JsonWriter, response: &StoredResponse) {
    let StoredResponse { status, location, etag, body } = response;
    json.begin_object();
    json.member("status", status);
    json.member("location", location);
    json.member("etag", etag);
    json.name("body");
    json.raw(if body.is_empty() { b"null" } else { body });
    json.end_object();
}

fn parse(mut batch: JsonObject) -> Result<Vec<Operation>, ApiError> {
    only_members(&batch, &["operations"]).map_err(ApiError::bad_request)?;
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
    for (number, member) in declared.into_iter().enumerate() {
        let operation = Operation::parse(member)
            .map_err(|fault| ApiError::bad_request(format!("Operation {number}: {fault}")))?;
        operations.push(operation);
    }
    Ok(operations)
}

fn only_members(object: &JsonObject, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(words::unknown("member", &shorten(name), known.iter().copied())),
        None => Ok(()),
    }
}

fn resource_at(path: &str) -> Option<&'static Resource> {
    let (bare, _) = routes::find(path)?;
    ALL.into_iter().find(|resource| resource.path == bare)
}

impl Operation {
    /// Reads the form of an operation. An `Err` rejects the whole batch.
    fn parse(member: Json) -> Result<Operation, String> {
        let Json::Object(mut object) = member else {
            return Err("It must be a JSON object.".to_owned());
        };
        only_members(&object, &["method", "path", "body", "if_match", "if_none_match"])?;
        let method = take_text(&mut object, "method")?.unwrap_or_default();
        let target = take_text(&mut object, "path")?.unwrap_or_default();
        let if_match = take_text(&mut object, "if_match")?;
        let if_none_match = take_text(&mut object, "if_none_match")?;
        let method = match method.as_str() {
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "DELETE" => Method::DELETE,
            _ => return Err("The member \"method\" must be POST, PUT or DELETE.".to_owned()),
        };
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let Some(resource) = resource_at(path) else {
            let paths = ALL.map(|resource| resource.path).join(", ");
            let hint = match routes::similar_record(path) {
                Some(similar) => format!("did you mean \"{similar}\"?"),
                None => format!("send one of {paths}."),
            };
            let path = shorten(path);
            return Err(format!("The member \"path\" was {path:?}; {hint}"));
        };
        let (path, query) = (path.to_owned(), query.to_owned());
        let body = object.remove("body");
        Ok(Operation { method, resource, path, query, body, if_match, if_none_match })
    }

    /// Makes the checks of the operation that need no database. `earlier` are the operations before
    /// it.
    fn check(&self, earlier: &[Operation], is_strict: bool) -> Result<Change, ApiError> {
        let mut body = match &self.body {
            _ if self.method == Method::DELETE => JsonObject::new(),
            Some(Json::Object(body)) => body.clone(),
            _ => return Err(body_not_object()),
        };
        let results = take_results(self.resource, &mut body, earlier)?;
        records::check_members(is_strict, self.resource, &body)?;
        let query = Query::parse(Some(&self.query))?;
        let conditions = Conditions {
            if_match: self.if_match.as_deref().into_iter().collect(),
            if_none_match: self.if_none_match.as_deref().into_iter().collect(),
        };
        let change =
            records::check_change(&self.method, self.resource, &query, &body, &conditions)?;
        Ok(Change { results, ..change })
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
    earlier: &[Operation],
) -> Result<Vec<(&'static Field, usize)>, ApiError> {
    let mut results = Vec::new();
    for field in resource.fields {
        let (Some(target), Some(Json::Object(object))) = (field.references, body.get(field.name))
        else {
            continue;
        };
        let Some(sent) = object.get(RESULT) else { continue };
        only_members(object, &[RESULT]).map_err(ApiError::bad_request)?;
        let number = sent.as_u64().and_then(|number| usize::try_from(number).ok());
        let referred = number.and_then(|number| earlier.get(number));
        match (number, referred) {
            (Some(number), Some(Operation { method: Method::POST, resource: created, .. }))
                if *created == target =>
            {
                results.push((field, number));
            }
            _ => {
                return Err(ApiError::bad_request(format!(
                    "\"{}\" refers to the result of operation {}; send the number of an earlier \
                     POST to {}.",
                    field.name,
                    shorten(&sent.to_string()),
                    target.path
                )));
            }
        }
        // Any valid id does, because the store replaces it.
        body.insert(field.name.to_owned(), Json::from(1));
    }
    Ok(results)
}
