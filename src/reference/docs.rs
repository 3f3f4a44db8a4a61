//! The documentation page (`/docs`), from the declarations of the API.

use std::sync::LazyLock;

use askama::Template;
use askama::filters::{Escaper as _, Safe};

use super::compressed::Compressed;
use super::openapi::operations::Operation;
use super::openapi::{ETAG, introduction, tags};
use crate::html::{self, BASE_STYLE, HTML};
use crate::http::error_code::Description;
use crate::http::{ErrorCode, Request, Response};
use crate::model::{CREATED_AT, Field, FieldCode, ID, Kind, Scope, UPDATED_AT};

const STYLE: &str = include_str!("docs/style.css");
const SCRIPT: &str = include_str!("docs/script.js");

/// The examples in the order of the page: a walk through a new tenant. A test runs them.
const EXAMPLES: &str = include_str!("docs/examples.md");

static POLICY: LazyLock<String> = LazyLock::new(|| html::policy(STYLE, SCRIPT));

/// Rendered once, because the page is large and needs no key.
static PAGE: LazyLock<Compressed> = LazyLock::new(|| Compressed::new(HTML, render().into_bytes()));

/// Returns the page.
pub fn respond(request: &Request) -> Response {
    html::protect(PAGE.respond(request), &POLICY)
}

#[derive(Template)]
#[template(path = "reference/docs/page.html")]
struct Page<'a> {
    /// Anchor, heading and text.
    topics: Vec<(String, &'a str, &'a str)>,
    /// The operations of each tag, with its description.
    chapters: Vec<(&'static str, &'static str, Vec<Operation>)>,
    errors: Vec<Description>,
    field_codes: [(FieldCode, &'static str); FieldCode::ALL.len()],
}

/// A request as a command for a shell, and the response to it.
struct Example {
    title: &'static str,
    command: &'static str,
    status: &'static str,
    /// Empty if the response has no body.
    response: &'static str,
}

/// Renders the page. Writing to a `String` does not fail.
fn render() -> String {
    let introduction = introduction();
    let topics = introduction.split("## ").filter_map(|topic| topic.split_once("\n\n"));
    let chapter = |(tag, about)| {
        (tag, about, Operation::all().filter(|one| one.tag == tag).collect::<Vec<_>>())
    };
    let page = Page {
        topics: topics
            .map(|(title, text)| (title.to_lowercase().replace(' ', "-"), title, text))
            .collect(),
        chapters: tags().map(chapter).filter(|(.., operations)| !operations.is_empty()).collect(),
        errors: ErrorCode::all().map(ErrorCode::describe).collect(),
        field_codes: FieldCode::ALL,
    };
    page.render().unwrap_or_default()
}

/// The examples below the heading `id`.
fn examples(id: &str) -> Vec<Example> {
    let heading = format!("\n## {id}\n");
    let below = EXAMPLES.split_once(&heading).map_or("", |(_, below)| below);
    let section = below.split_once("\n## ").map_or(below, |(section, _)| section);
    let example = |text: &'static str| {
        let mut parts = text.split("```");
        let (title, command) =
            (parts.next()?.trim(), parts.next()?.strip_prefix("sh\n")?.trim_end());
        let status = parts.next()?.trim().strip_prefix("Response ")?;
        let response = parts.next().and_then(|block| block.strip_prefix("json\n"));
        Some(Example { title, command, status, response: response.unwrap_or_default().trim_end() })
    };
    section.split("\n### ").filter_map(example).collect()
}

/// The fields of a record, each with its values in a few words.
fn fields(operations: &[Operation]) -> Vec<(&'static Field, String)> {
    let Some(resource) = operations.first().and_then(|one| one.resource) else {
        return Vec::new();
    };
    let written = resource.fields.iter().map(|field| match field.default {
        Some(default) => (field, format!("{}; default {default}", words(field.kind))),
        None => (field, words(field.kind)),
    });
    let read_only = |field: &'static Field| (field, format!("{}, read-only", words(field.kind)));
    let times = [&CREATED_AT, &UPDATED_AT].map(read_only);
    [read_only(&ID)].into_iter().chain(written).chain(times).collect()
}

fn words(kind: Kind) -> String {
    match kind {
        Kind::Text { min: 0, max } => format!("text, at most {max}"),
        Kind::Text { min, max } if min == max => format!("text, exactly {max}"),
        Kind::Text { min, max } => format!("text, {min} to {max}"),
        Kind::Email => "e-mail address".to_owned(),
        Kind::Integer => "integer".to_owned(),
        Kind::Boolean => "true or false".to_owned(),
        Kind::Date => "date".to_owned(),
        Kind::Timestamp => "timestamp".to_owned(),
        Kind::Choice(allowed) => allowed.join(" · "),
        Kind::Custom => "object of texts".to_owned(),
    }
}

/// The effect of an operation and the scopes that it needs.
fn about(operation: &Operation) -> Safe<String> {
    let scopes: Vec<String> = operation.scopes.iter().map(Scope::to_string).collect();
    let scopes = scopes.join("` or `");
    let needs = if scopes.is_empty() { "" } else { &format!(" Needs the scope `{scopes}`.") };
    let is_get = operation.method == "get";
    let head = if is_get { " HEAD returns the same without the body." } else { "" };
    paragraph(&format!("{}{needs}{head}", operation.about))
}

/// Whether a text explains the error code.
fn mentions(text: &str, code: &str) -> bool {
    text.contains(&format!("`{code}`"))
}

/// A paragraph as HTML: escaped, with `code` between back quotes.
fn paragraph(text: &str) -> Safe<String> {
    let mut html = String::new();
    for (at, piece) in text.split('`').enumerate() {
        let (before, after) = if at % 2 == 1 { ("<code>", "</code>") } else { ("", "") };
        html.push_str(before);
        // Writing to a `String` cannot fail.
        let _ = askama::filters::Html.write_escaped_str(&mut html, piece);
        html.push_str(after);
    }
    Safe(html)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::openapi::DOCUMENT;

    #[test]
    fn text_cannot_become_markup() {
        let escaped = "a &#60;b&#62; <code>&#34;c&#34; &#38; &#39;d&#39;</code>";
        assert_eq!(paragraph("a <b> `\"c\" & 'd'`").0, escaped);
    }

    #[test]
    fn each_operation_has_an_example() {
        for operation in Operation::all() {
            assert!(!examples(&operation.id).is_empty(), "{}", operation.id);
        }
    }

    #[test]
    fn the_page_is_complete_small_and_self_contained() {
        let page = render();
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
