//! Requests that wait for a line, taken in turn by client address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::job::{Failure, Job};
use super::limits::{MAX_LINES, MAX_WAITING, RESERVED_LINES};
use crate::http::address_of;

/// A bounded queue with one place in the round for each address.
#[derive(Default)]
pub(super) struct Queue(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    waiting: usize,
    clients: HashMap<IpAddr, Client>,
    /// The addresses that have something waiting, the next one first.
    round: VecDeque<IpAddr>,
    /// Jobs on a line.
    under_way: usize,
    /// Addresses with a job on a line.
    served: usize,
}

#[derive(Default)]
struct Client {
    waiting: VecDeque<Job>,
    under_way: usize,
}

impl Queue {
    /// Adds a job at the end of its client's row; gives it back when the queue is full. A client with little waiting then
    /// displaces the last of the one with the most.
    pub(super) fn push(&self, job: Job) -> Result<(), Job> {
        let mut inner = self.lock();
        if inner.waiting >= MAX_WAITING && !inner.drop_unwanted() && !inner.displace_for(address_of(job.client)) {
            return Err(job);
        }
        inner.add(job, false);
        Ok(())
    }

    /// Puts back a job that could not be started, as the first of its client.
    pub(super) fn put_back(&self, job: Job) {
        let mut inner = self.lock();
        inner.ended(address_of(job.client));
        inner.add(job, true);
    }

    /// The next job whose client still waits for it and may have one more line. Its end is told with [`Queue::done`].
    pub(super) fn take(&self) -> Option<Job> {
        let mut inner = self.lock();
        for _ in 0..inner.round.len() {
            let client = inner.round.pop_front()?;
            let may = inner.may_start(client);
            let job = if may { inner.pop(client) } else { None };
            if inner.clients.get(&client).is_some_and(|c| !c.waiting.is_empty()) {
                inner.round.push_back(client);
            }
            if let Some(job) = job {
                inner.started(client);
                return Some(job);
            }
            inner.forget(client);
        }
        None
    }

