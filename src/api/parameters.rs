//! What a request says outside of its body: the parameters of its query (contract section 3), and
//! its headers. These are the idempotency key (section 8), the versions in `If-Match` (section 13),
//! and `Prefer`, which says what happens to members of a body that no field has (section 3).

use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use sha2::{Digest, Sha256};
use uuid::fmt::Hyphenated;

use super::pipeline::insufficient_scope;
use super::routes;
use crate::http::request::{decode_form, form_pairs, parse_tags};
use crate::http::{ApiError, ErrorCode, Method, Request};
use crate::model::validation::{is_positive_integer, shorten};
use crate::model::{Access, Inclusion, JsonObject, READ_ONLY, RecordId, Resource, Scope, Scopes};
use crate::store::{IdempotencyKey, Precondition};
use crate::words;

/// The parameters of a query in the order sent. Each occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    parameters: Vec<Parameter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    name: String,
    value: String,
    /// The encoded pair from the request, for the link to the next page.
    raw: String,
}

impl Query {
    /// Parses a query string.
    ///
    /// # Errors
    ///
    /// `bad_request` if a name or value is not UTF-8, or if a parameter occurs twice.
    pub fn parse(raw: Option<&str>) -> Result<Query, ApiError> {
        let mut query = Query::default();
        for (raw, name, value) in form_pairs(raw.unwrap_or_default()) {
            let name = decode(name, None)?;
            let value = decode(value, Some(&name))?;
            if query.get(&name).is_some() {
                return Err(ApiError::bad_request(format!(
                    "The query parameter {name:?} is given twice. Send it once."
                )));
            }
            query.parameters.push(Parameter { name, value, raw: raw.to_owned() });
        }
        Ok(query)
    }

    /// The names of the parameters in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.parameters.iter().map(|parameter| parameter.name.as_str())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        parameters.find(|parameter| parameter.name == name).map(|found| found.value.as_str())
    }

    /// The parameter `id`: decimal digits without sign or leading zero.
    ///
    /// # Errors
    ///
    /// `bad_request` for any other text.
    pub fn id(&self) -> Result<Option<RecordId>, ApiError> {
        let Some(text) = self.get("id") else { return Ok(None) };
        if is_positive_integer(text) {
            // No record has an id beyond 64 bits, and none has the last one.
            return Ok(Some(RecordId(text.parse().unwrap_or(i64::MAX))));
        }
        let expectation = "send a positive integer without sign or leading zero, such as 12";
        Err(invalid_parameter("id", text, expectation))
    }

    /// Checks that every parameter is in `known`.
    ///
    /// # Errors
    ///
    /// `bad_request` for an unknown parameter; the message suggests a similar known one.
    pub fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.names().find(|name| !known.contains(name)) {
            Some(name) => {
                let message = words::unknown("query parameter", name, known.iter().copied());
                Err(ApiError::bad_request(message))
            }
            None => Ok(()),
        }
    }

    /// The value of `Link` (RFC 8288) for the page from `cursor` on. `path` is the request's path.
    pub fn link_to_next(&self, path: &str, cursor: &str) -> String {
        /// Characters that a URI in the header `Link` must not contain (RFC 8288 section 3), and
        /// those at which some clients cut the header.
        const UNSAFE: &AsciiSet = &CONTROLS
            .add(b' ')
            .add(b'"')
            .add(b'<')
            .add(b'>')
            .add(b'\\')
            .add(b'^')
            .add(b'`')
            .add(b',')
            .add(b';');
        let kept = self.parameters.iter().filter(|parameter| parameter.name != "cursor");
        let mut pieces: Vec<String> =
            kept.map(|p| utf8_percent_encode(&p.raw, UNSAFE).to_string()).collect();
        pieces.push(format!("cursor={cursor}"));
        format!("<{path}?{}>; rel=\"next\"", pieces.join("&"))
    }
}

/// `bad_request` for the value of a query parameter. `expectation` says what to send.
pub fn invalid_parameter(name: &str, sent: &str, expectation: &str) -> ApiError {
    ApiError::bad_request(format!(
        "The query parameter \"{name}\" was {:?}; {expectation}.",
        shorten(sent)
    ))
}

fn decode(text: &str, parameter: Option<&str>) -> Result<String, ApiError> {
    decode_form(text).map_err(|_| {
        let subject = match parameter {
            Some(name) => format!("The query parameter {name:?}"),
            None => "A name in the query".to_owned(),
        };
        let message = format!("{subject} is not UTF-8 after percent-decoding. Encode it as UTF-8.");
        ApiError::bad_request(message)
    })
}

/// The parameter `include`.
///
/// # Errors
///
/// `bad_request` for an unknown or repeated name, `insufficient_scope` if `scopes` does not permit
/// to read what is included.
pub fn parse_include(
    resource: &'static Resource,
    query: &Query,
    scopes: Scopes,
) -> Result<Vec<&'static Inclusion>, ApiError> {
    let Some(text) = query.get("include") else { return Ok(Vec::new()) };
    let sent: Vec<&str> = text.split(',').collect();
    let possible = resource.inclusions().iter();
    let included: Vec<&Inclusion> =
        possible.clone().filter(|one| sent.contains(&one.name())).collect();
    if included.len() < sent.len() {
        let names: Vec<&str> = possible.map(Inclusion::name).collect();
        let expectation =
            format!("send names out of {} with commas between, each once", names.join(", "));
        return Err(invalid_parameter("include", text, &expectation));
    }
    let read = included.iter().map(|one| Scope { resource: one.resource, access: Access::Read });
    let lacking: Scopes = read.filter(|scope| !scopes.contains(*scope)).collect();
    if lacking.is_empty() { Ok(included) } else { Err(insufficient_scope(lacking)) }
}

