//! The running server: the edge, the worker pool and the application.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::allocator;
use crate::api::routes;
use crate::app::App;
use crate::config::Config;
use crate::edge::{Edge, EdgeError, EdgeParts, Listeners, MetricsPage, Tls};
use crate::http::{Handler, Response, WorkerPool};
use crate::metrics;

/// A server that is bound to its addresses but not started. Clients can connect and wait.
pub struct BoundServer {
    config: Config,
    listeners: Listeners,
    tls: Option<Arc<Tls>>,
}

/// A running server.
pub struct Server {
    /// Its addresses, and what stops it.
    pub edge: Edge,
    /// The certificate, which can be reloaded. `None` serves plain HTTP.
    pub tls: Option<Arc<Tls>>,
}

impl BoundServer {
    /// Starts the server with the application's clock and metrics. Requests are served when this
    /// returns.
    pub fn start(self, app: Arc<App>) -> Result<Server, EdgeError> {
        allocator::return_memory_when_idle();
        let BoundServer { config, listeners, tls } = self;
        let (clock, metrics) = (app.clock.clone(), Arc::clone(&app.metrics));
        let metrics_page = metrics_page(Arc::clone(&app));
        let handler: Handler =
            Arc::new(move |request, reply, turns| app.respond(request, reply, turns));
        let pool = WorkerPool::start(handler, config.workers, Arc::clone(&metrics));
        let parts = EdgeParts {
            limits: config.connections,
            proxies: config.trusted_proxies,
            pool: Arc::new(pool.map_err(EdgeError::Start)?),
            max_body: routes::max_body,
            tls: tls.clone(),
            clock,
            metrics,
            metrics_page: Some(metrics_page),
        };
        Ok(Server { edge: Edge::start(listeners, parts)?, tls })
    }
}

impl Server {
    /// Loads the certificate and binds the addresses. Clients can connect from then on, and wait.
    pub fn bind(config: Config) -> Result<BoundServer, EdgeError> {
        let files = config.tls.clone();
        let tls =
            files.map(|files| Tls::load(files.certificate, files.key)).transpose()?.map(Arc::new);
        let listeners = Listeners::bind(config.listen, config.metrics_listen)?;
        Ok(BoundServer { config, listeners, tls })
    }

    pub fn address(&self) -> SocketAddr {
        self.edge.address
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Blocks until the server has stopped, or failed.
    pub fn wait(self) -> Result<(), EdgeError> {
        self.edge.wait()
    }

    /// Stops the server: refuses new requests, finishes the running ones within at most 10 seconds,
    /// and returns.
    pub fn stop(self) -> Result<(), EdgeError> {
        self.edge.stopper.stop();
        self.wait()
    }
}

fn metrics_page(app: Arc<App>) -> MetricsPage {
    Arc::new(move || {
        let text = app.metrics.render(app.tenants.open_count());
        Response::new(200, metrics::CONTENT_TYPE, text.into_bytes())
    })
}
