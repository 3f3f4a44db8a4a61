//! The table of all paths, and of the methods of record paths with their access.

use http::HeaderMap;

use super::authentication::has_well_formed_key;
use crate::http::Method;
use crate::http::request::{MAX_BATCH_BODY, MAX_BODY};
use crate::metrics;
use crate::model::{ALL, Access, Resource};

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

/// Every page with its path.
pub const PAGES: [(&str, PublicPage); 5] = [
    ("/openapi.json", PublicPage::OpenApi),
    ("/docs", PublicPage::Docs),
    ("/healthz", PublicPage::Health),
    ("/readyz", PublicPage::Ready),
    ("/", PublicPage::Root),
];

impl PublicPage {
    /// Whether the page is also available below [`PREFIX`].
    pub const fn is_prefixed(self) -> bool {
        matches!(self, PublicPage::OpenApi | PublicPage::Docs)
    }
}

/// The methods of record paths and the access that each needs (contract section 3).
pub const RECORD_ACCESS: [(Method, Access); 5] = [
    (Method::GET, Access::Read),
    (Method::HEAD, Access::Read),
    (Method::POST, Access::Write),
    (Method::PUT, Access::Write),
    (Method::DELETE, Access::Write),
];

/// The value of `Allow` for record paths.
pub const RECORD_METHODS: &str = "GET, HEAD, POST, PUT, DELETE";
/// The value of `Allow` for pages, the change log and [`WHOAMI_PATH`].
pub const PAGE_METHODS: &str = "GET, HEAD";

/// The path of the change log. Its methods are [`PAGE_METHODS`].
pub const CHANGES_PATH: &str = "/changes.php";

/// The path of the caller's key. Its methods are [`PAGE_METHODS`].
pub const WHOAMI_PATH: &str = "/whoami.php";

pub const BATCH_PATH: &str = "/batch.php";
/// The value of `Allow` for [`BATCH_PATH`].
pub const BATCH_METHODS: &str = "POST";

pub const PANEL_PATH: &str = "/api_keys.php";

/// The prefix below which all paths with a key, the OpenAPI document and the documentation page are
/// also available (contract section 1).
pub const PREFIX: &str = "/v1";

/// Finds the route of a path. Paths are compared as sent, without percent-decoding.
pub fn find(path: &str) -> Option<Route> {
    let (prefix, bare) = path.strip_prefix(PREFIX).map_or(("", path), |bare| (PREFIX, bare));
    if let Some(resource) = ALL.into_iter().find(|resource| resource.path == bare) {
        return Some(Route::Api(Endpoint::Records { resource, prefix }));
    }
    match bare {
        CHANGES_PATH => return Some(Route::Api(Endpoint::Changes)),
        WHOAMI_PATH => return Some(Route::Api(Endpoint::Whoami)),
        BATCH_PATH => return Some(Route::Api(Endpoint::Batch)),
        _ => {}
    }
    if path == PANEL_PATH {
        return Some(Route::Panel);
    }
    let (_, page) = PAGES
        .into_iter()
        .find(|(known, page)| *known == if page.is_prefixed() { bare } else { path })?;
    Some(Route::Page(page))
}

/// The longest body in bytes that a path takes of a request with these headers. It is none where
/// the request is refused whatever its body is.
pub fn max_body(path: &str, headers: &HeaderMap) -> usize {
    match find(path) {
        Some(Route::Api(endpoint)) if has_well_formed_key(headers) => match endpoint {
            Endpoint::Batch => MAX_BATCH_BODY,
            _ => MAX_BODY,
        },
        Some(Route::Panel) => MAX_BODY,
        _ => 0,
    }
}

/// The metrics label of a path: the known path without prefix, or [`metrics::OTHER`].
pub fn label(path: &str) -> &'static str {
    match find(path) {
        None => metrics::OTHER,
        Some(Route::Api(Endpoint::Records { resource, .. })) => resource.path,
        Some(Route::Api(Endpoint::Changes)) => CHANGES_PATH,
        Some(Route::Api(Endpoint::Whoami)) => WHOAMI_PATH,
        Some(Route::Api(Endpoint::Batch)) => BATCH_PATH,
        Some(Route::Panel) => PANEL_PATH,
        Some(Route::Page(page)) => {
            PAGES.iter().find(|(_, known)| *known == page).map_or(metrics::OTHER, |(path, _)| path)
        }
    }
}

/// The access that the method needs on a record path. `None` if record paths lack the method.
pub fn record_access(method: &Method) -> Option<Access> {
    RECORD_ACCESS.into_iter().find(|(known, _)| known == method).map(|(_, access)| access)
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
