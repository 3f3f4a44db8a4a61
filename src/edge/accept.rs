//! The listener for clients and the limits on connections.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::connection;
use super::connection_state::ConnectionState;
use super::deadline_stream::{DeadlineStream, Timeouts};
use super::limits::{
    ACCEPT_PAUSE, BACKLOG, OVER_LIMIT_TIMEOUT, SEND_BUFFER, STOP_TIMEOUT, USER_TIMEOUT, max_connections,
    over_limit_connections,
};
use super::service::EdgeContext;
use super::stopper::Stopper;
use super::tls::Tls;

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

/// The number of open connections.
#[derive(Default)]
struct OpenConnections {
    count: AtomicUsize,
    closed: Notify,
}

/// Counts one connection as open until it is dropped.
struct OpenConnection(Arc<OpenConnections>);

impl OpenConnections {
    /// Counts one more connection. Also returns how many were open before.
    fn add(self: &Arc<OpenConnections>) -> (OpenConnection, usize) {
        (OpenConnection(Arc::clone(self)), self.count.fetch_add(1, Ordering::SeqCst))
    }

    async fn all_closed(&self) {
        while self.count.load(Ordering::SeqCst) > 0 {
            self.closed.notified().await;
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.closed.notify_one();
    }
}

/// Accepts connections until `stopper` requests a stop. Then waits until all connections have closed, at most [`STOP_TIMEOUT`].
pub(super) async fn serve(listener: TcpListener, context: Arc<EdgeContext>, tls: Option<Arc<Tls>>, stopper: Stopper) {
    let open = Arc::new(OpenConnections::default());
    let limit = max_connections(&context.limits);
    let hard_limit = limit + over_limit_connections(&context.limits);
    let mut stop_requested = pin!(stopper.requested());
    loop {
        let accepted = poll_fn(|cx| match stop_requested.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => listener.poll_accept(cx).map(Some),
        });
        match accepted.await {
            None => break,
            Some(Ok((socket, peer))) => {
                let (guard, before) = open.add();
                if before < hard_limit {
                    let (context, tls, stopper) = (Arc::clone(&context), tls.clone(), stopper.clone());
                    let connection = handle_connection(context, socket, peer, tls, before >= limit, stopper);
                    tokio::spawn(async move {
                        connection.await;
                        drop(guard);
                    });
                }
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if timeout(STOP_TIMEOUT, open.all_closed()).await.is_err() {
        let left = open.count.load(Ordering::SeqCst);
        tracing::warn!(connections = left, "stopped before all requests were complete");
    }
}

async fn handle_connection(
    context: Arc<EdgeContext>,
    socket: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<Tls>>,
    over_limit: bool,
    stopper: Stopper,
) {
    let limits = &context.limits;
    let timeouts = if over_limit {
        Timeouts { idle: OVER_LIMIT_TIMEOUT, head: OVER_LIMIT_TIMEOUT, write: OVER_LIMIT_TIMEOUT }
    } else {
        Timeouts { idle: limits.idle_timeout, head: limits.head_timeout, write: limits.write_timeout }
    };
    let peer = peer.ip().to_canonical();
    let state = ConnectionState::new(over_limit);
    let stream = DeadlineStream::new(socket, Arc::clone(&state), timeouts);
    match tls {
        None => connection::serve(context, stream, peer, false, state, stopper).await,
        Some(tls) => {
            // A failed handshake is not reported: any client can cause one. Boxed, so that the task of a plain connection stays small.
            let handshake = Box::pin(timeout(timeouts.head, tls.acceptor().accept(stream))).await;
            if let Ok(Ok(stream)) = handshake {
                state.set_idle();
                Box::pin(connection::serve(context, stream, peer, true, state, stopper)).await;
            }
        }
    }
}
