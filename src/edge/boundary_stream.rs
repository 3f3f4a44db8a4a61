//! The stream between TLS and hyper that stops after each request head.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_state::ConnectionState;

/// A stream that passes at most one request head to hyper at a time.
pub(super) struct BoundaryStream<S> {
    stream: S,
    state: Arc<ConnectionState>,
    /// What was read after the end of the current head.
    held: Vec<u8>,
}

impl<S> BoundaryStream<S> {
    pub(super) fn new(stream: S, state: Arc<ConnectionState>) -> BoundaryStream<S> {
        BoundaryStream { stream, state, held: Vec::new() }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    /// Moves held bytes to `buf`, as many as fit.
    fn release(&mut self, buf: &mut ReadBuf<'_>) {
        let count = self.held.len().min(buf.remaining());
        buf.put_slice(self.held.get(..count).unwrap_or_default());
        self.held.drain(..count);
    }

    /// Processes what was read into `buf` from `start` on. Keeps the bytes up to the end of the head and holds the rest. Returns
    /// whether any bytes are left for hyper.
    fn keep_one_head(&mut self, buf: &mut ReadBuf<'_>, start: usize) -> bool {
        let read = buf.filled_mut().get_mut(start..).unwrap_or_default();
        let (processed, kept) = self.state.boundaries().process(read);
        self.held.splice(0..0, read.get(processed..).unwrap_or_default().iter().copied());
        buf.set_filled(start + kept);
        kept > 0
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundaryStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let start = buf.filled().len();
        loop {
            if this.state.boundaries().is_between_head_and_body() {
                // hyper continues to read only if it did not find the end of the head at the same place.
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if this.held.is_empty() {
                ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            } else {
                this.release(buf);
            }
            let is_end = buf.filled().len() == start;
            if is_end || this.keep_one_head(buf, start) {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundaryStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
