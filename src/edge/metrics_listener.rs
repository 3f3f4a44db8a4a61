//! The operator's own listener: `/metrics` and nothing else. It is for the inside of a network, so it is plain and small.

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

/// Makes the page. It may read files, so it is called on a thread of its own.
pub type MetricsPage = Arc<dyn Fn() -> crate::http::Response + Send + Sync>;

const PATH: &str = "/metrics";
const METHODS: &str = "GET, HEAD";

/// The listener, before there is a runtime.
pub(super) fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// ResponseBudget until the gate's runtime ends. Each connection has one request and a short time for it.
pub(super) async fn serve(listener: TcpListener, page: MetricsPage) {
    let places = Arc::new(Semaphore::new(MAX_METRICS_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let page = Arc::clone(&page);
                tokio::spawn(async move {
                    // Who takes too long, or leaves, is told nothing.
                    let _ = timeout(METRICS_TIMEOUT, converse(stream, page)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, page: MetricsPage) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let page = Arc::clone(&page);
        async move { Ok::<_, Infallible>(answer(&request, page).await) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).header_read_timeout(None).max_buf_size(MAX_BUFFER);
    http.serve_connection(TokioIo::new(stream), service).await
}

async fn answer(request: &Request<Incoming>, page: MetricsPage) -> Response<Full<Bytes>> {
    let given = if request.uri().path() != PATH {
        ApiError::endpoint_not_found().into()
    } else if request.method() != Method::GET && request.method() != Method::HEAD {
        ApiError::method_not_allowed(METHODS).into()
    } else {
        made(page).await.unwrap_or_else(|| ApiError::internal().into())
    };
    let headers = given.headers().iter();
    let response =
        headers.fold(Response::builder().status(given.status()), |r, (name, value)| r.header(*name, &**value));
    response.body(Full::new(Bytes::copy_from_slice(given.body()))).unwrap_or_default()
}

/// The page; `None` where there was no thread to make it on, or that one panicked.
async fn made(page: MetricsPage) -> Option<crate::http::Response> {
    let (give, given) = oneshot::channel();
    let started = std::thread::Builder::new().name("metrics".into()).spawn(move || {
        // Who asked may have left.
        let _ = give.send(page());
    });
    started.ok()?;
    given.await.ok()
}
