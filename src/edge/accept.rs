//! The listener, and the caps on connections.

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

use super::Stopper;
use super::connection::{self, ConnectionState};
use super::deadline_stream::{DeadlineStream, Timeouts};
use super::limits::{ACCEPT_PAUSE, BACKLOG, OVER_LIMIT_TIMEOUT, SEND_BUFFER, STOP_TIMEOUT, USER_TIMEOUT};
use super::service::EdgeContext;
use super::tls::Tls;

/// A listener whose config every accepted connection inherits.
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

/// The connections that are open.
#[derive(Default)]
struct Open {
    count: AtomicUsize,
    closed: Notify,
}

/// One of them, until dropped.
struct Place(Arc<Open>);

impl Open {
    fn take(self: &Arc<Open>) -> (Place, usize) {
        (Place(Arc::clone(self)), self.count.fetch_add(1, Ordering::SeqCst))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.closed.notify_one();
    }
}

/// Takes connections until it is asked to stop; returns when those that are open have ended, or their time is up.
pub(super) async fn serve(listener: TcpListener, context: Arc<EdgeContext>, tls: Option<Arc<Tls>>, stopper: Stopper) {
    let open = Arc::new(Open::default());
    let (cap, over_limit) = (context.limits.connections(), context.limits.over_limit_connections());
    let mut asked = pin!(stopper.asked());
    loop {
        let accepted = poll_fn(|cx| match asked.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => listener.poll_accept(cx).map(Some),
        });
        match accepted.await {
            None => break,
            Some(Ok((socket, peer))) => {
                let (place, before) = open.take();
                if before < cap + over_limit {
                    let entered = handle_connection(
                        Arc::clone(&context),
                        socket,
                        peer,
                        tls.clone(),
                        before >= cap,
                        stopper.clone(),
                    );
                    tokio::spawn(async move {
                        entered.await;
                        drop(place);
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
    let ended = async {
        while open.count.load(Ordering::SeqCst) > 0 {
            open.closed.notified().await;
        }
    };
    if timeout(STOP_TIMEOUT, ended).await.is_err() {
        let left = open.count.load(Ordering::SeqCst);
        tracing::warn!(connections = left, "stopped with requests that did not end in time");
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
    let usual = Timeouts { idle: limits.idle_timeout, head: limits.head_timeout, write: limits.write_timeout };
    let short = Timeouts { idle: OVER_LIMIT_TIMEOUT, head: OVER_LIMIT_TIMEOUT, write: OVER_LIMIT_TIMEOUT };
    let timeouts = if over_limit { short } else { usual };
    let peer = peer.ip().to_canonical();
    let state = ConnectionState::new(over_limit);
    let stream = DeadlineStream::new(socket, Arc::clone(&state), timeouts);
    match tls {
        None => connection::serve(context, stream, peer, false, state, stopper).await,
        Some(tls) => {
            // A handshake that fails or does not come is the peer's affair. Boxed: a plain connection need not be as large.
            let shaken = Box::pin(timeout(timeouts.head, tls.acceptor().accept(stream))).await;
            if let Ok(Ok(stream)) = shaken {
                state.set_idle();
                Box::pin(connection::serve(context, stream, peer, true, state, stopper)).await;
            }
        }
    }
}
