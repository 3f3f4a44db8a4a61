//! The headers of requests: the versions in `If-Match` and `If-None-Match` (contract section 13,
//! RFC 9110 section 13.1), and `Prefer`, which says what happens to members of a body that no field
//! has (contract section 3).

use crate::http::{ApiError, Method, Request};
use crate::model::validation::shorten;
use crate::model::{JsonObject, READ_ONLY, Resource};
use crate::store::Precondition;
use crate::words;

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

/// Whether `If-None-Match` of the request names this tag, by weak comparison. A header that cannot
/// be read is ignored. Several lines are one list.
pub fn is_unchanged(request: &Request, etag: &str) -> bool {
    let lines: Vec<&str> = request.headers("if-none-match").collect();
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag) == etag;
    parse_tags(&lines.join(","))
        .is_some_and(|tags| tags.into_iter().any(|tag| tag == "*" || opaque(tag)))
}

/// The white space that may surround an element of a list.
const SPACE: [char; 2] = [' ', '\t'];

/// Parses `*` or a list of entity tags with commas between (RFC 9110 sections 5.6.1 and 8.8.3).
/// Empty elements are ignored, but there must be a tag.
fn parse_tags(text: &str) -> Option<Vec<&str>> {
    let mut rest = text.trim_matches(SPACE);
    if rest == "*" {
        return Some(vec![rest]);
    }
    let mut tags = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return (!tags.is_empty()).then_some(tags);
        }
        let (tag, after) = split_tag(rest)?;
        tags.push(tag);
        rest = after.trim_start_matches(SPACE);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

/// Splits the tag off the beginning of `text`, with its quotes and `W/`.
fn split_tag(text: &str) -> Option<(&str, &str)> {
    let quoted = text.strip_prefix("W/").unwrap_or(text).strip_prefix('"')?;
    let (opaque, rest) = quoted.split_once('"')?;
    // Bytes above 0x7F come as the characters of Latin-1.
    let is_allowed = |c: char| matches!(c, '!' | '#'..='~' | '\u{80}'..='\u{ff}');
    let is_tag = opaque.chars().all(is_allowed);
    text.split_at_checked(text.len() - rest.len()).filter(|_| is_tag)
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
    pub(super) fn of(request: &Request) -> Handling {
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
    let is_known =
        |name: &&str| resource.field(name).is_some() || READ_ONLY.contains(name) || *name == "etag";
    let unknown: Vec<&str> = body.keys().map(String::as_str).filter(|it| !is_known(it)).collect();
    match handling {
        _ if unknown.is_empty() => Ok(None),
        Handling::Lenient => {
            let names: Vec<String> =
                unknown.into_iter().take(MAX_IGNORED).map(shown_in_header).collect();
            Ok(Some(("X-Ignored-Fields", names.join(", "))))
        }
        Handling::Strict => Err(rejected(resource, &unknown)),
    }
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

fn rejected(resource: &Resource, unknown: &[&str]) -> ApiError {
    let known = resource.fields.iter().map(|field| field.name);
    let name = |name: &&str| match words::closest(name, known.clone()) {
        Some(similar) => format!("{name:?} (did you mean \"{similar}\"?)"),
        None => format!("{:?}", shorten(name)),
    };
    let mut names: Vec<String> = unknown.iter().take(MAX_NAMED).map(name).collect();
    if unknown.len() > MAX_NAMED {
        names.push(format!("and {} more", unknown.len() - MAX_NAMED));
    }
    ApiError::bad_request(format!(
        "The body has unknown members: {}. Correct their names, or send the request without \
         \"Prefer: handling=strict\".",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_the_grammar() {
        assert_eq!(parse_tags("*"), Some(vec!["*"]));
        assert_eq!(parse_tags(" * "), Some(vec!["*"]));
        assert_eq!(parse_tags("\"1\""), Some(vec!["\"1\""]));
        assert_eq!(parse_tags("\"\""), Some(vec!["\"\""]));
        assert_eq!(parse_tags(" ,\"1\" , ,W/\"a,b\",\t"), Some(vec!["\"1\"", "W/\"a,b\""]));
        assert_eq!(parse_tags("\"\u{e9}\""), Some(vec!["\"\u{e9}\""]));
        for malformed in [
            "",
            " ",
            ",",
            "1",
            "\"1",
            "1\"",
            "\"1\" \"2\"",
            "\"1\"x",
            "w/\"1\"",
            "W/1",
            "W /\"1\"",
            "\"a b\"",
            "\"a\u{7f}\"",
            "*, \"1\"",
            "\"1\", *",
            "**",
            "'1'",
            "\"1\";",
            "\"\u{100}\"",
        ] {
            assert_eq!(parse_tags(malformed), None, "{malformed:?}");
        }
    }
}
