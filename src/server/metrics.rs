//! The listener for Prometheus.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::connection::{ACCEPT_PAUSE, MAX_BUFFER};
use crate::metrics::{Metrics, MetricsFormat};

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
    let service = service_fn(move |request| {
        let metrics = Arc::clone(&metrics);
        async move { Ok::<_, Infallible>(respond(&request, metrics).await) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).header_read_timeout(None).max_buf_size(MAX_BUFFER);
    http.serve_connection(TokioIo::new(stream), service).await
}

async fn respond(request: &Request<Incoming>, metrics: Arc<Metrics>) -> Response<String> {
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = MetricsFormat::accepted_by(accept.unwrap_or_default());
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
