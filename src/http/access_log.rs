//! The access log: one entry for each request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use uuid::Uuid;

use crate::secret::{KEY_START, PREFIX_LENGTH};

/// The log entry of one request. It never has the query, headers or body, which may contain secrets or personal data.
#[derive(Debug)]
pub struct AccessLogEntry<'a> {
    /// The method as sent.
    pub method: &'a str,
    /// The path as sent. [`AccessLogEntry::write`] escapes it.
    pub path: &'a str,
    /// The HTTP status of the response.
    pub status: u16,
    /// From the complete request to its response.
    pub duration: Duration,
    /// The tenant's name; empty if the request was not authenticated.
    pub tenant: &'a str,
    /// The first 8 characters of the API key; empty if the request was not authenticated.
    pub key: &'a str,
    /// The value of `X-Request-Id`.
    pub request_id: Uuid,
    /// The client's address.
    pub client: IpAddr,
}

impl AccessLogEntry<'_> {
    /// Writes the entry at level INFO, with the target `request`.
    pub fn write(&self) {
        tracing::info!(
            target: "request",
            method = self.method,
            path = %without_key(&printable(self.path)),
            status = self.status,
            // Whole microseconds: 0.076 in place of 0.07592600000000001.
            duration_ms = (self.duration.as_secs_f64() * 1e6).round() / 1e3,
            tenant = self.tenant,
            key = self.key,
            request_id = %self.request_id,
            client = %self.client,
        );
    }
}

/// Percent-encodes every byte that is not printable ASCII. In a terminal, control characters would take effect and bidirectional
/// ones would reorder the text (contract section 11).
pub fn printable(text: &str) -> Cow<'_, str> {
    const UNPRINTABLE: &AsciiSet = &CONTROLS.add(b' ');
    utf8_percent_encode(text, UNPRINTABLE).into()
}

/// Truncates an API key in the path to its prefix. Clients sometimes send a key in the wrong place.
fn without_key(path: &str) -> Cow<'_, str> {
    match path.find(KEY_START).and_then(|at| path.get(..at + PREFIX_LENGTH).filter(|kept| kept.len() < path.len())) {
        Some(kept) => format!("{kept}…").into(),
        None => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_printable_ascii_is_encoded_once() {
        assert_eq!(printable("/a%41?b=~"), "/a%41?b=~");
        assert_eq!(printable("\u{7f}\n \u{9b}\u{202e}ü"), "%7F%0A%20%C2%9B%E2%80%AE%C3%BC");
    }

    #[test]
    fn a_key_in_the_path_is_truncated() {
        assert_eq!(without_key("/customers.php"), "/customers.php");
        assert_eq!(without_key("/v1/tdk_abcdefgh"), "/v1/tdk_abcd…");
        assert_eq!(without_key("/tdk_"), "/tdk_");
    }
}
