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
//! | `parts` | the parts with which an edge starts, and its errors |
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
mod parts;
mod response;
mod service;
mod stream;
mod tls;
mod validate;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::select;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use accept::Acceptor;
pub use limits::CONNECTION_LIMITS;
use limits::{WATCHDOG_PERIOD, WATCHDOG_TIMEOUT};
pub use parts::{EdgeError, EdgeParts};
use service::EdgeContext;
pub use tls::{Tls, TlsError};

use crate::http::WorkerPool;

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
    /// Waits until tiny_http responds, and accepts connections.
    pub fn start(listeners: Listeners, parts: EdgeParts) -> Result<Edge, EdgeError> {
        let address = listeners.clients.local_addr().map_err(EdgeError::Start)?;
        let metrics_address = listeners.metrics.as_ref().map(TcpListener::local_addr).transpose();
        let metrics_address = metrics_address.map_err(EdgeError::Start)?;
        let (tls, stopper) = (parts.tls.clone(), CancellationToken::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(EdgeError::Start)?;
        runtime.block_on(probe(&parts.pool))?;
        let stop = stopper.clone();
        let run = move || {
            let result = runtime.block_on(run(listeners, parts, stop));
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

/// Bound listeners. Clients can connect; they wait in the backlog until [`Edge::start`] is called.
#[derive(Debug)]
pub struct Listeners {
    clients: TcpListener,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Binds the address for clients and, if there is one, the address for metrics.
    pub fn bind(clients: SocketAddr, metrics: Option<SocketAddr>) -> Result<Listeners, EdgeError> {
        let bind =
            |address| accept::listen(address).map_err(|error| EdgeError::Listen(address, error));
        Ok(Listeners { clients: bind(clients)?, metrics: metrics.map(bind).transpose()? })
    }
}

async fn run(
    listeners: Listeners,
    parts: EdgeParts,
    stopper: CancellationToken,
) -> Result<(), EdgeError> {
    let register = |listener| tokio::net::TcpListener::from_std(listener).map_err(EdgeError::Start);
    let listener = register(listeners.clients)?;
    if let Some(listener) = listeners.metrics {
        let metrics = Arc::clone(&parts.metrics);
        tokio::spawn(metrics_listener::serve(register(listener)?, metrics));
    }
    let (pool, on_probe) = (Arc::clone(&parts.pool), parts.on_probe);
    let acceptor = Acceptor::new(Arc::new(EdgeContext::new(parts)), stopper);
    select! {
        () = acceptor.run(listener) => Ok(()),
        result = watch(&pool, on_probe) => result,
    }
}

/// Probes the workers again and again. Returns when no request reaches a worker any more.
async fn watch(pool: &WorkerPool, on_probe: fn()) -> Result<(), EdgeError> {
    loop {
        sleep(WATCHDOG_PERIOD).await;
        probe(pool).await?;
        on_probe();
    }
}

/// Sends one request through tiny_http to a worker.
async fn probe(pool: &WorkerPool) -> Result<(), EdgeError> {
    match timeout(WATCHDOG_TIMEOUT, pool.watchdog()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(EdgeError::Unresponsive("its connection has ended")),
        Err(_) => Err(EdgeError::Unresponsive("no worker received the watchdog's request")),
    }
}
