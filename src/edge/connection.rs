//! One client connection, from accept to the lingering close.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::boundary_stream::BoundaryStream;
use super::connection_state::ConnectionState;
use super::limits::{LINGER, MAX_BUFFER, MAX_DISCARDED, MAX_HEAD};
use super::service::EdgeContext;
use super::stopper::Stopper;
use super::validate::HasFragment;

/// Serves one connection until it ends.
pub(super) async fn serve<S>(
    context: Arc<EdgeContext>,
    stream: S,
    peer: IpAddr,
    tls: bool,
    state: Arc<ConnectionState>,
    stopper: Stopper,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service_state = Arc::clone(&state);
    let service = service_fn(move |mut request: Request<Incoming>| {
        if service_state.end_head(request.body().size_hint().exact()) {
            request.extensions_mut().insert(HasFragment);
        }
        let response = Arc::clone(&context).respond(request, peer, tls, Arc::clone(&service_state));
        Box::pin(async move { Ok::<_, Infallible>(response.await) })
    });
    let mut http = http1::Builder::new();
    // `DeadlineStream` has the deadlines, so hyper needs none. A client that closes its writing side is treated as gone.
    http.half_close(false).header_read_timeout(None).max_buf_size(MAX_BUFFER).max_header_size(MAX_HEAD);
    let stream = BoundaryStream::new(stream, Arc::clone(&state));
    let mut connection = http.keep_alive(!state.over_limit).serve_connection(TokioIo::new(stream), service);

    let mut stop_requested = pin!(stopper.requested());
    let mut aborted = pin!(state.aborted());
    poll_fn(|cx| {
        if !state.is_stopping() && stop_requested.as_mut().poll(cx).is_ready() {
            state.set_stopping();
            Pin::new(&mut connection).graceful_shutdown();
        }
        if aborted.as_mut().poll(cx).is_ready() {
            state.abandon();
            return Poll::Ready(());
        }
        connection.poll_without_shutdown(cx).map(drop)
    })
    .await;
    if !state.is_abandoned() {
        linger(connection.into_parts().io.into_inner().into_inner()).await;
    }
}

/// Shuts down the writing side and discards what the peer still sends, within limits. A close with unread bytes would reset the
/// connection, and the peer would lose the response.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let reading = async {
        stream.shutdown().await?;
        let mut left = MAX_DISCARDED;
        let mut buffer = vec![0; 4096];
        while left > 0 {
            match stream.read(&mut buffer).await? {
                0 => break,
                bytes => left = left.saturating_sub(bytes),
            }
        }
        std::io::Result::Ok(())
    };
    // The connection ends in any case.
    let _ = timeout(LINGER, reading).await;
}
