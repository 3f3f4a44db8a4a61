//! The operations on records (contract section 3).

use super::list::{self, MAX_CURSOR};
use super::parameters::{self, Handling};
use super::query::{INCLUDE, Query, invalid_parameter};
use crate::http::{ApiError, Body, ErrorCode, Method, Request, Responder, Response};
use crate::json_writer::JsonWriter;
use crate::model::json_object::parse_object;
use crate::model::validation::shorten;
use crate::model::{
    Field, FieldCode, FieldError, Inclusion, Json, JsonObject, ListQuery, RecordId, Resource,
    Rules, Scopes, Value,
};
use crate::store::{
    Answer, Change, ChangeKind, Changed, Deadline, IdempotencyKey, Precondition, Reading,
    Rejection, Tenant,
};

/// GET and HEAD: one record, or a page of records. The key's `scopes` limit `include`.
pub(super) fn read(
    tenant: &Tenant,
    request: &Request,
    resource: &'static Resource,
    scopes: Scopes,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.query.as_deref())?;
    let Some(id) = query.id().transpose() else {
        let list = list::parse(resource, &query, scopes)?;
        return page(tenant, request, &query, &list);
    };
    check_alone(&query, resource)?;
    let id = id?;
    let include = list::parse_include(resource, &query, scopes)?;
    record(tenant, request, resource, id, &include)
}

/// Checks that no parameter of a list stands beside `id`.
fn check_alone(query: &Query, resource: &Resource) -> Result<(), ApiError> {
    let (known, rule): (&[&str], _) = match resource.inclusions() {
        [] => (&["id"], "\"id\" is one record, and takes no other parameter"),
        _ => {
            (&["id", INCLUDE], "\"id\" is one record, and takes no other parameter but \"include\"")
        }
    };
    let Some(other) = query.names().find(|name| !known.contains(name)) else { return Ok(()) };
    let other = shorten(other);
    Err(ApiError::bad_request(format!("{rule}. Leave out \"id\" or {other:?}.")))
}

fn record(
    tenant: &Tenant,
    request: &Request,
    resource: &'static Resource,
    id: RecordId,
    include: &[&Inclusion],
) -> Result<Response, ApiError> {
    let read = |reading: &Reading<'_>| reading.json(resource, id, include);
    let found = if include.is_empty() {
        tenant.read_one(read)?
    } else {
        tenant.read(Deadline::new(&request.abandoned), read)?
    };
    let (json, version) = found.ok_or(Rejection::NotFound(resource, id))?;
    if !include.is_empty() {
        // The version says nothing about the included records, so there is no `ETag`.
        return Ok(Response::json_bytes(200, json));
    }
    let etag = version.etag();
    let response = if request.is_unchanged(&etag) {
        Response::empty(304)
    } else {
        Response::json_bytes(200, json)
    };
    Ok(response.header("ETag", etag))
}

fn page(
    tenant: &Tenant,
    request: &Request,
    query: &Query,
    list: &ListQuery,
) -> Result<Response, ApiError> {
    let page = tenant.read(Deadline::new(&request.abandoned), |reading| reading.page(list))?;
    let cursor = page.next.map(|position| list::write_cursor(&position, list.resource, query));
    let response = page_response(&page.json, |body| {
        body.member("next_cursor", &cursor);
        if let Some(total) = page.total {
            body.member("total", &total);
        }
    });
    Ok(match cursor {
        Some(cursor) => response.header("Link", query.link_to_next(&request.path, &cursor)),
        None => response,
    })
}

/// A page: `data` is a JSON array, `write_others` writes the members after it.
pub(super) fn page_response(data: &[u8], write_others: impl FnOnce(&mut JsonWriter)) -> Response {
    let mut body = JsonWriter::with_capacity(data.len() + MAX_CURSOR);
    body.begin_object();
    body.name("data");
    body.raw(data);
    write_others(&mut body);
    body.end_object();
    Response::json_bytes(200, body.take())
}

/// A request that passed the checks that need no database.
#[derive(Debug)]
pub(super) struct CheckedWrite {
    /// One change, or those of a batch.
    pub changes: Vec<Change>,
    /// The path of each change as the client sent it. It may begin with `/v1`.
    pub paths: Vec<String>,
    pub is_batch: bool,
    pub idempotency_key: Option<IdempotencyKey>,
}

