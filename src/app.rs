//! The application: it opens the store and dispatches each request to the API, the panel or the
//! reference.

use std::sync::Arc;

use serde_json::json;

use crate::api::Api;
use crate::api::routes::{self, PublicPage, Route};
use crate::clock::Clock;
use crate::config::Config;
use crate::files;
use crate::http::{ApiError, Job, Lane, Method, Request, Responder, Response};
use crate::metrics::Metrics;
use crate::panel::Panel;
use crate::readiness::{self, Readiness};
use crate::reference::{docs, openapi};
use crate::store::registry::Registry;
use crate::store::{DataDir, OpenError, Tenants};
use crate::words;

/// The store, and everything that responds to requests.
pub struct App {
    /// Tenants, keys and sessions.
    pub registry: Arc<Registry>,
    /// The tenants' records.
    pub tenants: Arc<Tenants>,
    /// The panel.
    pub panel: Panel,
    /// The clock of the panel's sessions and of the probes.
    pub clock: Clock,
    /// The metrics that every part counts in.
    pub metrics: Arc<Metrics>,
    api: Arc<Api>,
    readiness: Readiness,
}

impl App {
    /// Recovers and migrates the data directory and opens its registry. The tenants' files are
    /// opened on demand.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the registry cannot be created or used.
    pub fn open(config: &Config, clock: Clock) -> Result<Arc<App>, OpenError> {
        let data_dir = config.data_dir.clone();
        let metrics = Arc::new(Metrics::new(routes::label));
        let opened = DataDir::open_to_serve(&data_dir)?;
        let registry = Arc::new(Registry::open_in(opened)?);
        let tenants = Arc::new(Tenants::new(&data_dir, config.tenants));
        let api = Api::new(Arc::clone(&registry), Arc::clone(&tenants), config.rate_limit);
        // The thread of the probe must not keep a registry open that nobody else uses.
        let (probed, measured) = (Arc::downgrade(&registry), Arc::clone(&metrics));
        let probe = move || {
            let registry = probed.upgrade().ok_or("the service has stopped")?;
            probe(&registry, &measured).map_err(|failure| words::without_error_numbers(&failure))
        };
        let readiness = Readiness::start(clock.clone(), probe)
            .map_err(|error| OpenError::unusable(&data_dir, error))?;
        Ok(Arc::new(App {
            panel: Panel::new(Arc::clone(&registry), config.rate_limit),
            api: Arc::new(api),
            registry,
            tenants,
            clock,
            metrics,
            readiness,
        }))
    }

    /// Answers a request at once, or returns the job that will answer it.
    pub fn admit(self: &Arc<App>, request: Request, responder: Responder) -> Option<Job> {
        let Some((_, route, prefix)) = routes::find(&request.path) else {
            responder.send(routes::not_found(&request.path).into());
            return None;
        };
        match route {
            Route::Api(operations) => {
                return self.api.admit(operations, prefix, request, responder);
            }
            Route::Page(page, ..) => responder.send(self.page(page, &request)),
            Route::Panel if Panel::hashes_password(&request) => {
                let app = Arc::clone(self);
                return Some(Job {
                    lane: Lane::Passwords,
                    request,
                    responder,
                    run: Box::new(move |request, responder| app.respond_panel(&request, responder)),
                    rejection: Panel::overloaded,
                });
            }
            Route::Panel => self.respond_panel(&request, responder),
        }
        None
    }

    fn respond_panel(&self, request: &Request, mut reply: Responder) {
        let (response, tenant) = self.panel.respond(request);
        if let Some(tenant) = tenant {
            reply.caller(&tenant, "");
        }
        reply.send(response);
    }

    /// The response of a path that needs no key (contract section 1). Query parameters are ignored.
    fn page(&self, page: PublicPage, request: &Request) -> Response {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return ApiError::method_not_allowed("GET, HEAD").into();
        }
        match page {
            PublicPage::OpenApi => openapi::respond(request),
            PublicPage::Docs => docs::respond(request),
            PublicPage::Health => Response::healthy(),
            PublicPage::Ready => match self.readiness.check(request.received_at.monotonic) {
                Ok(None) => Response::healthy(),
                Ok(Some(warning)) => {
                    Response::json(200, &json!({"status": "ok", "warning": warning}))
                }
                Err(failure) => ApiError::not_ready(&failure).into(),
            },
            PublicPage::Root => Response::empty(302).header("Location", "/docs"),
        }
    }
}

/// Whether the service is ready (contract section 1). Measures the free space, too.
fn probe(registry: &Registry, metrics: &Metrics) -> readiness::Outcome {
    let directory = registry.data_dir();
    let (free, warning) = files::free_space(directory).map_err(|error| error.to_string())?;
    metrics.free_space.set(i64::try_from(free).unwrap_or(i64::MAX));
    registry.ready()?;
    readiness::probe_write(directory)
        .map_err(|error| format!("the data directory does not take a write ({error})"))?;
    Ok(warning)
}
