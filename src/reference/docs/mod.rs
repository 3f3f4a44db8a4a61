//! The documentation page (`/docs`), generated from the same declarations as the OpenAPI document.

mod samples;

use std::sync::LazyLock;

use askama::Template;
use askama::filters::Escaper as _;
use serde_json::Value;

use self::samples::{Language, Sample};
use super::openapi::{self, Target, operation_id};
use crate::api::batch;
use crate::api::changes;
use crate::api::list::{self, Bound, filters, sortable};
use crate::api::query::QueryParameter;
use crate::api::routes::{BATCH_PATH, CHANGES_PATH, Operation, PREFIX};
use crate::capitalize::capitalize;
use crate::html::{self, Policy};
use crate::http::{ApiError, Condition};
use crate::http::{Method, Request, Response};
use crate::model::FieldCode;
use crate::model::{ALL, Access, Column, Field, Kind, Resource, Scope};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new(&[html::BASE_STYLE, STYLE], &[SCRIPT]).with_requests());

/// Stands for scheme, host and port in a page that is rendered once.
const ORIGIN: &str = "http://origin.invalid";

/// The pages of `/docs` and `/v1/docs`.
static PAGES: LazyLock<[String; 2]> = LazyLock::new(|| ["", PREFIX].map(render));

fn render(prefix: &'static str) -> String {
    let rendered = DocsPage::new(&Address { origin: ORIGIN.to_owned(), prefix }).render();
    rendered
        .inspect_err(|error| tracing::error!(%error, "the documentation page could not be rendered"))
        .unwrap_or_default()
}

/// Returns the page. Its examples use the address of the request.
pub fn respond(request: &Request) -> Response {
    let Address { origin, prefix } = Address::of(request);
    let [bare, prefixed] = &*PAGES;
    let page = if prefix.is_empty() { bare } else { prefixed };
    match page.is_empty() {
        false => html::page(200, page.replace(ORIGIN, &origin), &POLICY),
        true => ApiError::internal().into(),
    }
}

/// The address at which the client reached the service.
struct Address {
    /// Scheme, host and port.
    origin: String,
    /// `/v1` if the path begins with it, otherwise empty.
    prefix: &'static str,
}

impl Address {
    /// Uses the header `Host` only if it is a plain name or address with an optional port.
    fn of(request: &Request) -> Address {
        let host = request.header("host").filter(|host| is_plain_host(host)).unwrap_or("127.0.0.1:8080");
        let scheme = if request.secure { "https" } else { "http" };
        let prefix = if request.path.starts_with(PREFIX) { PREFIX } else { "" };
        Address { origin: format!("{scheme}://{host}"), prefix }
    }
}

fn is_plain_host(host: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    !host.is_empty() && host.len() <= 255 && host.chars().all(allowed)
}

#[derive(Template)]
#[template(path = "reference/docs/page.html")]
struct DocsPage {
    base_style: &'static str,
    style: &'static str,
    script: &'static str,
    base: String,
    prefix: &'static str,
    languages: [Language; 3],
    /// Anchor, heading and paragraph.
    sections: Vec<(&'static str, &'static str, String)>,
    resources: Vec<ResourceView>,
    changes: OperationView,
    batch: OperationView,
    errors: Vec<ErrorView>,
    field_codes: Vec<(&'static str, &'static str)>,
}

struct ResourceView {
    title: String,
    plural: &'static str,
    about: &'static str,
    fields: Vec<FieldView>,
    operations: Vec<OperationView>,
    record: String,
}

/// A field or a parameter.
struct FieldView {
    name: String,
    values: String,
    about: String,
    required: bool,
}

