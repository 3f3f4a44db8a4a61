//! Versions of records as entity tags: `ETag`, `If-Match` and `If-None-Match` (contract section 13,
//! RFC 9110 section 13.1).

use crate::http::Request;
use crate::store::Precondition;

/// The precondition of a request that changes a record.
pub fn of(request: &Request) -> Precondition {
    let sent: Vec<&str> = request.headers("if-match").collect();
    match sent.as_slice() {
        [] => Precondition::None,
        [value] => parse(value),
        _ => Precondition::Unreadable("\"If-Match\" is given twice. Send it once."),
    }
}

/// Reads a value of `If-Match`.
pub fn parse(value: &str) -> Precondition {
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
