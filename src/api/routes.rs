//! The route table: a row for each method of each path. Dispatch, `Allow`, scopes, the labels of
//! metrics, and the OpenAPI document come from it.

use crate::http::{ApiError, ErrorCode, Method};
use crate::metrics;
use crate::model::validation::{is_positive_integer, shorten};
use crate::model::{ALL, Access, CUSTOMER, EMPLOYEE, HARDWARE, Resource, Scope, Scopes};
use crate::reference::{self, Document};
use crate::words;
use Access::{Read, Write};

/// The kind of a path.
#[derive(Clone, Copy, Debug)]
pub enum Route {
    /// Endpoints that need a key.
    Api(&'static [Endpoint]),
    /// A page without authentication.
    Page(PublicPage),
    /// The panel. It handles every method itself.
    Panel,
}

/// A row of the table: what a method does at a path that needs a key.
#[derive(Debug)]
pub struct Endpoint {
    pub method: Method,
    /// The kind of scope that a key needs: for the resource, or for any if there is no resource.
    pub needs: Option<Access>,
    pub action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    Create(&'static Resource),
    Read(&'static Resource),
    Update(&'static Resource),
    Delete(&'static Resource),
    Changes,
    /// Describes the key of the request.
    Whoami,
    /// Makes several changes in one request. Each needs its own scope.
    Batch,
}

/// The pages without authentication and rate limit (contract section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicPage {
    /// A file of the API reference.
    Document(&'static Document),
    /// Whether the process responds.
    Health,
    /// Whether requests can be served.
    Ready,
    /// A redirect to the documentation page.
    Root,
}

pub const PANEL_PATH: &str = "/api_keys.php";

/// All paths with a key and the API reference are also available below it (contract section 1).
const PREFIX: &str = "/v1";

pub static ROUTES: [(&str, Route); 21] = [
    (CUSTOMER.path, Route::Api(&CUSTOMERS)),
    (EMPLOYEE.path, Route::Api(&EMPLOYEES)),
    (HARDWARE.path, Route::Api(&DEVICES)),
    ("/changes.php", Route::Api(&[row(Method::GET, Some(Read), Action::Changes)])),
    ("/whoami.php", Route::Api(&[row(Method::GET, None, Action::Whoami)])),
    ("/batch.php", Route::Api(&[row(Method::POST, None, Action::Batch)])),
    ("/openapi.json", document(&reference::OPENAPI)),
    ("/docs", document(&reference::PAGE)),
    ("/docs/scalar.js", document(&reference::SCRIPT)),
    ("/docs/api.md", document(&reference::RULES)),
    ("/docs/guide.md", document(&reference::GUIDE)),
    ("/docs/tenantdesk.py", document(&reference::PYTHON)),
    ("/docs/tenantdesk.mjs", document(&reference::NODE)),
    ("/docs/tenantdesk.d.mts", document(&reference::NODE_TYPES)),
    ("/docs/TenantDesk.psm1", document(&reference::POWERSHELL)),
    ("/docs/tenantdesk.sh", document(&reference::SHELL)),
    ("/healthz", Route::Page(PublicPage::Health)),
    ("/readyz", Route::Page(PublicPage::Ready)),
    ("/", Route::Page(PublicPage::Root)),
    ("/docs/", Route::Page(PublicPage::Root)),
    (PANEL_PATH, Route::Panel),
];

static CUSTOMERS: [Endpoint; 4] = records(&CUSTOMER);
static EMPLOYEES: [Endpoint; 4] = records(&EMPLOYEE);
static DEVICES: [Endpoint; 4] = records(&HARDWARE);

const fn records(resource: &'static Resource) -> [Endpoint; 4] {
    [
        row(Method::POST, Some(Write), Action::Create(resource)),
        row(Method::GET, Some(Read), Action::Read(resource)),
        row(Method::PUT, Some(Write), Action::Update(resource)),
        row(Method::DELETE, Some(Write), Action::Delete(resource)),
    ]
}

const fn row(method: Method, needs: Option<Access>, action: Action) -> Endpoint {
    Endpoint { method, needs, action }
}

const fn document(document: &'static Document) -> Route {
    Route::Page(PublicPage::Document(document))
}

impl Route {
    /// Whether the path is also available below `/v1`.
    pub const fn has_prefix(self) -> bool {
        matches!(self, Route::Api(_) | Route::Page(PublicPage::Document(_)))
    }
}

impl Endpoint {
    /// GET also answers HEAD.
    pub fn find(endpoints: &'static [Endpoint], method: &Method) -> Option<&'static Endpoint> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        endpoints.iter().find(|endpoint| endpoint.method == *method)
    }

    /// The error of a method that is not among the endpoints of a path.
    pub fn not_allowed(endpoints: &'static [Endpoint], method: &Method) -> ApiError {
        let names = endpoints.iter().map(|endpoint| match endpoint.method.as_str() {
            "GET" => "GET, HEAD",
            method => method,
        });
        ApiError::method_not_allowed(method, &names.collect::<Vec<_>>().join(", "))
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

/// Finds the route of a path. Returns the path without `/v1`, and the route. Paths are
/// compared as sent, without percent-decoding.
pub fn find(path: &str) -> Option<(&'static str, Route)> {
    let bare = path.strip_prefix(PREFIX).unwrap_or(path);
    for &(known, route) in &ROUTES {
        if known == if route.has_prefix() { bare } else { path } {
            return Some((known, route));
        }
    }
    None
}

/// The error of a path that is not in the table.
pub fn not_found(path: &str) -> ApiError {
    let bare = path.trim_end_matches('/');
    let similar = if find(bare).is_some() { Some(bare.to_owned()) } else { similar_record(path) };
    let message = match similar {
        Some(similar) => format!("Unknown path {:?}. Did you mean \"{similar}\"?", shorten(path)),
        None => {
            let known = ROUTES.iter().map(|(path, _)| *path);
            words::unknown("path", &shorten(path), known)
        }
    };
    ApiError::new(ErrorCode::EndpointNotFound, format!("{message} See /docs."))
}

/// The address of records that a client with another path may mean. Many other services have the id
/// in the path: `/customers/12`.
pub(super) fn similar_record(path: &str) -> Option<String> {
    let path = path.trim_matches('/');
    let (prefix, path) = path.strip_prefix("v1/").map_or(("", path), |path| (PREFIX, path));
    let (name, id) = path.split_once('/').unwrap_or((path, ""));
    let paths = ALL.map(|resource| resource.path);
    let known = words::closest(&format!("/{name}"), paths.into_iter())?;
    match id {
        "" => Some(format!("{prefix}{known}")),
        _ if is_positive_integer(id) && id.len() < 20 => Some(format!("{prefix}{known}?id={id}")),
        _ => None,
    }
}

/// `insufficient_scope`: the key has none of `scopes`. The `conjunction` says whether the request
/// needs one or all of them.
pub(super) fn insufficient_scope(scopes: Scopes, conjunction: &str) -> ApiError {
    let names = scopes.names();
    let message = format!(
        "The request needs \"{}\", which this API key lacks. Use a key with the scope.",
        names.join(&format!("\" {conjunction} \""))
    );
    let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", names.join(" "));
    ApiError::new(ErrorCode::InsufficientScope, message).header("WWW-Authenticate", challenge)
}

/// The metrics label of a path: the known path without `/v1`, or [`metrics::OTHER`].
pub fn label(path: &str) -> &'static str {
    find(path).map_or(metrics::OTHER, |(path, _)| path)
}
