//! The five operations on records, from a request's method down to what is read or changed (contract section 3).

use super::idempotency::{self, IdempotencyKey};
use super::json::Object;
use super::list;
use super::query::Query;
use crate::clock::Moment;
use crate::error::{Error, FieldError};
use crate::http::{Body, Method, REPLAYED, Reply, Request, Response};
use crate::model::field::{Fault, Input};
use crate::model::{Field, Resource, Value};
use crate::store::{Change, Deleted, ReadError, Reading, Remembered, Tenant, Writing};

/// What an operation came to: an answer, or a change that is yet to be made.
#[derive(Debug)]
pub enum Outcome {
    Answer(Response),
    Change(RecordChange),
}

/// GET and HEAD: one record, or a page of them.
pub fn read(tenant: &Tenant, request: &Request, resource: &'static Resource) -> Result<Outcome, Error> {
    let query = Query::parse(request.query.as_deref())?;
    match query.get("id") {
        Some(_) => {
            let id = RecordId::parse(&query)?;
            let found = match id.number {
                Some(number) => tenant.read(|reading| Ok(reading.json(resource, number)?))?,
                None => None,
            };
            found.map(|json| Outcome::Answer(Response::json_bytes(200, json))).ok_or_else(|| id.not_found(resource))
        }
        None => page(tenant, request, resource, &query).map(Outcome::Answer),
    }
}

fn page(tenant: &Tenant, request: &Request, resource: &'static Resource, query: &Query) -> Result<Response, Error> {
    let listing = list::parse(resource, query)?;
    let page = tenant.read(|reading| Ok(reading.page(&listing)?))?;
    let cursor = page.next.map(|position| list::write_cursor(&position, &listing));
    // In place: memory for another copy would not be in the processor's caches.
    let mut body = page.json;
    body.splice(0..0, *b"{\"data\":");
    match &cursor {
        Some(cursor) => body.extend_from_slice(format!(",\"next_cursor\":\"{cursor}\"").as_bytes()),
        None => body.extend_from_slice(b",\"next_cursor\":null"),
    }
    if let Some(total) = page.total {
        body.extend_from_slice(format!(",\"total\":{total}").as_bytes());
    }
    body.push(b'}');
    let response = Response::json_bytes(200, body);
    Ok(match cursor {
        Some(cursor) => {
            let address = format!("<{}?{}>; rel=\"next\"", request.path, query.with_cursor(&cursor));
            response.header("Link", address)
        }
        None => response,
    })
}

/// POST.
pub fn create(request: &Request, resource: &'static Resource, prefix: &'static str) -> Result<Outcome, Error> {
    let key = idempotency::parse_key(request)?;
    let body = json_body(request)?;
    let object = Object::parse(body)?;
    Query::parse(request.query.as_deref())?.only([].into_iter())?;
    let checked = resource.fields.iter().map(|field| match object.get(field.name) {
        Some(input) => field.check(input),
        None if field.required => Err(Fault::Invalid(field.missing())),
        None => Ok(field.default_value()),
    });
    let values = all_valid(checked)?;
    Ok(Outcome::Change(RecordChange {
        resource,
        step: Step::Create { values, prefix },
        idempotency: key.map(|key| repeat_of(key, request.method, resource, "", body)),
        now: request.received_at,
        response: None,
    }))
}

/// PUT: only the fields that the body names change.
pub fn update(request: &Request, resource: &'static Resource) -> Result<Outcome, Error> {
    let key = idempotency::parse_key(request)?;
    let body = json_body(request)?;
    let object = Object::parse(body)?;
    let id = only_id(request)?;
    let named = resource.fields.iter().filter_map(|field| object.get(field.name).map(|input| (field, input)));
    let named: Vec<(&'static Field, &Input<'_>)> = named.collect();
    if named.is_empty() {
        return Err(Error::NoUpdatableFields(resource.fields.iter().map(|field| field.name).collect()));
    }
    let values = all_valid(named.iter().map(|(field, input)| field.check(input)))?;
    let changes = named.iter().map(|(field, _)| *field).zip(values).collect();
    Ok(Outcome::Change(RecordChange {
        resource,
        idempotency: key.map(|key| repeat_of(key, request.method, resource, &id.text, body)),
        step: Step::Update { id, changes },
        now: request.received_at,
        response: None,
    }))
}

