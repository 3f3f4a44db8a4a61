//! The application behind the server: it responds to probes, and takes each request in two steps.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use ::http::HeaderMap;
use serde_json::json;

use crate::api::routes::{self, PublicPage, Route};
use crate::api::{self, Admission, Api, Job};
use crate::clock::Clock;
use crate::config::Config;
use crate::files;
use crate::http::request::MAX_BODY;
use crate::http::{ApiError, Method, Request, Responder, Response};
use crate::metrics::Metrics;
use crate::panel::Panel;
use crate::store::registry::Registry;
use crate::store::{DataDir, StoreError, Tenants};
use crate::words;

/// What the edge and the workers ask of [`App`]. The tests of the edge have an application of their
/// own.
///
/// A request takes two steps. `admit` runs in the worker that received the request. While `admit`
/// runs, other requests wait to be received, so it waits for no commit, no tenant's file and no
/// password hash. It reads at most the registry. `respond` answers the request once its turn has
/// come.
pub trait Application: Send + Sync {
    /// What the edge does with a request before its body has come.
    fn intake(&self, method: &Method, path: &str, headers: &HeaderMap) -> Intake;

    /// The response of `/readyz`. It waits for the disk.
    fn ready(&self) -> Response;

    /// The first step of every request that is no probe. `responder` gets what the log says of the
    /// tenant.
    fn admit(&self, request: &Request, responder: &mut Responder) -> Admission;

    /// The second step: answers a request that has waited for its turn.
    fn respond(&self, job: Job, request: &Request, responder: Responder);

    /// The response if too many requests wait in the job's lane.
    fn overloaded(&self, job: Job) -> Response;
}

/// The edge answers probes itself, so that they wait for no worker.
pub enum Intake {
    /// `/healthz`
    Health,
    /// `/readyz`
    Ready,
    /// A worker answers. The body has at most this many bytes: none if the request is refused
    /// whatever its body is.
    Body(usize),
}

/// The store, and everything that responds to requests.
pub struct App {
    pub registry: Arc<Registry>,
    pub tenants: Arc<Tenants>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    api: Api,
    panel: Panel,
}

impl App {
    /// Recovers and migrates the data directory, and opens its registry. The tenants' files are
    /// opened on demand.
    ///
    /// # Errors
    ///
    /// If the registry cannot be created or used.
    pub fn open(config: &Config, clock: Clock) -> Result<Arc<App>, StoreError> {
        let data_dir = config.data_dir.clone();
        let metrics = Arc::new(Metrics::new(routes::label));
        let opened = DataDir::open_to_serve(&data_dir)?;
        let registry = Arc::new(Registry::open_in(opened)?);
        registry.ready(clock.now())?;
        registry.reserve_space();
        let tenants = Arc::new(Tenants::new(Arc::clone(&registry), config.tenants));
        let api = Api::new(Arc::clone(&registry), Arc::clone(&tenants), config.rate_limit);
        Ok(Arc::new(App {
            panel: Panel::new(Arc::clone(&registry), config.rate_limit),
            api,
            registry,
            tenants,
            clock,
            metrics,
        }))
    }

    /// The response of a path that needs no key (contract section 1). Query parameters are ignored.
    fn page(&self, page: PublicPage, request: &Request) -> Response {
        if !is_read(&request.method) {
            return ApiError::method_not_allowed(&request.method, "GET, HEAD").into();
        }
        match page {
            PublicPage::Document(document) => document.respond(request),
            PublicPage::Health => Response::healthy(),
            PublicPage::Ready => self.ready(),
            PublicPage::Root => Response::empty(302).header("Location", "/docs"),
        }
    }

    /// Returns a warning if the service is ready, or why it is not.
    fn test_readiness(&self) -> Result<Option<String>, String> {
        let directory = self.registry.data_dir();
        let (free, warning) = files::free_space(directory).map_err(|error| error.to_string())?;
        self.metrics.set_free_space(free);
        self.registry.ready(self.clock.now()).map_err(|error| error.message)?;
        write_block(directory)
            .map_err(|error| format!("the data directory does not take a write ({error})"))?;
        Ok(warning)
    }
}

impl Application for App {
    fn intake(&self, method: &Method, path: &str, headers: &HeaderMap) -> Intake {
        match routes::find(path) {
            Some((_, Route::Page(PublicPage::Health))) if is_read(method) => Intake::Health,
            Some((_, Route::Page(PublicPage::Ready))) if is_read(method) => Intake::Ready,
            Some((_, Route::Api(endpoints))) => Intake::Body(api::max_body(endpoints, headers)),
            Some((_, Route::Panel)) => Intake::Body(MAX_BODY),
            _ => Intake::Body(0),
        }
    }

    fn ready(&self) -> Response {
        match self.test_readiness() {
            Ok(None) => Response::healthy(),
            Ok(Some(warning)) => Response::json(200, &json!({"status": "ok", "warning": warning})),
            Err(failure) => ApiError::not_ready(&words::without_error_numbers(&failure)).into(),
        }
    }

    fn admit(&self, request: &Request, responder: &mut Responder) -> Admission {
        let Some((_, route)) = routes::find(&request.path) else {
            return Admission::Respond(routes::not_found(&request.path).into());
        };
        match route {
            Route::Page(page) => Admission::Respond(self.page(page, request)),
            Route::Api(endpoints) => self.api.admit(endpoints, request, responder),
            Route::Panel => self.panel.admit(request, responder),
        }
    }

    fn respond(&self, job: Job, request: &Request, mut responder: Responder) {
        match job {
            Job::Api(principal, endpoints) => {
                self.api.respond(*principal, endpoints, request, responder);
            }
            Job::Panel => {
                let response = self.panel.respond(request, &mut responder);
                responder.send(response);
            }
        }
    }

    fn overloaded(&self, job: Job) -> Response {
        match job {
            Job::Api(..) => ApiError::overloaded().into(),
            Job::Panel => Panel::overloaded(),
        }
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Writes a block to a file without a name in `directory`, and syncs it. Some file systems store
/// less than a block in the inode, even on a full disk.
fn write_block(directory: &Path) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.write_all(&[b'.'; 4096])?;
    file.sync_all()
}
