//! The server: it reads requests, brings each to a worker, and answers it. ARCHITECTURE.md has the
//! way of a request, function by function.
//!
//! The edge is one thread with an asynchronous runtime. It faces the clients, so a worker never
//! waits for a client. Two files are beside the way: `tls` has a certificate that can be replaced
//! while the server runs, and `metrics` the listener for Prometheus.

mod app;
mod connection;
mod lanes;
mod metrics;
mod relay;
mod request;
mod tls;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::net::TcpListener as AsyncListener;
use tokio::select;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub use app::{App, Application, Intake};
use lanes::WorkerPool;
use relay::Relay;
use request::Edge;
pub use tls::{Tls, TlsError};

use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::Metrics;

/// The time between two requests of the watchdog.
const WATCHDOG_PERIOD: Duration = Duration::from_secs(3);

/// How long the watchdog waits for a worker before the process ends. Every worker may be busy with
/// a list for 5 s, and a few wait before the watchdog.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a server did not start, or ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
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

/// A running server.
pub struct Server {
    /// The address for clients. If port 0 was configured, it has the port that the system chose.
    pub address: SocketAddr,
    /// The address for metrics, if there is one.
    pub metrics_address: Option<SocketAddr>,
    /// The certificate, which can be reloaded. `None` serves plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// If it is cancelled, the server stops. A copy can be kept where signals are handled.
    pub stopper: CancellationToken,
    thread: JoinHandle<Result<(), ServerError>>,
}

impl Server {
    /// Starts the workers, waits until one receives, and accepts connections.
    pub fn start(
        listeners: Listeners,
        config: &Config,
        app: Arc<dyn Application>,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Server, ServerError> {
        let address = listeners.clients.local_addr().map_err(ServerError::Start)?;
        let metrics_address = listeners.metrics.as_ref().map(TcpListener::local_addr).transpose();
        let metrics_address = metrics_address.map_err(ServerError::Start)?;
        let (tls, stopper) = (listeners.tls.clone(), CancellationToken::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(ServerError::Start)?;
        let relay = Arc::new(Relay::open().map_err(ServerError::Start)?);
        let workers = WorkerPool::start(&app, &relay, config.workers, &metrics);
        let workers = workers.map_err(ServerError::Start)?;
        runtime.block_on(check_workers(&relay))?;
        let edge = Edge::new(app, relay, config, tls.clone(), clock, metrics);
        let stop = stopper.clone();
        let run = move || {
            let result = runtime.block_on(run(listeners, edge, stop));
            drop(workers);
            // A page of metrics that a disk holds up must not hold up the end.
            runtime.shutdown_background();
            result
        };
        let thread = thread::Builder::new().name("edge".into()).spawn(run);
        let thread = thread.map_err(ServerError::Start)?;
        Ok(Server { address, metrics_address, tls, stopper, thread })
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Stops: refuses new requests, finishes those in progress, and returns.
    pub fn stop(self) -> Result<(), ServerError> {
        self.stopper.cancel();
        self.wait()
    }

    /// Blocks until the server has ended.
    pub fn wait(self) -> Result<(), ServerError> {
        self.thread.join().unwrap_or(Err(ServerError::Panicked))
    }
}

/// Bound listeners, and the certificate. Clients can connect; they wait in the backlog until
/// [`Server::start`] is called.
pub struct Listeners {
    clients: TcpListener,
    metrics: Option<TcpListener>,
    tls: Option<Arc<Tls>>,
}

impl Listeners {
    /// Loads the certificate, and binds the addresses.
    pub fn bind(config: &Config) -> Result<Listeners, ServerError> {
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let bind = |address| {
            connection::listen(address).map_err(|error| ServerError::Listen(address, error))
        };
        let clients = bind(config.listen)?;
        Ok(Listeners { clients, metrics: config.metrics_listen.map(bind).transpose()?, tls })
    }
}

async fn run(
    listeners: Listeners,
    edge: Edge,
    stopper: CancellationToken,
) -> Result<(), ServerError> {
    let register = |listener| AsyncListener::from_std(listener).map_err(ServerError::Start);
    let listener = register(listeners.clients)?;
    if let Some(listener) = listeners.metrics {
        tokio::spawn(metrics::serve(register(listener)?, Arc::clone(&edge.metrics)));
    }
    let responses = Arc::clone(&edge.responses);
    tokio::spawn(async move { responses.deliver().await });
    let edge = Arc::new(edge);
    select! {
        () = connection::accept(listener, Arc::clone(&edge), stopper) => Ok(()),
        result = watch(&edge.relay) => result,
    }
}

/// Returns when no request reaches a worker any more.
async fn watch(relay: &Relay) -> Result<(), ServerError> {
    loop {
        sleep(WATCHDOG_PERIOD).await;
        check_workers(relay).await?;
        if sd_notify::watchdog_enabled().is_some() {
            notify(&[NotifyState::Watchdog]);
        }
    }
}

async fn check_workers(relay: &Relay) -> Result<(), ServerError> {
    match timeout(WATCHDOG_TIMEOUT, relay.send_watchdog()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(ServerError::TinyHttpFailed),
        Err(_) => Err(ServerError::NoWorkerReceives),
    }
}

/// Sends the supervisor a message (sd_notify(3)), if `NOTIFY_SOCKET` names one. A failure is
/// logged: the server can serve all the same.
pub(crate) fn notify(message: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(message) {
        tracing::warn!(%error, "the supervisor in NOTIFY_SOCKET cannot be notified");
    }
}
