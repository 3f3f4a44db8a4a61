//! The server: it reads requests, brings each to a worker, and answers it.
//!
//! The way of a request:
//!
//! | thread | file | step |
//! |---|---|---|
//! | edge | `connection` | `serve_socket` reads from the client, and calls `Edge::respond` |
//! | edge | `request` | `Edge::respond` checks the head, and reads the body |
//! | edge | `relay` | `Relay::send` queues the request |
//! | a worker | `relay` | `Relay::receive` takes the oldest request |
//! | the same worker | this file | `App::admit` responds, or looks up the key or the session |
//! | the same worker | `lanes` | `Scheduler::add` lets the request wait in the lane of its tenant |
//! | a worker | `lanes` | `Scheduler::start_next` takes the request when the lane has its turn |
//! | the same worker | this file | `App::run` responds, or gives a change to the tenant's writer |
//! | any of these | `http/response.rs` | `Responder::send` logs the request, and wakes the edge |
//!
//! The edge is one thread with an asynchronous runtime. It faces the clients, so a worker never
//! waits for a client. Two files are beside the way: `tls` has a certificate that can be replaced
//! while the server runs, and `metrics` the listener for Prometheus.

mod connection;
mod lanes;
mod metrics;
mod relay;
mod request;
mod tls;

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::http::HeaderMap;
use sd_notify::NotifyState;
use serde_json::json;
use tokio::net::TcpListener as AsyncListener;
use tokio::select;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use lanes::WorkerPool;
use request::Edge;
pub use tls::{Tls, TlsError};

use crate::api::routes::{self, PublicPage, Route};
use crate::api::{self, Admission, Api, Job};
use crate::clock::Clock;
use crate::config::Config;
use crate::files;
use crate::http::{ApiError, Method, Request, Responder, Response};
use crate::metrics::Metrics;
use crate::panel::Panel;
use crate::store::registry::Registry;
use crate::store::{DataDir, StoreError, Tenants};
use crate::words;

/// The time between two requests of the watchdog.
const WATCHDOG_PERIOD: Duration = Duration::from_secs(3);

/// How long the watchdog waits for a worker before the process ends. Every worker may be busy with
/// a list for 5 s, and a few wait before the watchdog.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a server did not start, or ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// There is no thread or descriptor for it.
    #[error("cannot start the server: {0}")]
    Start(#[source] io::Error),
    #[error("the connection to tiny_http has ended")]
    TinyHttpFailed,
    #[error("no worker has received a request for {} seconds", WATCHDOG_TIMEOUT.as_secs())]
    NoWorkerReceives,
    /// A bug in the edge.
    #[error("the edge's thread panicked")]
    Panicked,
}

/// A running server.
pub struct Server {
    /// The address for clients. If port 0 was configured, it has the port that the system chose.
    pub address: SocketAddr,
    /// The address for metrics, if there is one.
    pub metrics_address: Option<SocketAddr>,
    /// The certificate, which can be reloaded. `None` serves plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// If it is cancelled, the server stops. A copy can be kept where signals are handled.
    pub stopper: CancellationToken,
    thread: JoinHandle<Result<(), ServerError>>,
}