/// Returns the bytes of the UUID in the header `Idempotency-Key`, or `None` without the header.
///
/// The form is 8-4-4-4-12 hexadecimal digits in any case, of any UUID version. One pair of double
/// quotes around it is removed.
///
/// # Errors
///
/// `invalid_idempotency_key` if the header occurs twice or is not a UUID.
pub fn parse_idempotency_key(request: &Request) -> Result<Option<[u8; 16]>, ApiError> {
    let mut values = request.headers("idempotency-key");
    let Some(value) = values.next() else { return Ok(None) };
    let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    match (Hyphenated::from_str(bare), values.next()) {
        (Ok(uuid), None) => Ok(Some(*uuid.as_uuid().as_bytes())),
        _ => Err(ErrorCode::InvalidIdempotencyKey.into()),
    }
}

/// The key with the SHA-256 of method, path without `/v1`, `target` and for POST and PUT the bytes of
/// the body. `target` is the value of `id` or `update_by` in the query.
pub fn idempotency_key(
    key: [u8; 16],
    request: &Request,
    target: &str,
    body: &[u8],
) -> IdempotencyKey {
    let mut hash = Sha256::new();
    for part in [request.method.as_str(), routes::label(&request.path), target] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(body);
    IdempotencyKey { key, request: hash.finalize().into() }
}

/// The precondition of a request that changes a record.
pub fn precondition(request: &Request) -> Precondition {
    let sent: Vec<&str> = request.headers("if-match").collect();
    match sent.as_slice() {
        [] => Precondition::None,
        [value] => parse_if_match(value),
        _ => Precondition::Unreadable("\"If-Match\" is given twice. Send it once."),
    }
}

/// Reads a value of `If-Match`.
pub fn parse_if_match(value: &str) -> Precondition {
    match parse_tags(value) {
        Some(tags) if tags.contains(&"*") => Precondition::Exists,
        Some(tags) => Precondition::OneOf(tags.into_iter().map(str::to_owned).collect()),
        None => Precondition::Unreadable(
            "\"If-Match\" is no list of entity tags. Send the \"ETag\" of the record as it came, \
             with its quotes, or *.",
        ),
    }
}

/// The most names in the header `X-Ignored-Fields`.
const MAX_IGNORED: usize = 10;
/// The most names in a message. A batch has room for a hundred thousand.
const MAX_NAMED: usize = 100;

/// How a request wants unknown members to be handled (RFC 7240 section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handling {
    Lenient,
    Strict,
}

impl Handling {
    /// The first preference `handling` in the headers `Prefer` counts (RFC 7240 section 2). Only
    /// POST and PUT have members to check.
    pub(super) fn parse(request: &Request) -> Handling {
        let preferences = request.headers("prefer").flat_map(split_outside_quotes);
        let mut handlings = preferences.filter_map(|preference| {
            let (name, value) = preference.split(';').next()?.split_once('=')?;
            name.trim().eq_ignore_ascii_case("handling").then_some(value.trim())
        });
        let sent = handlings.next().unwrap_or("lenient");
        let sent = sent.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(sent);
        let has_members = matches!(request.method, Method::POST | Method::PUT);
        let is_strict = has_members && sent.eq_ignore_ascii_case("strict");
        if is_strict { Handling::Strict } else { Handling::Lenient }
    }

    /// The header of every response to a strict request.
    pub(super) fn header(self) -> Option<(&'static str, String)> {
        let is_strict = self == Handling::Strict;
        is_strict.then(|| ("Preference-Applied", "handling=strict".to_owned()))
    }
}

/// Splits a list at its commas. A comma in a quoted text separates nothing (RFC 9110 section
/// 5.6.4).
fn split_outside_quotes(list: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    list.split(move |c| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match c {
            _ if was_escaped => {}
            '\\' => is_escaped = is_quoted,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
        c == ',' && !is_quoted
    })
}

/// Looks for unknown members in the body of a POST or PUT. Returns the header with their names.
///
/// # Errors
///
/// `bad_request` if there are unknown members and the handling is strict.
pub(super) fn check_members(
    handling: Handling,
    resource: &Resource,
    body: &JsonObject,
) -> Result<Option<(&'static str, String)>, ApiError> {
    let unknown = unknown_members(resource, body);
    match handling {
        _ if unknown.is_empty() => Ok(None),
        Handling::Lenient => {
            let names: Vec<String> =
                unknown.into_iter().take(MAX_IGNORED).map(shown_in_header).collect();
            Ok(Some(("X-Ignored-Fields", names.join(", "))))
        }
        Handling::Strict => Err(ApiError::bad_request(format!(
            "The body has unknown members: {}. Correct their names, or send the request without \
             \"Prefer: handling=strict\".",
            name_members(resource, &unknown)
        ))),
    }
}

pub(super) fn unknown_members<'a>(resource: &Resource, body: &'a JsonObject) -> Vec<&'a str> {
    let is_known =
        |name: &&str| resource.field(name).is_some() || READ_ONLY.contains(name) || *name == "etag";
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

/// The unknown members, with similar names that are known.
pub(super) fn name_members(resource: &Resource, unknown: &[&str]) -> String {
    let known = resource.fields.iter().map(|field| field.name);
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