struct OperationView {
    id: String,
    /// A second anchor of the operation.
    alias: Option<String>,
    verb: &'static str,
    name: String,
    method: String,
    target: String,
    summary: String,
    /// What the key needs, as HTML.
    scope: String,
    /// An example of a body, for the form.
    body: Option<String>,
    parameters: Vec<FieldView>,
    filters: Vec<FieldView>,
    /// The columns for `sort`.
    columns: String,
    /// The anchor of the record that the response has, if it is not shown here.
    record: &'static str,
    samples: Vec<Sample>,
    status: u16,
    response: Option<String>,
    errors: Vec<&'static str>,
}

struct ErrorView {
    code: &'static str,
    status: u16,
    meaning: String,
    remedy: String,
}

impl DocsPage {
    fn new(address: &Address) -> DocsPage {
        DocsPage {
            base_style: html::BASE_STYLE,
            style: STYLE,
            script: SCRIPT,
            base: format!("{}{}", address.origin, address.prefix),
            prefix: address.prefix,
            languages: Language::ALL,
            sections: openapi::SECTIONS.map(|(id, title, text)| (id, title, paragraph(text))).into(),
            resources: ALL.into_iter().map(|resource| ResourceView::new(resource, address)).collect(),
            changes: changes_view(address),
            batch: batch_view(address),
            errors: Condition::all().map(ErrorView::new).collect(),
            field_codes: FieldCode::ALL.iter().map(|(code, meaning)| (code.as_str(), *meaning)).collect(),
        }
    }
}

impl ErrorView {
    fn new(condition: Condition) -> ErrorView {
        let about = condition.describe();
        ErrorView {
            code: about.code,
            status: about.status,
            meaning: paragraph(about.meaning),
            remedy: paragraph(about.remedy),
        }
    }
}

impl ResourceView {
    fn new(resource: &'static Resource, address: &Address) -> ResourceView {
        ResourceView {
            title: capitalize(resource.plural),
            plural: resource.plural,
            about: resource.about,
            fields: fields(resource),
            operations: DocumentedOperation::ALL
                .into_iter()
                .map(|operation| operation.view(resource, address))
                .collect(),
            record: indented(&openapi::record_example(resource)),
        }
    }
}

fn fields(resource: &'static Resource) -> Vec<FieldView> {
    let read_only = |name: &str, values: &str, about: &str| FieldView {
        name: name.to_owned(),
        values: format!("{values}, read-only"),
        about: paragraph(about),
        required: false,
    };
    let own = resource.fields.iter().map(|field| FieldView {
        name: field.name.to_owned(),
        values: values(field),
        about: paragraph(field.about),
        required: field.required,
    });
    [read_only("id", "integer", "The number of the record. It is never reused.")]
        .into_iter()
        .chain(own)
        .chain([
            read_only("created_at", "timestamp", "The time of creation."),
            read_only("updated_at", "timestamp", "The time of the last change."),
        ])
        .collect()
}

/// The values of a field in a few words.
fn values(field: &Field) -> String {
    let mut words = match field.kind {
        Kind::Text { min: 0, max } => format!("text, at most {max}"),
        Kind::Text { min, max } if min == max => format!("text, exactly {max}"),
        Kind::Text { min, max } => format!("text, {min} to {max}"),
        Kind::Email => "e-mail address".to_owned(),
        Kind::Integer => "integer".to_owned(),
        Kind::Boolean => "true or false".to_owned(),
        Kind::Date => "date".to_owned(),
        Kind::Choice(allowed) => allowed.join(" · "),
    };
    if let Some(target) = Resource::referenced(field) {
        words = format!("id of {} {}", openapi::article(target.name), target.name);
    }
    if let Some(default) = field.default {
        words = format!("{words}; default {default}");
    }
    words
}

fn indented(value: &Value) -> String {
    format!("{value:#}")
}

/// An operation of the page. It shows GET as two operations: reading a record and listing records.
#[derive(Clone, Copy, PartialEq)]
enum DocumentedOperation {
    List,
    Read,
    Create,
    Update,
    Delete,
}

impl DocumentedOperation {
    const ALL: [DocumentedOperation; 5] = [
        DocumentedOperation::List,
        DocumentedOperation::Read,
        DocumentedOperation::Create,
        DocumentedOperation::Update,
        DocumentedOperation::Delete,
    ];

