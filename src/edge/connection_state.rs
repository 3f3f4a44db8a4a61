//! What the stream and the service of one client connection share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::message_boundaries::BoundaryTracker;

/// The phase of a connection in the handling of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Between requests.
    Idle,
    /// Part of a request head has been received.
    Head,
    /// The head is complete. The body is being read, or the response is awaited or written.
    Busy,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct ConnectionState {
    phase: AtomicU8,
    request_count: AtomicU32,
    /// The connection exceeds the limit: every request but `/healthz` is rejected, and the connection closes.
    pub(super) over_limit: bool,
    stopping: AtomicBool,
    /// The peer has left or exceeded a deadline: nothing more is sent.
    abandoned: AtomicBool,
    abort_notify: Notify,
    boundaries: Mutex<BoundaryTracker>,
}

impl ConnectionState {
    /// The state of a new connection, which is idle.
    pub(super) fn new(over_limit: bool) -> Arc<ConnectionState> {
        Arc::new(ConnectionState {
            phase: AtomicU8::new(Phase::Idle as u8),
            request_count: AtomicU32::new(0),
            over_limit,
            stopping: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
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

    /// How often the connection has become idle. It tells one idle period from the next.
    pub(super) fn request_count(&self) -> u32 {
        self.request_count.load(Ordering::Relaxed)
    }

    /// Records that bytes were received. Returns whether they are the first of a request head.
    pub(super) fn begin_head(&self) -> bool {
        let begins = self.phase() == Phase::Idle;
        if begins {
            self.phase.store(Phase::Head as u8, Ordering::Relaxed);
        }
        begins
    }

    /// Records that hyper has parsed a head. `body` is the length of its body in bytes, `None` if that is chunked. Returns whether
    /// the target has a fragment.
    pub(super) fn end_head(&self, body: Option<u64>) -> bool {
        self.phase.store(Phase::Busy as u8, Ordering::Relaxed);
        self.boundaries().end_head(body)
    }

    pub(super) fn boundaries(&self) -> MutexGuard<'_, BoundaryTracker> {
        self.boundaries.lock()
    }

    /// Records that the response is complete, or that the TLS handshake is.
    pub(super) fn set_idle(&self) {
        self.request_count.fetch_add(1, Ordering::Relaxed);
        self.phase.store(Phase::Idle as u8, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(super) fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Records that nothing more can be sent to the peer.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Closes the connection immediately, to free the memory of its response.
    pub(super) fn abort(&self) {
        self.abort_notify.notify_one();
    }

    /// Completes when [`ConnectionState::abort`] has been called.
    pub(super) async fn aborted(&self) {
        self.abort_notify.notified().await;
    }
}
