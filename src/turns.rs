//! Jobs of which each owner runs a limited number at a time. The others wait, without a thread.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

use crate::fair_queue::FairQueue;
use crate::model::TenantId;

/// Whose jobs are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A tenant, by its id: one tenant computes with at most half of the workers.
    Tenant(TenantId),
    /// The panel's forms, one at a time: each may hash a password, which takes 20 ms and 19 MiB.
    Panel,
}

/// The most forms that wait, whose hashes take a quarter of a second. The requests of a tenant are
/// limited by the number of requests under way.
const MAX_WAITING_FORMS: usize = 10;

/// Too many jobs of the owner wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

type Job = Box<dyn FnOnce(Result<(), QueueFull>) + Send>;

/// What runs and what waits.
pub struct Turns {
    workers: usize,
    lanes: Mutex<HashMap<Owner, Lane>>,
}

#[derive(Default)]
struct Lane {
    running: usize,
    waiting: FairQueue<Job>,
}

/// A running job. Dropping it, also by a panic, makes room for the next.
struct Turn<'a>(&'a Turns, Owner);

impl Turns {
    /// For a pool of `workers` threads.
    pub fn new(workers: usize) -> Turns {
        Turns { workers, lanes: Mutex::default() }
    }

    /// How many jobs of `owner` may run, and how many may wait.
    fn limits(&self, owner: Owner) -> (usize, usize) {
        match owner {
            Owner::Tenant(_) => ((self.workers / 2).max(1), usize::MAX),
            Owner::Panel => (1, MAX_WAITING_FORMS),
        }
    }

    /// Runs `job` now, or keeps it until [`Turns::run_next`] if `owner` runs as many as it may.
    /// Those that wait take turns by `client`; the job that finds no room is told so.
    pub fn run(
        &self,
        owner: Owner,
        client: IpAddr,
        job: impl FnOnce(Result<(), QueueFull>) + Send + 'static,
    ) {
        let (most, most_waiting) = self.limits(owner);
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry(owner).or_default();
        if lane.running < most && lane.waiting.is_empty() {
            lane.running += 1;
            drop(lanes);
            let _turn = Turn(self, owner);
            return job(Ok(()));
        }
        let refused = lane.waiting.push(most_waiting, client, Box::new(job));
        drop(lanes);
        if let Some(refused) = refused {
            refused(Err(QueueFull));
        }
    }

    /// Runs a job that waits. Returns whether there was one that may run.
    pub fn run_next(&self) -> bool {
        let mut lanes = self.lanes.lock();
        let next = lanes.iter_mut().find_map(|(owner, lane)| {
            let job =
                (lane.running < self.limits(*owner).0).then(|| lane.waiting.pop()).flatten()?;
            lane.running += 1;
            Some((*owner, job))
        });
        drop(lanes);
        let Some((owner, job)) = next else { return false };
        let _turn = Turn(self, owner);
        job(Ok(()));
        true
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut lanes = self.0.lanes.lock();
        let Some(lane) = lanes.get_mut(&self.1) else { return };
        lane.running -= 1;
        if lane.running == 0 && lane.waiting.is_empty() {
            lanes.remove(&self.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    const OWNER: Owner = Owner::Tenant(TenantId(1));

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_tenant_runs_half_of_the_workers_and_the_rest_waits() {
        let turns = Arc::new(Turns::new(4));
        let (started, starts) = mpsc::channel();
        let hold = |number: u8| {
            let (turns, started) = (Arc::clone(&turns), started.clone());
            let (release, released) = mpsc::channel::<()>();
            let thread = thread::spawn(move || {
                turns.run(OWNER, client(1), move |_| {
                    started.send(number).unwrap();
                    let _ = released.recv();
                });
            });
            (thread, release)
        };
        let first = [hold(1), hold(2)];
        let _both = [starts.recv().unwrap(), starts.recv().unwrap()];
        for (number, address) in [(3, 1), (4, 1), (5, 2)] {
            let started = started.clone();
            turns.run(OWNER, client(address), move |_| started.send(number).unwrap());
        }
        let other = started.clone();
        turns.run(Owner::Tenant(TenantId(2)), client(3), move |_| other.send(9).unwrap());
        assert!(!turns.run_next(), "half of the workers are busy");
        assert_eq!(starts.try_iter().collect::<Vec<u8>>(), [9]);
        for (thread, release) in first {
            drop(release);
            thread.join().unwrap();
        }
        assert_eq!([(); 4].map(|()| turns.run_next()), [true, true, true, false]);
        assert_eq!(starts.try_iter().collect::<Vec<u8>>(), [3, 5, 4], "by address");
        assert!(turns.lanes.lock().is_empty());
    }

    #[test]
    fn few_forms_wait_and_one_address_keeps_no_other_out() {
        let turns = Arc::new(Turns::new(4));
        let (ended, ends) = mpsc::channel();
        let inner = Arc::clone(&turns);
        turns.run(Owner::Panel, client(1), move |_| {
            // They wait for the job that is running.
            for number in 0..MAX_WAITING_FORMS + 2 {
                let ended = ended.clone();
                let address = if number <= MAX_WAITING_FORMS { 1 } else { 2 };
                inner.run(Owner::Panel, client(address), move |turn| {
                    ended.send((number, turn)).unwrap()
                });
            }
        });
        let refused = Err(QueueFull);
        assert_eq!(
            ends.try_iter().collect::<Vec<_>>(),
            [(MAX_WAITING_FORMS, refused), (MAX_WAITING_FORMS - 1, refused)]
        );
        assert!(turns.run_next() && turns.run_next());
        assert_eq!(
            ends.try_iter().collect::<Vec<_>>(),
            [(0, Ok(())), (MAX_WAITING_FORMS + 1, Ok(()))]
        );
    }

    #[test]
    fn a_job_that_panics_gives_its_turn_back() {
        let turns = Turns::new(2);
        let panicked =
            catch_unwind(AssertUnwindSafe(|| turns.run(OWNER, client(1), |_| panic!("as asked"))));
        assert!(panicked.is_err());
        assert!(turns.lanes.lock().is_empty());
    }
}
