//! A document that is the same for every client. It is compressed once, not at each request.

use std::io::Write as _;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::api::precondition::is_unchanged;
use crate::http::{Request, Response};

/// A document with and without gzip.
pub(super) struct Compressed {
    media_type: &'static str,
    plain: Encoded,
    gzip: Option<Encoded>,
}

/// The bytes with their `ETag`. RFC 9110 section 8.8.3 wants another one for each encoding.
struct Encoded {
    bytes: Vec<u8>,
    etag: String,
}

impl Compressed {
    pub(super) fn new(media_type: &'static str, plain: Vec<u8>) -> Compressed {
        let gzip = gzip(&plain).ok().map(Encoded::new);
        Compressed { media_type, plain: Encoded::new(plain), gzip }
    }

    /// The document as the request asks for it, or 304. Caches keep it, and ask whether it has
    /// changed before they use it.
    pub(super) fn respond(&'static self, request: &Request) -> Response {
        let gzip = self.gzip.as_ref().filter(|_| accepts_gzip(request));
        let Encoded { bytes, etag } = gzip.unwrap_or(&self.plain);
        let response = if is_unchanged(request, etag) {
            Response::empty(304)
        } else {
            let whole = Response::new(200, self.media_type, bytes.as_slice());
            whole.with(gzip.map(|_| ("Content-Encoding", "gzip")))
        };
        response
            .header("ETag", etag.as_str())
            .header("Cache-Control", "no-cache")
            .header("Vary", "Accept-Encoding")
    }
}

impl Encoded {
    fn new(bytes: Vec<u8>) -> Encoded {
        let digest = Base64UrlUnpadded::encode_string(&Sha256::digest(&bytes));
        Encoded { etag: format!("\"{digest:.16}\""), bytes }
    }
}

fn gzip(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain)?;
    encoder.finish()
}

/// Whether the header names gzip or `*`, and not with the weight 0 (RFC 9110 section 12.5.3).
fn accepts_gzip(request: &Request) -> bool {
    request.headers("accept-encoding").flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().trim_start_matches(['q', 'Q', '=', ' ']);
        let is_zero = !weight.is_empty() && weight.chars().all(|c| matches!(c, '0' | '.'));
        matches!(name.trim().to_ascii_lowercase().as_str(), "gzip" | "x-gzip" | "*") && !is_zero
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::http::Method;

    #[test]
    fn gzip_is_sent_only_to_clients_that_accept_it() {
        for (value, accepts) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("*", true),
            ("x-gzip ; q=1", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("br, identity", false),
            ("gzipped", false),
            ("", false),
        ] {
            let mut request = Request::new(Method::GET, "/docs", Clock::system().now());
            request.headers.insert("accept-encoding", value.parse().unwrap());
            assert_eq!(accepts_gzip(&request), accepts, "{value}");
        }
    }
}
