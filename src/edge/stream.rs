//! A client's socket, which records the progress of its connection for the deadlines (contract
//! section 6).
//!
//! A timer for each of 10,000 connections would be set and reset with each read. So a socket only
//! notes when a phase began and when a write blocked. Every 250 ms the acceptor asks all
//! connections whether they are overdue, and aborts those (connection.rs). The limits stand in
//! limits.rs and in [`ConnectionLimits`]. All of this runs in the edge's thread.
//!
//! The deadline of a write moves only after 64 KiB of progress. Example: a client asks for 1 MiB,
//! and the send buffer is full at second 0. The deadline is second 10. If the client has read 64
//! KiB by then, the next write that blocks gets 10 seconds more. If the client reads one byte a
//! second, the connection is aborted at second 10. If each byte moved the deadline, the client
//! could keep its response in memory for days.
//!
//! Unread responses of all clients also share a budget of memory. If the budget is used up,
//! clients.rs aborts the connection of the oldest response before its deadline.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::{OVER_LIMIT_TIMEOUT, WRITE_PROGRESS};
use crate::config::ConnectionLimits;

/// The phase of a connection in the handling of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between requests.
    Idle,
    /// Part of a request head has been received.
    Head,
    /// The head is complete. The body is being read, or the response is awaited or written. The
    /// body has a deadline of its own in service.rs. Only the write deadline counts here, because a
    /// client may wait for a worker for long.
    Busy,
}

/// The state of one connection. Its stream and its service share it.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// There is no room for the connection: every request but `/healthz` is refused, and it closes.
    pub(super) over_limit: bool,
    limits: ConnectionLimits,
    progress: Mutex<Progress>,
    abort: CancellationToken,
}

#[derive(Debug)]
struct Progress {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    /// The deadline for writing, set by the first write that blocks.
    write_deadline: Option<Instant>,
    /// The bytes written since that write.
    written: usize,
    /// The peer has disconnected, or the connection is aborted. Nothing is sent any more.
    is_gone: bool,
}

impl ConnectionState {
    /// The state of a new connection, which is idle.
    pub(super) fn new(over_limit: bool, limits: &ConnectionLimits) -> Arc<ConnectionState> {
        let mut limits = limits.clone();
        if over_limit {
            limits.idle_timeout = OVER_LIMIT_TIMEOUT;
            limits.head_timeout = OVER_LIMIT_TIMEOUT;
            limits.write_timeout = OVER_LIMIT_TIMEOUT;
        }
        let progress = Progress {
            phase: Phase::Idle,
            since: Instant::now(),
            write_deadline: None,
            written: 0,
            is_gone: false,
        };
        let (progress, abort) = (Mutex::new(progress), CancellationToken::new());
        Arc::new(ConnectionState { over_limit, limits, progress, abort })
    }

    /// Returns whether the client has made no progress for too long.
    pub(super) fn is_overdue(&self) -> bool {
        let progress = self.progress.lock();
        let read_deadline = match progress.phase {
            Phase::Idle => Some(progress.since + self.limits.idle_timeout),
            Phase::Head => Some(progress.since + self.limits.head_timeout),
            Phase::Busy => None,
        };
        let now = Instant::now();
        [read_deadline, progress.write_deadline].into_iter().flatten().any(|end| end <= now)
    }

    /// Since when the connection is between requests. `None` if something is left to write, or it
    /// is being closed.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let progress = self.progress.lock();
        let is_idle =
            progress.phase == Phase::Idle && progress.write_deadline.is_none() && !progress.is_gone;
        is_idle.then_some(progress.since)
    }

    /// Whether part of a request head has been received.
    pub(super) fn is_in_head(&self) -> bool {
        self.progress.lock().phase == Phase::Head
    }

    /// hyper has read the head of a request.
    pub(super) fn set_busy(&self) {
        self.progress.lock().phase = Phase::Busy;
    }

    /// hyper has the last bytes of the response, or the TLS handshake is complete.
    pub(super) fn set_idle(&self) {
        let mut progress = self.progress.lock();
        progress.phase = Phase::Idle;
        progress.since = Instant::now();
    }

    /// Nothing more can be sent to the peer.
    pub(super) fn set_gone(&self) {
        self.progress.lock().is_gone = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.progress.lock().is_gone
    }

    /// Closes the connection at once.
    pub(super) fn abort(&self) {
        self.set_gone();
        self.abort.cancel();
    }

    /// Completes when [`ConnectionState::abort`] has been called.
    pub(super) async fn aborted(&self) {
        self.abort.cancelled().await;
    }

    /// The socket has read bytes. If there are none, the peer has closed its writing side.
    fn read(&self, bytes: usize) {
        let mut progress = self.progress.lock();
        progress.is_gone |= bytes == 0;
        if progress.phase == Phase::Idle {
            progress.phase = Phase::Head;
            progress.since = Instant::now();
        }
    }

    /// The kernel has taken bytes. After [`WRITE_PROGRESS`] bytes, the deadline ends.
    fn written(&self, bytes: usize) {
        let mut progress = self.progress.lock();
        progress.written += bytes;
        if progress.written >= WRITE_PROGRESS {
            progress.write_deadline = None;
        }
        // hyper has given away the whole response, but the peer still reads it. It is not idle.
        if progress.phase == Phase::Idle && progress.write_deadline.is_some() {
            progress.since = Instant::now();
        }
    }

    /// The send buffer is full, because the peer does not read fast enough.
    fn write_blocks(&self) {
        let mut progress = self.progress.lock();
        if progress.write_deadline.is_none() {
            progress.write_deadline = Some(Instant::now() + self.limits.write_timeout);
            progress.written = 0;
        }
    }

    /// Everything is written.
    fn flushed(&self) {
        self.progress.lock().write_deadline = None;
    }
}

/// A client's socket. TLS is layered above it.
pub(super) struct ClientStream {
    socket: TcpStream,
    state: Arc<ConnectionState>,
}

impl ClientStream {
    pub(super) fn new(socket: TcpStream, state: Arc<ConnectionState>) -> ClientStream {
        ClientStream { socket, state }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(cx, buf);
        match &polled {
            Poll::Ready(Ok(())) => self.state.read(buf.filled().len() - before),
            Poll::Ready(Err(_)) => self.state.set_gone(),
            Poll::Pending => {}
        }
        polled
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        match &polled {
            Poll::Ready(Ok(bytes)) => self.state.written(*bytes),
            Poll::Ready(Err(_)) => self.state.set_gone(),
            Poll::Pending => self.state.write_blocks(),
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// hyper flushes when it has written everything, so no write waits for the peer.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.flushed();
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
