//! The headers of a request: the idempotency key (contract section 8), the versions in `If-Match`
//! (section 13), and `Prefer`, which says what happens to members of a body that no field has
//! (section 3).

use std::str::FromStr;

use sha2::{Digest, Sha256};
use uuid::fmt::Hyphenated;

use super::routes;
use crate::http::request::parse_tags;
use crate::http::{ApiError, ErrorCode, Method, Request};
use crate::model::validation::shorten;
use crate::model::{JsonObject, READ_ONLY, Resource};
use crate::store::{IdempotencyKey, Precondition};
use crate::words;

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
///
/// # Errors
///
/// `bad_request` if `If-Match` is given twice or cannot be read.
pub fn precondition(request: &Request) -> Result<Precondition, ApiError> {
    let mut sent = request.headers("if-match");
    let Some(value) = sent.next() else { return Ok(Precondition::None) };
    if sent.next().is_some() {
        return Err(ApiError::bad_request("\"If-Match\" is given twice. Send it once."));
    }
    parse_if_match(value)
}

/// Reads a value of `If-Match`.
pub fn parse_if_match(value: &str) -> Result<Precondition, ApiError> {
    match parse_tags(value) {
        Some(tags) if tags.contains(&"*") => Ok(Precondition::Exists),
        Some(tags) => Ok(Precondition::OneOf(tags.into_iter().map(str::to_owned).collect())),
        None => Err(ApiError::bad_request(
            "\"If-Match\" is no list of entity tags. Send the \"ETag\" of the record as it came, \
             with its quotes, or *.",
        )),
    }
}

/// `If-None-Match` says something about a read alone. A client that sends it with a write expects a
/// protection that it does not get.
pub fn check_no_if_none_match(request: &Request) -> Result<(), ApiError> {
    match request.header("if-none-match") {
        None => Ok(()),
        Some(_) => Err(ApiError::bad_request(
            "A write takes no \"If-None-Match\". To change a record only in the version that you \
             know, send \"If-Match\". To create a record and change none, send a POST without \
             \"update_by\".",
        )),
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
        if !matches!(request.method, Method::POST | Method::PUT) {
            return Handling::Lenient;
        }
        for preference in request.headers("prefer").flat_map(|list| list.split(',')) {
            let preference = preference.split(';').next().unwrap_or_default();
            let (name, value) = preference.split_once('=').unwrap_or_default();
            if name.trim().eq_ignore_ascii_case("handling") {
                let is_strict = value.trim().trim_matches('"').eq_ignore_ascii_case("strict");
                return if is_strict { Handling::Strict } else { Handling::Lenient };
            }
        }
        Handling::Lenient
    }

    /// The header of every response to a strict request.
    pub(super) fn header(self) -> Option<(&'static str, String)> {
        let is_strict = self == Handling::Strict;
        is_strict.then(|| ("Preference-Applied", "handling=strict".to_owned()))
    }
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
