//! One record: GET, POST, PUT and DELETE, and the body of a write (contract section 3). An
//! operation of a batch makes the same checks as a request of its own.

use std::str::FromStr;

use sha2::{Digest, Sha256};
use uuid::fmt::Hyphenated;

use super::list;
use super::query::{AT, INCLUDE, Query, invalid_parameter, parse_include};
use super::routes;
use crate::http::request::parse_tags;
use crate::http::{ApiError, Body, ErrorCode, Method, Request, Responder, Response};
use crate::model::validation::{is_empty, parse_object, shorten};
use crate::model::{
    Field, FieldCode, FieldError, Json, JsonObject, PastMoment, READ_ONLY, RecordId, Resource,
    Rules, Scopes, Version,
};
use crate::store::{
    Change, ChangeKind, Changed, Deadline, IdempotencyKey, Precondition, Reading, Rejection,
    StoredResponse, Tenant,
};
use crate::words;

/// GET and HEAD: one record, or a page of records. The key's `scopes` limit `include`.
pub(super) fn read(
    tenant: &Tenant,
    request: &Request,
    resource: &'static Resource,
    scopes: Scopes,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.query.as_deref())?;
    let Some(id) = query.id()? else {
        return list::read(tenant, request, resource, &query, scopes);
    };
    check_alone(&query, resource)?;
    let include = parse_include(resource, &query, scopes)?;
    let read = |reading: &Reading<'_>| reading.json(resource, id, &include);
    let deadline = Deadline::new(&request.abandoned);
    let found = if let Some(at) = query.at(request.received_at.timestamp())? {
        let moment = PastMoment { at, last: None };
        tenant.read_past(deadline, moment, |reading, _| read(reading))?
    } else if include.is_empty() {
        tenant.read_one(read)?
    } else {
        tenant.read(deadline, read)?
    };
    let (json, version) = found.ok_or(Rejection::NotFound(resource, id))?;
    // The version says nothing about the included records, so there is no `ETag`. A record of the
    // past has none either.
    let Some(etag) = version.filter(|_| include.is_empty()).map(Version::etag) else {
        return Ok(Response::json_bytes(200, json));
    };
    let response = if request.is_unchanged(&etag) {
        Response::empty(304)
    } else {
        Response::json_bytes(200, json)
    };
    Ok(response.header("ETag", etag))
}

fn check_alone(query: &Query, resource: &Resource) -> Result<(), ApiError> {
    let (known, others): (&[&str], _) = match resource.inclusions() {
        [] => (&["id", AT], "\"at\""),
        _ => (&["id", AT, INCLUDE], "\"include\" and \"at\""),
    };
    let Some(other) = query.names().find(|name| !known.contains(name)) else { return Ok(()) };
    let other = shorten(other);
    Err(ApiError::bad_request(format!(
        "\"id\" is one record, and takes no other parameter but {others}. Leave out \"id\" or \
         {other:?}."
    )))
}

/// A write that passed the checks that need no database.
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
/// body. Every response gets the header that names ignored members, even if a later check fails.
pub(super) fn check_write(
    request: &Request,
    resource: &'static Resource,
    is_strict: bool,
    responder: &mut Responder,
) -> Result<CheckedWrite, ApiError> {
    let uuid = parse_idempotency_key(request)?;
    let (bytes, object) = match request.method {
        Method::DELETE => (&[][..], JsonObject::new()),
        _ => json_object(request)?,
    };
    responder.add_headers(check_members(is_strict, resource, &object)?);
    let query = Query::parse(request.query.as_deref())?;
    let conditions = Conditions::of(request);
    let change = check_change(&request.method, resource, &query, &object, &conditions)?;
    // A query has only one of them.
    let selector = query.get("id").or_else(|| query.get(UPDATE_BY)).unwrap_or_default();
    Ok(CheckedWrite {
        changes: vec![change],
        paths: vec![request.path.clone()],
        is_batch: false,
        idempotency_key: uuid.map(|uuid| idempotency_key(uuid, request, selector, bytes)),
    })
}

/// The query parameter of POST.
const UPDATE_BY: &str = "update_by";

