//! How much memory bodies and answers may take, all connections together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Bytes;

use super::connection::ConnectionState;

/// A sum of bytes with a limit.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    used: AtomicUsize,
    limit: usize,
}

/// Part of an [`MemoryBudget`], given back when dropped.
#[derive(Debug)]
pub(super) struct MemoryPermit {
    of: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    pub(super) fn new(limit: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget { used: AtomicUsize::new(0), limit })
    }

    /// Nothing yet.
    pub(super) fn permit(self: &Arc<MemoryBudget>) -> MemoryPermit {
        MemoryPermit { of: Arc::clone(self), bytes: 0 }
    }
}

impl MemoryPermit {
    /// Takes `bytes` more; false when the limit is reached.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let used = self.of.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.bytes += bytes;
        used <= self.of.limit
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The answers that wait for their readers. Beyond the limit the one that has waited longest is cut.
#[derive(Default)]
pub(super) struct ResponseBudget {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    bytes: usize,
    /// In the order of arrival.
    answers: BTreeMap<u64, (usize, Arc<ConnectionState>)>,
}

impl ResponseBudget {
    /// The bytes of `answer` in `range`, counted until the last of them is written, and other connections cut if they are
    /// too many together.
    pub(super) fn hold(
        self: &Arc<ResponseBudget>,
        answer: Vec<u8>,
        range: Range<usize>,
        reader: &Arc<ConnectionState>,
        limit: usize,
    ) -> Bytes {
        if range.is_empty() {
            return Bytes::new();
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = waiting.next;
        waiting.next += 1;
        waiting.bytes += answer.capacity();
        waiting.answers.insert(number, (answer.capacity(), Arc::clone(reader)));
        while waiting.bytes > limit && waiting.answers.len() > 1 {
            let Some((_, (bytes, longest))) = waiting.answers.pop_first() else { break };
            waiting.bytes -= bytes;
            longest.abort();
        }
        drop(waiting);
        Bytes::from_owner(Held { answer, range, number, answers: Arc::clone(self) })
    }
}

/// One answer that waits.
struct Held {
    answer: Vec<u8>,
    range: Range<usize>,
    number: u64,
    answers: Arc<ResponseBudget>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.answer.get(self.range.clone()).unwrap_or(&[])
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut waiting = self.answers.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((bytes, _)) = waiting.answers.remove(&self.number) {
            waiting.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_that_waited_longest_is_cut() {
        let answers = Arc::new(ResponseBudget::default());
        let readers: Vec<Arc<ConnectionState>> = (0..3).map(|_| ConnectionState::new(false)).collect();
        let held: Vec<Bytes> = readers.iter().map(|r| answers.hold(vec![0; 100], 0..100, r, 250)).collect();
        assert_eq!(readers.iter().map(|r| r.is_aborted()).collect::<Vec<_>>(), [true, false, false]);
        drop(held);
        assert_eq!(answers.waiting.lock().unwrap().bytes, 0);
    }

    #[test]
    fn an_allowance_comes_back() {
        let budget = MemoryBudget::new(10);
        let mut permit = budget.permit();
        assert!(permit.grow(10));
        assert!(!permit.grow(1));
        drop(permit);
        assert!(budget.permit().grow(10));
    }
}
