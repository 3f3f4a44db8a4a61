//! The protocol between the edge and the workers: HTTP/1.1 over a private Unix socket, with one additional header.
//!
//! Every request has the header [`METADATA_HEADER`]. Clients cannot set it, because the edge forwards only the headers in
//! [`FORWARDED_HEADERS`]. tiny_http accepts only ASCII in headers, so other bytes are percent-encoded.

use std::net::IpAddr;

use percent_encoding::percent_encode_byte;
use uuid::Uuid;

/// The header with the [`RequestMetadata`], in lower case. Only the edge sets it.
pub const METADATA_HEADER: &str = "request-metadata";

/// The headers that the service reads, in lower case. The edge forwards no others, and adds a `content-length` of its own.
pub const FORWARDED_HEADERS: [&str; 11] = [
    "authorization",
    "content-type",
    "content-encoding",
    "idempotency-key",
    "x-request-id",
    "cookie",
    "host",
    "origin",
    "if-match",
    "if-none-match",
    "accept",
];

/// The value of [`METADATA_HEADER`] in a probe. The server responds to it with 204 and does not call the handler.
pub const PROBE: &str = "probe";

/// What the edge knows about a request beyond its HTTP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMetadata {
    /// The request id.
    pub id: Uuid,
    /// The client's address.
    pub client: IpAddr,
    /// The request arrived over HTTPS.
    pub secure: bool,
    /// The body was too large and is not forwarded.
    pub body_too_large: bool,
}

impl RequestMetadata {
    /// Encodes the header value `ID ADDRESS SECURE TOO_LARGE`. The last two are `1` or `0`.
    pub fn encode(&self) -> String {
        format!("{} {} {} {}", self.id, self.client, u8::from(self.secure), u8::from(self.body_too_large))
    }

    /// Decodes what [`RequestMetadata::encode`] returned. Returns `None` for any other text.
    pub fn decode(text: &str) -> Option<RequestMetadata> {
        let mut parts = text.split(' ');
        let id = parts.next()?.parse().ok()?;
        let client = parts.next()?.parse().ok()?;
        let secure = parts.next()? == "1";
        let body_too_large = parts.next()? == "1";
        Some(RequestMetadata { id, client, secure, body_too_large })
    }
}

/// Appends `value` to `into`. Every byte that is not printable ASCII, and `%`, is percent-encoded.
pub fn escape(value: &[u8], into: &mut Vec<u8>) {
    for &byte in value {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            into.push(byte);
        } else {
            into.extend_from_slice(percent_encode_byte(byte).as_bytes());
        }
    }
}

/// Decodes what [`escape`] appended. The bytes are decoded as Latin-1.
pub fn unescape(value: &str) -> String {
    if !value.contains('%') {
        return value.to_owned();
    }
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        text.push(byte.map_or('%', char::from));
        rest = if byte.is_some() { after.get(2..).unwrap_or("") } else { after };
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_decoded_as_it_was_encoded() {
        let metadata = RequestMetadata {
            id: Uuid::new_v4(),
            client: "2001:db8::1".parse().unwrap(),
            secure: true,
            body_too_large: false,
        };
        assert_eq!(RequestMetadata::decode(&metadata.encode()), Some(metadata));
        assert_eq!(RequestMetadata::decode("probe"), None);
    }

    #[test]
    fn every_byte_is_unescaped_as_it_was() {
        let all: Vec<u8> = (0..=255).collect();
        let mut escaped = Vec::new();
        escape(&all, &mut escaped);
        assert!(escaped.iter().all(|byte| (0x20..0x7f).contains(byte)));
        let back: Vec<u32> = unescape(std::str::from_utf8(&escaped).unwrap()).chars().map(u32::from).collect();
        assert_eq!(back, (0..=255).collect::<Vec<u32>>());
    }
}
