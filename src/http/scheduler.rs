//! Which job a worker runs next: the one place where requests wait for their turn.
//!
//! A job is a request whose key is good, or a form of the panel that hashes a password. A *lane* is
//! a queue of jobs with a limit on its running jobs. Each tenant has a lane of its own. Lanes take
//! turns: a lane that has started a job goes behind the other lanes. Inside a lane, client
//! addresses take turns.
//!
//! Example: 32 workers, so a tenant runs 2 jobs at a time. The tenants A and B send 100 slow lists
//! each. A and B run 2 lists each, and 196 lists wait. A request of tenant C finds its lane empty
//! and starts at once, because 28 workers are free. The operating system shares the processor among
//! the five running threads. Without the limit of a lane, A and B would occupy every worker for
//! seconds. Without the turns, a tenant with many waiting jobs would run all of them first.
//!
//! The workers share one scheduler behind a lock (worker_pool.rs). No method of the scheduler
//! waits.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::http::fair_queue::FairQueue;
use crate::model::TenantId;

/// The jobs that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The requests of a tenant.
    Tenant(TenantId),
    /// The panel's forms that hash a password. Each takes 20 ms and 19 MiB, so they run one by one.
    Passwords,
}

/// The most waiting jobs of all lanes together. If there are more, one of them gets 503
/// `overloaded` (contract section 6).
pub const MAX_WAITING: usize = 1024;

/// The most waiting forms that hash a password. Ten hashes take 0.2 s, one after another.
const MAX_WAITING_PASSWORDS: usize = 10;

/// A tenant may run one job at a time for each 16 workers. Example: with 32 workers, a tenant runs
/// 2 jobs. So 15 busy tenants occupy 30 workers, and a quiet tenant still finds a free worker.
const WORKERS_PER_TENANT_JOB: usize = 16;

/// The running jobs of each lane, and the waiting jobs.
#[derive(Debug)]
pub struct Scheduler<J> {
    workers: usize,
    /// The lanes with running or waiting jobs. The lane at the front has its turn next. There are
    /// few such lanes, even with thousands of tenants, so a linear search is fast.
    lanes: VecDeque<LaneState<J>>,
}

#[derive(Debug)]
struct LaneState<J> {
    lane: Lane,
    running: usize,
    waiting: FairQueue<J>,
}

impl Lane {
    /// The most jobs of the lane that wait.
    fn max_waiting(self) -> usize {
        match self {
            Lane::Tenant(_) => MAX_WAITING,
            Lane::Passwords => MAX_WAITING_PASSWORDS,
        }
    }

    /// The most jobs of the lane that run at a time.
    fn max_running(self, workers: usize) -> usize {
        match self {
            Lane::Tenant(_) => (workers / WORKERS_PER_TENANT_JOB).max(1),
            Lane::Passwords => 1,
        }
    }
}

impl<J> Scheduler<J> {
    /// A scheduler for a pool of `workers` threads.
    pub fn new(workers: usize) -> Scheduler<J> {
        Scheduler { workers, lanes: VecDeque::new() }
    }

    /// Adds a waiting job, and returns `None` if there is room. Otherwise returns the job that the
    /// caller must reject: the newest job of the busiest address of the longest lane. If several
    /// lanes are the longest, and the lane of the new job is one of them, this lane loses the job.
    /// If the new job puts its lane over the lane's own limit, this lane loses the job in any case.
    ///
    /// Example: of 1,024 waiting jobs, A has 1,000 and B has 24. A new job of C is queued, and A
    /// loses its newest job. A new job of A is rejected itself, unless another address of A has
    /// more jobs. Without this rule, A could fill the queue, and all others would get `overloaded`.
    pub fn add(&mut self, lane: Lane, client: IpAddr, job: J) -> Option<J> {
        if !self.lanes.iter().any(|state| state.lane == lane) {
            self.lanes.push_back(LaneState { lane, running: 0, waiting: FairQueue::default() });
        }
        let own = self.lanes.iter_mut().find(|state| state.lane == lane)?;
        own.waiting.push(client, job);
        if own.waiting.len() > lane.max_waiting() {
            return own.waiting.pop_newest_of_longest(client);
        }
        let waiting: usize = self.lanes.iter().map(|state| state.waiting.len()).sum();
        if waiting <= MAX_WAITING {
            return None;
        }
        let length = |state: &&mut LaneState<J>| (state.waiting.len(), state.lane == lane);
        self.lanes.iter_mut().max_by_key(length)?.waiting.pop_newest_of_longest(client)
    }

    /// Takes the next job that may run. Its lane counts the job as running until the caller calls
    /// [`Scheduler::finish`].
    ///
    /// One worker always stays free to receive requests. Otherwise long jobs could occupy every
    /// worker, and a new request of any tenant would not even be received.
    pub fn start_next(&mut self) -> Option<(Lane, J)> {
        let running: usize = self.lanes.iter().map(|state| state.running).sum();
        // With `max`, a pool of one worker runs jobs, too. `serve` has at least 4 workers.
        if running + 1 >= self.workers.max(2) {
            return None;
        }
        let may_run = |state: &LaneState<J>| {
            !state.waiting.is_empty() && state.running < state.lane.max_running(self.workers)
        };
        let position = self.lanes.iter().position(may_run)?;
        let mut state = self.lanes.remove(position)?;
        let (lane, job) = (state.lane, state.waiting.pop());
        state.running += 1;
        self.lanes.push_back(state);
        Some((lane, job?))
    }

