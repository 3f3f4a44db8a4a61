//! Client connections: the listener and its limits, and one connection from the TLS handshake to
//! the lingering close.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::limits::{
    ACCEPT_PAUSE, BACKLOG, LINGER, MAX_BUFFER, MAX_DISCARDED, MAX_HEAD, SEND_BUFFER, STOP_TIMEOUT,
    SWEEP_PERIOD, USER_TIMEOUT, address_connections, max_connections, over_limit_connections,
};
use super::service::{EdgeContext, Peer};
use super::stream::{ClientStream, ConnectionState};
use crate::http::request::address_of;

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

/// Accepts connections and keeps count of them.
pub(super) struct Acceptor {
    context: Arc<EdgeContext>,
    stopper: CancellationToken,
    limit: usize,
    /// One task for each open connection.
    tasks: TaskTracker,
    open: Arc<OpenConnections>,
    /// For connections that are only refused.
    over_limit: Arc<Semaphore>,
}

/// The open connections of each address.
#[derive(Default)]
struct OpenConnections(Mutex<HashMap<IpAddr, Vec<Arc<ConnectionState>>>>);

/// One open connection, until it is dropped.
struct OpenConnection {
    open: Arc<OpenConnections>,
    address: IpAddr,
    state: Arc<ConnectionState>,
}

impl Acceptor {
    pub(super) fn new(context: Arc<EdgeContext>, stopper: CancellationToken) -> Acceptor {
        let limit = max_connections(&context.limits);
        let over_limit = Arc::new(Semaphore::new(over_limit_connections(limit)));
        let (tasks, open) = (TaskTracker::new(), Arc::default());
        Acceptor { context, stopper, limit, tasks, open, over_limit }
    }

    /// Accepts connections until a stop is requested. Then waits until all have closed, at most
    /// [`STOP_TIMEOUT`].
    pub(super) async fn run(self, listener: TcpListener) {
        let mut stop_requested = pin!(self.stopper.cancelled());
        let mut sweep = interval(SWEEP_PERIOD);
        loop {
            let accepted = select! {
                () = &mut stop_requested => break,
                _ = sweep.tick() => {
                    self.open.close_if(ConnectionState::is_overdue);
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => self.serve(socket, peer.ip().to_canonical()),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        // Other connections finish their request, but this request has not arrived yet.
        self.open.close_if(ConnectionState::is_in_head);
        self.tasks.close();
        if timeout(STOP_TIMEOUT, self.tasks.wait()).await.is_err() {
            let open = self.tasks.len();
            tracing::warn!(connections = open, "stopped before all requests were complete");
        }
    }

    /// Serves a connection. If there is no room for the connection, it gets a 503 and closes. If
    /// there is no room for the 503 either, the connection closes at once.
    fn serve(&self, socket: TcpStream, peer: IpAddr) {
        let is_over_share = !self.context.trusted.contains(peer)
            && self.open.count_of(peer) >= address_connections(self.limit);
        let has_room = if is_over_share {
            self.open.close_longest_idle(peer)
        } else {
            self.tasks.len() < self.limit
        };
        let refusing = if has_room {
            None
        } else {
            let Ok(permit) = Arc::clone(&self.over_limit).try_acquire_owned() else { return };
            Some(permit)
        };
        let state = ConnectionState::new(!has_room, &self.context.limits);
        let open = self.open.add(peer, Arc::clone(&state));
        let context = Arc::clone(&self.context);
        let serving = serve_socket(context, socket, peer, state, self.stopper.clone());
        self.tasks.spawn(async move {
            serving.await;
            drop((open, refusing));
        });
    }
}

impl OpenConnections {
    fn add(self: &Arc<Self>, peer: IpAddr, state: Arc<ConnectionState>) -> OpenConnection {
        let address = address_of(peer);
        self.0.lock().entry(address).or_default().push(Arc::clone(&state));
        OpenConnection { open: Arc::clone(self), address, state }
    }

    /// The connections of the address of `peer`.
    fn count_of(&self, peer: IpAddr) -> usize {
        self.0.lock().get(&address_of(peer)).map_or(0, Vec::len)
    }

    /// Closes the connections for which `condition` is true.
    fn close_if(&self, condition: impl Fn(&ConnectionState) -> bool) {
        for state in self.0.lock().values().flatten() {
            if condition(state) {
                state.abort();
            }
        }
    }

    /// Closes the connection of `peer` that has been idle for the longest time. Returns whether
    /// there is one.
    fn close_longest_idle(&self, peer: IpAddr) -> bool {
        let by_address = self.0.lock();
        let Some(own) = by_address.get(&address_of(peer)) else { return false };
        let mut longest = None;
        for state in own {
            if let Some(since) = state.idle_since()
                && longest.is_none_or(|(earliest, _)| since < earliest)
            {
                longest = Some((since, state));
            }
        }
        let Some((_, state)) = longest else { return false };
        state.abort();
        true
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut by_address = self.open.0.lock();
        if let Some(own) = by_address.get_mut(&self.address) {
            own.retain(|state| !Arc::ptr_eq(state, &self.state));
            if own.is_empty() {
                by_address.remove(&self.address);
            }
        }
    }
}

/// Serves one connection until it ends.
async fn serve_socket(
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
    // A connection answers one request each time it has its turn. hyper alone would go on while it
    // has pipelined requests. Example: 1,000 connections send 50 requests each, and the edge answers
    // them without a worker. The 1,000 answer 16 requests each before the next client has its turn.
    let has_answered = AtomicBool::new(false);
    let service = service_fn(|request| {
        state.set_busy();
        let response = Arc::clone(&context).respond(request, peer, Arc::clone(&state));
        let has_answered = &has_answered;
        Box::pin(async move {
            if has_answered.load(Ordering::Relaxed) {
                yield_now().await;
            }
            let response = response.await;
            has_answered.store(true, Ordering::Relaxed);
            Ok::<_, Infallible>(response)
        })
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
                has_answered.store(false, Ordering::Relaxed);
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