/// POST, PUT and DELETE: makes the checks that need no database, in their order. DELETE ignores a
/// body. The reply gets the header that names ignored members, even if a later check fails.
pub(super) fn check_write(
    request: &Request,
    resource: &'static Resource,
    handling: Handling,
    reply: &mut Responder,
) -> Result<CheckedWrite, ApiError> {
    let key = parameters::parse_idempotency_key(request)?;
    let (body, object) = match request.method {
        Method::DELETE => (&[][..], JsonObject::new()),
        _ => json_object(request)?,
    };
    reply.add_headers(parameters::check_members(handling, resource, &object)?);
    let query = Query::parse(request.query.as_deref())?;
    parameters::check_no_if_none_match(request)?;
    let precondition = parameters::precondition(request);
    let change = check_change(&request.method, resource, &query, &object, precondition)?;
    // A query has only one of them.
    let target = query.get("id").or_else(|| query.get("update_by")).unwrap_or_default();
    Ok(CheckedWrite {
        changes: vec![change],
        paths: vec![request.path.clone()],
        is_batch: false,
        idempotency_key: key.map(|key| parameters::idempotency_key(key, request, target, body)),
    })
}

/// The query parameter of POST.
const UPDATE_BY: &str = "update_by";

/// Makes the checks of a request with this method from the query on that need no database, in their
/// order. `body` is that of POST and PUT.
pub(super) fn check_change(
    method: &Method,
    resource: &'static Resource,
    query: &Query,
    body: &JsonObject,
    precondition: Result<Precondition, ApiError>,
) -> Result<Change, ApiError> {
    let kind = if *method == Method::POST {
        query.only(&[UPDATE_BY])?;
        match parse_update_by(resource, query)? {
            Some(key) => ChangeKind::UpdateBy(key),
            None => ChangeKind::Create,
        }
    } else {
        query.only(&["id"])?;
        let id = query.id()?.ok_or(ErrorCode::MissingId)?;
        if *method == Method::DELETE { ChangeKind::Delete(id) } else { ChangeKind::Update(id) }
    };
    // A new record has no version yet.
    let precondition = if kind == ChangeKind::Create { Precondition::None } else { precondition? };
    let values = match kind {
        ChangeKind::Create => check_values(resource, body, Rules::New)?,
        ChangeKind::UpdateBy(key) => check_values(resource, body, Rules::StoredOrNew(key))?,
        ChangeKind::Update(_) => check_values(resource, body, Rules::Stored)?,
        ChangeKind::Delete(_) => Vec::new(),
    };
    Ok(Change { precondition, ..Change::new(resource, kind, values) })
}

/// Reads the query parameter `update_by` of a POST.
fn parse_update_by(
    resource: &'static Resource,
    query: &Query,
) -> Result<Option<&'static Field>, ApiError> {
    let Some(name) = query.get(UPDATE_BY) else { return Ok(None) };
    if let Some(key) = resource.lookup_fields().find(|field| field.name == name) {
        return Ok(Some(key));
    }
    let names: Vec<&str> = resource.lookup_fields().map(|field| field.name).collect();
    let expectation = format!("send one of {}", names.join(", "));
    Err(invalid_parameter(UPDATE_BY, name, &expectation))
}

/// Checks the fields that the body names, and that it names those it must.
fn check_values(
    resource: &'static Resource,
    body: &JsonObject,
    rules: Rules,
) -> Result<Vec<(&'static Field, Value)>, ApiError> {
    let mut values = Vec::new();
    let mut faults = Vec::new();
    for field in resource.fields {
        match field.check_sent(body.get(field.name), rules) {
            Ok(Some(value)) => values.push((field, value)),
            Ok(None) => {}
            Err(errors) => faults.extend(errors),
        }
    }
    if !faults.is_empty() {
        name_wrapper(resource, body, &mut faults);
        return Err(Rejection::InvalidFields(faults).into());
    }
    if rules == Rules::Stored && values.is_empty() {
        let unknown = parameters::unknown_members(resource, body);
        if unknown.is_empty() {
            return Err(ErrorCode::NoUpdatableFields.into());
        }
        let message = format!(
            "The body of a PUT names no field that can be changed. It has unknown members: {}.",
            parameters::name_members(resource, &unknown)
        );
        return Err(ApiError::new(ErrorCode::NoUpdatableFields, message));
    }
    Ok(values)
}

