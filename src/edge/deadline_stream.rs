//! A stream that insists: that a head comes in time, that an idle connection ends, that its peer reads.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::connection::{ConnectionState, Phase};
use super::limits::WRITE_PROGRESS;

/// The times that a stream insists on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) idle: Duration,
    pub(super) head: Duration,
    pub(super) write: Duration,
}

/// A client's socket with its deadlines. TLS, where there is any, lies above it.
pub(super) struct DeadlineStream {
    socket: TcpStream,
    state: Arc<ConnectionState>,
    timeouts: Timeouts,
    /// When reading ends, and for which phase of which round that was decided.
    read_until: Option<(Phase, u32, Instant)>,
    /// When writing ends: from the first write that the peer's slowness blocked.
    write_until: Option<Instant>,
    /// Bytes written since then.
    progress: usize,
    timer: Option<Pin<Box<Sleep>>>,
}

impl DeadlineStream {
    pub(super) fn new(socket: TcpStream, state: Arc<ConnectionState>, timeouts: Timeouts) -> DeadlineStream {
        DeadlineStream { socket, state, timeouts, read_until: None, write_until: None, progress: 0, timer: None }
    }

    /// The end of reading, unless the connection has moved on since that was decided.
    fn read_until(&self) -> Option<Instant> {
        let now = (self.state.phase(), self.state.request_count());
        self.read_until.filter(|(phase, round, _)| (*phase, *round) == now).map(|(_, _, until)| until)
    }

    /// Whether the earlier of the deadlines is over; if not, this task is woken when it is.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(until) = [self.read_until(), self.write_until].into_iter().flatten().min() else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if timer.deadline() > until {
            timer.as_mut().reset(until);
        }
        // A timer that was set for an earlier deadline rings early once, instead of being moved at every request.
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= until {
                return true;
            }
            timer.as_mut().reset(until);
        }
        false
    }

    fn expect_bytes(&mut self, phase: Phase) {
        let timeouts = if phase == Phase::Head { self.timeouts.head } else { self.timeouts.idle };
        self.read_until = Some((phase, self.state.request_count(), Instant::now() + timeouts));
    }

    fn blocked_read<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let phase = self.state.phase();
        if phase != Phase::Busy && self.read_until().is_none() {
            self.expect_bytes(phase);
        }
        if phase == Phase::Head && self.state.is_stopping() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        self.timed(cx)
    }

    fn blocked_write<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.write_until.is_none() {
            self.write_until = Some(Instant::now() + self.timeouts.write);
            self.progress = 0;
        }
        self.timed(cx)
    }

    fn timed<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.is_over(cx) {
            self.state.give_up();
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    fn wrote(&mut self, bytes: usize) {
        self.progress += bytes;
        if self.progress >= WRITE_PROGRESS {
            self.write_until = None;
        }
        // While an answer is being read, its connection is not idle.
        if self.state.phase() == Phase::Idle {
            self.expect_bytes(Phase::Idle);
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
                    this.state.give_up();
                } else if this.state.head_begins() {
                    this.expect_bytes(Phase::Head);
                } else if this.state.phase() == Phase::Head && this.is_over(cx) {
                    // Bytes that keep coming do not buy time.
                    return this.timed(cx);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => {
                this.state.give_up();
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
                this.wrote(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => this.blocked_write(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Called when all is written: the peer has kept up. If that was an answer's end, the idle time begins; hyper, which
    /// may still have a read pending, does not ask again.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.write_until = None;
        if this.state.phase() == Phase::Idle {
            if this.read_until().is_none() {
                this.expect_bytes(Phase::Idle);
            }
            // This only sets the timer: the time has just begun.
            let _ = this.is_over(cx);
        }
        Pin::new(&mut this.socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
