//! The running server: the edge, the worker pool and the application.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::HeaderMap;

use crate::allocator;
use crate::api::routes;
use crate::app::App;
use crate::clock::Clock;
use crate::config::Config;
use crate::edge::{Edge, EdgeError, EdgeParts, Listeners, MetricsPage, Stopper, Tls, TlsError};
use crate::http::request::MAX_BODY;
use crate::http::{Handler, Response, WorkerPool};
use crate::metrics::{self, Metrics};

/// Why a server did not start or ended unexpectedly.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be bound, or the edge failed.
    #[error(transparent)]
    Edge(#[from] EdgeError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A server that is bound to its addresses but not started. Clients can connect and wait.
pub struct BoundServer {
    config: Config,
    listeners: Listeners,
    tls: Option<Arc<Tls>>,
}

/// What a server does with requests.
struct Application {
    handler: Handler,
    max_body: fn(&str, &HeaderMap) -> usize,
    clock: Clock,
    metrics: Arc<Metrics>,
    metrics_page: Option<MetricsPage>,
}

impl BoundServer {
    /// Starts the server with the application's clock and metrics. Requests are served when this
    /// returns.
    pub fn start(self, app: Arc<App>) -> Result<Server, ServerError> {
        let (clock, metrics) = (app.clock.clone(), Arc::clone(&app.metrics));
        let metrics_page = Some(metrics_page(Arc::clone(&app)));
        let handler: Handler = Arc::new(move |request, reply, turns| app.respond(request, reply, turns));
        self.run(Application { handler, max_body: routes::max_body, clock, metrics, metrics_page })
    }

    fn run(self, application: Application) -> Result<Server, ServerError> {
        allocator::return_memory_when_idle();
        let BoundServer { config, listeners, tls } = self;
        let Application { handler, max_body, clock, metrics, metrics_page } = application;
        let pool = WorkerPool::start(handler, config.workers, Arc::clone(&metrics));
        let parts = EdgeParts {
            limits: config.connections,
            proxies: config.trusted_proxies,
            pool: Arc::new(pool.map_err(EdgeError::Start)?),
            max_body,
            tls: tls.clone(),
            clock,
            metrics,
            metrics_page,
        };
        Ok(Server { edge: Edge::start(listeners, parts)?, tls })
    }
}

/// A running server.
pub struct Server {
    edge: Edge,
    tls: Option<Arc<Tls>>,
}

/// A handle that reloads a server's certificate.
#[derive(Clone, Debug)]
pub struct TlsReloader(Option<Arc<Tls>>);

impl TlsReloader {
    /// Reloads certificate and key for new connections. Does nothing without TLS. If the files
    /// cannot be used, the previous pair stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.0.as_ref().map_or(Ok(()), |tls| tls.reload())
    }
}

impl Server {
    /// Loads the certificate and binds the addresses. Clients can connect from then on, and wait.
    pub fn bind(config: Config) -> Result<BoundServer, ServerError> {
        let files = config.tls.clone();
        let tls = files.map(|files| Tls::load(files.certificate, files.key)).transpose()?.map(Arc::new);
        let listeners = Listeners::bind(config.listen, config.metrics_listen)?;
        Ok(BoundServer { config, listeners, tls })
    }

    /// Starts a server with `handler`, which takes a body of [`MAX_BODY`] on every path, and
    /// without `/metrics`. Requests are served when this returns.
    pub fn start_with(handler: Handler, config: Config, clock: Clock) -> Result<Server, ServerError> {
        let max_body = |_: &str, _: &HeaderMap| MAX_BODY;
        let metrics = Arc::default();
        let application = Application { handler, max_body, clock, metrics, metrics_page: None };
        Server::bind(Config { metrics_listen: None, ..config })?.run(application)
    }

    pub fn address(&self) -> SocketAddr {
        self.edge.address()
    }

    /// The address of `/metrics`, if any.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.edge.metrics_address()
    }

    /// A counter that rises every few seconds while requests are served.
    pub fn heartbeat(&self) -> Arc<AtomicU64> {
        self.edge.heartbeat()
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// A handle that stops this server: it refuses new connections and requests.
    pub fn stopper(&self) -> Stopper {
        self.edge.stopper()
    }

    /// A handle that reloads the certificate.
    pub fn tls_reloader(&self) -> TlsReloader {
        TlsReloader(self.tls.clone())
    }

    /// Blocks until the server has stopped, or failed.
    pub fn wait(self) -> Result<(), ServerError> {
        Ok(self.edge.wait()?)
    }

    /// Stops the server: refuses new requests, finishes the running ones within at most 10 seconds,
    /// and returns.
    pub fn stop(self) -> Result<(), ServerError> {
        self.stopper().stop();
        self.wait()
    }
}

fn metrics_page(app: Arc<App>) -> MetricsPage {
    Arc::new(move || {
        let text = app.metrics.render(app.gauges());
        Response::new(200, metrics::CONTENT_TYPE, text.into_bytes())
    })
}
