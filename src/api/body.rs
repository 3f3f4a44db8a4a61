//! The body of a write: one JSON object. `Prefer` says what happens to members of the object that no
//! field has (contract section 3).

use crate::http::{ApiError, Body, ErrorCode, Method, Request};
use crate::model::validation::{parse_object, shorten};
use crate::model::{JsonObject, READ_ONLY, Resource};
use crate::words;

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

/// The unknown members, with similar names that are known.
pub(super) fn name_members(resource: &Resource, unknown: &[&str]) -> String {
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