    const fn operation(self) -> (Method, Operation, Access) {
        match self {
            DocumentedOperation::List | DocumentedOperation::Read => (Method::GET, Operation::Read, Access::Read),
            DocumentedOperation::Create => (Method::POST, Operation::Create, Access::Write),
            DocumentedOperation::Update => (Method::PUT, Operation::Update, Access::Write),
            DocumentedOperation::Delete => (Method::DELETE, Operation::Delete, Access::Write),
        }
    }

    fn name(self, resource: &Resource) -> String {
        match self {
            DocumentedOperation::List => format!("List {}", resource.plural),
            DocumentedOperation::Read => format!("Read {} {}", openapi::article(resource.name), resource.name),
            DocumentedOperation::Create => format!("Create {} {}", openapi::article(resource.name), resource.name),
            DocumentedOperation::Update => format!("Change {} {}", openapi::article(resource.name), resource.name),
            DocumentedOperation::Delete => format!("Delete {} {}", openapi::article(resource.name), resource.name),
        }
    }

    /// The name without the resource's.
    const fn verb(self) -> &'static str {
        match self {
            DocumentedOperation::List => "List",
            DocumentedOperation::Read => "Read",
            DocumentedOperation::Create => "Create",
            DocumentedOperation::Update => "Change",
            DocumentedOperation::Delete => "Delete",
        }
    }

    const fn summary(self) -> &'static str {
        match self {
            DocumentedOperation::List => {
                "A page of the records that match every filter and have every word of `q`. HEAD returns the same without the body."
            }
            DocumentedOperation::Read => "The record with this id. HEAD returns the same without the body.",
            DocumentedOperation::Create => "The response is the new record; `Location` is its path.",
            DocumentedOperation::Update => {
                "Only the fields that the body names change. The response is the whole record after the change."
            }
            DocumentedOperation::Delete => "The response has no body. A record that others refer to is not deleted.",
        }
    }

    /// The query in the heading and in the examples.
    const fn query(self) -> &'static str {
        match self {
            DocumentedOperation::List => "?limit=20&sort=-updated_at",
            DocumentedOperation::Create => "",
            DocumentedOperation::Read | DocumentedOperation::Update | DocumentedOperation::Delete => "?id=1",
        }
    }

    fn body(self, resource: &'static Resource) -> Option<Value> {
        match self {
            DocumentedOperation::Create => Some(samples::short(resource)),
            DocumentedOperation::Update => Some(openapi::update_example(resource)),
            DocumentedOperation::List | DocumentedOperation::Read | DocumentedOperation::Delete => None,
        }
    }

    fn response(self, resource: &'static Resource) -> (u16, Option<Value>) {
        match self {
            DocumentedOperation::List => (200, Some(openapi::page_example(resource))),
            // The record is shown once, beside the fields.
            DocumentedOperation::Read | DocumentedOperation::Update => (200, None),
            DocumentedOperation::Create => (201, None),
            DocumentedOperation::Delete => (204, None),
        }
    }

    fn view(self, resource: &'static Resource, address: &Address) -> OperationView {
        let (method, operation, access) = self.operation();
        let id = match self {
            DocumentedOperation::Read => format!("get{}-id", capitalize(resource.plural)),
            _ => operation_id(&method, operation, resource),
        };
        let alias = (self == DocumentedOperation::List).then(|| operation_id(&Method::HEAD, operation, resource));
        let body = self.body(resource);
        let (status, response) = self.response(resource);
        let target = format!("{}{}", resource.path, self.query());
        let address = format!("{}{}{target}", address.origin, address.prefix);
        let conditions = Target::Records(operation, resource).conditions();
        OperationView {
            id,
            alias,
            verb: self.verb(),
            name: self.name(resource),
            method: method.to_string(),
            summary: paragraph(self.summary()),
            scope: paragraph(&format!("the scope `{}`", Scope { resource, access })),
            parameters: self.parameters(),
            filters: if self == DocumentedOperation::List { list_filters(resource) } else { Vec::new() },
            columns: sortable(resource).map(Column::name).collect::<Vec<_>>().join(", "),
            record: resource.plural,
            samples: samples::of(&method, &address, body.as_ref()),
            body: body.as_ref().map(indented),
            target,
            status,
            response: response.as_ref().map(indented),
            errors: conditions
                .into_iter()
                .filter(|condition| self.can_fail_with(*condition))
                .map(|c| c.describe().code)
                .collect(),
        }
    }

    /// Whether this half of the operation can fail with a condition of the operation.
    fn can_fail_with(self, condition: Condition) -> bool {
        !(self == DocumentedOperation::List && condition == Condition::NotFound)
    }

    fn parameters(self) -> Vec<FieldView> {
        let id = || parameter("id", "integer", "The record. It excludes every other parameter.", true);
        let version = |name: &str, about: &str| parameter(name, "header, entity tags", about, false);
        let if_match =
            || version("If-Match", "The `ETag` that the record must still have. Without it the last change wins.");
        let retry = || parameter("Idempotency-Key", "header, UUID", "A new one for every new request.", false);
        match self {
            DocumentedOperation::List => list::PARAMETERS.iter().map(declared).collect(),
            DocumentedOperation::Read => {
                vec![
                    id(),
                    version("If-None-Match", "The `ETag` that you know. An unchanged record is 304 without a body."),
                ]
            }
            DocumentedOperation::Create => vec![retry()],
            DocumentedOperation::Update | DocumentedOperation::Delete => vec![id(), if_match(), retry()],
        }
    }
}

