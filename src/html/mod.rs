//! The security headers and the base style of the HTML pages.
//!
//! A page loads nothing. Its Content-Security-Policy permits only its own scripts and styles, by
//! their SHA-256.

use base64ct::{Base64, Encoding as _};
use sha2::{Digest, Sha256};

use crate::http::Response;

/// Colours, fonts, buttons, forms, tables and focus, for light and dark mode. A page adds its own
/// style in a second `<style>`.
pub const BASE_STYLE: &str = include_str!("base.css");

/// The media type of every page.
pub const HTML: &str = "text/html; charset=utf-8";

/// The `Content-Security-Policy` of a page with [`BASE_STYLE`], one style and one script, given as
/// the exact text between their tags. It permits forms that are sent to this host.
pub fn policy(style: &str, script: &str) -> String {
    let hash = |text: &str| {
        format!("'sha256-{}'", Base64::encode_string(&Sha256::digest(text.as_bytes())))
    };
    format!(
        "default-src 'none'; style-src {} {}; script-src {}; img-src data:; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
        hash(BASE_STYLE),
        hash(style),
        hash(script)
    )
}

/// Adds the security headers to a page or a redirect.
pub fn protect(response: Response, policy: &'static str) -> Response {
    response
        .header("Content-Security-Policy", policy)
        .header("X-Frame-Options", "DENY")
        .header("X-Content-Type-Options", "nosniff")
        .header("Referrer-Policy", "no-referrer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_each_part_by_its_hash() {
        let policy = policy("body{}", "a()");
        // printf 'body{}' | openssl dgst -sha256 -binary | base64
        let style = "'sha256-fJgEClQWV1hGkK4qHMO0KotTsVnMYMXTq7/suurGyUo='; script-src 'sha256-";
        assert!(policy.contains(style), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("connect-src"));
    }
}
