//! The running service: gate, tiny_http and what answers, put together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::app::App;
use crate::clock::Clock;
use crate::cpu_permits::CpuPermits;
use crate::edge::{self, Edge, EdgeError, Limits, Listeners, Network, Tls, TlsError};
use crate::http::Response;
use crate::http::workers::{Handler, Server, Workers};
use crate::metrics::{self, Metrics};

/// How a service listens and how much it takes on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port 0 lets the system choose; [`Service::address`] says what it chose.
    pub listen: SocketAddr,
    /// Workers that may use the processor at once.
    pub workers: usize,
    pub limits: Limits,
    /// Whose `X-Forwarded-For` and `-Proto` are believed, besides this machine's.
    pub trusted_proxies: Vec<Network>,
    pub tls: Option<TlsFiles>,
    /// Where to answer `/metrics`, if anywhere. Only a service that [`BoundService::start`] has started does.
    pub metrics_listen: Option<SocketAddr>,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
}

/// Files in PEM form.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Worker threads, most of which wait for disks and locks.
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

/// Why a service did not start, or ended unasked.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Edge(#[from] EdgeError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A service that is bound to its addresses and does not answer yet: clients that connect wait until it is started.
pub struct BoundService {
    options: Options,
    listeners: Listeners,
    tls: Option<Arc<Tls>>,
}

impl BoundService {
    /// Serves the API of `app`, with its clock and its metrics. When this returns, requests are answered.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Edge`] where the server behind the gate cannot be started.
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

/// Asks a service to stop, from wherever signals are handled.
#[derive(Clone, Debug)]
pub struct Stopper(edge::Stopper);

impl Stopper {
    /// No new connections or requests from now on.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// Has a service's certificate read again.
#[derive(Clone, Debug)]
pub struct TlsReloader(Option<Arc<Tls>>);

impl TlsReloader {
    /// Reads the files again, for connections from now on; on an error the old pair stays. Nothing without TLS.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.0.as_ref().map_or(Ok(()), |tls| tls.reload())
    }
}

impl Service {
    /// Reads the certificate and binds the addresses. Clients can connect from then on, and wait.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Tls`] where the certificate cannot be used, [`ServiceError::Edge`] where an address cannot be bound.
    pub fn bind(options: Options) -> Result<BoundService, ServiceError> {
        let files = options.tls.clone();
        let tls = files.map(|files| Tls::load(files.certificate, files.key)).transpose()?.map(Arc::new);
        let listeners = Listeners::bind(options.listen, options.metrics_listen)?;
        Ok(BoundService { options, listeners, tls })
    }

    /// Serves with a handler of one's own, without metrics. When this returns, requests are answered.
    ///
    /// # Errors
    ///
    /// Those of [`Service::bind`] and [`BoundService::start`].
    pub fn start_with(handler: Handler, options: &Options) -> Result<Service, ServiceError> {
        Service::bind(Options { metrics_listen: None, ..options.clone() })?.begin(handler, None)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.edge.address()
    }

    /// Where it answers `/metrics`.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.edge.metrics_address()
    }

    /// Rises every few seconds, as long as requests are answered.
    pub fn heartbeat(&self) -> Arc<AtomicU64> {
        self.edge.heartbeat()
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub fn stopper(&self) -> Stopper {
        Stopper(self.edge.stopper())
    }

    pub fn tls_reloader(&self) -> TlsReloader {
        TlsReloader(self.tls.clone())
    }

    /// Blocks until a [`Stopper`] has stopped it, or it has failed: the server behind the gate died and could not be replaced.
    pub fn wait(self) -> Result<(), ServiceError> {
        Ok(self.edge.wait()?)
    }

    /// Stops taking requests, answers those under way (for 10 s at most), and returns.
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