/// DELETE. A body is ignored.
pub fn delete(request: &Request, resource: &'static Resource) -> Result<Outcome, Error> {
    let key = idempotency::parse_key(request)?;
    let id = only_id(request)?;
    Ok(Outcome::Change(RecordChange {
        resource,
        idempotency: key.map(|key| repeat_of(key, request.method, resource, &id.text, b"")),
        step: Step::Delete { id },
        now: request.received_at,
        response: None,
    }))
}

fn repeat_of(key: [u8; 16], method: Method, resource: &Resource, id: &str, body: &[u8]) -> IdempotencyKey {
    IdempotencyKey { key, request: idempotency::fingerprint(method, resource.path, id, body) }
}

/// Content type, then size: a body that is not declared as JSON is refused whatever it holds.
fn json_body(request: &Request) -> Result<&[u8], Error> {
    let right = "Send \"Content-Type: application/json\"";
    let mut types = request.headers("content-type");
    let declared = types
        .next()
        .ok_or_else(|| Error::UnsupportedMediaType(format!("The header \"Content-Type\" is missing. {right}.")))?;
    let media_type = declared.split(';').next().unwrap_or_default().trim();
    if types.next().is_some() {
        return Err(Error::UnsupportedMediaType(
            "The header \"Content-Type\" is given twice. Send it once.".to_owned(),
        ));
    }
    if !media_type.eq_ignore_ascii_case("application/json") {
        let shown: String = declared.chars().take(60).collect();
        return Err(Error::UnsupportedMediaType(format!("The body's type is {shown:?}. {right}.")));
    }
    if request.header("content-encoding").is_some() {
        return Err(Error::UnsupportedMediaType(
            "The body has a \"Content-Encoding\". Send it plain, without that header.".to_owned(),
        ));
    }
    match &request.body {
        Body::Whole(body) => Ok(body),
        Body::TooLarge => Err(Error::PayloadTooLarge),
    }
}

/// The values, or everything that is wrong: text of the wrong type first, then all fields together.
fn all_valid(checked: impl Iterator<Item = Result<Value, Fault>>) -> Result<Vec<Value>, Error> {
    let mut values = Vec::new();
    let mut faults: Vec<FieldError> = Vec::new();
    let mut wrong_type = None;
    for outcome in checked {
        match outcome {
            Ok(value) => values.push(value),
            Err(Fault::Invalid(fault)) => faults.push(fault),
            Err(Fault::WrongType(message)) => wrong_type = wrong_type.or(Some(message)),
        }
    }
    match wrong_type {
        Some(message) => Err(Error::BadRequest(message)),
        None if faults.is_empty() => Ok(values),
        None => Err(Error::ValidationFailed(faults)),
    }
}

/// The id of a record as a client names it. Beyond 64 bits it is well formed, but no record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordId {
    text: String,
    number: Option<i64>,
}

impl RecordId {
    /// Decimal digits without sign or leading zero, at least 1. Beside `id` no other parameter is known.
    fn parse(query: &Query) -> Result<RecordId, Error> {
        query.only(["id"].into_iter())?;
        let text = query.get("id").ok_or(Error::MissingId)?;
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        if text.is_empty() || !digits || text.starts_with('0') {
            let shown: String = text.chars().take(40).collect();
            return Err(Error::BadRequest(format!(
                "The query parameter \"id\" was {shown:?}; send a positive integer without sign or leading zero, such as 12."
            )));
        }
        Ok(RecordId { text: text.to_owned(), number: text.parse().ok() })
    }

    fn not_found(&self, resource: &Resource) -> Error {
        Error::NotFound(resource.name, self.text.chars().take(40).collect())
    }
}

fn only_id(request: &Request) -> Result<RecordId, Error> {
    RecordId::parse(&Query::parse(request.query.as_deref())?)
}

/// A change of one record, checked as far as it can be without the database.
#[derive(Debug)]
pub struct RecordChange {
    resource: &'static Resource,
    step: Step,
    idempotency: Option<IdempotencyKey>,
    now: Moment,
    /// The answer, once the change has been made.
    response: Option<Response>,
}

