//! The table of all paths, with the methods and scopes of those that need a key.

use http::HeaderMap;

use super::authentication::has_well_formed_key;
use crate::http::Method;
use crate::http::request::{MAX_BATCH_BODY, MAX_BODY};
use crate::metrics;
use crate::model::{ALL, Access, Resource, Scope, Scopes};

/// What a path refers to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Route {
    /// A path that needs a key.
    Api(Endpoint),
    /// A path without authentication.
    Page(PublicPage),
    /// The panel. It handles every method itself.
    Panel,
}

/// The paths that need a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Endpoint {
    Records {
        resource: &'static Resource,
        /// `/v1` if the path begins with it, otherwise empty.
        prefix: &'static str,
    },
    Changes,
    /// The caller's key.
    Whoami,
    /// Several changes in one request.
    Batch,
}

/// What a method does at a path with a key. `{resource}`, `{Resource}`, `{resources}` and
/// `{Resources}` in its texts stand for the names of the resource.
#[derive(Debug)]
pub struct Operation {
    pub method: Method,
    pub action: Action,
    /// The `operationId` of the OpenAPI document, and the anchor on the documentation page.
    pub id: &'static str,
    pub title: &'static str,
    /// Sentences with code between back quotes.
    pub about: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Create,
    Read,
    Update,
    Delete,
    Changes,
    Whoami,
    Batch,
}

/// The operations on the records of a resource.
static RECORDS: [Operation; 4] = [
    Operation {
        method: Method::POST,
        action: Action::Create,
        id: "create{Resource}",
        title: "Create {resource}",
        about: "The response is the new record; `Location` is its path. With `update_by`, the \
                request changes the record that is there already.",
    },
    Operation {
        method: Method::GET,
        action: Action::Read,
        id: "get{Resources}",
        title: "Read {resources}",
        about: "With `id` the record, otherwise a page of the records that match every filter and \
                contain every word of `q`.",
    },
    Operation {
        method: Method::PUT,
        action: Action::Update,
        id: "update{Resource}",
        title: "Change {resource}",
        about: "Only the fields that the body names change. The response is the whole record \
                after the change.",
    },
    Operation {
        method: Method::DELETE,
        action: Action::Delete,
        id: "delete{Resource}",
        title: "Delete {resource}",
        about: "The response has no body. A record that others refer to is not deleted.",
    },
];

static CHANGES: [Operation; 1] = [Operation {
    method: Method::GET,
    action: Action::Changes,
    id: "listChanges",
    title: "Follow changes",
    about: "One entry for each record that was created, changed or deleted, in the order of the \
            commits. To follow a tenant: ask with `cursor=now` and keep `next_cursor`, read the \
            lists, then ask with the kept cursor again and again. Entries of resources that the \
            key may not read are left out.",
}];

static WHOAMI: [Operation; 1] = [Operation {
    method: Method::GET,
    action: Action::Whoami,
    id: "getWhoami",
    title: "Describe the API key of the request",
    about: "The tenant, the key and its limit. Needs no scope.",
}];

static BATCH: [Operation; 1] = [Operation {
    method: Method::POST,
    action: Action::Batch,
    id: "runBatch",
    title: "Run a batch",
    about: "Up to 100 operations on records in one transaction. If one of them fails, nothing is \
            changed, and the response is its error with the number of the operation as \
            `operation`. Each operation needs its own scope, and only the scopes of the \
            operations in the batch are needed. The batch counts as one request against the rate \
            limit, and one `Idempotency-Key` covers all of it.",
}];

/// The paths without authentication and rate limit (contract section 1).
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

/// Every path but those of records.
pub static PATHS: [(&str, Route); 9] = [
    ("/changes.php", Route::Api(Endpoint::Changes)),
    ("/whoami.php", Route::Api(Endpoint::Whoami)),
    ("/batch.php", Route::Api(Endpoint::Batch)),
    ("/openapi.json", Route::Page(PublicPage::OpenApi)),
    ("/docs", Route::Page(PublicPage::Docs)),
    ("/healthz", Route::Page(PublicPage::Health)),
    ("/readyz", Route::Page(PublicPage::Ready)),
    ("/", Route::Page(PublicPage::Root)),
    (PANEL_PATH, Route::Panel),
];

