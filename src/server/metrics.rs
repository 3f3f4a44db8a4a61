//! The listener for Prometheus.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::connection::{ACCEPT_PAUSE, MAX_BUFFER};
use crate::metrics::{CONTENT_TYPE, Metrics};

/// The concurrent connections. The oldest is closed for one more.
const MAX_CONNECTIONS: usize = 8;

/// How long a connection may take in total.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves `/metrics`, in plain HTTP, until the runtime ends. A connection carries one request and
/// is limited to [`TIMEOUT`]. If there are too many connections, the oldest closes, so that
/// idle connections hold up nobody.
pub(super) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let mut open = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|task: &AbortHandle| !task.is_finished());
                if open.len() >= MAX_CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                let serving = serve_connection(stream, Arc::clone(&metrics));
                let serving = timeout(TIMEOUT, serving);
                open.push_back(tokio::spawn(serving).abort_handle());
            }
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, metrics: Arc<Metrics>) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let metrics = Arc::clone(&metrics);
        async move { Ok::<_, Infallible>(respond(request.uri().path(), metrics).await) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).header_read_timeout(None).max_buf_size(MAX_BUFFER);
    http.serve_connection(TokioIo::new(stream), service).await
}

async fn respond(path: &str, metrics: Arc<Metrics>) -> Response<String> {
    let (status, body) = match path {
        // It reads files, so it runs on a thread of its own.
        "/metrics" => match spawn_blocking(move || metrics.render()).await {
            Ok(rendered) => (StatusCode::OK, rendered),
            // The place of the panic is on standard error.
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        },
        _ => (StatusCode::NOT_FOUND, "# The metrics are at /metrics.\n".to_owned()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}
