//! The log line of a request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use uuid::Uuid;

use crate::secret::{KEY_START, PREFIX_LENGTH};

/// What the log says about one request. Never its query, headers or body: they may hold secrets and personal data.
#[derive(Debug)]
pub struct AccessLogEntry<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    pub duration: Duration,
    /// The tenant's name, where the request got that far.
    pub tenant: &'a str,
    /// The first characters of the key.
    pub key: &'a str,
    pub request_id: Uuid,
    pub client: IpAddr,
}

impl AccessLogEntry<'_> {
    /// Writes the line, with the target `request`.
    pub fn write(&self) {
        tracing::info!(
            target: "request",
            method = self.method,
            path = %without_key(&printable(self.path)),
            status = self.status,
            duration_ms = self.duration.as_secs_f64() * 1e3,
            tenant = self.tenant,
            key = self.key,
            request_id = %self.request_id,
            client = %self.client,
        );
    }
}

/// Text of a request as the log has it: what is not printable ASCII is percent-encoded, byte by byte. A terminal would obey
/// control characters and reorder what follows a bidirectional one (contract section 11).
pub fn printable(text: &str) -> Cow<'_, str> {
    const UNPRINTABLE: &AsciiSet = &CONTROLS.add(b' ');
    utf8_percent_encode(text, UNPRINTABLE).into()
}

/// A client may put a key where it does not belong. Of one in the path, only what tells keys apart is kept.
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
    fn a_key_in_the_path_is_cut() {
        assert_eq!(without_key("/customers.php"), "/customers.php");
        assert_eq!(without_key("/v1/tdk_abcdefgh"), "/v1/tdk_abcd…");
        assert_eq!(without_key("/tdk_"), "/tdk_");
    }
}
