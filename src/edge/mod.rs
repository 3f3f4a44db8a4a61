//! The edge: it faces the clients.
//!
//! tiny_http has no limits on connections, sizes or time. The edge has them: it reads each request
//! completely, validates it and hands it to the worker pool. It is one thread with an asynchronous
//! runtime. hyper and rustls are used nowhere else.
//!
//! The files, in the order of a request:
//!
//! | file | responsibility |
//! |---|---|
//! | `accept` | the listener and the limits on connections |
//! | `connection` | one client connection: TLS, hyper, deadlines, the lingering close |
//! | `stream` | its socket, and the state that its deadlines depend on |
//! | `service` | one request, from its parsed head to the response |
//! | `clients` | the address of a client, and the limits of one address |
//! | `validate` | the checks on a request head that hyper does not make |
//! | `response` | the response as hyper sends it |
//! | `limits` | every limit: times, sizes, counts |
//! | `tls` | a certificate that can be replaced at run time |
//! | `metrics_listener` | the separate listener for `/metrics` |

mod accept;
mod clients;
mod connection;
mod limits;
mod metrics_listener;
mod response;
mod service;
mod stream;
mod tls;
mod validate;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::select;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use accept::Acceptor;
pub use limits::CONNECTION_LIMITS;
use limits::{WATCHDOG_PERIOD, WATCHDOG_TIMEOUT};
use service::EdgeContext;
pub use tls::{Tls, TlsError};

use crate::app::Application;
use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::supervisor;
use crate::workers::WorkerPool;

/// Why an edge did not start, or ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
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

/// A running edge. It has one thread.
pub struct Edge {
    /// The address for clients. If port 0 was configured, it has the port that the system chose.
    pub address: SocketAddr,
    /// The address for metrics, if there is one.
    pub metrics_address: Option<SocketAddr>,
    /// The certificate, which can be reloaded. `None` serves plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// If it is cancelled, the edge stops. A copy can be kept where signals are handled.
    pub stopper: CancellationToken,
    thread: JoinHandle<Result<(), EdgeError>>,
}

impl Edge {
    /// Starts the workers, waits until one receives, and accepts connections.
    pub fn start(
        listeners: Listeners,
        config: &Config,
        app: Arc<dyn Application>,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Edge, EdgeError> {
        let address = listeners.clients.local_addr().map_err(EdgeError::Start)?;
        let metrics_address = listeners.metrics.as_ref().map(TcpListener::local_addr).transpose();
        let metrics_address = metrics_address.map_err(EdgeError::Start)?;
        let (tls, stopper) = (listeners.tls.clone(), CancellationToken::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(EdgeError::Start)?;
        let pool = WorkerPool::start(Arc::clone(&app), config.workers, Arc::clone(&metrics));
        let pool = Arc::new(pool.map_err(EdgeError::Start)?);
        runtime.block_on(probe(&pool))?;
        let context = EdgeContext::new(app, pool, config, tls.clone(), clock, metrics);
        let stop = stopper.clone();
        let run = move || {
            let result = runtime.block_on(run(listeners, context, stop));
            // A page of metrics that a disk holds up must not hold up the end.
            runtime.shutdown_background();
            result
        };
        let thread = thread::Builder::new().name("edge".into()).spawn(run);
        let thread = thread.map_err(EdgeError::Start)?;
        Ok(Edge { address, metrics_address, tls, stopper, thread })
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Stops: refuses new requests, finishes those in progress, and returns.
    pub fn stop(self) -> Result<(), EdgeError> {
        self.stopper.cancel();
        self.wait()
    }

    /// Blocks until the edge has ended.
    pub fn wait(self) -> Result<(), EdgeError> {
        self.thread.join().unwrap_or(Err(EdgeError::Panicked))
    }
}

/// Bound listeners, and the certificate. Clients can connect; they wait in the backlog until
/// [`Edge::start`] is called.
pub struct Listeners {
    clients: TcpListener,
    metrics: Option<TcpListener>,
    tls: Option<Arc<Tls>>,
}

impl Listeners {
    /// Loads the certificate, and binds the addresses.
    pub fn bind(config: &Config) -> Result<Listeners, EdgeError> {
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let bind =
            |address| accept::listen(address).map_err(|error| EdgeError::Listen(address, error));
        let clients = bind(config.listen)?;
        Ok(Listeners { clients, metrics: config.metrics_listen.map(bind).transpose()?, tls })
    }
}

async fn run(
    listeners: Listeners,
    context: EdgeContext,
    stopper: CancellationToken,
) -> Result<(), EdgeError> {
    let register = |listener| tokio::net::TcpListener::from_std(listener).map_err(EdgeError::Start);
    let listener = register(listeners.clients)?;
    if let Some(listener) = listeners.metrics {
        let metrics = Arc::clone(&context.metrics);
        tokio::spawn(metrics_listener::serve(register(listener)?, metrics));
    }
    let context = Arc::new(context);
    let acceptor = Acceptor::new(Arc::clone(&context), stopper);
    select! {
        () = acceptor.run(listener) => Ok(()),
        result = watch(&context.pool) => result,
    }
}

/// Probes the workers again and again, and tells the supervisor. Returns when no request reaches a
/// worker any more.
async fn watch(pool: &WorkerPool) -> Result<(), EdgeError> {
    loop {
        sleep(WATCHDOG_PERIOD).await;
        probe(pool).await?;
        supervisor::ping();
    }
}

/// Sends one request through tiny_http to a worker.
async fn probe(pool: &WorkerPool) -> Result<(), EdgeError> {
    match timeout(WATCHDOG_TIMEOUT, pool.probe()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(EdgeError::TinyHttpFailed),
        Err(_) => Err(EdgeError::NoWorkerReceives),
    }
}
