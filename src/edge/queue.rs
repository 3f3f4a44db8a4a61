//! Requests that wait for an upstream connection, dequeued round-robin by client address.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

use super::forward::QueuedRequest;
use super::limits::{MAX_QUEUED_REQUESTS, MAX_UPSTREAM_CONNECTIONS, RESERVED_UPSTREAM_CONNECTIONS};
use super::upstream_response::ForwardError;
use crate::fair_queue::{FairQueue, address_of};

/// A bounded fair queue that also limits the upstream connections of each address.
#[derive(Default)]
pub(super) struct RequestQueue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    waiting: FairQueue<QueuedRequest>,
    active: ActiveRequests,
}

/// The number of requests on upstream connections.
#[derive(Default)]
struct ActiveRequests {
    count: usize,
    /// The number for each address that has any.
    by_address: HashMap<IpAddr, usize>,
}

impl RequestQueue {
    /// Adds a request behind its client's other requests. If the queue is full, the newest request of the address with the most is
    /// evicted.
    ///
    /// # Errors
    ///
    /// Returns the request if the queue is full and its own address has the most.
    pub(super) fn push(&self, request: QueuedRequest) -> Result<(), QueuedRequest> {
        let mut state = self.0.lock();
        if state.waiting.len() >= MAX_QUEUED_REQUESTS && !state.make_room(request.client) {
            return Err(request);
        }
        state.waiting.push(request.client, request);
        Ok(())
    }

    /// Returns a request that was popped but could not be sent. It becomes the first of its client.
    pub(super) fn push_front(&self, request: QueuedRequest) {
        let mut state = self.0.lock();
        state.active.end(request.client);
        state.waiting.push_front(request.client, request);
    }

    /// Removes and returns the next request whose client still waits and may use one more upstream connection. The caller reports
    /// its end with [`RequestQueue::complete`].
    pub(super) fn pop(&self) -> Option<QueuedRequest> {
        let mut state = self.0.lock();
        let QueueState { waiting, active } = &mut *state;
        while let Some(request) = waiting.pop_where(|address| active.may_start(address)) {
            if request.is_wanted() {
                active.start(request.client);
                return Some(request);
            }
        }
        None
    }

    /// Records that a request of `client` has left its upstream connection.
    pub(super) fn complete(&self, client: IpAddr) {
        self.0.lock().active.end(client);
    }

    /// The number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }
}

impl QueueState {
    /// Removes the requests whose clients have left, or else evicts the newest one of the address with the most. Returns whether there
    /// is room for a request of `client`.
    fn make_room(&mut self, client: IpAddr) -> bool {
        self.waiting.retain(QueuedRequest::is_wanted);
        if self.waiting.len() < MAX_QUEUED_REQUESTS {
            return true;
        }
        let Some(evicted) = self.waiting.evict_for(client) else { return false };
        // The receiver is gone if the client has left.
        let _ = evicted.sender.send(Err(ForwardError::Evicted));
        true
    }
}

impl ActiveRequests {
    /// Whether `address` may use one more connection. The reserved ones are for addresses with less than an equal share.
    fn may_start(&self, address: IpAddr) -> bool {
        let own = self.by_address.get(&address).copied().unwrap_or(0);
        let share = MAX_UPSTREAM_CONNECTIONS / (self.by_address.len() + 1);
        self.count + RESERVED_UPSTREAM_CONNECTIONS < MAX_UPSTREAM_CONNECTIONS || own < share
    }

    fn start(&mut self, client: IpAddr) {
        *self.by_address.entry(address_of(client)).or_default() += 1;
        self.count += 1;
    }

    fn end(&mut self, client: IpAddr) {
        let address = address_of(client);
        let Some(own) = self.by_address.get_mut(&address) else { return };
        *own -= 1;
        self.count -= 1;
        if *own == 0 {
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

    fn request(client: &str) -> (QueuedRequest, oneshot::Receiver<ForwardResult>) {
        let (sender, receiver) = oneshot::channel();
        let memory = MemoryBudget::new(0).permit();
        (
            QueuedRequest { bytes: Vec::new(), head_only: false, client: client.parse().unwrap(), sender, memory },
            receiver,
        )
    }

    fn fill(queue: &RequestQueue, client: &str, count: usize) -> Vec<oneshot::Receiver<ForwardResult>> {
        let requests = (0..count).map(|_| request(client));
        requests.map(|(request, receiver)| queue.push(request).map(|()| receiver).ok().unwrap()).collect()
    }

    fn pop(queue: &RequestQueue) -> Option<String> {
        queue.pop().map(|request| request.client.to_string())
    }

    #[test]
    fn addresses_are_served_round_robin() {
        let queue = RequestQueue::default();
        let _a = fill(&queue, "192.0.2.1", 3);
        let _b = fill(&queue, "192.0.2.2", 1);
        let order: Vec<String> = std::iter::from_fn(|| pop(&queue)).collect();
        assert_eq!(order, ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.1"]);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn one_address_leaves_connections_to_others() {
        let queue = RequestQueue::default();
        let _a = fill(&queue, "192.0.2.1", MAX_UPSTREAM_CONNECTIONS);
        let taken = std::iter::from_fn(|| pop(&queue)).count();
        assert_eq!(taken, MAX_UPSTREAM_CONNECTIONS - RESERVED_UPSTREAM_CONNECTIONS);
        let _b = fill(&queue, "192.0.2.2", 1);
        assert_eq!(pop(&queue).as_deref(), Some("192.0.2.2"));
        queue.complete("192.0.2.1".parse().unwrap());
        queue.complete("192.0.2.2".parse().unwrap());
        assert_eq!(pop(&queue).as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn a_request_whose_client_has_left_is_not_started() {
        let queue = RequestQueue::default();
        drop(fill(&queue, "192.0.2.1", 3));
        assert_eq!(pop(&queue), None);
        assert_eq!(queue.waiting(), 0);
        assert!(queue.0.lock().active.by_address.is_empty());
    }

    #[test]
    fn a_full_queue_evicts_from_the_address_with_the_most() {
        let queue = RequestQueue::default();
        let mut a = fill(&queue, "192.0.2.1", MAX_QUEUED_REQUESTS);
        assert!(queue.push(request("192.0.2.1").0).is_err());
        let _b = fill(&queue, "192.0.2.2", 1);
        assert_eq!(queue.waiting(), MAX_QUEUED_REQUESTS);
        assert!(matches!(a.pop().unwrap().try_recv(), Ok(Err(ForwardError::Evicted))));
        drop(a);
        assert!(queue.push(request("192.0.2.1").0).is_ok());
        assert_eq!(queue.waiting(), 2);
    }

    #[test]
    fn one_ipv6_network_is_one_client() {
        let queue = RequestQueue::default();
        let _a = fill(&queue, "2001:db8::1", 2);
        let _b = fill(&queue, "2001:db8::2", 1);
        let _c = fill(&queue, "2001:db8:0:1::1", 1);
        assert_eq!(pop(&queue).as_deref(), Some("2001:db8::1"));
        assert_eq!(pop(&queue).as_deref(), Some("2001:db8:0:1::1"));
    }
}
