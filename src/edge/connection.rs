//! One client connection, from the TLS handshake to the lingering close.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::select;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::limits::{LINGER, MAX_BUFFER, MAX_DISCARDED, MAX_HEAD};
use super::parts::Stopper;
use super::service::{EdgeContext, Peer};
use super::stream::{ClientStream, ConnectionState};

/// Serves one connection until it ends.
pub(super) async fn serve(
    context: Arc<EdgeContext>,
    socket: TcpStream,
    address: IpAddr,
    state: Arc<ConnectionState>,
    stopper: Stopper,
) {
    let stream = ClientStream::new(socket, Arc::clone(&state));
    let Some(tls) = context.parts.tls.clone() else {
        return serve_http(context, stream, Peer { address, tls: false }, state, stopper).await;
    };
    // A failed handshake is not reported: any client can cause one. Boxed, so that the task of a
    // plain connection stays small.
    let handshake = timeout(context.parts.limits.head_timeout, tls.acceptor().accept(stream));
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
    stopper: Stopper,
) {
    let service = service_fn(|request| {
        state.set_busy();
        let response = Arc::clone(&context).respond(request, peer, Arc::clone(&state));
        Box::pin(async move { Ok::<_, Infallible>(response.await) })
    });
    let mut connection = parser(!state.over_limit).serve_connection(TokioIo::new(stream), service);
    let mut stop_requested = pin!(stopper.requested());
    let mut is_stopping = false;
    let mut aborted = pin!(state.aborted());
    let mut timer = None;
    poll_fn(|cx| {
        if !is_stopping && stop_requested.as_mut().poll(cx).is_ready() {
            is_stopping = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if connection.poll_without_shutdown(cx).is_ready() {
            return Poll::Ready(());
        }
        if aborted.as_mut().poll(cx).is_ready()
            || (is_stopping && state.is_in_head())
            || has_passed(state.deadline(), &mut timer, cx)
        {
            state.set_gone();
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
    if !state.is_gone() {
        linger(connection.into_parts().io.into_inner()).await;
    }
}

/// hyper with the limits of a connection. It has one timer for idle connections and for slow heads,
/// so [`serve_http`] has the deadlines. A client that closes its writing side has left.
fn parser(keep_alive: bool) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.half_close(false)
        .keep_alive(keep_alive)
        .header_read_timeout(None)
        .max_buf_size(MAX_BUFFER)
        .max_header_size(MAX_HEAD);
    http
}

/// Whether `deadline` has passed. If not, the task is woken when it does. A timer that was set for
/// an earlier deadline is set anew when it fires: to do so at every request would cost more.
fn has_passed(
    deadline: Option<Instant>,
    timer: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
) -> bool {
    let Some(deadline) = deadline else { return false };
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    if timer.deadline() > deadline {
        timer.as_mut().reset(deadline);
    }
    while timer.as_mut().poll(cx).is_ready() {
        if Instant::now() >= deadline {
            return true;
        }
        timer.as_mut().reset(deadline);
    }
    false
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
