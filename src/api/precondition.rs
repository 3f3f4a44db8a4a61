//! Versions of records as entity tags: `ETag`, `If-Match` and `If-None-Match` (contract section 13,
//! RFC 9110 section 13.1).

use crate::http::{ApiError, Request};
use crate::model::Version;

pub fn etag(version: Version) -> String {
    format!("\"{version}\"")
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IfMatch {
    #[default]
    Absent,
    Tags(TagList),
    /// The header cannot be read; the message says why.
    Invalid(&'static str),
}

/// A list of entity tags, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagList {
    /// `*`: any version.
    Any,
    Tags(Vec<Tag>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Whether the tag begins with `W/`.
    weak: bool,
    /// The tag with its quotes.
    opaque: String,
}

impl IfMatch {
    /// The header of a request. It may be given once.
    pub fn of(request: &Request) -> IfMatch {
        let mut values = request.headers("if-match");
        match (values.next(), values.next()) {
            (None, _) => IfMatch::Absent,
            (Some(value), None) => IfMatch::parse(value),
            (Some(_), Some(_)) => {
                IfMatch::Invalid("The header \"If-Match\" is given twice. Send it once.")
            }
        }
    }

    /// The condition that `value` states.
    pub fn parse(value: &str) -> IfMatch {
        const INVALID: &str = "The header \"If-Match\" is no list of entity tags. Send the \
                               \"ETag\" of the record as it came, with \
                               its quotes, or *.";
        TagList::parse(value).map_or(IfMatch::Invalid(INVALID), IfMatch::Tags)
    }

    /// Returns whether a record of this version meets the condition, by strong comparison: a weak
    /// tag matches no version.
    ///
    /// # Errors
    ///
    /// `bad_request` if the header cannot be read.
    pub fn is_met_by(&self, version: Version) -> Result<bool, ApiError> {
        match self {
            IfMatch::Absent | IfMatch::Tags(TagList::Any) => Ok(true),
            IfMatch::Tags(TagList::Tags(tags)) => {
                let present = etag(version);
                Ok(tags.iter().any(|tag| !tag.weak && tag.opaque == present))
            }
            IfMatch::Invalid(message) => Err(ApiError::bad_request(*message)),
        }
    }
}

/// Whether `If-None-Match` of the request names this tag, by weak comparison. A header that cannot
/// be read is ignored. Several lines are one list.
pub fn is_unchanged(request: &Request, etag: &str) -> bool {
    let lines: Vec<&str> = request.headers("if-none-match").collect();
    match TagList::parse(&lines.join(",")) {
        Some(TagList::Any) => true,
        Some(TagList::Tags(tags)) => tags.iter().any(|tag| tag.opaque == etag),
        None => false,
    }
}

impl TagList {
    /// Parses `*` or a list of entity tags with commas between (RFC 9110 sections 5.6.1 and 8.8.3).
    /// Empty elements are ignored, but there must be a tag.
    fn parse(text: &str) -> Option<TagList> {
        let mut rest = trim(text);
        if rest == "*" {
            return Some(TagList::Any);
        }
        let mut tags = Vec::new();
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return (!tags.is_empty()).then_some(TagList::Tags(tags));
            }
            let (tag, after) = Tag::parse(rest)?;
            tags.push(tag);
            rest = trim(after);
            if !rest.is_empty() && !rest.starts_with(',') {
                return None;
            }
        }
    }
}

impl Tag {
    /// Parses the tag at the beginning of `text`. Returns it and the rest.
    fn parse(text: &str) -> Option<(Tag, &str)> {
        let (weak, quoted) = text.strip_prefix("W/").map_or((false, text), |rest| (true, rest));
        let (opaque, rest) = quoted.strip_prefix('"')?.split_once('"')?;
        // Bytes above 0x7F come as the characters of Latin-1.
        let is_allowed =
            |character: char| matches!(character, '!' | '#'..='~' | '\u{80}'..='\u{ff}');
        opaque
            .chars()
            .all(is_allowed)
            .then(|| (Tag { weak, opaque: format!("\"{opaque}\"") }, rest))
    }
}

/// Without the white space that may surround an element of a list.
fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(text: &str) -> Option<Vec<(bool, String)>> {
        match TagList::parse(text)? {
            TagList::Any => Some(Vec::new()),
            TagList::Tags(tags) => {
                Some(tags.into_iter().map(|tag| (tag.weak, tag.opaque)).collect())
            }
        }
    }

    #[test]
    fn lists_follow_the_grammar() {
        let tag = |text: &str| (false, text.to_owned());
        assert_eq!(tags("*"), Some(Vec::new()));
        assert_eq!(tags(" * "), Some(Vec::new()));
        assert_eq!(tags("\"1\""), Some(vec![tag("\"1\"")]));
        assert_eq!(tags("\"\""), Some(vec![tag("\"\"")]));
        assert_eq!(
            tags(" ,\"1\" , ,W/\"a,b\",\t"),
            Some(vec![tag("\"1\""), (true, "\"a,b\"".to_owned())])
        );
        assert_eq!(tags("\"\u{e9}\""), Some(vec![tag("\"\u{e9}\"")]));
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
            assert_eq!(tags(malformed), None, "{malformed:?}");
        }
    }

    #[test]
    fn a_weak_tag_matches_no_version() {
        for (value, matches) in [
            ("*", true),
            ("\"7\"", true),
            ("\"8\", \"7\"", true),
            ("W/\"7\"", false),
            ("\"07\"", false),
            ("\"8\"", false),
        ] {
            assert_eq!(IfMatch::parse(value).is_met_by(Version(7)).ok(), Some(matches), "{value}");
        }
    }
}
