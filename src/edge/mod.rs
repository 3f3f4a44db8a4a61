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
//! | `parts` | what an edge is started with, and its errors |
//! | `accept` | the listener and the limits on connections |
//! | `connection` | one client connection: TLS, hyper, deadlines, the lingering close |
//! | `stream` | its socket, and the state that its deadlines depend on |
//! | `service` | one request, from its parsed head to the response |
//! | `clients` | the address of a client, and what one address may hold |
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

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use accept::Acceptor;
pub use clients::{NetworkError, parse_network};
use connection::first;
use limits::{WATCHDOG_PERIOD, WATCHDOG_TIMEOUT};
pub use metrics_listener::MetricsPage;
pub use parts::{EdgeError, EdgeParts, Stopper};
use service::EdgeContext;
pub use tls::{Tls, TlsError};

use crate::http::WorkerPool;

/// A running edge. It has one thread.
pub struct Edge {
    /// The address for clients. If port 0 was configured, it has the port that the system chose.
    pub address: SocketAddr,
    /// The address for metrics, if there is one.
    pub metrics_address: Option<SocketAddr>,
    /// Rises every few seconds while tiny_http and the workers take requests.
    pub heartbeat: Arc<AtomicU64>,
    /// Stops this edge.
    pub stopper: Stopper,
    thread: JoinHandle<Result<(), EdgeError>>,
}

impl Edge {
    /// Waits until tiny_http responds, and accepts connections.
    pub fn start(listeners: Listeners, parts: EdgeParts) -> Result<Edge, EdgeError> {
        let address = listeners.address;
        let metrics_address = listeners.metrics.as_ref().map(|(_, address)| *address);
        let stopper = Stopper::default();
        let heartbeat = Arc::<AtomicU64>::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(EdgeError::Start)?;
        let sockets = runtime.block_on(prepare(listeners, &parts))?;
        let (stop, counter) = (stopper.clone(), Arc::clone(&heartbeat));
        let run = move || {
            let result = runtime.block_on(run(sockets, parts, stop, &counter));
            // A page of metrics that a disk holds up must not hold up the end.
            runtime.shutdown_background();
            result
        };
        let thread = thread::Builder::new().name("edge".into()).spawn(run);
        let thread = thread.map_err(EdgeError::Start)?;
        Ok(Edge { address, metrics_address, heartbeat, stopper, thread })
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
    address: SocketAddr,
    /// The listener for metrics and its address.
    metrics: Option<(TcpListener, SocketAddr)>,
}

impl Listeners {
    /// Binds the address for clients and, if there is one, the address for metrics.
    pub fn bind(clients: SocketAddr, metrics: Option<SocketAddr>) -> Result<Listeners, EdgeError> {
        let (clients, address) = bind(clients, accept::listen)?;
        let metrics = metrics.map(|metrics| bind(metrics, metrics_listener::listen)).transpose()?;
        Ok(Listeners { clients, address, metrics })
    }
}

/// Binds a listener. Returns it with the address that the system chose for it.
fn bind(
    address: SocketAddr,
    listen: impl FnOnce(SocketAddr) -> io::Result<TcpListener>,
) -> Result<(TcpListener, SocketAddr), EdgeError> {
    let bound =
        listen(address).and_then(|listener| listener.local_addr().map(|chosen| (listener, chosen)));
    bound.map_err(|error| EdgeError::Listen(address, error))
}

/// Waits until tiny_http responds, and registers the listener for clients and the connection to
/// tiny_http with the runtime.
async fn prepare(
    listeners: Listeners,
    parts: &EdgeParts,
) -> Result<(tokio::net::TcpListener, UnixStream), EdgeError> {
    let listen = |listener, address| {
        tokio::net::TcpListener::from_std(listener).map_err(|e| EdgeError::Listen(address, e))
    };
    beat(&parts.pool).await?;
    let listener = listen(listeners.clients, listeners.address)?;
    if let Some(((metrics, address), page)) = listeners.metrics.zip(parts.metrics_page.clone()) {
        tokio::spawn(metrics_listener::serve(listen(metrics, address)?, page));
    }
    let connection = parts.pool.connection().and_then(UnixStream::from_std);
    Ok((listener, connection.map_err(EdgeError::Start)?))
}

async fn run(
    (listener, connection): (tokio::net::TcpListener, UnixStream),
    parts: EdgeParts,
    stopper: Stopper,
    heartbeat: &AtomicU64,
) -> Result<(), EdgeError> {
    let pool = Arc::clone(&parts.pool);
    let acceptor = Acceptor::new(Arc::new(EdgeContext::new(parts)), stopper);
    let accepting = async {
        acceptor.run(listener).await;
        Ok(())
    };
    let failing = async { Err(first(watch(&pool, heartbeat), closed(&connection)).await) };
    first(accepting, failing).await
}

/// Watches whether requests reach the workers. Returns when they do not.
async fn watch(pool: &WorkerPool, heartbeat: &AtomicU64) -> EdgeError {
    loop {
        sleep(WATCHDOG_PERIOD).await;
        if let Err(error) = beat(pool).await {
            return error;
        }
        heartbeat.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends one request through tiny_http to a worker.
async fn beat(pool: &WorkerPool) -> Result<(), EdgeError> {
    match timeout(WATCHDOG_TIMEOUT, pool.watchdog()).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(EdgeError::Unresponsive("no worker received the watchdog's request")),
    }
}

/// Completes when the connection to tiny_http ends. Nothing is ever written to it.
async fn closed(connection: &UnixStream) -> EdgeError {
    let is_open = |read: io::Result<usize>| {
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    while connection.readable().await.is_ok() && is_open(connection.try_read(&mut [0; 1])) {}
    EdgeError::Unresponsive("its connection has ended")
}
