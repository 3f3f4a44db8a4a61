//! A complete request as a value.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::Utf8Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use crate::clock::Moment;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The complete body; empty if there was none.
    Whole(Vec<u8>),
    /// More bytes than the path takes from this client. The pipeline decides which check rejects
    /// it.
    TooLarge,
}

/// The longest body in bytes of all paths but that of batches (contract section 3).
pub const MAX_BODY: usize = 64 * 1024;

/// The longest body of a batch in bytes (contract section 15). No path takes a longer one.
pub const MAX_BATCH_BODY: usize = 1024 * 1024;

/// The longest method in bytes. The log has no more of a method.
pub const MAX_METHOD: usize = 32;

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    /// Not percent-decoded. Bytes that are not printable ASCII are percent-encoded: tiny_http reads
    /// nothing else, and the log takes nothing else.
    pub path: String,
    /// The text behind `?`, as sent; `None` without a `?`.
    pub query: Option<String>,
    /// Values are ASCII: the edge replaces other bytes by `?`.
    pub headers: HeaderMap,
    pub body: Body,
    /// The client's `X-Request-Id` if it is a UUID, else a new one.
    pub id: Uuid,
    /// The peer's address. If the peer is a trusted proxy, the address that the proxy reports.
    pub client: IpAddr,
    /// The request arrived over HTTPS, here or at a trusted proxy.
    pub secure: bool,
    /// When the complete request was received.
    pub received_at: Moment,
    /// A read ends early if another thread sets it.
    pub abandoned: Arc<AtomicBool>,
}

impl Request {
    /// A request of this machine, with a new id and without query, headers and body.
    pub fn new(method: Method, path: &str, received_at: Moment) -> Request {
        Request {
            method,
            path: path.to_owned(),
            query: None,
            headers: HeaderMap::new(),
            body: Body::Whole(Vec::new()),
            id: Uuid::new_v4(),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            secure: false,
            received_at,
            abandoned: Arc::default(),
        }
    }

    /// Whether the client has its response, or has disconnected.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// All values of the header `name` (in lower case), in the order sent.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
    }

    /// The first value of the header `name` (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    /// Whether `If-None-Match` names this tag, by weak comparison (RFC 9110 section 13.1.2). A
    /// header that cannot be read is ignored. Several lines are one list.
    pub fn is_unchanged(&self, etag: &str) -> bool {
        let lines: Vec<&str> = self.headers("if-none-match").collect();
        let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag) == etag;
        parse_tags(&lines.join(","))
            .is_some_and(|tags| tags.into_iter().any(|tag| tag == "*" || opaque(tag)))
    }
}

/// Returns the address that identifies a client: an IPv4 address, or the /64 network of an IPv6
/// address, since a provider assigns at least a /64 to each customer.
pub fn address_of(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// Splits a query string or a form (`application/x-www-form-urlencoded`, WHATWG URL section 5) into
/// its `name=value` pairs: the pair as sent, the name and the value, all still encoded. Empty pairs
/// are skipped.
pub fn form_pairs(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (pair, name, value)
    })
}

/// Decodes a name or a value: `+` is a space and `%XX` is a byte.
///
/// # Errors
///
/// [`Utf8Error`] if the decoded bytes are not UTF-8.
pub fn decode_form(text: &str) -> Result<String, Utf8Error> {
    Ok(percent_decode_str(&text.replace('+', " ")).decode_utf8()?.into_owned())
}

/// The white space that may surround an element of a list.
const SPACE: [char; 2] = [' ', '\t'];

/// Parses `*` or a list of entity tags with commas between (RFC 9110 sections 5.6.1 and 8.8.3).
/// Empty elements are ignored, but there must be a tag.
pub fn parse_tags(text: &str) -> Option<Vec<&str>> {
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
    let is_allowed = |c: char| matches!(c, '!' | '#'..='~');
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
            "\"\u{e9}\"",
        ] {
            assert_eq!(parse_tags(malformed), None, "{malformed:?}");
        }
    }
}
