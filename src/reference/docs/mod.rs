//! The documentation page (`/docs`).

mod page;

use std::sync::LazyLock;

use super::compressed::Compressed;
use crate::html::{self, HTML};
use crate::http::{Request, Response};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

static POLICY: LazyLock<String> = LazyLock::new(|| html::policy(STYLE, SCRIPT));

/// Rendered once: it is large, and anyone may ask for it. Writing to a `String` does not fail.
static PAGE: LazyLock<Compressed> =
    LazyLock::new(|| Compressed::new(HTML, page::render().unwrap_or_default().into_bytes()));

/// Returns the page.
pub fn respond(request: &Request) -> Response {
    html::protect(PAGE.respond(request), &POLICY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ErrorCode;
    use crate::reference::openapi::DOCUMENT;

    #[test]
    fn the_page_is_complete_small_and_self_contained() {
        let page = page::render().unwrap();
        assert!(page.len() < 150 * 1024, "{}", page.len());
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
        for outside in ["src=\"", "<link rel=\"stylesheet", "@import", "url(", "href=\"http"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
