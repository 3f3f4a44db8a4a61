//! The edge: it faces the clients.
//!
//! The edge reads each request completely, validates it and hands it to the worker pool, because of
//! what `workers/relay.rs` says. It is one thread with an asynchronous runtime.
//!
//! The files, in the order of a request:
//!
//! | file | responsibility |
//! |---|---|
//! | `connection` | the listener, and one client connection from accept to the lingering close |
//! | `service` | one request: the checks on its head, its body, the response as hyper sends it |
//! | `clients` | the address of a client, and what one address may take |
//! | `tls` | a certificate that can be replaced at run time |

mod clients;
mod connection;
mod service;
mod tls;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener as AsyncListener, TcpStream};
use tokio::select;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use connection::{ACCEPT_PAUSE, MAX_BUFFER};
use service::EdgeContext;
pub use tls::{Tls, TlsError};

use crate::app::Application;
use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::{Format, Metrics};
use crate::process;
use crate::workers::WorkerPool;

/// The time between two requests of the watchdog.
const WATCHDOG_PERIOD: Duration = Duration::from_secs(3);

/// How long the watchdog waits for a worker before the process ends. Every worker may be busy with
/// a list for 5 s, and a few wait before the watchdog.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(30);

/// The concurrent connections to the listener for metrics. The oldest is closed for one more.
const MAX_METRICS_CONNECTIONS: usize = 8;

/// How long a connection to the listener for metrics may take in total.
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);

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
        runtime.block_on(check_workers(&pool))?;
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
        let bind = |address| {
            connection::listen(address).map_err(|error| EdgeError::Listen(address, error))
        };
        let clients = bind(config.listen)?;
        Ok(Listeners { clients, metrics: config.metrics_listen.map(bind).transpose()?, tls })
    }
}

async fn run(
    listeners: Listeners,
    context: EdgeContext,
    stopper: CancellationToken,
) -> Result<(), EdgeError> {
    let register = |listener| AsyncListener::from_std(listener).map_err(EdgeError::Start);
    let listener = register(listeners.clients)?;
    if let Some(listener) = listeners.metrics {
        let metrics = Arc::clone(&context.metrics);
        tokio::spawn(serve_metrics(register(listener)?, metrics));
    }
    let context = Arc::new(context);
    select! {
        () = connection::accept(listener, Arc::clone(&context), stopper) => Ok(()),
        result = watch(&context.pool) => result,
    }
}

/// Checks the workers again and again, and tells the supervisor. Returns when no request reaches a
/// worker any more.
async fn watch(pool: &WorkerPool) -> Result<(), EdgeError> {
    loop {
        sleep(WATCHDOG_PERIOD).await;
        check_workers(pool).await?;
        process::ping();
    }
}

/// Sends a request to a worker, and waits until the worker has received it.
async fn check_workers(pool: &WorkerPool) -> Result<(), EdgeError> {
    match timeout(WATCHDOG_TIMEOUT, pool.send_watchdog()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(EdgeError::TinyHttpFailed),
        Err(_) => Err(EdgeError::NoWorkerReceives),
    }
}

/// Serves `/metrics`, in plain HTTP, until the runtime ends. A connection carries one request and
/// is limited to [`METRICS_TIMEOUT`]. If there are too many connections, the oldest closes, so that
/// idle connections hold up nobody.
async fn serve_metrics(listener: AsyncListener, metrics: Arc<Metrics>) {
    let mut open = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|task: &AbortHandle| !task.is_finished());
                if open.len() >= MAX_METRICS_CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                let serving = serve_metrics_connection(stream, Arc::clone(&metrics));
                let serving = timeout(METRICS_TIMEOUT, serving);
                open.push_back(tokio::spawn(serving).abort_handle());
            }
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_metrics_connection(stream: TcpStream, metrics: Arc<Metrics>) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let metrics = Arc::clone(&metrics);
        async move { Ok::<_, Infallible>(respond_with_metrics(&request, metrics).await) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).header_read_timeout(None).max_buf_size(MAX_BUFFER);
    http.serve_connection(TokioIo::new(stream), service).await
}

async fn respond_with_metrics(
    request: &Request<Incoming>,
    metrics: Arc<Metrics>,
) -> Response<String> {
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::accepted_by(accept.unwrap_or_default());
    let (status, body) = match request.uri().path() {
        // It reads files, so it runs on a thread of its own.
        "/metrics" => {
            match spawn_blocking(move || metrics.render(format)).await {
                Ok(rendered) => (StatusCode::OK, rendered),
                // The place of the panic is on standard error.
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
            }
        }
        _ => (StatusCode::NOT_FOUND, "# The metrics are at /metrics.\n".to_owned()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
