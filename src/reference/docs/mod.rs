//! The documentation page (`/docs`), made from the OpenAPI document.

#![expect(clippy::indexing_slicing, reason = "a member that a JSON value lacks reads as null")]

mod page;

use std::sync::LazyLock;

use crate::api::routes::PREFIX;
use crate::html::{self, HTML, Policy};
use crate::http::{Request, Response};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

static POLICY: LazyLock<Policy> =
    LazyLock::new(|| Policy::new(&[html::BASE_STYLE, STYLE], &[SCRIPT]));

/// Rendered once: it is large, and anyone may ask for it. `{origin}` stands for scheme, host and
/// port, `{prefix}` for `/v1` or nothing. Writing to a `String` does not fail.
static PAGE: LazyLock<String> = LazyLock::new(|| page::render().unwrap_or_default());

/// Returns the page. Its examples use the address of the request.
pub fn respond(request: &Request) -> Response {
    let prefix = if request.path.starts_with(PREFIX) { PREFIX } else { "" };
    let page = PAGE.replace("{prefix}", prefix).replace("{origin}", &origin(request));
    html::protect(Response::new(200, HTML, page.into_bytes()), &POLICY)
}

/// The address that the client used. The header `Host` counts only if it is a plain name or address
/// with an optional port.
fn origin(request: &Request) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let is_plain = |host: &&str| !host.is_empty() && host.len() <= 255 && host.chars().all(allowed);
    let host = request.header("host").filter(is_plain).unwrap_or("127.0.0.1:8080");
    format!("{}://{host}", if request.secure { "https" } else { "http" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::http::{ErrorCode, Method};
    use crate::reference::openapi::DOCUMENT;

    fn page(host: &str) -> String {
        let mut request = Request::new(Method::GET, "/v1/docs", Clock::system().now());
        request.headers.insert("host", host.parse().unwrap());
        String::from_utf8(respond(&request).into_inner().into_body().into_owned()).unwrap()
    }

    #[test]
    fn the_page_is_complete_small_and_self_contained() {
        let page = page("api.example:8443");
        assert!(page.len() < 150 * 1024, "{}", page.len());
        assert!(page.contains("http://api.example:8443/v1/customers.php"));
        for code in ErrorCode::all() {
            assert!(page.contains(&format!("id=\"{}\"", code.describe().code)), "{code:?}");
        }
        for item in DOCUMENT["paths"].as_object().unwrap().values() {
            for (method, operation) in item.as_object().unwrap() {
                if !operation.is_object() || method == "head" {
                    continue;
                }
                let anchor = format!("id=\"{}\"", operation["operationId"].as_str().unwrap());
                let is_shown = operation["tags"][0] != "service";
                assert_eq!(page.contains(&anchor), is_shown, "{anchor}");
            }
        }
        for outside in
            ["src=\"", "<link rel=\"stylesheet", "@import", "url(", "href=\"http", "{origin}"]
        {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_host_that_is_no_plain_name_stays_out_of_the_page() {
        for host in ["<script>", "a\"b", "a'b", "a b", "a/b", "{prefix}", ""] {
            assert!(page(host).contains("http://127.0.0.1:8080/v1/customers.php"), "{host}");
        }
    }
}
