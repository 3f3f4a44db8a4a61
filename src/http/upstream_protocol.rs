//! What the gate and the server say to each other over the private socket, beyond plain HTTP.
//!
//! Both ends are ours. A request carries one header, [`METADATA_HEADER`], that no client can set, because the gate hands on only
//! the names in [`FORWARDED_HEADERS`]. tiny_http reads nothing but ASCII, so bytes beyond it travel as `%` and two hexadecimal
//! digits.

use std::net::IpAddr;

use percent_encoding::percent_encode_byte;
use uuid::Uuid;

/// The header that only the gate sets, in lower case.
pub const METADATA_HEADER: &str = "gate";

/// The headers that the service reads, in lower case; the gate hands on no others. A line's own `content-length` comes
/// on top.
pub const FORWARDED_HEADERS: [&str; 10] = [
    "authorization",
    "content-type",
    "content-encoding",
    "idempotency-key",
    "x-request-id",
    "cookie",
    "host",
    "origin",
    "if-none-match",
    "accept",
];

/// The metadata of a probe: the server answers it itself, with 204.
pub const PROBE: &str = "probe";

/// What the gate knows about a request that its bytes do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMetadata {
    pub id: Uuid,
    pub client: IpAddr,
    /// The request came by HTTPS.
    pub secure: bool,
    /// The body was larger than the gate keeps, and is not here.
    pub body_too_large: bool,
}

impl RequestMetadata {
    /// `ID ADDRESS SECURE LARGE`, the last two `1` or `0`.
    pub fn encode(&self) -> String {
        format!("{} {} {} {}", self.id, self.client, u8::from(self.secure), u8::from(self.body_too_large))
    }

    /// Reads what [`RequestMetadata::encode`] wrote.
    pub fn decode(text: &str) -> Option<RequestMetadata> {
        let mut parts = text.split(' ');
        let id = parts.next()?.parse().ok()?;
        let client = parts.next()?.parse().ok()?;
        let secure = parts.next()? == "1";
        let body_too_large = parts.next()? == "1";
        Some(RequestMetadata { id, client, secure, body_too_large })
    }
}

/// Appends `value` with every byte that is not printable ASCII, and `%`, written as `%` and two digits.
pub fn escape(value: &[u8], into: &mut Vec<u8>) {
    for &byte in value {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            into.push(byte);
        } else {
            into.extend_from_slice(percent_encode_byte(byte).as_bytes());
        }
    }
}

/// Takes back [`escape`]; the bytes become characters as in Latin-1.
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
    fn a_note_survives_the_way() {
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
    fn every_byte_survives_the_way() {
        let all: Vec<u8> = (0..=255).collect();
        let mut escaped = Vec::new();
        escape(&all, &mut escaped);
        assert!(escaped.iter().all(|byte| (0x20..0x7f).contains(byte)));
        let back: Vec<u32> = unescape(std::str::from_utf8(&escaped).unwrap()).chars().map(u32::from).collect();
        assert_eq!(back, (0..=255).collect::<Vec<u32>>());
    }
}