/// Makes the checks of a write with this method from the query on that need no database, in their
/// order. `body` is that of POST and PUT.
pub(super) fn check_change(
    method: &Method,
    resource: &'static Resource,
    query: &Query,
    body: &JsonObject,
    conditions: &Conditions<'_>,
) -> Result<Change, ApiError> {
    if *method == Method::POST {
        query.only(&[UPDATE_BY])?;
        let Some(field) = parse_update_by(resource, query)? else {
            // A new record has no version yet, so `If-Match` has no meaning.
            conditions.check_no_if_none_match()?;
            return check_values(resource, ChangeKind::Create, body, Rules::New);
        };
        let precondition = conditions.precondition(true)?;
        let kind = ChangeKind::UpdateBy(field);
        let change = check_values(resource, kind, body, Rules::StoredOrNew(field))?;
        return Ok(Change { precondition, ..change });
    }
    query.only(&["id"])?;
    let id = query.id()?.ok_or(ErrorCode::MissingId)?;
    let precondition = conditions.precondition(false)?;
    let change = if *method == Method::DELETE {
        Change::new(resource, ChangeKind::Delete(id), Vec::new())
    } else {
        check_values(resource, ChangeKind::Update(id), body, Rules::Stored)?
    };
    Ok(Change { precondition, ..change })
}

fn parse_update_by(
    resource: &'static Resource,
    query: &Query,
) -> Result<Option<&'static Field>, ApiError> {
    let Some(name) = query.get(UPDATE_BY) else { return Ok(None) };
    if let Some(field) = resource.lookup_fields().find(|field| field.name == name) {
        return Ok(Some(field));
    }
    let names: Vec<&str> = resource.lookup_fields().map(|field| field.name).collect();
    let expectation = format!("send one of {}", names.join(", "));
    Err(invalid_parameter(UPDATE_BY, name, &expectation))
}

fn check_values(
    resource: &'static Resource,
    kind: ChangeKind,
    body: &JsonObject,
    rules: Rules,
) -> Result<Change, ApiError> {
    let mut change = Change::new(resource, kind, Vec::new());
    let mut faults = Vec::new();
    for field in resource.fields {
        let (mut sent, mut is_named) = (body.get(field.name), false);
        for natural in resource.natural_references().iter().filter(|key| key.field == field) {
            match body.get(&natural.name) {
                None => {}
                // Beside another member of the reference, an empty one counts as absent.
                Some(input) if is_empty(input) => sent = sent.or(Some(input)),
                Some(input) => {
                    is_named = true;
                    match natural.check(input) {
                        Ok(value) => change.references.push((natural, value)),
                        Err(errors) => faults.extend(errors),
                    }
                }
            }
        }
        if is_named && sent.is_none_or(is_empty) {
            continue;
        }
        match field.check_sent(sent, rules) {
            Ok(Some(value)) => change.values.push((field, value)),
            Ok(None) => {}
            Err(errors) => faults.extend(errors),
        }
    }
    if !faults.is_empty() {
        name_alternatives(resource, body, &mut faults);
        return Err(Rejection::InvalidFields(faults).into());
    }
    if rules == Rules::Stored && change.values.is_empty() && change.references.is_empty() {
        let unknown = unknown_members(resource, body);
        if unknown.is_empty() {
            return Err(ErrorCode::NoUpdatableFields.into());
        }
        let message = format!(
            "The body of a PUT names no field that can be changed. It has unknown members: {}.",
            name_members(resource, &unknown)
        );
        return Err(ApiError::new(ErrorCode::NoUpdatableFields, message));
    }
    Ok(change)
}