    /// Ends a job that [`Scheduler::start_next`] returned, even if the job panicked. Without this
    /// call, the lane would run one job less until the process ends.
    pub fn finish(&mut self, lane: Lane) {
        if let Some(state) = self.lanes.iter_mut().find(|state| state.lane == lane) {
            state.running -= 1;
        }
        self.lanes.retain(|state| state.running > 0 || !state.waiting.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Lane = Lane::Tenant(TenantId(1));
    const B: Lane = Lane::Tenant(TenantId(2));
    const C: Lane = Lane::Tenant(TenantId(3));

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn add(scheduler: &mut Scheduler<u32>, lane: Lane, jobs: impl IntoIterator<Item = u32>) {
        for job in jobs {
            assert_eq!(scheduler.add(lane, client(1), job), None);
        }
    }

    fn start(scheduler: &mut Scheduler<u32>) -> Vec<u32> {
        std::iter::from_fn(|| scheduler.start_next()).map(|(_, job)| job).collect()
    }

    #[test]
    fn a_tenant_runs_two_jobs_of_32_workers_and_leaves_the_rest_to_others() {
        let mut scheduler = Scheduler::new(32);
        add(&mut scheduler, A, 10..20);
        add(&mut scheduler, B, 20..30);
        assert_eq!(start(&mut scheduler), [10, 20, 11, 21]);
        add(&mut scheduler, C, [30]);
        assert_eq!(start(&mut scheduler), [30], "C waits for nobody");
        scheduler.finish(B);
        assert_eq!(start(&mut scheduler), [22]);
    }

    #[test]
    fn a_running_job_counts_after_a_job_of_another_tenant_has_ended() {
        let mut scheduler = Scheduler::new(32);
        add(&mut scheduler, A, [10]);
        add(&mut scheduler, B, [20]);
        assert_eq!(start(&mut scheduler), [10, 20]);
        scheduler.finish(B);
        add(&mut scheduler, A, [11, 12]);
        assert_eq!(start(&mut scheduler), [11], "A runs two jobs");
    }

    #[test]
    fn three_tenants_with_more_jobs_than_workers_take_turns() {
        let mut scheduler = Scheduler::new(3);
        for (lane, first) in [(A, 10), (B, 20), (C, 30)] {
            add(&mut scheduler, lane, first..first + 4);
        }
        let mut order = Vec::new();
        let mut running = VecDeque::new();
        while let Some((lane, job)) = scheduler.start_next() {
            order.push(job);
            running.push_back(lane);
            if running.len() == 2 {
                scheduler.finish(running.pop_front().unwrap());
            }
        }
        assert_eq!(order, [10, 20, 30, 11, 21, 31, 12, 22, 32, 13, 23, 33]);
    }

    #[test]
    fn addresses_of_a_tenant_take_turns() {
        let mut scheduler = Scheduler::new(8);
        add(&mut scheduler, A, [1, 2, 3]);
        assert_eq!(scheduler.add(A, client(2), 4), None);
        let mut order = Vec::new();
        while let Some((lane, job)) = scheduler.start_next() {
            order.push(job);
            scheduler.finish(lane);
        }
        assert_eq!(order, [1, 4, 2, 3]);
    }

    #[test]
    fn one_worker_stays_free() {
        let mut scheduler = Scheduler::new(4);
        for tenant in 1..=4 {
            add(&mut scheduler, Lane::Tenant(TenantId(tenant)), [1]);
        }
        assert_eq!(start(&mut scheduler).len(), 3);
    }

    #[test]
    fn passwords_are_hashed_one_by_one_and_few_forms_wait() {
        let mut scheduler = Scheduler::new(32);
        add(&mut scheduler, Lane::Passwords, [0]);
        assert_eq!(start(&mut scheduler), [0]);
        add(&mut scheduler, Lane::Passwords, 1..=10);
        assert_eq!(scheduler.add(Lane::Passwords, client(1), 11), Some(11));
        assert_eq!(scheduler.add(Lane::Passwords, client(2), 12), Some(10));
        assert!(scheduler.start_next().is_none());
        scheduler.finish(Lane::Passwords);
        assert_eq!(start(&mut scheduler), [1]);
    }

    #[test]
    fn if_too_many_jobs_wait_the_longest_lane_loses_its_newest() {
        let mut scheduler = Scheduler::new(32);
        let most = u32::try_from(MAX_WAITING).unwrap();
        add(&mut scheduler, A, 0..most - 1);
        add(&mut scheduler, B, [most]);
        assert_eq!(scheduler.add(C, client(1), 1), Some(most - 2));
        assert_eq!(scheduler.add(A, client(1), 2), Some(2), "A is the longest lane itself");
        assert_eq!(scheduler.add(A, client(2), 3), Some(most - 3), "the other address has more");
    }

    #[test]
    fn of_two_longest_lanes_the_lane_of_the_new_job_loses_it() {
        let mut scheduler = Scheduler::new(32);
        let half = u32::try_from(MAX_WAITING / 2).unwrap();
        add(&mut scheduler, A, 0..half - 1);
        add(&mut scheduler, B, 0..half);
        add(&mut scheduler, C, [0]);
        assert_eq!(scheduler.add(A, client(1), 9999), Some(9999));
    }
}