/// The value of `Allow` for pages.
pub const PAGE_METHODS: &str = "GET, HEAD";

/// The prefix below which all paths with a key, the OpenAPI document and the documentation page are
/// also available (contract section 1).
pub const PREFIX: &str = "/v1";

impl Route {
    /// Whether the path is also available below [`PREFIX`].
    pub const fn is_prefixed(self) -> bool {
        matches!(self, Route::Api(_) | Route::Page(PublicPage::OpenApi | PublicPage::Docs))
    }
}

impl Endpoint {
    /// What can be done at the path, in the order of the reference.
    pub fn operations(self) -> &'static [Operation] {
        match self {
            Endpoint::Records { .. } => &RECORDS,
            Endpoint::Changes => &CHANGES,
            Endpoint::Whoami => &WHOAMI,
            Endpoint::Batch => &BATCH,
        }
    }

    /// The value of `Allow`.
    pub const fn methods(self) -> &'static str {
        match self {
            Endpoint::Records { .. } => "GET, HEAD, POST, PUT, DELETE",
            Endpoint::Changes | Endpoint::Whoami => "GET, HEAD",
            Endpoint::Batch => "POST",
        }
    }

    /// The scopes of which a request with this method needs one; empty if it needs none. Each
    /// operation of a batch needs its own.
    pub fn scopes(self, method: &Method) -> Scopes {
        match self {
            Endpoint::Records { resource, .. } => Scope { resource, access: access(method) }.into(),
            Endpoint::Changes => Scopes::read_only(),
            Endpoint::Whoami | Endpoint::Batch => Scopes::default(),
        }
    }
}

/// The access that the method needs on a record path (contract section 5).
fn access(method: &Method) -> Access {
    if matches!(*method, Method::GET | Method::HEAD) { Access::Read } else { Access::Write }
}

/// Finds the route of a path. Returns it with the path without prefix. Paths are compared as sent,
/// without percent-decoding.
pub fn find(path: &str) -> Option<(&'static str, Route)> {
    let (prefix, bare) = path.strip_prefix(PREFIX).map_or(("", path), |bare| (PREFIX, bare));
    if let Some(resource) = ALL.into_iter().find(|resource| resource.path == bare) {
        return Some((resource.path, Route::Api(Endpoint::Records { resource, prefix })));
    }
    let is_sent =
        |(known, route): &&(&str, Route)| *known == if route.is_prefixed() { bare } else { path };
    PATHS.iter().find(is_sent).copied()
}

/// The longest body in bytes that a path takes of a request with these headers. It is none where
/// the request is refused whatever its body is.
pub fn max_body(path: &str, headers: &HeaderMap) -> usize {
    match find(path) {
        Some((_, Route::Api(endpoint))) if has_well_formed_key(headers) => match endpoint {
            Endpoint::Batch => MAX_BATCH_BODY,
            _ => MAX_BODY,
        },
        Some((_, Route::Panel)) => MAX_BODY,
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
    fn no_body_is_taken_that_no_check_needs() {
        let mut headers = HeaderMap::new();
        assert_eq!(max_body("/api_keys.php", &headers), MAX_BODY);
        assert_eq!(max_body("/customers.php", &headers), 0);
        let key = format!("Bearer tdk_{}", "a".repeat(43));
        headers.insert("authorization", key.parse().unwrap());
        assert_eq!(max_body("/customers.php", &headers), MAX_BODY);
        assert_eq!(max_body("/v1/batch.php", &headers), MAX_BATCH_BODY);
        assert_eq!(["/nowhere", "/docs"].map(|path| max_body(path, &headers)), [0, 0]);
    }

    #[test]
    fn a_label_is_the_path_without_the_prefix() {
        for path in ["/customers.php", "/changes.php", "/batch.php", "/docs"] {
            assert_eq!((label(path), label(&format!("/v1{path}"))), (path, path));
        }
        assert_eq!(label("/v1/v1/changes.php"), metrics::OTHER);
    }
}
