//! The route table: a row for each method of each path. Dispatch, `Allow`, scopes, the labels of
//! metrics, and both forms of the API reference come from it.

use Access::{Read, Write};
use http::HeaderMap;

use super::authentication::has_well_formed_key;
use crate::http::request::{MAX_BATCH_BODY, MAX_BODY};
use crate::http::{ApiError, ErrorCode, Method};
use crate::metrics;
use crate::model::validation::{is_positive_integer, shorten};
use crate::model::{ALL, Access, CUSTOMER, EMPLOYEE, HARDWARE, Resource, Scope, Scopes};
use crate::words;

/// The kind of a path.
#[derive(Clone, Copy, Debug)]
pub enum Route {
    /// Operations that need a key.
    Api(&'static [Operation]),
    /// A page without authentication, its `operationId`, and its description.
    Page(PublicPage, &'static str, &'static str),
    /// The panel. It handles every method itself.
    Panel,
}

/// A row of the table: what a method does at a path that needs a key.
#[derive(Debug)]
pub struct Operation {
    pub method: Method,
    /// The kind of scope that a key needs: for the resource, or for any if there is no resource.
    pub needs: Option<Access>,
    pub action: Action,
    /// The `operationId` of the OpenAPI document, and the anchor on the documentation page. In the
    /// texts, `{resource}`, `{Resource}`, `{resources}` and `{Resources}` stand for the names of
    /// the resource.
    pub id: &'static str,
    pub title: &'static str,
    /// Sentences with code between back quotes.
    pub about: &'static str,
}

/// The work of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    Create(&'static Resource),
    Read(&'static Resource),
    Update(&'static Resource),
    Delete(&'static Resource),
    Changes,
    /// Describes the caller's key.
    Whoami,
    /// Makes several changes in one request. Each needs its own scope.
    Batch,
}

/// The pages without authentication and rate limit (contract section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicPage {
    OpenApi,
    Docs,
    /// Whether the process responds.
    Health,
    /// Whether requests can be served.
    Ready,
    /// A redirect to the documentation page.
    Root,
}

pub const PANEL_PATH: &str = "/api_keys.php";

/// The prefix below which all paths with a key, the OpenAPI document and the documentation page are
/// also available (contract section 1).
const PREFIX: &str = "/v1";

#[rustfmt::skip] // A row is a line, with its sentences below.
pub static ROUTES: [(&str, Route); 12] = [
    (CUSTOMER.path, Route::Api(&CUSTOMERS)),
    (EMPLOYEE.path, Route::Api(&EMPLOYEES)),
    (HARDWARE.path, Route::Api(&DEVICES)),
    ("/changes.php", Route::Api(&[
        row(Method::GET, Some(Read), Action::Changes, "listChanges", "Follow changes",
            "One entry for each record that was created, changed or deleted, in the order of the \
             commits. To follow a tenant: ask with `cursor=now` and keep `next_cursor`, read the \
             lists, then ask with the kept cursor again and again. Entries of resources that the \
             key may not read are left out."),
    ])),
    ("/whoami.php", Route::Api(&[
        row(Method::GET, None, Action::Whoami, "getWhoami", "Describe the API key of the request",
            "The tenant, the key and its limit. Needs no scope."),
    ])),
    ("/batch.php", Route::Api(&[
        row(Method::POST, None, Action::Batch, "runBatch", "Run a batch",
            "Up to 100 operations on records in one transaction. If one of them fails, nothing is \
             changed, and the response is its error with the number of the operation as \
             `operation`. Each operation needs its own scope, and only the scopes of the \
             operations in the batch are needed. The batch counts as one request against the rate \
             limit, and one `Idempotency-Key` covers all of it."),
    ])),
    ("/openapi.json", Route::Page(PublicPage::OpenApi, "getDescription", "This document")),
    ("/docs", Route::Page(PublicPage::Docs, "getDocs", "The documentation page")),
    ("/healthz", Route::Page(PublicPage::Health, "getHealth", "Whether the process responds")),
    ("/readyz", Route::Page(PublicPage::Ready, "getReadiness", "Whether requests can be served")),
    ("/", Route::Page(PublicPage::Root, "getRoot", "Redirect to the documentation page")),
    (PANEL_PATH, Route::Panel),
];

static CUSTOMERS: [Operation; 4] = records(&CUSTOMER);
static EMPLOYEES: [Operation; 4] = records(&EMPLOYEE);
static DEVICES: [Operation; 4] = records(&HARDWARE);

#[rustfmt::skip] // As above.
const fn records(resource: &'static Resource) -> [Operation; 4] {
    [
        row(Method::POST, Some(Write), Action::Create(resource),
            "create{Resource}", "Create {resource}",
            "The response is the new record; `Location` is its path. With `update_by`, the \
             request changes the record that is there already."),
        row(Method::GET, Some(Read), Action::Read(resource), "get{Resources}", "Read {resources}",
            "With `id` the record, otherwise a page of the records that match every filter and \
             contain every word of `q`. `custom.room=2.14` filters by a custom field; \
             `null` finds records without it. At most 3 such filters are taken."),
        row(Method::PUT, Some(Write), Action::Update(resource),
            "update{Resource}", "Change {resource}",
            "Only the fields that the body names change. The response is the whole record after \
             the change."),
        row(Method::DELETE, Some(Write), Action::Delete(resource),
            "delete{Resource}", "Delete {resource}",
            "The response has no body. A record that others refer to is not deleted."),
    ]
}

const fn row(
    method: Method,
    needs: Option<Access>,
    action: Action,
    id: &'static str,
    title: &'static str,
    about: &'static str,
) -> Operation {
    Operation { method, needs, action, id, title, about }
}

impl Route {
    /// Whether the path is also available below `/v1`.
    pub const fn is_prefixed(self) -> bool {
        matches!(self, Route::Api(_) | Route::Page(PublicPage::OpenApi | PublicPage::Docs, ..))
    }
}

impl Operation {
    /// Finds the operation of a method. GET also answers HEAD.
    pub fn find(operations: &'static [Operation], method: &Method) -> Option<&'static Operation> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        operations.iter().find(|operation| operation.method == *method)
    }

    /// The error of a method that is not among the operations.
    pub fn not_allowed(operations: &'static [Operation]) -> ApiError {
        let names = operations.iter().map(|operation| match operation.method.as_str() {
            "GET" => "GET, HEAD",
            method => method,
        });
        ApiError::method_not_allowed(&names.collect::<Vec<_>>().join(", "))
    }

    /// The scopes of which a key needs one; empty if it needs none.
    pub fn scopes(&self) -> Scopes {
        match (self.needs, self.action.resource()) {
            (None, _) => Scopes::default(),
            (Some(access), Some(resource)) => Scope { resource, access }.into(),
            (Some(access), None) => Scope::all().filter(|scope| scope.access == access).collect(),
        }
    }
}

impl Action {
    pub const fn resource(self) -> Option<&'static Resource> {
        match self {
            Action::Create(of) | Action::Read(of) | Action::Update(of) | Action::Delete(of) => {
                Some(of)
            }
            Action::Changes | Action::Whoami | Action::Batch => None,
        }
    }
}

/// Finds the route of a path. Returns the path without the prefix, and the route. Paths are
/// compared as sent, without percent-decoding.
pub fn find(path: &str) -> Option<(&'static str, Route)> {
    let bare = path.strip_prefix(PREFIX).unwrap_or(path);
    let is_sent =
        |(known, route): &&(&str, Route)| *known == if route.is_prefixed() { bare } else { path };
    ROUTES.iter().find(is_sent).copied()
}

/// The error of a path that is not in the table. Most other services have the id in the path.
pub fn not_found(path: &str) -> ApiError {
    let (parent, id) = path.rsplit_once('/').unwrap_or_default();
    let resource = ALL.into_iter().find(|resource| parent.ends_with(resource.path));
    let message = match resource {
        Some(_) if find(parent).is_some() && is_positive_integer(id) && id.len() < 20 => {
            format!("Unknown path {path:?}. Did you mean \"{parent}?id={id}\"?")
        }
        _ => {
            let known = ROUTES.iter().map(|(path, _)| *path);
            words::unknown("path", &shorten(path), known)
        }
    };
    ApiError::new(ErrorCode::EndpointNotFound, format!("{message} See /docs."))
}

/// The longest body in bytes that a path takes of a request with these headers. It is none where
/// the request is refused whatever its body is.
pub fn max_body(path: &str, headers: &HeaderMap) -> usize {
    match find(path).map(|(_, route)| route) {
        Some(Route::Api(operations)) if has_well_formed_key(headers) => match operations {
            [Operation { action: Action::Batch, .. }] => MAX_BATCH_BODY,
            _ => MAX_BODY,
        },
        Some(Route::Panel) => MAX_BODY,
        _ => 0,
    }
}

/// The metrics label of a path: the known path without prefix, or [`metrics::OTHER`].
pub fn label(path: &str) -> &'static str {
    find(path).map_or(metrics::OTHER, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_path_without_the_prefix() {
        for path in ["/customers.php", "/changes.php", "/batch.php", "/docs"] {
            assert_eq!((label(path), label(&format!("/v1{path}"))), (path, path));
        }
        assert_eq!(label("/v1/v1/changes.php"), metrics::OTHER);
    }
}
