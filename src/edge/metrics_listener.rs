//! The separate listener for `/metrics`. It serves plain HTTP, because it is meant for an internal network.

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
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::limits::{ACCEPT_PAUSE, MAX_BUFFER, MAX_METRICS_CONNECTIONS, METRICS_TIMEOUT};
use crate::http::ApiError;

/// Produces the response to `/metrics`. It may read files, so it is called on its own thread.
pub type MetricsPage = Arc<dyn Fn() -> crate::http::Response + Send + Sync>;

const PATH: &str = "/metrics";
const METHODS: &str = "GET, HEAD";

/// Binds the listener.
pub(super) fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves until the runtime ends. A connection carries one request and is limited to [`METRICS_TIMEOUT`].
pub(super) async fn serve(listener: TcpListener, page: MetricsPage) {
    let permits = Arc::new(Semaphore::new(MAX_METRICS_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let page = Arc::clone(&page);
                tokio::spawn(async move {
                    // A timeout or a failed connection needs no report: the client sees it.
                    let _ = timeout(METRICS_TIMEOUT, serve_connection(stream, page)).await;
                    drop(permit);
                });
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
        ApiError::endpoint_not_found().into()
    } else if request.method() != Method::GET && request.method() != Method::HEAD {
        ApiError::method_not_allowed(METHODS).into()
    } else {
        render(page).await.unwrap_or_else(|| ApiError::internal().into())
    };
    let builder = Response::builder().status(response.status());
    let builder = response.headers().iter().fold(builder, |builder, (name, value)| builder.header(*name, &**value));
    builder.body(Full::new(Bytes::copy_from_slice(response.body()))).unwrap_or_default()
}

/// Calls `page` on its own thread. Returns `None` if the thread cannot be started or panics.
async fn render(page: MetricsPage) -> Option<crate::http::Response> {
    let (sender, receiver) = oneshot::channel();
    let started = std::thread::Builder::new().name("metrics".into()).spawn(move || {
        // The receiver is gone if the client has left or the timeout has passed.
        let _ = sender.send(page());
    });
    started.ok()?;
    receiver.await.ok()
}
