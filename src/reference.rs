//! The reference of the API: files that are the same for every client. The page `/docs` is
//! [Scalar](https://scalar.com), a script of another project, which shows `/openapi.json`.

use crate::http::response::{HTML, JSON};
use crate::http::{Request, Response};

/// A file in the binary. `build.rs` compresses it.
#[derive(Debug, PartialEq, Eq)]
pub struct Document {
    media_type: &'static str,
    /// `None` for a file that only browsers read. They all accept gzip. To decompress 5 MB for any
    /// request without a key would be an attack's lever.
    plain: Option<&'static [u8]>,
    gzip: &'static [u8],
}

macro_rules! gzip {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".gz"))
    };
}

macro_rules! document {
    ($media_type:expr, $directory:literal, $name:literal) => {
        Document {
            media_type: $media_type,
            plain: Some(include_bytes!(concat!("../", $directory, $name))),
            gzip: gzip!($name),
        }
    };
}

/// So that a browser shows the file, and no page can run it as a script.
const TEXT: &str = "text/plain; charset=utf-8";

/// The OpenAPI document. `make openapi` writes the file.
pub const OPENAPI_TEXT: &str = include_str!("../docs/openapi.json");
pub static OPENAPI: Document = document!(JSON, "docs/", "openapi.json");
pub static PAGE: Document = document!(HTML, "docs/", "page.html");
pub static SCRIPT: Document = Document {
    media_type: "text/javascript; charset=utf-8",
    plain: None,
    gzip: gzip!("scalar.js"),
};
pub static RULES: Document = document!(TEXT, "docs/", "api.md");
pub static GUIDE: Document = document!(TEXT, "docs/", "guide.md");
pub static PYTHON: Document = document!(TEXT, "examples/clients/", "tenantdesk.py");
pub static NODE: Document = document!(TEXT, "examples/clients/", "tenantdesk.mjs");
pub static NODE_TYPES: Document = document!(TEXT, "examples/clients/", "tenantdesk.d.mts");
pub static POWERSHELL: Document = document!(TEXT, "examples/clients/", "TenantDesk.psm1");
pub static SHELL: Document = document!(TEXT, "examples/clients/", "tenantdesk.sh");

/// What Scalar needs, and nothing from another host. A service worker, a frame or a form could act
/// in the name of a visitor who is signed in to the panel.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'none'; \
    form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

impl Document {
    /// The file, or 304. Caches keep it, and ask whether it has changed before they use it.
    pub fn respond(&'static self, request: &Request) -> Response {
        let plain = self.plain.filter(|_| !accepts_gzip(request));
        // gzip ends with the checksum and the length of the file.
        let end = self.gzip.last_chunk().map_or(0, |end| u64::from_be_bytes(*end));
        let encoding = if plain.is_some() { "" } else { "-gzip" };
        let etag = format!("\"{end:016x}{encoding}\"");
        let mut response = if request.is_unchanged(&etag) {
            Response::empty(304)
        } else {
            let response = Response::new(200, self.media_type, plain.unwrap_or(self.gzip));
            response.with(plain.is_none().then_some(("Content-Encoding", "gzip")))
        };
        response = response
            .header("ETag", etag)
            .header("Cache-Control", "no-cache")
            .header("Vary", "Accept-Encoding");
        response.protect(POLICY)
    }
}

fn accepts_gzip(request: &Request) -> bool {
    let mut codings = request.headers("accept-encoding").flat_map(|value| value.split(','));
    codings.any(|coding| coding.trim_start().starts_with("gzip") && !coding.ends_with("q=0"))
}