impl Server {
    /// Starts the workers, waits until one receives, and accepts connections.
    pub fn start(
        listeners: Listeners,
        config: &Config,
        app: Arc<dyn Application>,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Server, ServerError> {
        let address = listeners.clients.local_addr().map_err(ServerError::Start)?;
        let metrics_address = listeners.metrics.as_ref().map(TcpListener::local_addr).transpose();
        let metrics_address = metrics_address.map_err(ServerError::Start)?;
        let (tls, stopper) = (listeners.tls.clone(), CancellationToken::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(ServerError::Start)?;
        let pool = WorkerPool::start(Arc::clone(&app), config.workers, Arc::clone(&metrics));
        let pool = Arc::new(pool.map_err(ServerError::Start)?);
        runtime.block_on(check_workers(&pool))?;
        let edge = Edge::new(app, pool, config, tls.clone(), clock, metrics);
        let stop = stopper.clone();
        let run = move || {
            let result = runtime.block_on(run(listeners, edge, stop));
            // A page of metrics that a disk holds up must not hold up the end.
            runtime.shutdown_background();
            result
        };
        let thread = thread::Builder::new().name("edge".into()).spawn(run);
        let thread = thread.map_err(ServerError::Start)?;
        Ok(Server { address, metrics_address, tls, stopper, thread })
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Stops: refuses new requests, finishes those in progress, and returns.
    pub fn stop(self) -> Result<(), ServerError> {
        self.stopper.cancel();
        self.wait()
    }

    /// Blocks until the server has ended.
    pub fn wait(self) -> Result<(), ServerError> {
        self.thread.join().unwrap_or(Err(ServerError::Panicked))
    }
}

/// Bound listeners, and the certificate. Clients can connect; they wait in the backlog until
/// [`Server::start`] is called.
pub struct Listeners {
    clients: TcpListener,
    metrics: Option<TcpListener>,
    tls: Option<Arc<Tls>>,
}

impl Listeners {
    /// Loads the certificate, and binds the addresses.
    pub fn bind(config: &Config) -> Result<Listeners, ServerError> {
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let bind = |address| {
            connection::listen(address).map_err(|error| ServerError::Listen(address, error))
        };
        let clients = bind(config.listen)?;
        Ok(Listeners { clients, metrics: config.metrics_listen.map(bind).transpose()?, tls })
    }
}

async fn run(
    listeners: Listeners,
    edge: Edge,
    stopper: CancellationToken,
) -> Result<(), ServerError> {
    let register = |listener| AsyncListener::from_std(listener).map_err(ServerError::Start);
    let listener = register(listeners.clients)?;
    if let Some(listener) = listeners.metrics {
        tokio::spawn(metrics::serve(register(listener)?, Arc::clone(&edge.metrics)));
    }
    let responses = Arc::clone(&edge.responses);
    tokio::spawn(async move { responses.deliver().await });
    let edge = Arc::new(edge);
    select! {
        () = connection::accept(listener, Arc::clone(&edge), stopper) => Ok(()),
        result = watch(&edge.pool) => result,
    }
}

/// Returns when no request reaches a worker any more.
async fn watch(pool: &WorkerPool) -> Result<(), ServerError> {
    loop {
        sleep(WATCHDOG_PERIOD).await;
        check_workers(pool).await?;
        if sd_notify::watchdog_enabled().is_some() {
            notify(&[NotifyState::Watchdog]);
        }
    }
}

async fn check_workers(pool: &WorkerPool) -> Result<(), ServerError> {
    match timeout(WATCHDOG_TIMEOUT, pool.send_watchdog()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(ServerError::TinyHttpFailed),
        Err(_) => Err(ServerError::NoWorkerReceives),
    }
}

/// Sends the supervisor a message (sd_notify(3)), if `NOTIFY_SOCKET` names one. A failure is logged:
/// the server can serve all the same.
pub(crate) fn notify(message: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(message) {
        tracing::warn!(%error, "the supervisor in NOTIFY_SOCKET cannot be notified");
    }
}

/// What the edge and the workers ask of [`App`]. The tests of the edge have an application of their
/// own.
///
/// A request takes two steps. `admit` runs in the worker that received the request. While `admit`
/// runs, other requests wait to be received, so it waits for no commit, no tenant's file and no
/// password hash. It reads at most the registry. `run` answers the request once its turn has come.
pub trait Application: Send + Sync {
    /// Which probe a request is, if it is one. The edge answers probes itself, so that they wait for
    /// no worker.
    fn probe(&self, method: &Method, path: &str) -> Option<Probe>;

    /// The response of `/readyz`. It waits for the disk.
    fn ready(&self) -> Response;

    /// The longest body in bytes that a path takes of a request with these headers.
    fn max_body(&self, path: &str, headers: &HeaderMap) -> usize;

    /// The first step of every other request. `responder` gets what the log says of the tenant.
    fn admit(&self, request: &Request, responder: &mut Responder) -> Admission;

    /// The second step: answers a request that has waited for its turn.
    fn run(&self, job: Job, request: &Request, responder: Responder);

    /// The response if too many requests wait in the job's lane.
    fn overloaded(&self, job: Job) -> Response;
}

pub enum Probe {
    /// `/healthz`
    Health,
    /// `/readyz`
    Ready,
}

/// The store, and everything that responds to requests.
pub struct App {
    pub registry: Arc<Registry>,
    pub tenants: Arc<Tenants>,
    pub panel: Panel,
    /// The clock of the panel's sessions.
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    api: Api,
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
        registry.require_readable(clock.now())?;
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
        self.registry.ready()?;
        write_block(directory)
            .map_err(|error| format!("the data directory does not take a write ({error})"))?;
        Ok(warning)
    }
}

impl Application for App {
    fn probe(&self, method: &Method, path: &str) -> Option<Probe> {
        match routes::find(path)? {
            (_, Route::Page(PublicPage::Health)) if is_read(method) => Some(Probe::Health),
            (_, Route::Page(PublicPage::Ready)) if is_read(method) => Some(Probe::Ready),
            _ => None,
        }
    }

    fn ready(&self) -> Response {
        match self.test_readiness() {
            Ok(None) => Response::healthy(),
            Ok(Some(warning)) => Response::json(200, &json!({"status": "ok", "warning": warning})),
            Err(failure) => ApiError::not_ready(&words::without_error_numbers(&failure)).into(),
        }
    }

    fn max_body(&self, path: &str, headers: &HeaderMap) -> usize {
        api::max_body(path, headers)
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

    fn run(&self, job: Job, request: &Request, mut responder: Responder) {
        match job {
            Job::Api(call) => self.api.respond(*call, request, responder),
            Job::Panel => {
                let response = self.panel.respond(request, &mut responder);
                responder.send(response);
            }
        }
    }

    fn overloaded(&self, job: Job) -> Response {
        match job {
            Job::Api(_) => ApiError::overloaded().into(),
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