fn parameter(name: &str, values: &str, about: &str, required: bool) -> FieldView {
    FieldView { name: name.to_owned(), values: values.to_owned(), about: paragraph(about), required }
}

fn declared<Subject>(declared: &QueryParameter<Subject>) -> FieldView {
    parameter(declared.name, &(declared.values)(), declared.about, false)
}

/// The journal.
fn changes_view(address: &Address) -> OperationView {
    let target = format!("{CHANGES_PATH}?limit=20");
    let scopes: Vec<String> = changes::scopes().iter().map(|scope| format!("`{scope}`")).collect();
    let url = format!("{}{}{target}", address.origin, address.prefix);
    OperationView {
        id: openapi::changes_operation_id(&Method::GET).to_owned(),
        alias: Some(openapi::changes_operation_id(&Method::HEAD).to_owned()),
        verb: "Follow",
        name: "Follow changes".to_owned(),
        method: Method::GET.to_string(),
        target,
        summary: paragraph(CHANGES_SUMMARY),
        scope: paragraph(&format!("one of the scopes {}", scopes.join(", "))),
        body: None,
        parameters: changes::PARAMETERS.iter().map(declared).collect(),
        filters: Vec::new(),
        columns: String::new(),
        record: "",
        samples: samples::of(&Method::GET, &url, None),
        status: 200,
        response: Some(indented(&openapi::changes_example())),
        errors: Target::Changes.conditions().into_iter().map(|condition| condition.describe().code).collect(),
    }
}

const CHANGES_SUMMARY: &str = "The journal of the tenant: one entry for each record that was created, changed or deleted, in the order \
    of the commits. Keep `next_cursor` and ask again for what came since. Entries of resources that the key may not read are left out.";

