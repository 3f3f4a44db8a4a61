//! The edge: a reverse proxy in the same process, between clients and tiny_http.
//!
//! tiny_http has no limits on connections, sizes or time. The edge enforces them: it reads each request completely, validates it
//! and forwards it over a private Unix socket. It is one thread with an asynchronous runtime. hyper, tokio and rustls are used
//! nowhere else.
//!
//! The files, in the order in which a request passes through them. Downstream is the client's side, upstream is tiny_http's.
//!
//! | file | responsibility |
//! |---|---|
//! | `parts` | what an edge is started with, and its errors |
//! | `limits` | every limit: times, sizes, counts |
//! | `stopper` | the request to stop |
//! | `accept` | the listener and the limits on connections |
//! | `tls` | the handshake; a certificate that can be replaced at run time |
//! | `connection_state` | what the stream and the service of one connection share |
//! | `deadline_stream` | the deadlines for an idle connection, a request head and a write |
//! | `message_boundaries`, `boundary_stream` | where each request on a connection begins and ends |
//! | `connection` | one client connection, from accept to the lingering close |
//! | `validate` | the checks on a request head that hyper does not make |
//! | `client_address` | the client's address, from the peer or a trusted proxy |
//! | `body` | reading a request body |
//! | `service` | one request, through all these steps |
//! | `forward` | a request as it is written to an upstream connection |
//! | `queue` | waiting requests, dequeued round-robin by client address |
//! | `upstream_pool` | the connections to tiny_http |
//! | `upstream_response` | reading a response from an upstream connection |
//! | `response` | responses to clients, forwarded or local |
//! | `memory_budget` | limits on the memory of all bodies and of all responses |
//! | `metrics_listener` | the separate listener for `/metrics` |
//! | `health_check` | probes of tiny_http, and its replacement when they fail |

mod accept;
mod body;
mod boundary_stream;
mod client_address;
mod connection;
mod connection_state;
mod deadline_stream;
mod forward;
mod health_check;
mod limits;
mod memory_budget;
mod message_boundaries;
mod metrics_listener;
mod parts;
mod queue;
mod response;
mod service;
mod stopper;
mod tls;
mod upstream_pool;
mod upstream_response;
mod validate;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

pub use client_address::{NetworkError, parse_network};
pub use health_check::StartServer;
pub use metrics_listener::MetricsPage;
pub use parts::{EdgeError, EdgeParts};
pub use stopper::Stopper;
pub use tls::{Tls, TlsError};

/// A running edge. It has one thread.
pub struct Edge {
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    heartbeat: Arc<AtomicU64>,
    stopper: Stopper,
    thread: JoinHandle<Result<(), EdgeError>>,
}

impl Edge {
    /// Starts the upstream server, waits until it responds, and accepts connections.
    ///
    /// # Errors
    ///
    /// [`EdgeError::Start`] if the thread or the upstream server cannot be started, [`EdgeError::Listen`] if the runtime cannot
    /// take over a listener.
    pub fn start(listeners: Listeners, parts: EdgeParts, start_server: StartServer) -> Result<Edge, EdgeError> {
        let address = listeners.address;
        let metrics_address = listeners.metrics.as_ref().map(|(_, address)| *address);
        let stopper = Stopper::default();
        let heartbeat = Arc::<AtomicU64>::default();
        let (ready, started) = mpsc::channel();
        let (stop, counter) = (stopper.clone(), Arc::clone(&heartbeat));
        let thread = thread::Builder::new()
            .name("edge".into())
            .spawn(move || run(listeners, parts, start_server, stop, counter, &ready))
            .map_err(EdgeError::Start)?;
        match started.recv() {
            Ok(()) => Ok(Edge { address, metrics_address, heartbeat, stopper, thread }),
            Err(_) => Err(thread.join().unwrap_or(Err(EdgeError::Panicked)).err().unwrap_or(EdgeError::Panicked)),
        }
    }

    /// The address for clients. If port 0 was configured, it has the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for metrics, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// The number of successful health checks so far. It rises every few seconds while the upstream server responds.
    pub fn heartbeat(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.heartbeat)
    }

    /// A handle that stops this edge.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Blocks until the edge has ended.
    ///
    /// # Errors
    ///
    /// [`EdgeError::Unresponsive`] or [`EdgeError::Panicked`] if it ended without being asked to.
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
    ///
    /// # Errors
    ///
    /// [`EdgeError::Listen`] with the address that cannot be bound.
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
    let bound = listen(address).and_then(|listener| listener.local_addr().map(|chosen| (listener, chosen)));
    bound.map_err(|error| EdgeError::Listen(address, error))
}

fn run(
    listeners: Listeners,
    parts: EdgeParts,
    start_server: StartServer,
    stopper: Stopper,
    heartbeat: Arc<AtomicU64>,
    ready: &mpsc::Sender<()>,
) -> Result<(), EdgeError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(EdgeError::Start)?;
    runtime.block_on(async {
        let upstream = health_check::Upstream::start(start_server, heartbeat).await?;
        let listen =
            |listener, address| tokio::net::TcpListener::from_std(listener).map_err(|e| EdgeError::Listen(address, e));
        let listener = listen(listeners.clients, listeners.address)?;
        if let Some(((metrics, address), page)) = listeners.metrics.zip(parts.metrics_page.clone()) {
            tokio::spawn(metrics_listener::serve(listen(metrics, address)?, page));
        }
        let context = Arc::new(service::EdgeContext::new(&parts, Arc::clone(upstream.pool())));
        // The receiver is gone only if the thread in `Edge::start` has panicked.
        let _ = ready.send(());
        let accepting = accept::serve(listener, context, parts.tls, stopper);
        health_check::run_until_failure(accepting, upstream).await
    })
}