/// The message about a missing reference names its natural keys. Many services take the record as a
/// member, such as `data`. If the first missing field may be in there, its message says so.
fn name_alternatives(resource: &Resource, body: &JsonObject, faults: &mut [FieldError]) {
    for fault in faults.iter_mut().filter(|fault| fault.code == FieldCode::Required) {
        let keys = resource.natural_references().iter();
        let keys = keys.filter(|key| key.field.name == fault.field);
        let names: Vec<String> = keys.map(|key| format!("\"{}\"", key.name)).collect();
        if !names.is_empty() {
            fault.message.push_str(&format!(" Or send {}.", names.join(" or ")));
        }
    }
    let unknown = unknown_members(resource, body);
    if let [name] = unknown.as_slice()
        && let Some(Json::Object(_)) = body.get(*name)
        && let Some(fault) = faults.iter_mut().find(|fault| fault.code == FieldCode::Required)
    {
        let hint =
            format!(" {:?} is no field: send its members as the body itself.", shorten(name));
        fault.message.push_str(&hint);
    }
}

/// Returns the bytes of the UUID in the header `Idempotency-Key` (contract section 8).
///
/// The form is 8-4-4-4-12 hexadecimal digits in any case, of any UUID version. One pair of double
/// quotes around it is removed.
///
/// # Errors
///
/// `invalid_idempotency_key` if the header occurs twice or is not a UUID.
pub(super) fn parse_idempotency_key(request: &Request) -> Result<Option<[u8; 16]>, ApiError> {
    let mut values = request.headers("idempotency-key");
    let Some(value) = values.next() else { return Ok(None) };
    let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    match (Hyphenated::from_str(bare), values.next()) {
        (Ok(uuid), None) => Ok(Some(*uuid.as_uuid().as_bytes())),
        _ => Err(ErrorCode::InvalidIdempotencyKey.into()),
    }
}

/// The UUID with the SHA-256 of method, path without `/v1`, `selector` and for POST and PUT the
/// bytes of the body. The selector is the value of `id` or `update_by` in the query.
pub(super) fn idempotency_key(
    uuid: [u8; 16],
    request: &Request,
    selector: &str,
    body: &[u8],
) -> IdempotencyKey {
    let mut hash = Sha256::new();
    for part in [request.method.as_str(), routes::label(&request.path), selector] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(body);
    IdempotencyKey { key: uuid, request: hash.finalize().into() }
}

/// The values of `If-Match` and `If-None-Match` (contract section 13), or of these members of an
/// operation of a batch.
pub(super) struct Conditions<'a> {
    pub if_match: Vec<&'a str>,
    pub if_none_match: Vec<&'a str>,
}

impl Conditions<'_> {
    pub(super) fn of(request: &Request) -> Conditions<'_> {
        Conditions {
            if_match: request.headers("if-match").collect(),
            if_none_match: request.headers("if-none-match").collect(),
        }
    }

    /// What must be true of the record of a write. `can_be_absent` says whether the record can be
    /// new and can be there.
    fn precondition(&self, can_be_absent: bool) -> Result<Precondition, ApiError> {
        if can_be_absent && self.if_match.is_empty() && self.if_none_match == ["*"] {
            return Ok(Precondition::Absent);
        }
        self.check_no_if_none_match()?;
        let value = match self.if_match.as_slice() {
            [] => return Ok(Precondition::None),
            [value] => value,
            _ => return Err(ApiError::bad_request("\"If-Match\" is given twice. Send it once.")),
        };
        match parse_tags(value) {
            Some(tags) if tags.contains(&"*") => Ok(Precondition::Exists),
            Some(tags) => Ok(Precondition::OneOf(tags.into_iter().map(str::to_owned).collect())),
            None => Err(ApiError::bad_request(
                "\"If-Match\" is no list of entity tags. Send the \"ETag\" of the record as it \
                 came, with its quotes, or *.",
            )),
        }
    }

    /// A client that sends `If-None-Match` with a write expects a protection. Only `*` gives one,
    /// and only where the record can be new and can be there.
    pub(super) fn check_no_if_none_match(&self) -> Result<(), ApiError> {
        if self.if_none_match.is_empty() {
            return Ok(());
        }
        Err(ApiError::bad_request(
            "A write takes \"If-None-Match\" only as \"*\", without \"If-Match\", in a POST with \
             \"update_by\": the record is created only if there is none. To change a record only \
             in the version that you know, send \"If-Match\".",
        ))
    }
}

