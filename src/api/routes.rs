//! Every path and what it takes: one table, in which no operation can be written without its scope.

use crate::http::Method;
use crate::metrics;
use crate::model::{ALL, Access, Resource};

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Route {
    /// The records of a resource; `prefix` is `/v1` where the path had it.
    Records { resource: &'static Resource, prefix: &'static str },
    /// What needs no key.
    Page(Page),
    /// The panel, which answers every method itself.
    Panel,
}

/// The paths that look at no key and have no rate limit (contract section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The document that clients are made from.
    OpenApi,
    /// The reference that people read.
    Docs,
    Health,
    Ready,
    Root,
}

/// Every page with its path.
pub const PAGES: [(&str, Page); 5] = [
    ("/openapi.json", Page::OpenApi),
    ("/docs", Page::Docs),
    ("/healthz", Page::Health),
    ("/readyz", Page::Ready),
    ("/", Page::Root),
];

impl Page {
    /// Whether the page also stands below [`PREFIX`].
    pub const fn is_prefixed(self) -> bool {
        matches!(self, Page::OpenApi | Page::Docs)
    }
}

/// What can be done with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// GET, with or without `id`.
    Read,
    Create,
    Update,
    Delete,
}

/// The operations on records: method, operation and the access that its scope grants. Contract section 3.
pub const OPERATIONS: [(Method, Operation, Access); 5] = [
    (Method::Get, Operation::Read, Access::Read),
    (Method::Head, Operation::Read, Access::Read),
    (Method::Post, Operation::Create, Access::Write),
    (Method::Put, Operation::Update, Access::Write),
    (Method::Delete, Operation::Delete, Access::Write),
];

/// `Allow` of the record paths.
pub const RECORD_METHODS: &str = "GET, HEAD, POST, PUT, DELETE";
/// `Allow` of the pages.
pub const PAGE_METHODS: &str = "GET, HEAD";

/// The path of the panel.
pub const PANEL_PATH: &str = "/api_keys.php";

/// Where every record path stands too, so that a client's base address may be either (contract section 1).
pub const PREFIX: &str = "/v1";

/// Paths are compared as sent: no percent-decoding, no trailing slash.
pub fn find(path: &str) -> Option<Route> {
    let (prefix, bare) = path.strip_prefix(PREFIX).map_or(("", path), |bare| (PREFIX, bare));
    if let Some(resource) = ALL.into_iter().find(|resource| resource.path == bare) {
        return Some(Route::Records { resource, prefix });
    }
    if path == PANEL_PATH {
        return Some(Route::Panel);
    }
    let (_, page) = PAGES.into_iter().find(|(known, page)| *known == if page.is_prefixed() { bare } else { path })?;
    Some(Route::Page(page))
}

/// What the path is counted under: the known path without its prefix, or one word for all that nobody knows.
pub fn label(path: &str) -> &'static str {
    match find(path) {
        None => metrics::OTHER,
        Some(Route::Records { resource, .. }) => resource.path,
        Some(Route::Panel) => PANEL_PATH,
        Some(Route::Page(page)) => {
            PAGES.iter().find(|(_, known)| *known == page).map_or(metrics::OTHER, |(path, _)| path)
        }
    }
}

/// The operation that the method performs on a record path, and the access that it needs. `None` if record paths lack the method.
pub fn find_operation(method: Method) -> Option<(Operation, Access)> {
    OPERATIONS.into_iter().find(|(known, ..)| *known == method).map(|(_, operation, access)| (operation, access))
}
