//! A client's socket with deadlines: for an idle connection, for a request head, and for a peer that does not read.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::connection_state::{ConnectionState, Phase};
use super::limits::WRITE_PROGRESS;

/// The timeouts of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// Between two requests.
    pub(super) idle: Duration,
    /// From the first byte of a request head to its end.
    pub(super) head: Duration,
    /// For each [`WRITE_PROGRESS`] bytes of a response.
    pub(super) write: Duration,
}

/// A client's socket. If a deadline passes, reads and writes fail with `TimedOut`. TLS is layered above it.
pub(super) struct DeadlineStream {
    socket: TcpStream,
    state: Arc<ConnectionState>,
    timeouts: Timeouts,
    /// The deadline for reading, with the phase and the request count for which it was set.
    read_deadline: Option<(Phase, u32, Instant)>,
    /// The deadline for writing. It is set when a write blocks.
    write_deadline: Option<Instant>,
    /// The bytes written since then.
    progress: usize,
    timer: Option<Pin<Box<Sleep>>>,
}

impl DeadlineStream {
    pub(super) fn new(socket: TcpStream, state: Arc<ConnectionState>, timeouts: Timeouts) -> DeadlineStream {
        DeadlineStream { socket, state, timeouts, read_deadline: None, write_deadline: None, progress: 0, timer: None }
    }

    /// The deadline for reading. `None` if it was set for an earlier phase or request.
    fn read_deadline(&self) -> Option<Instant> {
        let current = (self.state.phase(), self.state.request_count());
        self.read_deadline.filter(|(phase, count, _)| (*phase, *count) == current).map(|(_, _, deadline)| deadline)
    }

    /// Whether a deadline has passed. If not, the task is woken when the earlier one does.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = [self.read_deadline(), self.write_deadline].into_iter().flatten().min() else {
            return false;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        // A timer that was set for an earlier deadline is reset when it fires. To reset it at every request would cost more.
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return true;
            }
            timer.as_mut().reset(deadline);
        }
        false
    }

    /// Sets the deadline for reading, for this phase of the current request.
    fn set_read_deadline(&mut self, phase: Phase) {
        let timeout = if phase == Phase::Head { self.timeouts.head } else { self.timeouts.idle };
        self.read_deadline = Some((phase, self.state.request_count(), Instant::now() + timeout));
    }

    fn blocked_read<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let phase = self.state.phase();
        if phase != Phase::Busy && self.read_deadline().is_none() {
            self.set_read_deadline(phase);
        }
        if phase == Phase::Head && self.state.is_stopping() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        self.pending_or_timeout(cx)
    }

    fn blocked_write<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.write_deadline.is_none() {
            self.write_deadline = Some(Instant::now() + self.timeouts.write);
            self.progress = 0;
        }
        self.pending_or_timeout(cx)
    }

    fn pending_or_timeout<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.poll_deadlines(cx) {
            self.state.abandon();
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    fn record_written(&mut self, bytes: usize) {
        self.progress += bytes;
        if self.progress >= WRITE_PROGRESS {
            self.write_deadline = None;
        }
        // A peer that still reads a response is not idle.
        if self.state.phase() == Phase::Idle {
            self.set_read_deadline(Phase::Idle);
        }
    }
}

impl AsyncRead for DeadlineStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        match Pin::new(&mut this.socket).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {
                if buf.filled().len() == before {
                    this.state.abandon();
                } else if this.state.begin_head() {
                    this.set_read_deadline(Phase::Head);
                } else if this.state.phase() == Phase::Head && this.poll_deadlines(cx) {
                    // The deadline of a head also applies while bytes keep arriving.
                    return this.pending_or_timeout(cx);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => {
                this.state.abandon();
                Poll::Ready(Err(error))
            }
            Poll::Pending => this.blocked_read(cx),
        }
    }
}

impl AsyncWrite for DeadlineStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.socket).poll_write_vectored(cx, bufs) {
            Poll::Ready(Ok(bytes)) => {
                this.record_written(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => this.blocked_write(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// hyper flushes when it has written everything, so the write deadline is over. If that was the end of a response, the idle
    /// time begins. It is set here, because hyper does not poll a read again that is still pending.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.write_deadline = None;
        if this.state.phase() == Phase::Idle {
            if this.read_deadline().is_none() {
                this.set_read_deadline(Phase::Idle);
            }
            // This sets the timer. The deadline cannot have passed yet.
            let _ = this.poll_deadlines(cx);
        }
        Pin::new(&mut this.socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