/// What is stored and sent after one change at this path.
pub(super) fn stored_response(changed: &Changed, path: &str) -> StoredResponse {
    let Changed { resource, id: RecordId(id), record, is_new } = changed;
    let Some(record) = record else {
        return StoredResponse { status: 204, location: None, etag: None, body: Vec::new() };
    };
    StoredResponse {
        status: if *is_new { 201 } else { 200 },
        location: is_new.then(|| format!("{path}?id={id}")),
        etag: Some(record.version.etag()),
        body: record.response(resource),
    }
}

pub(super) fn response(
    StoredResponse { status, location, etag, body }: StoredResponse,
) -> Response {
    let response =
        if body.is_empty() { Response::empty(status) } else { Response::json_bytes(status, body) };
    let location = location.map(|location| ("Location", location));
    response.with(location).with(etag.map(|etag| ("ETag", etag)))
}

// The body of a write: one JSON object. `Prefer` says what happens to members of the object that no
// field has.

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
        " It begins with a single quote. In cmd.exe, write double quotes around the JSON and \\\" \
         for each quote inside, or send a file: curl --data-binary @file.json.",
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

/// The most names in the header `X-Ignored-Fields`.
const MAX_IGNORED: usize = 10;
/// The most names in a message. A batch has room for a hundred thousand.
const MAX_NAMED: usize = 100;

/// Whether the request asks to reject unknown members: the first preference `handling` counts
/// (RFC 7240 sections 2 and 4.4). Only POST and PUT have members to check.
pub(super) fn is_strict(request: &Request) -> bool {
    let preferences = request.headers("prefer").flat_map(|list| list.split(','));
    let mut handling = preferences.filter_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("handling").then(|| value.trim().trim_matches('"'))
    });
    matches!(request.method, Method::POST | Method::PUT)
        && handling.next().is_some_and(|value| value.eq_ignore_ascii_case("strict"))
}

/// Looks for unknown members in the body of a POST or PUT. Returns the header with their names.
///
/// # Errors
///
/// `bad_request` if there are unknown members and the request is strict.
pub(super) fn check_members(
    is_strict: bool,
    resource: &Resource,
    body: &JsonObject,
) -> Result<Option<(&'static str, String)>, ApiError> {
    let unknown = unknown_members(resource, body);
    if is_strict && !unknown.is_empty() {
        return Err(ApiError::bad_request(format!(
            "The body has unknown members: {}. Correct their names, or send the request without \
             \"Prefer: handling=strict\".",
            name_members(resource, &unknown)
        )));
    }
    let names: Vec<String> = unknown.into_iter().take(MAX_IGNORED).map(shown_in_header).collect();
    Ok((!names.is_empty()).then(|| ("X-Ignored-Fields", names.join(", "))))
}

fn unknown_members<'a>(resource: &Resource, body: &'a JsonObject) -> Vec<&'a str> {
    let is_known = |name: &&str| {
        resource.field(name).is_some()
            || resource.natural_references().iter().any(|key| key.name == *name)
            || READ_ONLY.contains(name)
            || *name == "etag"
    };
    body.keys().map(String::as_str).filter(|name| !is_known(name)).collect()
}

/// A name as a header shows it: at most 40 characters. A comma would separate names, and an empty
/// name would be no element.
fn shown_in_header(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() && c != ',';
    if name.is_empty() {
        return "?".to_owned();
    }
    name.chars().take(40).map(|c| if is_plain(c) { c } else { '?' }).collect()
}

fn name_members(resource: &Resource, unknown: &[&str]) -> String {
    let fields = resource.fields.iter().map(|field| field.name);
    let known = fields.chain(resource.natural_references().iter().map(|key| key.name.as_str()));
    let name = |name: &&str| match words::closest(name, known.clone()) {
        Some(similar) => format!("{name:?} (did you mean \"{similar}\"?)"),
        None => format!("{:?}", shorten(name)),
    };
    let mut names: Vec<String> = unknown.iter().take(MAX_NAMED).map(name).collect();
    if unknown.len() > MAX_NAMED {
        names.push(format!("and {} more", unknown.len() - MAX_NAMED));
    }
    names.join(", ")
}
