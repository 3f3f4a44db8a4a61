//! Client connections: the listener and its limits, and one connection from the TLS handshake to
//! the lingering close.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::request::{Edge, Peer, Reservation};
use crate::config::ConnectionLimits;

/// The length of the listener's accept queue.
const BACKLOG: i32 = 1024;

/// The kernel's send buffer of one connection, in bytes.
const SEND_BUFFER: usize = 128 * 1024;

/// How long the kernel waits for an acknowledgement before it closes a connection
/// (`TCP_USER_TIMEOUT`).
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause after a failed `accept`, for example if no descriptor is left.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long requests in progress may take after a stop was requested.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// The longest request head in bytes: the request line and all fields.
const MAX_HEAD: usize = 16 * 1024;

/// hyper's read buffer for one connection, in bytes. It is larger than [`MAX_HEAD`], so that
/// [`MAX_HEAD`] takes effect.
pub(super) const MAX_BUFFER: usize = 24 * 1024;

/// How many bytes of a body that is too large are discarded, so that the client reads the response.
const MAX_DISCARDED: usize = 1024 * 1024;

/// How long bytes are discarded after a response that closes the connection.
const LINGER: Duration = Duration::from_secs(1);

/// Binds a listener. Accepted connections inherit its socket options.
pub(super) fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts connections until a stop is requested. Then waits until all have closed, at most
/// [`STOP_TIMEOUT`].
pub(super) async fn accept(listener: TcpListener, edge: Arc<Edge>, stopper: CancellationToken) {
    let tasks = TaskTracker::new();
    let mut stop_requested = pin!(stopper.cancelled());
    loop {
        let accepted = select! {
            () = &mut stop_requested => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                let peer = peer.ip().to_canonical();
                let mut place = edge.connections.reservation(peer);
                // Without a place, the connection closes.
                if place.grow(1) {
                    let edge = Arc::clone(&edge);
                    tasks.spawn(serve_socket(edge, socket, peer, place, stopper.clone()));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    tasks.close();
    if timeout(STOP_TIMEOUT, tasks.wait()).await.is_err() {
        let open = tasks.len();
        tracing::warn!(connections = open, "stopped before all requests were complete");
    }
}

async fn serve_socket(
    edge: Arc<Edge>,
    socket: TcpStream,
    address: IpAddr,
    _place: Reservation,
    stopper: CancellationToken,
) {
    let mut stream = TimeoutWriter::new(socket);
    stream.set_timeout(Some(edge.limits.write_timeout));
    let stream = Box::pin(stream);
    let Some(tls) = edge.tls.clone() else {
        return serve_http(edge, stream, Peer { address, tls: false }, stopper).await;
    };
    // A failed handshake is not reported: any client can cause one. Boxed, so that the task of a
    // plain connection stays small.
    let handshake = timeout(edge.limits.handshake_timeout, tls.acceptor().accept(stream));
    let handshake = async {
        select! {
            result = handshake => result.ok()?.ok(),
            () = stopper.cancelled() => None,
        }
    };
    if let Some(stream) = Box::pin(handshake).await {
        Box::pin(serve_http(edge, stream, Peer { address, tls: true }, stopper)).await;
    }
}

async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    edge: Arc<Edge>,
    stream: S,
    peer: Peer,
    stopper: CancellationToken,
) {
    let has_requested = AtomicBool::new(false);
    // A connection answers one request each time it has its turn. hyper alone would go on while it
    // has pipelined requests. Example: 1,000 connections send 50 requests each that need no worker.
    // hyper would answer 16 requests of each connection before the next client has its turn.
    let has_answered = AtomicBool::new(false);
    let service = service_fn(|request| {
        has_requested.store(true, Ordering::Relaxed);
        let response = Arc::clone(&edge).respond(request, peer);
        let has_answered = &has_answered;
        Box::pin(async move {
            if has_answered.load(Ordering::Relaxed) {
                yield_now().await;
            }
            let response = response.await;
            has_answered.store(true, Ordering::Relaxed);
            response
        })
    });
    let http = parser(&edge.limits);
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    let mut stop_requested = pin!(stopper.cancelled());
    let mut is_stopping = false;
    loop {
        select! {
            biased;
            () = &mut stop_requested, if !is_stopping => {
                is_stopping = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
                // hyper waits for the rest of a first head.
                if !has_requested.load(Ordering::Relaxed) {
                    return;
                }
            }
            () = poll_fn(|cx| {
                has_answered.store(false, Ordering::Relaxed);
                connection.poll_without_shutdown(cx).map(drop)
            }) => break,
        }
    }
    linger(connection.into_parts().io.into_inner()).await;
}

/// hyper with the limits of a connection. hyper has one timeout for an idle connection and for the
/// head of a request. If a client closes its writing side, hyper treats the client as disconnected.
fn parser(limits: &ConnectionLimits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.half_close(false)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
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
