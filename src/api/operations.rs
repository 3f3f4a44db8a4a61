//! The operations on records (contract section 3).

use std::borrow::Cow;

use super::errors;
use super::idempotency::{self, IdempotencyKey};
use super::list;
use super::query::Query;
use crate::clock::Moment;
use crate::http::{ApiError, Body, Condition, Method, REPLAYED, Request, Response};
use crate::model::field::{Input, ValueError};
use crate::model::integer::is_positive_integer;
use crate::model::{Field, FieldError, JsonObject, Resource, Value};
use crate::store::{DeleteOutcome, MutationError, Reading, StoredResponse, Tenant, Writing};

/// A record operation after its checks: a response, or a mutation that is still to run.
pub enum Outcome {
    /// The response.
    Response(Response),
    /// A mutation. It runs in a write transaction and returns the response.
    Mutation(Mutation),
}

/// The last checks of contract section 5, which need the transaction, and the change.
pub type Mutation = Box<dyn FnOnce(&Writing<'_>) -> Result<Response, MutationError<ApiError>> + Send>;

/// GET and HEAD: one record, or a page of records.
pub fn read(tenant: &Tenant, request: &Request, resource: &'static Resource) -> Result<Outcome, ApiError> {
    let query = Query::parse(request.query.as_deref())?;
    match query.get("id") {
        Some(_) => {
            let id = RecordId::parse(&query)?;
            let record = match id.number {
                Some(number) => tenant.read(|reading| reading.json(resource, number))?,
                None => None,
            };
            record.map(|json| Outcome::Response(Response::json_bytes(200, json))).ok_or_else(|| id.not_found(resource))
        }
        None => page(tenant, request, resource, &query).map(Outcome::Response),
    }
}

fn page(tenant: &Tenant, request: &Request, resource: &'static Resource, query: &Query) -> Result<Response, ApiError> {
    let list = list::parse(resource, query)?;
    let page = tenant.read(|reading| reading.page(&list))?;
    let cursor = page.next.map(|position| list::write_cursor(&position, &list));
    let response = Response::json_bytes(200, page_body(page.json, cursor.as_deref(), page.total));
    Ok(match cursor {
        Some(cursor) => {
            let link = format!("<{}?{}>; rel=\"next\"", request.path, query.with_cursor(&cursor));
            response.header("Link", link)
        }
        None => response,
    })
}

/// The JSON of a page. `records` is the array of its records.
fn page_body(records: Vec<u8>, next_cursor: Option<&str>, total: Option<i64>) -> Vec<u8> {
    // In place, since a new allocation of this size would miss the CPU caches.
    let mut body = records;
    body.splice(0..0, *b"{\"data\":");
    match next_cursor {
        Some(cursor) => body.extend_from_slice(format!(",\"next_cursor\":\"{cursor}\"").as_bytes()),
        None => body.extend_from_slice(b",\"next_cursor\":null"),
    }
    if let Some(total) = total {
        body.extend_from_slice(format!(",\"total\":{total}").as_bytes());
    }
    body.push(b'}');
    body
}

/// POST.
pub fn create(request: &Request, resource: &'static Resource, prefix: &'static str) -> Result<Outcome, ApiError> {
    let key = idempotency::parse_key(request)?;
    let body = json_body(request)?;
    let object = JsonObject::parse(body).map_err(|error| errors::invalid_json(&error))?;
    Query::parse(request.query.as_deref())?.only([].into_iter())?;
    let checked = resource.fields.iter().map(|field| match object.get(field.name) {
        Some(input) => field.check(input),
        None if field.required => Err(ValueError::Invalid(field.missing())),
        None => Ok(field.default_value()),
    });
    let values = all_valid(checked)?;
    let key = key.map(|key| idempotency_key(key, request.method, resource, "", body));
    Ok(mutation(key, request.received_at, move |writing, now| {
        check_references(writing, resource.fields.iter().zip(&values))?;
        let record = writing.insert(resource, values, now)?;
        let location = format!("{prefix}{}?id={}", resource.path, record.id);
        Ok(Response::json_bytes(201, record.json(resource)).header("Location", location))
    }))
}

/// PUT: changes only the fields that the body names.
pub fn update(request: &Request, resource: &'static Resource) -> Result<Outcome, ApiError> {
    let key = idempotency::parse_key(request)?;
    let body = json_body(request)?;
    let object = JsonObject::parse(body).map_err(|error| errors::invalid_json(&error))?;
    let id = only_id(request)?;
    let named = resource.fields.iter().filter_map(|field| object.get(field.name).map(|input| (field, input)));
    let named: Vec<(&'static Field, &Input<'_>)> = named.collect();
    if named.is_empty() {
        return Err(errors::no_updatable_fields(resource));
    }
    let values = all_valid(named.iter().map(|(field, input)| field.check(input)))?;
    let changes: Vec<(&'static Field, Value)> = named.iter().map(|(field, _)| *field).zip(values).collect();
    let key = key.map(|key| idempotency_key(key, request.method, resource, &id.text, body));
    Ok(mutation(key, request.received_at, move |writing, now| {
        let number = existing(writing, resource, &id)?;
        check_references(writing, changes.iter().map(|(field, value)| (*field, value)))?;
        match writing.update(resource, number, &changes, now)? {
            Some(record) => Ok(Response::json_bytes(200, record.json(resource))),
            None => Err(id.not_found(resource).into()),
        }
    }))
}

/// DELETE. A body is ignored.
pub fn delete(request: &Request, resource: &'static Resource) -> Result<Outcome, ApiError> {
    let key = idempotency::parse_key(request)?;
    let id = only_id(request)?;
    let key = key.map(|key| idempotency_key(key, request.method, resource, &id.text, b""));
    Ok(mutation(key, request.received_at, move |writing, _| {
        let number = existing(writing, resource, &id)?;
        match writing.delete(resource, number)? {
            DeleteOutcome::Deleted => Ok(Response::empty(204)),
            DeleteOutcome::NotFound => Err(id.not_found(resource).into()),
            DeleteOutcome::Referenced(details) => Err(errors::has_dependents(details).into()),
        }
    }))
}

fn idempotency_key(key: [u8; 16], method: Method, resource: &Resource, id: &str, body: &[u8]) -> IdempotencyKey {
    IdempotencyKey { key, request: idempotency::fingerprint(method, resource.path, id, body) }
}

fn unsupported(message: impl Into<Cow<'static, str>>) -> ApiError {
    ApiError::new(Condition::UnsupportedMediaType, message)
}

/// Returns the body. The content type is checked before the size.
fn json_body(request: &Request) -> Result<&[u8], ApiError> {
    let remedy = "Send \"Content-Type: application/json\"";
    let mut values = request.headers("content-type");
    let declared =
        values.next().ok_or_else(|| unsupported(format!("The header \"Content-Type\" is missing. {remedy}.")))?;
    let media_type = declared.split(';').next().unwrap_or_default().trim();
    if values.next().is_some() {
        return Err(unsupported("The header \"Content-Type\" is given twice. Send it once.".to_owned()));
    }
    if !media_type.eq_ignore_ascii_case("application/json") {
        let shown: String = declared.chars().take(60).collect();
        return Err(unsupported(format!("The body's type is {shown:?}. {remedy}.")));
    }
    if request.header("content-encoding").is_some() {
        return Err(unsupported("The body has a \"Content-Encoding\". Send it plain, without that header.".to_owned()));
    }
    match &request.body {
        Body::Whole(body) => Ok(body),
        Body::TooLarge => Err(ApiError::payload_too_large()),
    }
}

/// Returns the values, or one error for all fields. A value of the wrong type takes precedence as `bad_request`.
fn all_valid(checked: impl Iterator<Item = Result<Value, ValueError>>) -> Result<Vec<Value>, ApiError> {
    let mut values = Vec::new();
    let mut faults: Vec<FieldError> = Vec::new();
    let mut wrong_type = None;
    for result in checked {
        match result {
            Ok(value) => values.push(value),
            Err(ValueError::Invalid(fault)) => faults.push(fault),
            Err(ValueError::WrongType(message)) => wrong_type = wrong_type.or(Some(message)),
        }
    }
    match wrong_type {
        Some(message) => Err(ApiError::bad_request(message)),
        None if faults.is_empty() => Ok(values),
        None => Err(errors::validation_failed(&faults)),
    }
}

/// The id of a record as the client sent it. `number` is `None` if it exceeds 64 bits; no record has such an id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordId {
    text: String,
    number: Option<i64>,
}

impl RecordId {
    /// Accepts decimal digits without sign or leading zero, and no other parameter in the query.
    fn parse(query: &Query) -> Result<RecordId, ApiError> {
        query.only(["id"].into_iter())?;
        let text = query.get("id").ok_or_else(errors::missing_id)?;
        if !is_positive_integer(text) {
            let shown: String = text.chars().take(40).collect();
            return Err(ApiError::bad_request(format!(
                "The query parameter \"id\" was {shown:?}; send a positive integer without sign or leading zero, such as 12."
            )));
        }
        Ok(RecordId { text: text.to_owned(), number: text.parse().ok() })
    }

    fn not_found(&self, resource: &Resource) -> ApiError {
        let shown: String = self.text.chars().take(40).collect();
        errors::not_found(resource, &shown)
    }
}

fn only_id(request: &Request) -> Result<RecordId, ApiError> {
    RecordId::parse(&Query::parse(request.query.as_deref())?)
}

/// A mutation that runs `change` and stores its response, or replays the response stored under the idempotency key. `change` also
/// receives the time of the request in RFC 3339.
fn mutation(
    key: Option<IdempotencyKey>,
    now: Moment,
    change: impl FnOnce(&Writing<'_>, &str) -> Result<Response, MutationError<ApiError>> + Send + 'static,
) -> Outcome {
    Outcome::Mutation(Box::new(move |writing| {
        let seconds = now.unix_seconds();
        if let Some(IdempotencyKey { key, request }) = &key
            && let Some(stored) = writing.stored_response(key, seconds)?
        {
            return if stored.request == *request {
                Ok(replay(stored))
            } else {
                Err(errors::idempotency_key_reused().into())
            };
        }
        let response = change(writing, &now.rfc3339())?;
        if let Some(IdempotencyKey { key, request }) = &key {
            let stored = StoredResponse {
                request: *request,
                status: response.status(),
                location: response.find_header("Location").map(str::to_owned),
                body: response.body().to_vec(),
            };
            writing.store_response(key, &stored, seconds)?;
        }
        Ok(response)
    }))
}

impl From<ApiError> for MutationError<ApiError> {
    fn from(error: ApiError) -> MutationError<ApiError> {
        MutationError::Rejected(error)
    }
}

fn existing(reading: &Reading<'_>, resource: &Resource, id: &RecordId) -> Result<i64, MutationError<ApiError>> {
    match id.number {
        Some(number) if reading.exists(resource, number)? => Ok(number),
        _ => Err(id.not_found(resource).into()),
    }
}

/// Checks that every referenced record exists. The file contains only records of the tenant.
fn check_references<'v>(
    reading: &Reading<'_>,
    values: impl Iterator<Item = (&'static Field, &'v Value)>,
) -> Result<(), MutationError<ApiError>> {
    for (field, value) in values {
        if let Some((target, id)) = reading.missing_reference(field, value)? {
            return Err(errors::missing_reference(field, target, id).into());
        }
    }
    Ok(())
}

/// The stored response, byte for byte.
fn replay(stored: StoredResponse) -> Response {
    let response = if stored.body.is_empty() {
        Response::empty(stored.status)
    } else {
        Response::json_bytes(stored.status, stored.body)
    };
    response.with(stored.location.map(|location| ("Location", location))).header(REPLAYED, "true")
}