#[derive(Debug)]
enum Step {
    Create { values: Vec<Value>, prefix: &'static str },
    Update { id: RecordId, changes: Vec<(&'static Field, Value)> },
    Delete { id: RecordId },
}

impl RecordChange {
    /// The change with the way back for its answer.
    pub fn answered_by(self, reply: Reply) -> Box<dyn Change> {
        Box::new(Answered { change: self, reply })
    }

    /// Idempotency key known, `not_found`, references, dependents: the last checks of contract section 5. Then the change.
    fn make(&mut self, writing: &Writing<'_>) -> Result<Response, ReadError> {
        let now = self.now.unix_seconds();
        if let Some(IdempotencyKey { key, request }) = &self.idempotency
            && let Some(answer) = writing.remembered(key, now)?
        {
            return if answer.request == *request {
                Ok(replay(answer))
            } else {
                Err(Error::IdempotencyKeyReused.into())
            };
        }
        let response = self.step(writing)?;
        if let Some(IdempotencyKey { key, request }) = &self.idempotency {
            let answer = Remembered {
                request: *request,
                status: response.status(),
                location: response.find_header("Location").map(str::to_owned),
                body: response.body().to_vec(),
            };
            writing.remember(key, &answer, now)?;
        }
        Ok(response)
    }

    fn step(&mut self, writing: &Writing<'_>) -> Result<Response, ReadError> {
        let resource = self.resource;
        let now = self.now.rfc3339();
        match &mut self.step {
            Step::Create { values, prefix } => {
                let values = std::mem::take(values);
                check_references(writing, resource.fields.iter().zip(&values))?;
                let record = writing.insert(resource, values, &now)?;
                let location = format!("{prefix}{}?id={}", resource.path, record.id);
                Ok(Response::json_bytes(201, record.json(resource)).header("Location", location))
            }
            Step::Update { id, changes } => {
                let number = existing(writing, resource, id)?;
                check_references(writing, changes.iter().map(|(field, value)| (*field, value)))?;
                let record = writing.update(resource, number, changes, &now)?.ok_or_else(|| id.not_found(resource))?;
                Ok(Response::json_bytes(200, record.json(resource)))
            }
            Step::Delete { id } => {
                let number = existing(writing, resource, id)?;
                match writing.delete(resource, number)? {
                    Deleted::Gone => Ok(Response::empty(204)),
                    Deleted::NotThere => Err(id.not_found(resource).into()),
                    Deleted::Refused(details) => Err(Error::HasDependents(details).into()),
                }
            }
        }
    }
}

fn existing(reading: &Reading<'_>, resource: &Resource, id: &RecordId) -> Result<i64, ReadError> {
    match id.number {
        Some(number) if reading.exists(resource, number)? => Ok(number),
        _ => Err(id.not_found(resource).into()),
    }
}

/// A reference points to a record of the same tenant: no other is in this file.
fn check_references<'v>(
    reading: &Reading<'_>,
    values: impl Iterator<Item = (&'static Field, &'v Value)>,
) -> Result<(), ReadError> {
    for (field, value) in values {
        if let (Some(target), Value::Integer(id)) = (Resource::referenced(field), value)
            && !reading.exists(target, *id)?
        {
            return Err(target.missing_reference(*id).into());
        }
    }
    Ok(())
}

/// The first response again, byte for byte.
fn replay(answer: Remembered) -> Response {
    let response = match answer.body.is_empty() {
        true => Response::empty(answer.status),
        false => Response::json_bytes(answer.status, answer.body),
    };
    response.with(answer.location.map(|location| ("Location", location))).header(REPLAYED, "true")
}

/// A change whose client waits.
struct Answered {
    change: RecordChange,
    reply: Reply,
}

impl Change for Answered {
    fn run(&mut self, writing: &Writing<'_>) -> Result<(), ReadError> {
        self.change.response = Some(self.change.make(writing)?);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<(), Error>) {
        let Answered { change, reply } = *self;
        let response = outcome.and(change.response.ok_or(Error::InternalError));
        reply.send(response.unwrap_or_else(Response::from));
    }
}
