//! Password hashing with memory that is used again. Each hash takes 19 MiB.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::password::HashBuffer;

/// Hashes passwords. How many run at once, `turns.rs` says.
#[derive(Debug, Default)]
pub(super) struct Hasher {
    /// Buffers to use again, as many as hashes ever ran at once.
    spare: Mutex<Vec<HashBuffer>>,
    finished: AtomicU64,
}

impl Hasher {
    /// Runs `work`, which hashes one password.
    pub(super) fn run<T>(&self, work: impl FnOnce(&mut HashBuffer) -> T) -> T {
        let mut buffer = self.spare.lock().pop().unwrap_or_default();
        let result = work(&mut buffer);
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.spare.lock().push(buffer);
        result
    }

    /// Number of finished hashes since the start.
    pub(super) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }
}
