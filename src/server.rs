//! The running service: the edge, the worker pool and the application.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ipnet::IpNet;

use crate::app::App;
use crate::clock::Clock;
use crate::cpu_permits::CpuPermits;
use crate::edge::{self, Edge, EdgeError, Limits, Listeners, Tls, TlsError};
use crate::http::Response;
use crate::http::workers::{Handler, Server, Workers};
use crate::metrics::{self, Metrics};

/// The settings of a service.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on. Port 0 lets the system choose; see [`Service::address`].
    pub listen: SocketAddr,
    /// Maximum number of workers that use a CPU at once.
    pub workers: usize,
    /// Limits of the edge.
    pub limits: Limits,
    /// Networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted, in addition to loopback.
    pub trusted_proxies: Vec<IpNet>,
    /// Certificate and key for HTTPS. Without them the service speaks HTTP.
    pub tls: Option<TlsFiles>,
    /// The address of `/metrics`, if any. Used by [`BoundService::start`] only.
    pub metrics_listen: Option<SocketAddr>,
    /// The metrics of a service without an application. [`BoundService::start`] uses those of the application.
    pub metrics: Arc<Metrics>,
    /// The clock of a service without an application. [`BoundService::start`] uses that of the application.
    pub clock: Clock,
}

/// Files in PEM format.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Minimum number of worker threads. Most of them wait for disks and locks.
const THREADS: usize = 32;

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            workers: std::thread::available_parallelism().map_or(1, usize::from) + 1,
            limits: Limits::default(),
            trusted_proxies: Vec::new(),
            tls: None,
            metrics_listen: None,
            metrics: Arc::default(),
            clock: Clock::system(),
        }
    }
}

/// Why a service did not start or ended unexpectedly.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// An address cannot be bound, or the edge failed.
    #[error(transparent)]
    Edge(#[from] EdgeError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A service that is bound to its addresses but not started. Clients can connect and wait.
pub struct BoundService {
    options: Options,
    listeners: Listeners,
    tls: Option<Arc<Tls>>,
}

impl BoundService {
    /// Starts the service with the application's clock and metrics. Requests are served when this returns.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Edge`] if the worker pool cannot be started.
    pub fn start(mut self, app: Arc<App>) -> Result<Service, ServiceError> {
        self.options.clock = app.clock.clone();
        self.options.metrics = Arc::clone(&app.metrics);
        let page = metrics_page(Arc::clone(&app));
        self.begin(Arc::new(move |request, reply| app.respond(&request, reply)), Some(page))
    }

    fn begin(self, handler: Handler, metrics_page: Option<edge::MetricsPage>) -> Result<Service, ServiceError> {
        let BoundService { options, listeners, tls } = self;
        let workers = Workers { threads: options.workers.max(THREADS), permits: CpuPermits::new(options.workers) };
        let (clock, metrics) = (options.clock, Arc::clone(&options.metrics));
        let start_server =
            Box::new(move || Server::start(Arc::clone(&handler), clock.clone(), Arc::clone(&metrics), &workers));
        let config = edge::EdgeConfig {
            limits: options.limits,
            proxies: options.trusted_proxies,
            tls: tls.clone(),
            metrics: options.metrics,
            metrics_page,
        };
        Ok(Service { edge: Edge::start(listeners, config, start_server)?, tls })
    }
}

/// A running service.
pub struct Service {
    edge: Edge,
    tls: Option<Arc<Tls>>,
}

/// A handle that stops a service, for signal handlers.
#[derive(Clone, Debug)]
pub struct Stopper(edge::Stopper);

impl Stopper {
    /// Refuses new connections and requests from now on.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// A handle that reloads a service's certificate.
#[derive(Clone, Debug)]
pub struct TlsReloader(Option<Arc<Tls>>);

impl TlsReloader {
    /// Reloads certificate and key for new connections. Does nothing without TLS.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if the files cannot be used. The previous pair stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.0.as_ref().map_or(Ok(()), |tls| tls.reload())
    }
}

impl Service {
    /// Loads the certificate and binds the addresses. Clients can connect from then on, and wait.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Tls`] if the certificate cannot be used, [`ServiceError::Edge`] if an address cannot be bound.
    pub fn bind(options: Options) -> Result<BoundService, ServiceError> {
        let files = options.tls.clone();
        let tls = files.map(|files| Tls::load(files.certificate, files.key)).transpose()?.map(Arc::new);
        let listeners = Listeners::bind(options.listen, options.metrics_listen)?;
        Ok(BoundService { options, listeners, tls })
    }

    /// Starts a service with `handler` and without `/metrics`. Requests are served when this returns.
    ///
    /// # Errors
    ///
    /// Those of [`Service::bind`] and [`BoundService::start`].
    pub fn start_with(handler: Handler, options: &Options) -> Result<Service, ServiceError> {
        Service::bind(Options { metrics_listen: None, ..options.clone() })?.begin(handler, None)
    }

    /// The address of the service.
    pub fn address(&self) -> SocketAddr {
        self.edge.address()
    }

    /// The address of `/metrics`, if any.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.edge.metrics_address()
    }

    /// A heartbeat counter. It increases every few seconds while requests are served.
    pub fn heartbeat(&self) -> Arc<AtomicU64> {
        self.edge.heartbeat()
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// A handle that stops this service.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.edge.stopper())
    }

    /// A handle that reloads the certificate.
    pub fn tls_reloader(&self) -> TlsReloader {
        TlsReloader(self.tls.clone())
    }

    /// Blocks until the service has stopped.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Edge`] if the worker pool failed and could not be replaced.
    pub fn wait(self) -> Result<(), ServiceError> {
        Ok(self.edge.wait()?)
    }

    /// Stops the service: refuses new requests, finishes the running ones within at most 10 seconds, and returns.
    ///
    /// # Errors
    ///
    /// Those of [`Service::wait`].
    pub fn stop(self) -> Result<(), ServiceError> {
        self.stopper().stop();
        self.wait()
    }
}

fn metrics_page(app: Arc<App>) -> edge::MetricsPage {
    Arc::new(move || {
        let text = app.metrics.render(app.tenants.open_count());
        Response::new(200, metrics::CONTENT_TYPE, text.into_bytes())
    })
}
