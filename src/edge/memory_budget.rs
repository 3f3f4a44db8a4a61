//! Limits on the memory of all request bodies and of all responses together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::body::Bytes;
use parking_lot::Mutex;

use super::connection_state::ConnectionState;

/// A number of bytes that can be allocated in total.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    used: AtomicUsize,
    limit: usize,
}

/// Bytes allocated from a [`MemoryBudget`]. Dropping it releases them.
#[derive(Debug)]
pub(super) struct MemoryPermit {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    /// A budget of `limit` bytes.
    pub(super) fn new(limit: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget { used: AtomicUsize::new(0), limit })
    }

    /// A permit of 0 bytes.
    pub(super) fn permit(self: &Arc<MemoryBudget>) -> MemoryPermit {
        MemoryPermit { budget: Arc::clone(self), bytes: 0 }
    }
}

impl MemoryPermit {
    /// Allocates `bytes` more. Returns false if the budget is exceeded.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let used = self.budget.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.bytes += bytes;
        used <= self.budget.limit
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The memory of the responses that clients have not read yet. If it exceeds its limit, the connections that have been writing for
/// the longest time are aborted.
#[derive(Default)]
pub(super) struct ResponseBudget {
    pending: Mutex<PendingResponses>,
}

#[derive(Default)]
struct PendingResponses {
    next_number: u64,
    bytes: usize,
    /// Size and connection of each response, oldest first.
    responses: BTreeMap<u64, (usize, Arc<ConnectionState>)>,
}

impl ResponseBudget {
    /// Returns the bytes of `response` in `range`. They count against `limit` bytes until the last of them is written. Aborts the
    /// connections of older responses while the limit is exceeded.
    pub(super) fn hold(
        self: &Arc<ResponseBudget>,
        response: Vec<u8>,
        range: Range<usize>,
        connection: &Arc<ConnectionState>,
        limit: usize,
    ) -> Bytes {
        if range.is_empty() {
            return Bytes::new();
        }
        let mut pending = self.pending.lock();
        let number = pending.next_number;
        pending.next_number += 1;
        pending.bytes += response.capacity();
        pending.responses.insert(number, (response.capacity(), Arc::clone(connection)));
        while pending.bytes > limit && pending.responses.len() > 1 {
            let Some((_, (bytes, oldest))) = pending.responses.pop_first() else { break };
            pending.bytes -= bytes;
            oldest.abort();
        }
        drop(pending);
        Bytes::from_owner(HeldResponse { response, range, number, budget: Arc::clone(self) })
    }
}

/// One response that counts against the budget.
struct HeldResponse {
    response: Vec<u8>,
    range: Range<usize>,
    number: u64,
    budget: Arc<ResponseBudget>,
}

impl AsRef<[u8]> for HeldResponse {
    fn as_ref(&self) -> &[u8] {
        self.response.get(self.range.clone()).unwrap_or(&[])
    }
}

impl Drop for HeldResponse {
    fn drop(&mut self) {
        let mut pending = self.budget.pending.lock();
        if let Some((bytes, _)) = pending.responses.remove(&self.number) {
            pending.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_aborted(connection: &ConnectionState) -> bool {
        pin!(connection.aborted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_response_is_aborted() {
        let budget = Arc::new(ResponseBudget::default());
        let connections: Vec<_> = (0..3).map(|_| ConnectionState::new(false)).collect();
        let held: Vec<Bytes> = connections.iter().map(|c| budget.hold(vec![0; 100], 0..100, c, 250)).collect();
        assert_eq!(connections.iter().map(|c| is_aborted(c)).collect::<Vec<_>>(), [true, false, false]);
        drop(held);
        assert_eq!(budget.pending.lock().bytes, 0);
    }

    #[test]
    fn a_dropped_permit_releases_its_bytes() {
        let budget = MemoryBudget::new(10);
        let mut permit = budget.permit();
        assert!(permit.grow(10));
        assert!(!permit.grow(1));
        drop(permit);
        assert!(budget.permit().grow(10));
    }
}
