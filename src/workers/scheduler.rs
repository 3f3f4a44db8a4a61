//! Which request a worker runs next: the one place where requests wait for their turn.
//!
//! Each [`Lane`] is a first-in, first-out queue. It has a limit on its running jobs, and one on its
//! waiting jobs.
//!
//! Example: 32 workers, so a tenant runs 2 jobs at a time. The tenants A and B send 100 slow lists
//! each. A and B run 2 lists each, and 196 lists wait. A request of tenant C finds its lane empty
//! and starts at once, because 28 workers are free. The operating system shares the processor among
//! the five running threads. Without the limit of a lane, A and B would occupy every worker for
//! seconds.
//!
//! The workers share one scheduler behind a lock. No method of the scheduler waits.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::app::Lane;
use crate::http::request::address_of;

/// The most waiting API requests of a tenant.
const MAX_WAITING: usize = 1024;

/// The most waiting panel requests of a tenant.
const MAX_WAITING_PANEL: usize = 64;

/// The most waiting forms that hash a password. Forty hashes take 0.8 s, one after another.
const MAX_WAITING_PASSWORDS: usize = 40;

/// The most waiting forms of one client address that hash a password. A stranger who sends sign-ins
/// without end must not keep out the admins at other addresses.
const MAX_PASSWORDS_OF_ADDRESS: usize = MAX_WAITING_PASSWORDS / 4;

/// A tenant may run one job at a time for each 16 workers.
const WORKERS_PER_TENANT_JOB: usize = 16;

/// One of so many workers is kept for lanes that were empty. Example: 64 busy tenants occupy 24 of
/// 32 workers, and the rest of their jobs wait. A quiet tenant's request starts at once on one of
/// the other workers. Without this rule, it would wait until the lists of several tenants end.
const KEPT_FOR_NEW_LANES: usize = 4;

/// The running jobs of each lane, and the waiting jobs.
#[derive(Debug)]
pub(super) struct Scheduler<J> {
    workers: usize,
    /// The lanes with running or waiting jobs. A lane goes to the end when it has started or
    /// finished a job. There are few such lanes, even with thousands of tenants, so a linear search
    /// is fast.
    lanes: VecDeque<LaneState<J>>,
}

#[derive(Debug)]
struct LaneState<J> {
    lane: Lane,
    /// No job has started since the lane was empty.
    is_new: bool,
    running: usize,
    /// With their clients, as [`address_of`] returns them.
    waiting: VecDeque<(IpAddr, J)>,
}

impl Lane {
    /// The most jobs of the lane that wait. One more gets 503 `overloaded` (contract section 6).
    fn max_waiting(self) -> usize {
        match self {
            Lane::Tenant(_) => MAX_WAITING,
            Lane::Panel(_) => MAX_WAITING_PANEL,
            Lane::Passwords => MAX_WAITING_PASSWORDS,
        }
    }

    /// The most jobs of the lane that run at a time.
    fn max_running(self, workers: usize) -> usize {
        match self {
            Lane::Tenant(_) => (workers / WORKERS_PER_TENANT_JOB).max(1),
            Lane::Panel(_) | Lane::Passwords => 1,
        }
    }
}

impl<J> Scheduler<J> {
    /// A scheduler for a pool of `workers` threads.
    pub(super) fn new(workers: usize) -> Scheduler<J> {
        Scheduler { workers, lanes: VecDeque::new() }
    }

    /// Adds a waiting job. Returns the job if too many wait.
    pub(super) fn add(&mut self, lane: Lane, client: IpAddr, job: J) -> Result<(), J> {
        let client = address_of(client);
        let Some(state) = self.lanes.iter_mut().find(|state| state.lane == lane) else {
            let waiting = VecDeque::from([(client, job)]);
            self.lanes.push_back(LaneState { lane, is_new: true, running: 0, waiting });
            return Ok(());
        };
        let of_client = || state.waiting.iter().filter(|(address, _)| *address == client).count();
        if state.waiting.len() >= lane.max_waiting()
            || (lane == Lane::Passwords && of_client() >= MAX_PASSWORDS_OF_ADDRESS)
        {
            return Err(job);
        }
        state.waiting.push_back((client, job));
        Ok(())
    }

