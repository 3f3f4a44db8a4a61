//! Where each request on a connection begins and ends.
//!
//! Two things cannot be checked on what hyper returns: the `http` crate drops the fragment of a target, and hyper itself refuses
//! a `Content-Length` that is a number beyond 64 bits. [`BoundaryStream`] sees the bytes before hyper does. It gives hyper one
//! head at a time, so that it knows where the next one begins, and learns the length of each body from [`BoundaryTracker::head_ended`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::ConnectionState;
use super::limits::MAX_HEAD;

/// The digits of a `Content-Length` that hyper gets, leading zeros aside: fewer than 64 bits can hold, and far more than any
/// limit. The further ones are dropped.
const MAX_LENGTH_DIGITS: usize = 18;

/// Follows the bytes of one connection.
#[derive(Debug, Default)]
pub(super) struct BoundaryTracker {
    next: Part,
    /// The present line so far, at most [`MAX_HEAD`] bytes of it.
    line: Vec<u8>,
    /// The target of the present head has a fragment.
    has_fragment: bool,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    RequestLine,
    Header,
    /// The head has ended; the length of its body is not known yet.
    Unknown,
    /// So many bytes of a body.
    Body(u64),
    ChunkSize,
    /// So many bytes of a chunk, its line end included.
    Chunk(u64),
    Trailer,
}

impl BoundaryTracker {
    /// hyper has read a head. `body` is the length of its body in bytes, `None` if that is chunked. Returns whether the target
    /// has a fragment.
    pub(super) fn head_ended(&mut self, body: Option<u64>) -> bool {
        self.next = body.map_or(Part::ChunkSize, after_body);
        std::mem::take(&mut self.has_fragment)
    }

    fn is_between_head_and_body(&self) -> bool {
        self.next == Part::Unknown
    }

    /// Follows `bytes` to the end of the present head, or to their end. Returns how many it followed, and how many of these hyper
    /// gets; they are moved to the front.
    fn follow(&mut self, bytes: &mut [u8]) -> (usize, usize) {
        let (mut followed, mut kept) = (0, 0);
        while let Some(byte) = bytes.get(followed).copied() {
            let run = match self.next {
                Part::Unknown => break,
                Part::Body(left) | Part::Chunk(left) => {
                    let run = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - followed);
                    self.next = self.after_run(left - run as u64);
                    run
                }
                _ if self.is_dropped(byte) => {
                    followed += 1;
                    continue;
                }
                _ => {
                    self.follow_line(byte);
                    1
                }
            };
            if followed != kept {
                bytes.copy_within(followed..followed + run, kept);
            }
            followed += run;
            kept += run;
        }
        (followed, kept)
    }

    /// What follows a part of a body of which `left` bytes are still to come.
    fn after_run(&self, left: u64) -> Part {
        match self.next {
            Part::Chunk(_) if left == 0 => Part::ChunkSize,
            Part::Chunk(_) => Part::Chunk(left),
            _ => after_body(left),
        }
    }

    fn follow_line(&mut self, byte: u8) {
        if byte == b'\n' {
            self.end_line();
            return;
        }
        // Before the first space stands the method, which may have this sign in its name.
        self.has_fragment |= byte == b'#' && self.next == Part::RequestLine && self.line.contains(&b' ');
        if self.line.len() < MAX_HEAD {
            self.line.push(byte);
        }
    }

    fn end_line(&mut self) {
        let is_empty = matches!(self.line.as_slice(), b"" | b"\r");
        self.next = match self.next {
            // Empty lines may stand before a request line (RFC 9112 section 2.2).
            Part::RequestLine if !is_empty => Part::Header,
            Part::Header if is_empty => Part::Unknown,
            Part::Trailer if is_empty => Part::RequestLine,
            Part::ChunkSize => after_chunk_size(&self.line),
            same => same,
        };
        self.line.clear();
    }

    /// Whether the byte is a digit of a length that has enough of them.
    fn is_dropped(&self, byte: u8) -> bool {
        const NAME: &[u8] = b"content-length:";
        if self.next != Part::Header || !byte.is_ascii_digit() {
            return false;
        }
        let Some((name, value)) = self.line.split_at_checked(NAME.len()) else { return false };
        let is_zero_or_space = |byte: &u8| matches!(byte, b'0' | b' ' | b'\t');
        let digits = value.iter().position(|byte| !is_zero_or_space(byte)).and_then(|first| value.get(first..));
        digits.is_some_and(|digits| digits.len() >= MAX_LENGTH_DIGITS && digits.iter().all(u8::is_ascii_digit))
            && name.eq_ignore_ascii_case(NAME)
    }
}