    /// A job of this client has left its line.
    pub(super) fn done(&self, client: IpAddr) {
        self.lock().ended(address_of(client));
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn add(&mut self, job: Job, first: bool) {
        let address = address_of(job.client);
        let client = self.clients.entry(address).or_default();
        if client.waiting.is_empty() {
            self.round.push_back(address);
        }
        if first {
            client.waiting.push_front(job)
        } else {
            client.waiting.push_back(job)
        }
        self.waiting += 1;
    }

    /// While there are lines enough, everybody; of the last ones only who has less than an equal share.
    fn may_start(&self, client: IpAddr) -> bool {
        let has = self.clients.get(&client).map_or(0, |c| c.under_way);
        self.under_way + RESERVED_LINES < MAX_LINES || has < MAX_LINES / (self.served + 1)
    }

    fn pop(&mut self, client: IpAddr) -> Option<Job> {
        let waiting = &mut self.clients.get_mut(&client)?.waiting;
        while let Some(job) = waiting.pop_front() {
            self.waiting -= 1;
            if job.is_wanted() {
                return Some(job);
            }
        }
        None
    }

    fn started(&mut self, client: IpAddr) {
        let client = self.clients.entry(client).or_default();
        client.under_way += 1;
        self.under_way += 1;
        if client.under_way == 1 {
            self.served += 1;
        }
    }

    fn ended(&mut self, address: IpAddr) {
        let Some(client) = self.clients.get_mut(&address) else { return };
        client.under_way -= 1;
        self.under_way -= 1;
        if client.under_way == 0 {
            self.served -= 1;
            self.forget(address);
        }
    }

    fn forget(&mut self, address: IpAddr) {
        if self.clients.get(&address).is_some_and(|c| c.waiting.is_empty() && c.under_way == 0) {
            self.clients.remove(&address);
        }
    }

    /// Drops the jobs whose clients have left; whether there were any.
    fn drop_unwanted(&mut self) -> bool {
        for client in self.clients.values_mut() {
            client.waiting.retain(Job::is_wanted);
        }
        let before = self.waiting;
        self.waiting = self.clients.values().map(|client| client.waiting.len()).sum();
        let clients = &mut self.clients;
        self.round.retain(|address| clients.get(address).is_some_and(|client| !client.waiting.is_empty()));
        clients.retain(|_, client| !client.waiting.is_empty() || client.under_way > 0);
        self.waiting < before
    }

    fn displace_for(&mut self, address: IpAddr) -> bool {
        let has = self.clients.get(&address).map_or(0, |client| client.waiting.len());
        let Some(longest) = self.clients.values_mut().max_by_key(|client| client.waiting.len()) else { return false };
        if longest.waiting.len() <= has + 1 {
            return false;
        }
        if let Some(job) = longest.waiting.pop_back() {
            self.waiting -= 1;
            // If nobody waits for it any more, all the better.
            let _ = job.answer.send(Err(Failure::Displaced));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::budget::Allowance;
    use crate::gate::job::Outcome;
    use tokio::sync::oneshot;

    fn job(client: &str) -> (Job, oneshot::Receiver<Outcome>) {
        let (answer, waiting) = oneshot::channel();
        let memory = Allowance::new(0).portion();
        (Job { bytes: Vec::new(), head_only: false, client: client.parse().unwrap(), answer, memory }, waiting)
    }

    fn fill(queue: &Queue, client: &str, count: usize) -> Vec<oneshot::Receiver<Outcome>> {
        let jobs = (0..count).map(|_| job(client));
        jobs.map(|(job, waiting)| queue.push(job).map(|()| waiting).ok().unwrap()).collect()
    }

    fn take(queue: &Queue) -> Option<String> {
        queue.take().map(|job| job.client.to_string())
    }

    #[test]
    fn clients_take_turns() {
        let queue = Queue::default();
        let _a = fill(&queue, "192.0.2.1", 3);
        let _b = fill(&queue, "192.0.2.2", 1);
        let order: Vec<String> = std::iter::from_fn(|| take(&queue)).collect();
        assert_eq!(order, ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.1"]);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn one_address_leaves_lines_to_others() {
        let queue = Queue::default();
        let _a = fill(&queue, "192.0.2.1", MAX_LINES);
        let taken = std::iter::from_fn(|| take(&queue)).count();
        assert_eq!(taken, MAX_LINES - RESERVED_LINES);
        let _b = fill(&queue, "192.0.2.2", 1);
        assert_eq!(take(&queue).as_deref(), Some("192.0.2.2"));
        queue.done("192.0.2.1".parse().unwrap());
        queue.done("192.0.2.2".parse().unwrap());
        assert_eq!(take(&queue).as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn a_job_that_nobody_waits_for_is_not_started() {
        let queue = Queue::default();
        drop(fill(&queue, "192.0.2.1", 3));
        assert_eq!(take(&queue), None);
        assert_eq!(queue.waiting(), 0);
        assert!(queue.lock().clients.is_empty());
    }

    #[test]
    fn a_full_queue_refuses_the_greedy_and_makes_room_for_others() {
        let queue = Queue::default();
        let mut a = fill(&queue, "192.0.2.1", MAX_WAITING);
        assert!(queue.push(job("192.0.2.1").0).is_err());
        let _b = fill(&queue, "192.0.2.2", 1);
        assert_eq!(queue.waiting(), MAX_WAITING);
        assert!(matches!(a.pop().unwrap().try_recv(), Ok(Err(Failure::Displaced))));
        drop(a);
        assert!(queue.push(job("192.0.2.1").0).is_ok());
        assert_eq!(queue.waiting(), 2);
    }

    #[test]
    fn neighbours_in_ipv6_are_one_client() {
        let queue = Queue::default();
        let _a = fill(&queue, "2001:db8::1", 2);
        let _b = fill(&queue, "2001:db8::2", 1);
        let _c = fill(&queue, "2001:db8:0:1::1", 1);
        assert_eq!(take(&queue).as_deref(), Some("2001:db8::1"));
        assert_eq!(take(&queue).as_deref(), Some("2001:db8:0:1::1"));
    }
}
