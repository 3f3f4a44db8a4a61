//! One client connection, from the TLS handshake to the lingering close.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::select;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::limits::{LINGER, MAX_BUFFER, MAX_DISCARDED, MAX_HEAD};
use super::service::{EdgeContext, Peer};
use super::stream::{ClientStream, ConnectionState};

/// Serves one connection until it ends.
pub(super) async fn serve(
    context: Arc<EdgeContext>,
    socket: TcpStream,
    address: IpAddr,
    state: Arc<ConnectionState>,
    stopper: CancellationToken,
) {
    let stream = ClientStream::new(socket, Arc::clone(&state));
    let Some(tls) = context.tls.clone() else {
        return serve_http(context, stream, Peer { address, tls: false }, state, stopper).await;
    };
    // A failed handshake is not reported: any client can cause one. Boxed, so that the task of a
    // plain connection stays small.
    let handshake = timeout(context.limits.head_timeout, tls.acceptor().accept(stream));
    let handshake = async {
        select! {
            result = handshake => result.ok()?.ok(),
            () = state.aborted() => None,
        }
    };
    if let Some(stream) = Box::pin(handshake).await {
        state.set_idle();
        Box::pin(serve_http(context, stream, Peer { address, tls: true }, state, stopper)).await;
    }
}

async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    context: Arc<EdgeContext>,
    stream: S,
    peer: Peer,
    state: Arc<ConnectionState>,
    stopper: CancellationToken,
) {
    let service = service_fn(|request| {
        state.set_busy();
        let response = Arc::clone(&context).respond(request, peer, Arc::clone(&state));
        Box::pin(async move { Ok::<_, Infallible>(response.await) })
    });
    let mut connection = parser(!state.over_limit).serve_connection(TokioIo::new(stream), service);
    let mut stop_requested = pin!(stopper.cancelled());
    let mut aborted = pin!(state.aborted());
    let mut is_stopping = false;
    loop {
        select! {
            biased;
            () = &mut aborted => return,
            () = &mut stop_requested, if !is_stopping => {
                is_stopping = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
            () = poll_fn(|cx| {
                // hyper would panic when it writes `Date`.
                if context.clock.is_past_calendar() {
                    return Poll::Ready(());
                }
                connection.poll_without_shutdown(cx).map(drop)
            }) => break,
        }
    }
    if !state.is_gone() {
        linger(connection.into_parts().io.into_inner()).await;
    }
}

/// hyper with the limits of a connection. hyper has one timer for idle connections and for slow
/// heads, so [`ConnectionState::is_overdue`] has the deadlines. If a client closes its writing
/// side, hyper treats the client as disconnected.
fn parser(keep_alive: bool) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.half_close(false)
        .keep_alive(keep_alive)
        .header_read_timeout(None)
        .max_buf_size(MAX_BUFFER)
        .max_header_size(MAX_HEAD);
    http
}

/// Shuts down the writing side and discards what the peer still sends, within limits. A close with
/// unread bytes would reset the connection, and the peer would lose the response.
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
