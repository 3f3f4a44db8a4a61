//! The access log: one entry for each request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use uuid::Uuid;

use crate::clock::Moment;
use crate::secret::{KEY_START, PREFIX_LENGTH};

/// What the log and the metrics say of a request, whether it could be read or not. It never has the
/// query, headers or body, which may contain secrets or personal data.
#[derive(Clone, Debug)]
pub struct RequestLine {
    pub method: Method,
    /// As sent. [`RequestLine::log`] escapes it.
    pub path: String,
    /// The value of `X-Request-Id`.
    pub id: Uuid,
    pub client: IpAddr,
    /// When the complete request was received.
    pub received_at: Moment,
}

/// Who sent a request. Both are empty if it was not authenticated.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub tenant: String,
    /// The first 8 characters of the API key.
    pub key_prefix: String,
}

impl RequestLine {
    /// Writes the entry at level INFO, with the target `request`. `duration` is from the complete
    /// request to its response.
    pub fn log(&self, caller: &Caller, status: u16, duration: Duration) {
        tracing::info!(
            target: "request",
            method = self.method.as_str(),
            path = %without_key(&printable(&self.path)),
            status,
            // Whole microseconds: 0.076 in place of 0.07592600000000001.
            duration_ms = (duration.as_secs_f64() * 1e6).round() / 1e3,
            tenant = caller.tenant,
            key = caller.key_prefix,
            request_id = %self.id,
            client = %self.client,
        );
    }
}

/// Percent-encodes every byte that is not printable ASCII. In a terminal, control characters would
/// take effect and bidirectional ones would reorder the text (contract section 11).
pub fn printable(text: &str) -> Cow<'_, str> {
    const UNPRINTABLE: &AsciiSet = &CONTROLS.add(b' ');
    utf8_percent_encode(text, UNPRINTABLE).into()
}

/// Truncates an API key in the path to its prefix. Clients sometimes send a key in the wrong place.
fn without_key(path: &str) -> Cow<'_, str> {
    match path
        .find(KEY_START)
        .and_then(|at| path.get(..at + PREFIX_LENGTH).filter(|kept| kept.len() < path.len()))
    {
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
