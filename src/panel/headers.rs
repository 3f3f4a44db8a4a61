//! The headers of every answer of the panel, pages and redirects, successes and refusals.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::view::{SCRIPT, STYLE};
use crate::http::Response;

/// Nothing but the page's own style and script, known by their hashes, its own icon and its own forms.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// Adds them.
pub(super) fn protect(response: Response) -> Response {
    response
        .header("Cache-Control", "no-store")
        .header("Content-Security-Policy", POLICY.as_str())
        .header("X-Frame-Options", "DENY")
        .header("X-Content-Type-Options", "nosniff")
        .header("Referrer-Policy", "no-referrer")
}

fn hash(source: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(source)))
}
