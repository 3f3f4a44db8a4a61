//! The request to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Asks an edge to stop. Clones share their state, so one can be kept where signals are handled.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    requested: AtomicBool,
    notify: Notify,
}

impl Stopper {
    /// Stops accepting connections and requests. [`Edge::wait`](super::Edge::wait) returns once those in progress are answered.
    pub fn stop(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }

    fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::SeqCst)
    }

    /// Completes when [`Stopper::stop`] has been called.
    pub(super) async fn requested(&self) {
        let notified = self.0.notify.notified();
        if !self.is_requested() {
            notified.await;
        }
    }
}
