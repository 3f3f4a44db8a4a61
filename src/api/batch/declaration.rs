//! The operations of a batch as its body declares them.

use super::MAX_OPERATIONS;
use crate::api::change::Change;
use crate::api::precondition::IfMatch;
use crate::api::query::Query;
use crate::api::routes::{self, Endpoint, Route};
use crate::http::{ApiError, ErrorCode, Method};
use crate::model::validation::shorten;
use crate::model::{ALL, Access, Field, Json, JsonObject, Resource, Scope};
use crate::words;

/// The members of a batch.
const BATCH_MEMBERS: [&str; 1] = ["operations"];
/// The members of an operation.
const OPERATION_MEMBERS: [&str; 4] = ["method", "path", "body", "if_match"];
/// The member of an object that stands for the id of the record of an earlier operation.
const RESULT: &str = "result";

/// An operation that has every member that it needs. Its query and fields are not checked.
#[derive(Debug)]
pub(super) struct Declaration {
    /// `/v1` if its path begins with it.
    pub(super) prefix: &'static str,
    /// The fields that refer to the record of an earlier operation, and the number of that
    /// operation. The body has a valid id in their place.
    pub(super) results: Vec<(&'static Field, usize)>,
    method: Method,
    resource: &'static Resource,
    query: Option<String>,
    /// `None` if it is no object.
    body: Option<JsonObject>,
    if_match: IfMatch,
}

/// Reads the operations of a batch.
///
/// # Errors
///
/// `bad_request`; the message names the operation, if the fault is in one.
pub(super) fn parse(mut batch: JsonObject) -> Result<Vec<Declaration>, ApiError> {
    check_members(&batch, &BATCH_MEMBERS).map_err(ApiError::bad_request)?;
    let Some(Json::Array(operations)) = batch.remove("operations") else {
        return Err(ApiError::bad_request(
            "The member \"operations\" is no array. Send an array of operations.",
        ));
    };
    if operations.is_empty() || operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        return Err(ApiError::bad_request(format!(
            "The batch has {count} operations. Send 1 to {MAX_OPERATIONS}."
        )));
    }
    let mut declared = Vec::with_capacity(operations.len());
    for (number, operation) in operations.into_iter().enumerate() {
        let fault = |fault: String| ApiError::bad_request(format!("Operation {number}: {fault}"));
        let declaration = Declaration::parse(operation).map_err(fault)?;
        declaration.check_results(&declared).map_err(fault)?;
        declared.push(declaration);
    }
    Ok(declared)
}

/// Checks that an object has no other members than `known`.
fn check_members(object: &JsonObject, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(words::unknown("member", &shorten(name), known.iter().copied())),
        None => Ok(()),
    }
}

impl Declaration {
    /// The error is what is wrong with the operation.
    fn parse(operation: Json) -> Result<Declaration, String> {
        let Json::Object(mut object) = operation else {
            return Err("It must be a JSON object.".to_owned());
        };
        check_members(&object, &OPERATION_MEMBERS)?;
        let method = parse_method(object.get("method"))?;
        let (resource, prefix, query) = parse_path(object.get("path"))?;
        let if_match = parse_if_match(object.get("if_match"))?;
        let mut body = match object.remove("body") {
            Some(Json::Object(body)) => Some(body),
            _ => None,
        };
        let results = if method == Method::DELETE {
            Vec::new()
        } else {
            take_results(resource, body.as_mut())?
        };
        Ok(Declaration { prefix, results, method, resource, query, body, if_match })
    }

    /// The scope that the operation needs.
    pub(super) fn scope(&self) -> Scope {
        Scope { resource: self.resource, access: Access::Write }
    }

    /// Checks that the fields with `{"result": N}` refer to records that the operations in
    /// `earlier` create.
    fn check_results(&self, earlier: &[Declaration]) -> Result<(), String> {
        for (field, number) in &self.results {
            let Some(target) = Resource::referenced(field) else { continue };
            let creates =
                |other: &Declaration| other.method == Method::POST && other.resource == target;
            if !earlier.get(*number).is_some_and(creates) {
                return Err(format!(
                    "\"{}\" refers to the result of operation {number}; send the number of an \
                     earlier POST to {}.",
                    field.name, target.path
                ));
            }
        }
        Ok(())
    }