    /// Takes the next job that may run. Its lane counts the job as running until the caller calls
    /// [`Scheduler::finish`].
    ///
    /// The lane with the fewest running jobs is next. If several have the fewest, the lane is next
    /// that has waited longest since it started or finished a job.
    ///
    /// One worker always stays free to receive requests. Otherwise long jobs could occupy every
    /// worker, and a new request of any tenant would not even be received.
    pub(super) fn start_next(&mut self) -> Option<(Lane, J)> {
        let running: usize = self.lanes.iter().map(|state| state.running).sum();
        // With `max`, a pool of one worker runs jobs, too. `serve` has at least 4 workers.
        let most = self.workers.max(2) - 1;
        let most_of_busy = most.min(self.workers - self.workers / KEPT_FOR_NEW_LANES);
        let may_run = |(_, state): &(usize, &LaneState<J>)| {
            !state.waiting.is_empty()
                && state.running < state.lane.max_running(self.workers)
                && running < if state.is_new { most } else { most_of_busy }
        };
        let lanes = self.lanes.iter().enumerate().filter(may_run);
        let (position, _) = lanes.min_by_key(|(_, state)| state.running)?;
        let mut state = self.lanes.remove(position)?;
        let (_, job) = state.waiting.pop_front()?;
        let lane = state.lane;
        state.is_new = false;
        state.running += 1;
        self.lanes.push_back(state);
        Some((lane, job))
    }

    /// Ends a job that [`Scheduler::start_next`] returned, even if the job panicked. Without this
    /// call, the lane would run one job less until the process ends.
    pub(super) fn finish(&mut self, lane: Lane) {
        let Some(position) = self.lanes.iter().position(|state| state.lane == lane) else { return };
        let Some(mut state) = self.lanes.remove(position) else { return };
        state.running -= 1;
        if state.running > 0 || !state.waiting.is_empty() {
            self.lanes.push_back(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::model::TenantId;

    const A: Lane = Lane::Tenant(TenantId(1));
    const B: Lane = Lane::Tenant(TenantId(2));
    const C: Lane = Lane::Tenant(TenantId(3));
    const D: Lane = Lane::Tenant(TenantId(4));

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn add(scheduler: &mut Scheduler<u32>, lane: Lane, jobs: impl IntoIterator<Item = u32>) {
        for job in jobs {
            assert_eq!(scheduler.add(lane, client(1), job), Ok(()));
        }
    }

    fn start(scheduler: &mut Scheduler<u32>) -> Vec<u32> {
        iter::from_fn(|| scheduler.start_next()).map(|(_, job)| job).collect()
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
    fn a_quiet_tenant_waits_for_none_of_many_busy() {
        let mut scheduler = Scheduler::new(32);
        let busy: Vec<Lane> = (1..=64).map(|tenant| Lane::Tenant(TenantId(tenant))).collect();
        busy.iter().for_each(|lane| add(&mut scheduler, *lane, [1; 100]));
        let mut running = VecDeque::new();
        for _ in 0..1_000 {
            if let Some(lane) = running.pop_front() {
                scheduler.finish(lane);
            }
            running.extend(iter::from_fn(|| scheduler.start_next()).map(|(lane, _)| lane));
        }
        add(&mut scheduler, Lane::Tenant(TenantId(65)), [2]);
        assert_eq!(scheduler.start_next(), Some((Lane::Tenant(TenantId(65)), 2)));
    }

    #[test]
    fn busy_tenants_take_turns() {
        let mut scheduler = Scheduler::new(4);
        for (lane, first) in [(A, 10), (B, 20), (C, 30), (D, 40)] {
            add(&mut scheduler, lane, first..first + 3);
        }
        let mut order = Vec::new();
        let mut running = VecDeque::new();
        while let Some((lane, job)) = scheduler.start_next() {
            order.push(job);
            running.push_back(lane);
            if running.len() == 3 {
                scheduler.finish(running.pop_front().unwrap());
            }
        }
        assert_eq!(order, [10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42]);
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
    fn forms_of_a_tenant_run_one_by_one_beside_its_requests() {
        let mut scheduler = Scheduler::new(32);
        let panel = Lane::Panel(TenantId(1));
        add(&mut scheduler, panel, 0..64);
        add(&mut scheduler, A, [100, 101]);
        assert_eq!(start(&mut scheduler), [0, 100, 101]);
        scheduler.finish(panel);
        assert_eq!(start(&mut scheduler), [1]);
    }

    #[test]
    fn a_full_lane_rejects_its_own_new_job() {
        let mut scheduler = Scheduler::new(32);
        let most = u32::try_from(MAX_WAITING).unwrap();
        add(&mut scheduler, A, 0..most);
        assert_eq!(scheduler.add(A, client(2), most), Err(most));
        add(&mut scheduler, B, [0]);
    }

    #[test]
    fn sign_ins_of_one_address_leave_room_for_others() {
        let mut scheduler = Scheduler::new(32);
        add(&mut scheduler, Lane::Passwords, 0..10);
        assert_eq!(scheduler.add(Lane::Passwords, client(1), 10), Err(10));
        for address in 2..=31 {
            assert_eq!(scheduler.add(Lane::Passwords, client(address), 0), Ok(()));
        }
        assert_eq!(scheduler.add(Lane::Passwords, client(32), 1), Err(1));
    }
}
