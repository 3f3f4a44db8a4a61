//! The running server: the edge, the worker pool and the application.

use std::sync::Arc;

use crate::allocator;
use crate::api::routes;
use crate::app::App;
use crate::config::Config;
use crate::edge::{CONNECTION_LIMITS, Edge, EdgeError, EdgeParts, Listeners, Tls};
use crate::http::{Handler, WorkerPool};

/// A server that is bound to its addresses but not started. Clients can connect and wait.
pub struct BoundServer {
    config: Config,
    listeners: Listeners,
    tls: Option<Arc<Tls>>,
}

impl BoundServer {
    /// Loads the certificate and binds the addresses.
    pub fn bind(config: Config) -> Result<BoundServer, EdgeError> {
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let listeners = Listeners::bind(config.listen, config.metrics_listen)?;
        Ok(BoundServer { config, listeners, tls })
    }

    /// Starts the server with the application's clock and metrics. Requests are served when this
    /// returns. `on_probe` is called every few seconds while they are.
    pub fn start(self, app: Arc<App>, on_probe: fn()) -> Result<Edge, EdgeError> {
        allocator::return_memory_when_idle();
        let BoundServer { config, listeners, tls } = self;
        let (clock, metrics) = (app.clock.clone(), Arc::clone(&app.metrics));
        let handler: Handler = Arc::new(move |request, responder| app.admit(request, responder));
        let pool = WorkerPool::start(handler, config.workers, Arc::clone(&metrics));
        let parts = EdgeParts {
            limits: config.connections.unwrap_or(CONNECTION_LIMITS),
            proxies: config.trusted_proxies,
            pool: Arc::new(pool.map_err(EdgeError::Start)?),
            max_body: routes::max_body,
            tls,
            on_probe,
            clock,
            metrics,
        };
        Edge::start(listeners, parts)
    }
}