/// Batches.
fn batch_view(address: &Address) -> OperationView {
    let scopes: Vec<String> = batch::scopes().iter().map(|scope| format!("`{scope}`")).collect();
    let url = format!("{}{}{BATCH_PATH}", address.origin, address.prefix);
    let body = openapi::batch_example();
    OperationView {
        id: openapi::BATCH_OPERATION_ID.to_owned(),
        alias: None,
        verb: "Run",
        name: "Run a batch".to_owned(),
        method: Method::POST.to_string(),
        target: BATCH_PATH.to_owned(),
        summary: paragraph(BATCH_SUMMARY),
        scope: paragraph(&format!("those of the scopes {} that its operations need", scopes.join(", "))),
        parameters: vec![parameter("Idempotency-Key", "header, UUID", "A new one for every new batch.", false)],
        filters: Vec::new(),
        columns: String::new(),
        record: "",
        samples: samples::of(&Method::POST, &url, Some(&body)),
        body: Some(indented(&body)),
        status: 200,
        response: Some(indented(&openapi::batch_results_example())),
        errors: Target::Batch.conditions().into_iter().map(|condition| condition.describe().code).collect(),
    }
}

const BATCH_SUMMARY: &str = "Up to 100 changes in one transaction, all or none. An operation has `method` (POST, PUT or DELETE), `path` \
    with its `id`, and, as such a request would, `body` and `if_match`. `{\"result\": 0}` in place of a reference stands for the \
    record that operation 0 creates. An error has the number of the operation as `operation`.";

/// The filters. The bounds of a range are listed with their field.
fn list_filters(resource: &'static Resource) -> Vec<FieldView> {
    let mut views: Vec<FieldView> = Vec::new();
    for filter in filters(resource) {
        let name = filter.name.clone();
        let values = match filter.column {
            Column::Referenced { resource, field, .. } => format!("{}, the {}'s", values(field), resource.name),
            Column::Field(field) => match field.kind {
                Kind::Text { .. } => "text".to_owned(),
                Kind::Choice(allowed) => allowed.join(" · "),
                _ => values(&Field { default: None, ..*field }),
            },
            Column::Id | Column::CreatedAt | Column::UpdatedAt => "timestamp".to_owned(),
        };
        match (filter.bound, views.last_mut()) {
            (Bound::Equal, _) | (_, None) => {
                views.push(FieldView { name, values, about: String::new(), required: false });
            }
            (_, Some(last)) => last.about = format!("{} {name}", last.about),
        }
    }
    views
}

/// Converts one paragraph to HTML: escaped, with `code` between back quotes.
fn paragraph(text: &str) -> String {
    let mut html = String::new();
    for (at, piece) in text.split('`').enumerate() {
        let (before, after) = if at % 2 == 1 { ("<code>", "</code>") } else { ("", "") };
        html.push_str(before);
        // Writing to a `String` cannot fail.
        let _ = askama::filters::Html.write_escaped_str(&mut html, piece);
        html.push_str(after);
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn page(host: &str) -> String {
        let mut request = Request::new(Method::GET, "/v1/docs", Clock::system().now());
        request.headers.insert("host", host.parse().unwrap());
        String::from_utf8(respond(&request).body().to_vec()).unwrap()
    }

    #[test]
    fn the_page_is_complete_small_and_self_contained() {
        let page = page("api.example:8443");
        assert!(page.len() < 150 * 1024, "{}", page.len());
        assert!(page.contains("http://api.example:8443/v1/customers.php"));
        for condition in Condition::all() {
            assert!(page.contains(&format!("id=\"{}\"", condition.describe().code)), "{condition:?}");
        }
        for resource in ALL {
            for (method, operation, _) in crate::api::routes::OPERATIONS {
                assert!(page.contains(&format!("id=\"{}\"", operation_id(&method, operation, resource))), "{method:?}");
            }
        }
        for outside in ["src=\"", "<link rel=\"stylesheet", "@import", "url(", "href=\"http"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_host_that_is_no_plain_name_stays_out_of_the_page() {
        for host in ["<script>", "a\"b", "a'b", "a b", "a/b", ""] {
            assert!(page(host).contains("http://127.0.0.1:8080/v1/customers.php"), "{host}");
        }
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(paragraph("a <b> `\"c\" & 'd'`"), "a &#60;b&#62; <code>&#34;c&#34; &#38; &#39;d&#39;</code>");
    }
}
