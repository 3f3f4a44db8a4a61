//! The public context: it reads whole, checked requests from clients and hands them to tiny_http.
//!
//! tiny_http was written for friendly peers. Here stands what keeps the others out: one thread, the only asynchronous
//! code of the program and the only place that names hyper, tokio or rustls. The files in the order of a request's way:
//!
//! | file | its one concern |
//! |---|---|
//! | `limits` | every number: times, sizes, counts |
//! | `accept` | the listener and the caps on connections |
//! | `tls` | the handshake, and certificates that can be exchanged while running |
//! | `stream` | deadlines: idle, a slow head, a peer that does not read |
//! | `messages` | where each request on a connection begins and ends; what hyper does not return of a head |
//! | `connection` | one client's connection from accept to the lingering close |
//! | `check` | what hyper lets through and we refuse |
//! | `client` | whose request it is: the peer's address, or what a trusted proxy says |
//! | `body` | collecting the body, or giving up on it |
//! | `service` | a request's way through all of these |
//! | `queued` | handing on: a whole request as bytes, and the way back for its answer |
//! | `queue` | waiting requests, taken in turn by client address |
//! | `lines` | the connections to tiny_http |
//! | `answer` | reading an answer from a line; answers of the gate's own |
//! | `budget` | how much memory bodies and answers may take together |
//! | `metrics_page` | the operator's listener for metrics |
//! | `watch` | noticing that tiny_http has died, and making a new one |

mod accept;
mod body;
mod client_address;
mod connection;
mod deadline_stream;
mod forward;
mod health_check;
mod limits;
mod memory_budget;
mod message_boundaries;
mod metrics_listener;
mod queue;
mod response;
mod service;
mod tls;
mod upstream_pool;
mod validate;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::Notify;

use crate::metrics::Metrics;

pub use client_address::{Network, NetworkError};
pub use health_check::StartServer;
pub use limits::Limits;
pub use metrics_listener::MetricsPage;
pub use tls::{Tls, TlsError};

/// What a gate is made with.
pub struct EdgeConfig {
    pub limits: Limits,
    pub proxies: Vec<Network>,
    pub tls: Option<Arc<Tls>>,
    /// Counts what the gate answers itself.
    pub metrics: Arc<Metrics>,
    /// What to answer on `/metrics`, where the listeners include one for it.
    pub metrics_page: Option<MetricsPage>,
}

/// Why a gate ended that nobody asked to.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("cannot start the server behind the gate: {0}")]
    Start(#[source] io::Error),
    #[error("the server behind the gate stopped answering and could not be replaced: {0}")]
    Unresponsive(String),
    #[error("the gate's thread panicked")]
    Panicked,
}

/// A running gate: one thread.
pub struct Edge {
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    heartbeat: Arc<AtomicU64>,
    stopper: Stopper,
    thread: JoinHandle<Result<(), EdgeError>>,
}

/// Asks a gate to stop; can be cloned and kept where signals are handled.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    asked: AtomicBool,
    notify: Notify,
}

impl Stopper {
    /// No new connections or requests from now on; [`Edge::wait`] returns when those under way are answered.
    pub fn stop(&self) {
        self.0.asked.store(true, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }

    fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::SeqCst)
    }

    async fn asked(&self) {
        let notified = self.0.notify.notified();
        if !self.is_asked() {
            notified.await;
        }
    }
}

impl Edge {
    /// Starts the server behind it, proves that it answers, and accepts connections from then on.
    pub fn start(listeners: Listeners, config: EdgeConfig, start_server: StartServer) -> Result<Edge, EdgeError> {
        let address = listeners.address;
        let metrics_address = listeners.metrics.as_ref().map(|(_, address)| *address);
        let stopper = Stopper::default();
        let (ready, started) = mpsc::channel();
        let asked = stopper.clone();
        let heartbeat = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&heartbeat);
        let thread = thread::Builder::new()
            .name("edge".into())
            .spawn(move || run(listeners, config, start_server, asked, counter, &ready))
            .map_err(EdgeError::Start)?;
        match started.recv() {
            Ok(()) => Ok(Edge { address, metrics_address, heartbeat, stopper, thread }),
            Err(_) => Err(thread.join().unwrap_or(Err(EdgeError::Panicked)).err().unwrap_or(EdgeError::Panicked)),
        }
    }

    /// Where it listens; with the port that the system chose where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens for those who ask for metrics.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// How often this thread has seen so far that a worker answers; it looks every few seconds. What does not rise any more
    /// has stopped serving.
    pub fn heartbeat(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.heartbeat)
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Blocks until the gate has stopped because it was asked to, or has failed.
    pub fn wait(self) -> Result<(), EdgeError> {
        self.thread.join().unwrap_or(Err(EdgeError::Panicked))
    }
}

/// Bound listeners. Clients can connect; they wait in the backlog until [`Edge::start`] is called.
#[derive(Debug)]
pub struct Listeners {
    clients: TcpListener,
    address: SocketAddr,
    /// The operator's listener for metrics, and its address.
    metrics: Option<(TcpListener, SocketAddr)>,
}

impl Listeners {
    /// Binds the address for clients and, if there is one, the address for metrics.
    ///
    /// # Errors
    ///
    /// [`EdgeError::Listen`] with the address that cannot be bound.
    pub fn bind(clients: SocketAddr, metrics: Option<SocketAddr>) -> Result<Listeners, EdgeError> {
        let (clients, address) = bound(clients, accept::listen)?;
        let metrics = metrics.map(|metrics| bound(metrics, metrics_listener::listen)).transpose()?;
        Ok(Listeners { clients, address, metrics })
    }
}

/// A listener, and the address that the system chose for it.
fn bound(
    address: SocketAddr,
    listen: impl FnOnce(SocketAddr) -> io::Result<TcpListener>,
) -> Result<(TcpListener, SocketAddr), EdgeError> {
    let listening = listen(address).and_then(|listener| listener.local_addr().map(|chosen| (listener, chosen)));
    listening.map_err(|error| EdgeError::Listen(address, error))
}

fn run(
    listeners: Listeners,
    config: EdgeConfig,
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
        if let Some(((metrics, address), page)) = listeners.metrics.zip(config.metrics_page.clone()) {
            tokio::spawn(metrics_listener::serve(listen(metrics, address)?, page));
        }
        let pool = Arc::clone(upstream.pool());
        let context = Arc::new(service::EdgeContext::new(&config, pool));
        // Nobody waits for it only where `start` was given up.
        let _ = ready.send(());
        let accepting = accept::serve(listener, Arc::clone(&context), config.tls, stopper);
        health_check::until(accepting, upstream).await
    })
}
