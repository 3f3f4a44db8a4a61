//! What the HTML pages share: the security headers, the style, and text as HTML.
//!
//! A page holds everything it needs. Its policy lets a browser run and apply exactly the scripts and styles that it was
//! made with, known by their SHA-256, and load nothing else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::http::Response;

/// Colours, type, buttons, forms, tables and focus, light and dark. A page's own style comes after it, in a `<style>` of
/// its own.
pub const BASE_STYLE: &str = include_str!("base.css");

/// The type of every page.
pub const HTML: &str = "text/html; charset=utf-8";

/// The names of the headers that every page has, for the reference.
pub const HEADERS: [&str; 4] =
    ["Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy"];

/// The value of `Content-Security-Policy` for one page; made once.
#[derive(Clone, Debug)]
pub struct Policy(String);

impl Policy {
    /// Allows these styles and scripts, each the exact text between its tags, forms that go to this host, and nothing else.
    pub fn new(styles: &[&str], scripts: &[&str]) -> Policy {
        Policy(format!(
            "default-src 'none'; style-src {}; script-src {}; img-src data:; form-action 'self'; base-uri 'none'; \
             frame-ancestors 'none'",
            sources(styles),
            sources(scripts)
        ))
    }

    /// The page's scripts may also send requests to this host.
    #[must_use]
    pub fn with_requests(self) -> Policy {
        Policy(format!("{}; connect-src 'self'", self.0))
    }
}

fn sources(texts: &[&str]) -> String {
    let hashes: Vec<String> =
        texts.iter().map(|text| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))).collect();
    if hashes.is_empty() { "'none'".to_owned() } else { hashes.join(" ") }
}

/// A page with the headers that every page has. It is not to be framed, guessed at, or told of to others.
pub fn page(status: u16, body: String, policy: &Policy) -> Response {
    protect(Response::new(status, HTML, body.into_bytes()), policy)
}

/// Adds the headers that every page has, also to what is none itself, such as a redirect between pages.
pub fn protect(response: Response, policy: &Policy) -> Response {
    response
        .header("Content-Security-Policy", policy.0.clone())
        .header("X-Frame-Options", "DENY")
        .header("X-Content-Type-Options", "nosniff")
        .header("Referrer-Policy", "no-referrer")
}

/// `text` with what has a meaning in HTML escaped, for element content and quoted attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// One paragraph as HTML: escaped, with `code` between back quotes.
pub fn paragraph(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    pieces
        .map(|(at, piece)| if at % 2 == 1 { format!("<code>{}</code>", escape(piece)) } else { escape(piece) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_each_part_by_its_hash() {
        let policy = Policy::new(&["body{}", "p{}"], &[]);
        // printf 'body{}' | openssl dgst -sha256 -binary | base64
        assert!(
            policy.0.contains("style-src 'sha256-fJgEClQWV1hGkK4qHMO0KotTsVnMYMXTq7/suurGyUo=' 'sha256-"),
            "{policy:?}"
        );
        assert!(policy.0.contains("script-src 'none'"));
        assert!(!policy.0.contains("unsafe") && !policy.0.contains("connect-src"));
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(paragraph("a <b> `\"c\" & 'd'`"), "a &lt;b&gt; <code>&quot;c&quot; &amp; &#39;d&#39;</code>");
    }
}
