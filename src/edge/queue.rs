//! Requests that wait for a line, taken in turn by client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::forward::{ForwardError, QueuedRequest};
use super::limits::{MAX_QUEUED_REQUESTS, MAX_UPSTREAM_CONNECTIONS, RESERVED_UPSTREAM_CONNECTIONS};
use crate::fair_queue::{FairQueue, address_of};

/// A bounded queue that serves addresses in turn.
#[derive(Default)]
pub(super) struct RequestQueue(Mutex<Queues>);

#[derive(Default)]
struct Queues {
    waiting: FairQueue<QueuedRequest>,
    under_way: UnderWay,
}

/// The jobs on a line.
#[derive(Default)]
struct UnderWay {
    count: usize,
    /// How many each address has; none has 0.
    by_address: HashMap<IpAddr, usize>,
}

impl RequestQueue {
    /// Adds a queued at the end of its client's row; gives it back when the queue is full. A client with little waiting then
    /// displaces the last of the one with the most.
    pub(super) fn push(&self, queued: QueuedRequest) -> Result<(), QueuedRequest> {
        let mut inner = self.lock();
        if inner.waiting.len() >= MAX_QUEUED_REQUESTS && !inner.make_room(queued.client) {
            return Err(queued);
        }
        inner.waiting.push(queued.client, queued);
        Ok(())
    }

    /// Puts back a queued that could not be started, as the first of its client.
    pub(super) fn put_back(&self, queued: QueuedRequest) {
        let mut inner = self.lock();
        inner.under_way.end(queued.client);
        inner.waiting.push_front(queued.client, queued);
    }

    /// The next queued whose client still waits for it and may have one more line. Its end is told with [`RequestQueue::done`].
    pub(super) fn take(&self) -> Option<QueuedRequest> {
        let mut inner = self.lock();
        let Queues { waiting, under_way } = &mut *inner;
        while let Some(queued) = waiting.pop_where(|address| under_way.may_start(address)) {
            if queued.is_wanted() {
                under_way.start(queued.client);
                return Some(queued);
            }
        }
        None
    }

    /// A queued of this client has left its line.
    pub(super) fn done(&self, client: IpAddr) {
        self.lock().under_way.end(client);
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    /// Drops the jobs whose clients have left, or else one of the client with the most. Whether there is room.
    fn make_room(&mut self, client: IpAddr) -> bool {
        self.waiting.retain(QueuedRequest::is_wanted);
        if self.waiting.len() < MAX_QUEUED_REQUESTS {
            return true;
        }
        let Some(displaced) = self.waiting.displace_for(client) else { return false };
        // If nobody waits for it any more, all the better.
        let _ = displaced.answer.send(Err(ForwardError::Displaced));
        true
    }
}

impl UnderWay {
    /// While there are lines enough, everybody; of the last ones only who has less than an equal share.
    fn may_start(&self, address: IpAddr) -> bool {
        let has = self.by_address.get(&address).copied().unwrap_or(0);
        self.count + RESERVED_UPSTREAM_CONNECTIONS < MAX_UPSTREAM_CONNECTIONS
            || has < MAX_UPSTREAM_CONNECTIONS / (self.by_address.len() + 1)
    }

    fn start(&mut self, client: IpAddr) {
        *self.by_address.entry(address_of(client)).or_default() += 1;
        self.count += 1;
    }

    fn end(&mut self, client: IpAddr) {
        let address = address_of(client);
        let Some(has) = self.by_address.get_mut(&address) else { return };
        *has -= 1;
        self.count -= 1;
        if *has == 0 {
            self.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::forward::ForwardResult;
    use crate::edge::memory_budget::MemoryBudget;
    use tokio::sync::oneshot;

    fn queued(client: &str) -> (QueuedRequest, oneshot::Receiver<ForwardResult>) {
        let (answer, waiting) = oneshot::channel();
        let memory = MemoryBudget::new(0).permit();
        (
            QueuedRequest { bytes: Vec::new(), head_only: false, client: client.parse().unwrap(), answer, memory },
            waiting,
        )
    }

    fn fill(queue: &RequestQueue, client: &str, count: usize) -> Vec<oneshot::Receiver<ForwardResult>> {
        let jobs = (0..count).map(|_| queued(client));
        jobs.map(|(queued, waiting)| queue.push(queued).map(|()| waiting).ok().unwrap()).collect()
    }

    fn take(queue: &RequestQueue) -> Option<String> {
        queue.take().map(|queued| queued.client.to_string())
    }

    #[test]
    fn clients_take_turns() {
        let queue = RequestQueue::default();
        let _a = fill(&queue, "192.0.2.1", 3);
        let _b = fill(&queue, "192.0.2.2", 1);
        let order: Vec<String> = std::iter::from_fn(|| take(&queue)).collect();
        assert_eq!(order, ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.1"]);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn one_address_leaves_lines_to_others() {
        let queue = RequestQueue::default();
        let _a = fill(&queue, "192.0.2.1", MAX_UPSTREAM_CONNECTIONS);
        let taken = std::iter::from_fn(|| take(&queue)).count();
        assert_eq!(taken, MAX_UPSTREAM_CONNECTIONS - RESERVED_UPSTREAM_CONNECTIONS);
        let _b = fill(&queue, "192.0.2.2", 1);
        assert_eq!(take(&queue).as_deref(), Some("192.0.2.2"));
        queue.done("192.0.2.1".parse().unwrap());
        queue.done("192.0.2.2".parse().unwrap());
        assert_eq!(take(&queue).as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn a_job_that_nobody_waits_for_is_not_started() {
        let queue = RequestQueue::default();
        drop(fill(&queue, "192.0.2.1", 3));
        assert_eq!(take(&queue), None);
        assert_eq!(queue.waiting(), 0);
        assert!(queue.lock().under_way.by_address.is_empty());
    }

    #[test]
    fn a_full_queue_refuses_the_greedy_and_makes_room_for_others() {
        let queue = RequestQueue::default();
        let mut a = fill(&queue, "192.0.2.1", MAX_QUEUED_REQUESTS);
        assert!(queue.push(queued("192.0.2.1").0).is_err());
        let _b = fill(&queue, "192.0.2.2", 1);
        assert_eq!(queue.waiting(), MAX_QUEUED_REQUESTS);
        assert!(matches!(a.pop().unwrap().try_recv(), Ok(Err(ForwardError::Displaced))));
        drop(a);
        assert!(queue.push(queued("192.0.2.1").0).is_ok());
        assert_eq!(queue.waiting(), 2);
    }

    #[test]
    fn neighbours_in_ipv6_are_one_client() {
        let queue = RequestQueue::default();
        let _a = fill(&queue, "2001:db8::1", 2);
        let _b = fill(&queue, "2001:db8::2", 1);
        let _c = fill(&queue, "2001:db8:0:1::1", 1);
        assert_eq!(take(&queue).as_deref(), Some("2001:db8::1"));
        assert_eq!(take(&queue).as_deref(), Some("2001:db8:0:1::1"));
    }
}
