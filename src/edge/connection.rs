//! One client's connection, from accept to the lingering close.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Stopper;
use super::limits::{LINGER, MAX_BUFFER, MAX_DISCARDED, MAX_HEAD};
use super::message_boundaries::{BoundaryStream, BoundaryTracker};
use super::service::EdgeContext;
use super::validate::HasFragment;

/// Where a connection is in a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Between requests.
    Idle,
    /// Some of a head has come.
    Head,
    /// A request is under way: its body, its turn, its answer.
    Busy,
}

/// What the parts of a connection, stream and service, know about each other.
#[derive(Debug)]
pub(super) struct ConnectionState {
    phase: AtomicU8,
    /// ResponseBudget given so far.
    requests: AtomicU32,
    /// Over the cap: everything but `/healthz` is refused, and the connection closes.
    pub(super) over_limit: bool,
    stopping: AtomicBool,
    /// The peer is gone, or its time is up: nothing more is to be said to it.
    given_up: AtomicBool,
    aborted: AtomicBool,
    abort_notify: Notify,
    boundaries: Mutex<BoundaryTracker>,
}

impl ConnectionState {
    pub(super) fn new(over_limit: bool) -> Arc<ConnectionState> {
        Arc::new(ConnectionState {
            phase: AtomicU8::new(Phase::Idle as u8),
            requests: AtomicU32::new(0),
            over_limit,
            stopping: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            abort_notify: Notify::new(),
            boundaries: Mutex::default(),
        })
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            _ => Phase::Busy,
        }
    }

    /// Tells one rest of this connection from the next.
    pub(super) fn request_count(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The first bytes after a pause; false if there was none.
    pub(super) fn head_begins(&self) -> bool {
        let begins = self.phase() == Phase::Idle;
        if begins {
            self.phase.store(Phase::Head as u8, Ordering::Relaxed);
        }
        begins
    }

    /// hyper has read a head. `body` is the length of its body in bytes, `None` if that is chunked. Returns whether the target
    /// has a fragment.
    pub(super) fn head_is_whole(&self, body: Option<u64>) -> bool {
        self.phase.store(Phase::Busy as u8, Ordering::Relaxed);
        self.boundaries().head_ended(body)
    }

    pub(super) fn boundaries(&self) -> MutexGuard<'_, BoundaryTracker> {
        self.boundaries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer is given, or nothing was asked yet.
    pub(super) fn set_idle(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.phase.store(Phase::Idle as u8, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Ends the connection at once, for the memory that its answer takes.
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
        self.abort_notify.notify_one();
    }

    #[cfg(test)]
    pub(super) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }
}

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
    let of_service = Arc::clone(&state);
    let service = service_fn(move |mut request: Request<Incoming>| {
        if of_service.head_is_whole(request.body().size_hint().exact()) {
            request.extensions_mut().insert(HasFragment);
        }
        let answering = Arc::clone(&context).answer(request, peer, tls, Arc::clone(&of_service));
        Box::pin(async move { Ok::<_, Infallible>(answering.await) })
    });
    let mut http = http1::Builder::new();
    // The stream has the deadlines; a client that closes its writing side has left.
    http.half_close(false).header_read_timeout(None).max_buf_size(MAX_BUFFER).max_header_size(MAX_HEAD);
    let stream = BoundaryStream::new(stream, Arc::clone(&state));
    let mut connection = http.keep_alive(!state.over_limit).serve_connection(TokioIo::new(stream), service);

    let mut stop_asked = pin!(stopper.asked());
    let mut cut = pin!(state.abort_notify.notified());
    poll_fn(|cx| {
        if !state.is_stopping() && stop_asked.as_mut().poll(cx).is_ready() {
            state.stopping.store(true, Ordering::Relaxed);
            Pin::new(&mut connection).graceful_shutdown();
        }
        if cut.as_mut().poll(cx).is_ready() {
            state.give_up();
            return Poll::Ready(());
        }
        connection.poll_without_shutdown(cx).map(drop)
    })
    .await;
    if !state.given_up.load(Ordering::Relaxed) {
        linger(connection.into_parts().io.into_inner().into_inner()).await;
    }
}

/// Ends the writing side and reads on for a moment: a close with unread bytes would reset the connection, and the peer
/// would lose the answer.
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
    // Whatever comes of it, the connection is over.
    let _ = timeout(LINGER, reading).await;
}