    /// Makes the checks of a request of this kind that need no database, in their order.
    pub(super) fn check(self) -> Result<Change, ApiError> {
        let Declaration { method, resource, query, body, if_match, .. } = self;
        let body = match method {
            Method::DELETE => JsonObject::new(),
            _ => body.ok_or_else(no_object)?,
        };
        Change::check(&method, resource, &Query::parse(query.as_deref())?, &body, if_match)
    }
}

/// `invalid_json`: the body of an operation is no object.
fn no_object() -> ApiError {
    let message = "The member \"body\" of the operation is no JSON object. Send the fields of the \
                   record as one JSON object.";
    ApiError::new(ErrorCode::InvalidJson, message)
}

fn parse_method(method: Option<&Json>) -> Result<Method, String> {
    let text = method.and_then(Json::as_str).unwrap_or_default();
    let writes = |method: &Method| routes::record_access(method) == Some(Access::Write);
    Method::from_bytes(text.as_bytes())
        .ok()
        .filter(writes)
        .ok_or_else(|| "The member \"method\" must be \"POST\", \"PUT\" or \"DELETE\".".to_owned())
}

/// Returns resource, prefix and query of a path.
fn parse_path(
    path: Option<&Json>,
) -> Result<(&'static Resource, &'static str, Option<String>), String> {
    let Some(Json::String(target)) = path else {
        return Err(
            "The member \"path\" must be text, such as \"/customers.php?id=12\".".to_owned()
        );
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target.as_str(), None),
    };
    match routes::find(path) {
        Some(Route::Api(Endpoint::Records { resource, prefix })) => Ok((resource, prefix, query)),
        _ => {
            let paths = ALL.map(|resource| resource.path).join(", ");
            Err(format!("The member \"path\" was {:?}; send one of {paths}.", shorten(path)))
        }
    }
}

fn parse_if_match(if_match: Option<&Json>) -> Result<IfMatch, String> {
    const INVALID: &str = "The member \"if_match\" is no list of entity tags. Send the \"etag\" \
                           of the record as it came, with its \
                           quotes, or *.";
    match if_match {
        None | Some(Json::Null) => Ok(IfMatch::Absent),
        Some(Json::String(text)) => Ok(match IfMatch::parse(text) {
            IfMatch::Invalid(_) => IfMatch::Invalid(INVALID),
            valid => valid,
        }),
        Some(_) => {
            Err("The member \"if_match\" must be text, such as the \"ETag\" of the record."
                .to_owned())
        }
    }
}

/// Finds the references that are `{"result": N}`, and puts a valid id in their place.
fn take_results(
    resource: &'static Resource,
    body: Option<&mut JsonObject>,
) -> Result<Vec<(&'static Field, usize)>, String> {
    let Some(body) = body else { return Ok(Vec::new()) };
    let mut results = Vec::new();
    for field in resource.fields.iter().filter(|field| field.references.is_some()) {
        if let Some(number) =
            body.get(field.name).and_then(|input| result(field, input)).transpose()?
        {
            body.insert(field.name.to_owned(), Json::from(1));
            results.push((field, number));
        }
    }
    Ok(results)
}

/// The number in `{"result": N}`. `None` for any other value, which the check of the field judges.
fn result(field: &Field, input: &Json) -> Option<Result<usize, String>> {
    let Json::Object(object) = input else { return None };
    let number = object.get(RESULT)?;
    if let Err(fault) = check_members(object, &[RESULT]) {
        return Some(Err(fault));
    }
    let parsed =
        if let Json::Number(number) = number { number.as_str().parse().ok() } else { None };
    let message = || {
        format!(
            "\"{}\" has a \"{RESULT}\" that is no number of an operation; send a number such as 0.",
            field.name
        )
    };
    Some(parsed.ok_or_else(message))
}
