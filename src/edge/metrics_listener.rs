//! The separate listener for `/metrics`. It serves plain HTTP, because it is meant for an internal
//! network.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::limits::{ACCEPT_PAUSE, MAX_BUFFER, MAX_METRICS_CONNECTIONS, METRICS_TIMEOUT};
use crate::http::{ApiError, ErrorCode};

/// Produces the response to `/metrics`.
pub type MetricsPage = Arc<dyn Fn() -> crate::http::Response + Send + Sync>;

const PATH: &str = "/metrics";
const METHODS: &str = "GET, HEAD";

/// Binds the listener.
pub(super) fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves until the runtime ends. A connection carries one request and is limited to
/// [`METRICS_TIMEOUT`]. Where there are too many, the oldest is closed, so that idle ones hold up
/// nobody.
pub(super) async fn serve(listener: TcpListener, page: MetricsPage) {
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
                let serving = timeout(METRICS_TIMEOUT, serve_connection(stream, Arc::clone(&page)));
                open.push_back(tokio::spawn(serving).abort_handle());
            }
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, page: MetricsPage) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let page = Arc::clone(&page);
        async move { Ok::<_, Infallible>(respond(&request, page).await) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).header_read_timeout(None).max_buf_size(MAX_BUFFER);
    http.serve_connection(TokioIo::new(stream), service).await
}

async fn respond(request: &Request<Incoming>, page: MetricsPage) -> Response<Full<Bytes>> {
    let response = if request.uri().path() != PATH {
        ApiError::from(ErrorCode::EndpointNotFound).into()
    } else if request.method() != Method::GET && request.method() != Method::HEAD {
        ApiError::method_not_allowed(METHODS).into()
    } else {
        // It reads files, so it runs on a thread of its own.
        spawn_blocking(move || page()).await.unwrap_or_else(|_| ApiError::internal().into())
    };
    response.into_inner().map(|body| Full::new(Bytes::from_owner(body)))
}