fn after_body(left: u64) -> Part {
    if left == 0 { Part::RequestLine } else { Part::Body(left) }
}

/// The size is hexadecimal, and an extension may follow it. hyper refuses what is no size.
fn after_chunk_size(line: &[u8]) -> Part {
    let digits = line.iter().map_while(|byte| char::from(*byte).to_digit(16));
    match digits.fold(0_u64, |size, digit| size.saturating_mul(16).saturating_add(digit.into())) {
        0 => Part::Trailer,
        size => Part::Chunk(size.saturating_add(2)),
    }
}

/// A stream that gives hyper one head at a time.
pub(super) struct BoundaryStream<S> {
    stream: S,
    state: Arc<ConnectionState>,
    /// What came after the present head.
    held: Vec<u8>,
}

impl<S> BoundaryStream<S> {
    pub(super) fn new(stream: S, state: Arc<ConnectionState>) -> BoundaryStream<S> {
        BoundaryStream { stream, state, held: Vec::new() }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    /// Gives `buf` as much of what is held as it has room for.
    fn release(&mut self, buf: &mut ReadBuf<'_>) {
        let count = self.held.len().min(buf.remaining());
        buf.put_slice(self.held.get(..count).unwrap_or_default());
        self.held.drain(..count);
    }

    /// Keeps of what was read into `buf` from `start` on what hyper gets, and holds what comes after it. Returns whether hyper gets
    /// any.
    fn keep_one_head(&mut self, buf: &mut ReadBuf<'_>, start: usize) -> bool {
        let read = buf.filled_mut().get_mut(start..).unwrap_or_default();
        let (followed, kept) = self.state.boundaries().follow(read);
        self.held.splice(0..0, read.get(followed..).unwrap_or_default().iter().copied());
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
                // hyper reads on only if it has not found the end of the head that was found here.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What hyper gets of `text`, which has one head, and whether that has a fragment.
    fn passed(text: &str) -> (String, bool) {
        let mut messages = BoundaryTracker::default();
        let mut bytes = text.as_bytes().to_vec();
        let (followed, kept) = messages.follow(&mut bytes);
        assert_eq!((followed, messages.next), (text.len(), Part::Unknown));
        (String::from_utf8(bytes[..kept].to_vec()).unwrap(), messages.head_ended(Some(0)))
    }

    #[test]
    fn only_a_target_has_a_fragment() {
        for (line, expected) in [("GET /#", true), ("GET /?a#b", true), ("G#T /", false), ("GET /%23", false)] {
            let head = format!("\r\n{line} HTTP/1.1\r\nX-A: /#\n\r\n");
            assert_eq!(passed(&head), (head, expected));
        }
    }

    #[test]
    fn a_length_loses_the_digits_that_no_limit_needs() {
        let head = |name: &str, value: &str| format!("POST / HTTP/1.1\r\n{name}:{value}\r\n\r\n");
        let nines = "9".repeat(40);
        assert_eq!(passed(&head("content-Length", &nines)).0, head("content-Length", &nines[..18]));
        assert_eq!(
            passed(&head("Content-Length", &format!(" 00{nines}\t"))).0,
            head("Content-Length", &format!(" 00{}\t", &nines[..18]))
        );
        for same in
            [head("X-Length", &nines), head("Content-Length", &format!("1 {nines}")), head("Content-Length", "0")]
        {
            assert_eq!(passed(&same).0, same);
        }
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        let bodies = [
            (Some(0), ""),
            (Some(4), "\r\n\r\n"),
            (None, "3;a=b\r\nG#T\r\n0A\r\n0\r\n\r\n\r\n0\r\n\r\n0\r\nT: a\r\n\r\n"),
        ];
        for (length, body) in bodies {
            for size in [1, 2, 1000] {
                let mut messages = BoundaryTracker { next: Part::Unknown, ..BoundaryTracker::default() };
                messages.head_ended(length);
                for piece in body.as_bytes().chunks(size) {
                    assert_eq!(messages.follow(&mut piece.to_vec()), (piece.len(), piece.len()));
                }
                assert_eq!(messages.next, Part::RequestLine, "{body:?}");
            }
        }
    }

    #[test]
    fn a_head_is_all_that_is_given_at_once() {
        let mut messages = BoundaryTracker::default();
        let mut bytes = *b"GET / HTTP/1.1\r\n\r\nGET /";
        assert_eq!(messages.follow(&mut bytes), (18, 18));
        assert_eq!(messages.follow(&mut bytes), (0, 0));
    }
}
