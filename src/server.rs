//! The running service: the edge, the worker pool and the application.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::allocator;
use crate::api::routes;
use crate::app::App;
use crate::clock::Clock;
use crate::config::Config;
use crate::cpu_permits::CpuPermits;
use crate::edge::{self, Edge, EdgeError, Listeners, Tls, TlsError};
use crate::http::Response;
use crate::http::workers::{Handler, Server, Workers};
use crate::metrics::{self, Metrics};

/// Minimum number of worker threads. Most of them wait for disks and locks.
const THREADS: usize = 32;

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
    config: Config,
    listeners: Listeners,
    tls: Option<Arc<Tls>>,
}

impl BoundService {
    /// Starts the service with the application's clock and metrics. Requests are served when this returns.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Edge`] if the worker pool cannot be started.
    pub fn start(self, app: Arc<App>) -> Result<Service, ServiceError> {
        let (clock, metrics, page) = (app.clock.clone(), Arc::clone(&app.metrics), metrics_page(Arc::clone(&app)));
        self.begin(Arc::new(move |request, reply| app.respond(&request, reply)), clock, metrics, Some(page))
    }

    fn begin(
        self,
        handler: Handler,
        clock: Clock,
        metrics: Arc<Metrics>,
        metrics_page: Option<edge::MetricsPage>,
    ) -> Result<Service, ServiceError> {
        allocator::return_memory_when_idle();
        let BoundService { config, listeners, tls } = self;
        let workers = Workers { threads: config.workers.max(THREADS), permits: CpuPermits::new(config.workers) };
        let worker_metrics = Arc::clone(&metrics);
        let start_server =
            Box::new(move || Server::start(Arc::clone(&handler), clock.clone(), Arc::clone(&worker_metrics), &workers));
        let parts = edge::EdgeParts {
            limits: config.connections,
            proxies: config.trusted_proxies,
            max_body: routes::max_body,
            tls: tls.clone(),
            metrics,
            metrics_page,
        };
        Ok(Service { edge: Edge::start(listeners, parts, start_server)?, tls })
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
    pub fn bind(config: Config) -> Result<BoundService, ServiceError> {
        let files = config.tls.clone();
        let tls = files.map(|files| Tls::load(files.certificate, files.key)).transpose()?.map(Arc::new);
        let listeners = Listeners::bind(config.listen, config.metrics_listen)?;
        Ok(BoundService { config, listeners, tls })
    }

    /// Starts a service with `handler` and without `/metrics`. Requests are served when this returns.
    ///
    /// # Errors
    ///
    /// Those of [`Service::bind`] and [`BoundService::start`].
    pub fn start_with(handler: Handler, config: Config, clock: Clock) -> Result<Service, ServiceError> {
        Service::bind(Config { metrics_listen: None, ..config })?.begin(handler, clock, Arc::default(), None)
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
        let text = app.metrics.render(app.gauges());
        Response::new(200, metrics::CONTENT_TYPE, text.into_bytes())
    })
}