/// Many services take the record as a member, such as `data`. If the first missing field may be in
/// there, its message says so.
fn name_wrapper(resource: &Resource, body: &JsonObject, faults: &mut [FieldError]) {
    let unknown = parameters::unknown_members(resource, body);
    if let [name] = unknown.as_slice()
        && let Some(Json::Object(_)) = body.get(*name)
        && let Some(fault) = faults.iter_mut().find(|fault| fault.code == FieldCode::Required)
    {
        let hint =
            format!(" {:?} is no field: send its members as the body itself.", shorten(name));
        fault.message.push_str(&hint);
    }
}

/// Returns the body, and the object that it is.
///
/// # Errors
///
/// `unsupported_media_type`, `payload_too_large` or `invalid_json`, in this order.
pub(super) fn json_object(request: &Request) -> Result<(&[u8], JsonObject), ApiError> {
    if let Some(fault) = media_type_fault(request) {
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, fault));
    }
    let Body::Whole(body) = &request.body else {
        return Err(ErrorCode::PayloadTooLarge.into());
    };
    let object = parse_object(body).map_err(|fault| {
        let hint = body_hint(body);
        let message = format!("The body is not one JSON object in UTF-8: {fault}.{hint}");
        ApiError::new(ErrorCode::InvalidJson, message)
    })?;
    Ok((body, object))
}

/// The beginnings of bodies that programs send by mistake, and what the body is. The first that
/// fits counts.
const MISTAKEN_BODIES: [(&str, &str); 9] = [
    ("[object ", " It is what JavaScript writes for an object. Send JSON.stringify(object)."),
    ("[", " It is an array. Send one object, or {\"operations\": […]} to /batch.php."),
    ("\"", " It is a text in quotes. If the text is JSON, send it without the quotes."),
    ("<", " It is HTML or XML."),
    ("{'", " JSON takes double quotes, and no single ones."),
    (
        "'",
        " It begins with a single quote. In cmd.exe, write double quotes around the JSON and \\\" for \
         each quote inside, or send a file: curl --data-binary @file.json.",
    ),
    ("{“", " It has typographic quotes. JSON takes the plain quote \"."),
    ("{„", " It has typographic quotes. JSON takes the plain quote \"."),
    ("{{", PLACEHOLDER),
];

const PLACEHOLDER: &str = " It has a placeholder in {{ and }} that no program has filled in.";

/// What a body is that is no JSON object, if it is a known mistake. Empty otherwise.
fn body_hint(body: &[u8]) -> &'static str {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_.-[]%+".contains(c);
    let known = MISTAKEN_BODIES.iter().find(|(start, _)| text.starts_with(start));
    match known {
        Some((_, hint)) => hint,
        None if text.contains("{{") => PLACEHOLDER,
        // A form begins with `name=`.
        None if text.trim_start_matches(is_word).starts_with('=') => {
            " It is a form. Send the fields as one JSON object."
        }
        None => "",
    }
}

/// Why the headers do not say that the body is plain JSON.
fn media_type_fault(request: &Request) -> Option<String> {
    let mut values = request.headers("content-type");
    let Some(sent) = values.next() else {
        return Some("\"Content-Type\" is missing. Send \"application/json\".".to_owned());
    };
    if values.next().is_some() {
        return Some("\"Content-Type\" was given more than once. Send it once.".to_owned());
    }
    let media_type = sent.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let sent = shorten(sent);
        return Some(format!("\"Content-Type\" was {sent:?}. Send \"application/json\"."));
    }
    let encoding = shorten(request.header("content-encoding")?);
    Some(format!("\"Content-Encoding\" was {encoding:?}. Send the body without it."))
}

/// The response to one change at this path.
pub(super) fn answer(changed: &Changed, path: &str) -> Answer {
    let Changed { resource, id: RecordId(id), record, is_new } = changed;
    let Some(record) = record else {
        return Answer { status: 204, location: None, etag: None, body: Vec::new() };
    };
    Answer {
        status: if *is_new { 201 } else { 200 },
        location: is_new.then(|| format!("{path}?id={id}")),
        etag: Some(record.version.etag()),
        body: record.response(resource),
    }
}

/// The response with a new or a stored answer.
pub(super) fn response(Answer { status, location, etag, body }: Answer) -> Response {
    let response =
        if body.is_empty() { Response::empty(status) } else { Response::json_bytes(status, body) };
    let location = location.map(|location| ("Location", location));
    response.with(location).with(etag.map(|etag| ("ETag", etag)))
}
