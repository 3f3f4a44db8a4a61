//! The lanes in which requests wait for their turn, and the worker threads that run them.
//!
//! In one queue for all tenants, 100 slow lists of one tenant would delay all other tenants.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::app::Application;
use super::relay::Relay;
use crate::api::{Admission, Job, Lane};
use crate::http::Responder;
use crate::http::request::address_of;
use crate::metrics::Metrics;

/// The most workers that wait for requests at the same time. The others sleep. So each of the few
/// receivers runs often, and its memory is still in the processor's caches. With one receiver, each
/// request would have to wake the next receiver.
const MAX_RECEIVING: usize = 3;

/// The stack of a worker in bytes. It is enough for SQLite and a deeply nested JSON document, also
/// in a debug build.
const STACK: usize = 2 * 1024 * 1024;

/// The pause between two attempts to wake the workers of a pool that stops.
const STOP_PAUSE: Duration = Duration::from_millis(5);

/// The number of attempts. A worker that has not ended by then is detached.
const STOP_ATTEMPTS: u32 = 300;

/// The panels of all tenants may run one job at a time for each 8 workers. Each form holds its
/// worker until it is on the disk. If the disk hangs, the forms of many admins must not hold every
/// worker.
const WORKERS_PER_PANEL_JOB: usize = 8;

/// Running workers. They stop when it is dropped.
pub(super) struct WorkerPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    app: Arc<dyn Application>,
    relay: Arc<Relay>,
    queue: Mutex<Queue>,
    /// Wakes a worker that sleeps.
    wake: Condvar,
    metrics: Arc<Metrics>,
}

struct Queue {
    scheduler: Scheduler<(Job, Responder)>,
    /// The workers that wait for a request.
    receiving: usize,
    is_stopping: bool,
}

impl WorkerPool {
    pub(super) fn start(
        app: &Arc<dyn Application>,
        relay: &Arc<Relay>,
        workers: usize,
        metrics: &Arc<Metrics>,
    ) -> io::Result<WorkerPool> {
        let scheduler = Scheduler::new(workers);
        let shared = Arc::new(Shared {
            app: Arc::clone(app),
            relay: Arc::clone(relay),
            queue: Mutex::new(Queue { scheduler, receiving: 0, is_stopping: false }),
            wake: Condvar::new(),
            metrics: Arc::clone(metrics),
        });
        let mut pool = WorkerPool { shared, threads: Vec::new() };
        for number in 0..workers {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new().name(format!("worker-{number}")).stack_size(STACK);
            pool.threads.push(worker.spawn(move || shared.work())?);
        }
        Ok(pool)
    }
}

impl Drop for WorkerPool {
    /// Waits at most 1.5 s for running jobs. Requests that still wait are dropped and get a 500,
    /// once the last worker has ended.
    fn drop(&mut self) {
        self.shared.queue.lock().is_stopping = true;
        for _ in 0..STOP_ATTEMPTS {
            if self.threads.iter().all(JoinHandle::is_finished) {
                break;
            }
            self.shared.wake.notify_all();
            self.shared.relay.wake_receiver();
            thread::sleep(STOP_PAUSE);
        }
    }
}

impl Shared {
    /// Runs jobs until the pool stops. If no job may run, the worker receives a request. If enough
    /// workers receive already, the worker sleeps.
    ///
    /// Example: 32 workers, and no requests. Workers 1, 2 and 3 wait for a request, and the other
    /// 29 sleep. Worker 1 receives a request, lets it wait in its lane, and takes it from there
    /// itself. Workers 2 and 3 still receive. If they take jobs, too, the last of the three wakes a
    /// fourth worker. Otherwise, new requests would wait until a job ends.
    ///
    /// No worker is woken for a job, and still no job waits beside an idle worker. An added job and
    /// the end of a job each make at most one job startable: see [`Scheduler::finish`]. The worker
    /// that has added or ended the job looks for that one itself, before it receives or sleeps.
    fn work(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_stopping {
            if let Some((lane, (job, responder))) = queue.scheduler.start_next() {
                if queue.receiving == 0 {
                    self.wake.notify_one();
                }
                drop(queue);
                self.run(job, responder);
                queue = self.queue.lock();
                queue.scheduler.finish(lane);
            } else if queue.receiving < MAX_RECEIVING {
                queue.receiving += 1;
                drop(queue);
                let admitted = survive(|| self.receive());
                queue = self.queue.lock();
                queue.receiving -= 1;
                let Some(Some((lane, job, responder))) = admitted else { continue };
                let client = responder.request.client;
                if let Err((job, responder)) = queue.scheduler.add(lane, client, (job, responder)) {
                    drop(queue);
                    responder.send(self.app.overloaded(job));
                    queue = self.queue.lock();
                }
            } else {
                self.wake.wait(&mut queue);
            }
        }
    }

    /// Receives a request, and makes its first step. Returns the request if it waits for its turn.
    fn receive(&self) -> Option<(Lane, Job, Responder)> {
        let mut responder = self.relay.receive()?;
        let request = Arc::clone(&responder.request);
        if request.is_abandoned() {
            return None;
        }
        match self.app.admit(&request, &mut responder) {
            Admission::Respond(response) => {
                responder.send(response);
                None
            }
            Admission::Wait(lane, job) => Some((lane, job, responder)),
        }
    }

    fn run(&self, job: Job, responder: Responder) {
        self.metrics.busy_workers.inc();
        survive(|| {
            let request = Arc::clone(&responder.request);
            // The client may have disconnected while the request waited.
            if !request.is_abandoned() {
                self.app.respond(job, &request, responder);
            }
        });
        self.metrics.busy_workers.dec();
    }
}

/// Runs `work`. Returns `None` if it panics. Rust writes the place of the panic to standard error,
/// and the dropped [`Responder`] answers 500 and logs the request.
fn survive<T>(work: impl FnOnce() -> T) -> Option<T> {
    panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Which request a worker runs next: the one place where requests wait for their turn. The workers
/// share it behind a lock, so none of its methods waits.
///
/// Each [`Lane`] is a first-in, first-out queue. It has a limit on its running jobs, and one on its
/// waiting jobs.
///
/// Example: 32 workers, so a tenant runs 2 jobs at a time. The tenants A and B send 100 slow lists
/// each. A and B run 2 lists each, and 196 lists wait. A request of tenant C finds its lane empty
/// and starts at once, because 28 workers are free. The operating system shares the processor among
/// the five running threads. Without the limit of a lane, A and B would occupy every worker for
/// seconds.
#[derive(Debug)]
struct Scheduler<J> {
    workers: usize,
    /// The lanes with running or waiting jobs. A lane goes to the end when it has started or
    /// finished a job. There are few such lanes, even with thousands of tenants, so a linear search
    /// is fast.
    lanes: VecDeque<LaneState<J>>,
}

#[derive(Debug)]
struct LaneState<J> {
    lane: Lane,
    running: usize,
    /// With their clients, as [`address_of`] returns them.
    waiting: VecDeque<(IpAddr, J)>,
}

impl<J> Scheduler<J> {
    fn new(workers: usize) -> Scheduler<J> {
        Scheduler { workers, lanes: VecDeque::new() }
    }

    /// Adds a waiting job. Returns the job if too many wait.
    fn add(&mut self, lane: Lane, client: IpAddr, job: J) -> Result<(), J> {
        let client = address_of(client);
        let Some(state) = self.lanes.iter_mut().find(|state| state.lane == lane) else {
            let waiting = VecDeque::from([(client, job)]);
            self.lanes.push_back(LaneState { lane, running: 0, waiting });
            return Ok(());
        };
        let of_client = || state.waiting.iter().filter(|(address, _)| *address == client).count();
        if lane.is_full(state.waiting.len(), of_client) {
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
    fn start_next(&mut self) -> Option<(Lane, J)> {
        let running: usize = self.lanes.iter().map(|state| state.running).sum();
        let is_panel = |state: &LaneState<J>| matches!(state.lane, Lane::Panel(_));
        let panels: usize =
            self.lanes.iter().filter(|state| is_panel(state)).map(|state| state.running).sum();
        let most_panels = (self.workers / WORKERS_PER_PANEL_JOB).max(1);
        // With `max`, a pool of one worker runs jobs, too. `serve` has at least 4 workers.
        let most = self.workers.max(2) - 1;
        if running >= most {
            return None;
        }
        let mut next = None;
        for (position, state) in self.lanes.iter().enumerate() {
            let may_run = !state.waiting.is_empty()
                && state.running < state.lane.max_running(self.workers)
                && (panels < most_panels || !is_panel(state));
            if may_run && next.is_none_or(|(_, fewest)| state.running < fewest) {
                next = Some((position, state.running));
            }
        }
        let (position, _) = next?;
        let mut state = self.lanes.remove(position)?;
        let (_, job) = state.waiting.pop_front()?;
        let lane = state.lane;
        state.running += 1;
        self.lanes.push_back(state);
        Some((lane, job))
    }

    /// Ends a job that [`Scheduler::start_next`] returned, even if the job panicked. Without this
    /// call, the lane would run one job less until the process ends.
    ///
    /// If no job could start before, at most one can start now. The end frees one worker, one place
    /// of its lane and, for a panel, one place of the panels. Each job that waited lacked at least
    /// one of them, and the first job that starts takes it again. Example: 31 of 32 workers run
    /// jobs, and ten lanes wait. A job ends, so each of the ten could start its next job. The first
    /// lane starts its job, and 31 workers are running again.
    fn finish(&mut self, lane: Lane) {
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

    use proptest::prelude::*;

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

    /// A worker that has added or ended a job looks once for a job to run. Others may sleep.
    #[test]
    fn each_event_makes_at_most_one_job_startable() {
        #[derive(Clone, Debug)]
        enum Event {
            Add(Lane),
            /// The number chooses one of the running jobs.
            End(usize),
        }
        let lane = prop_oneof![
            4 => (0_i64..30).prop_map(|tenant| Lane::Tenant(TenantId(tenant))),
            1 => (0_i64..10).prop_map(|tenant| Lane::Panel(TenantId(tenant))),
            1 => Just(Lane::Passwords),
        ];
        let event = prop_oneof![lane.prop_map(Event::Add), any::<usize>().prop_map(Event::End)];
        proptest!(|(workers in 1_usize..40, events in prop::collection::vec(event, 0..400))| {
            let mut scheduler = Scheduler::new(workers);
            let mut running: Vec<Lane> = Vec::new();
            for event in events {
                match event {
                    // A full lane changes nothing.
                    Event::Add(lane) => drop(scheduler.add(lane, client(1), 0)),
                    Event::End(_) if running.is_empty() => continue,
                    Event::End(number) => {
                        scheduler.finish(running.swap_remove(number % running.len()));
                    }
                }
                running.extend(scheduler.start_next().map(|(lane, _)| lane));
                prop_assert_eq!(scheduler.start_next(), None);
            }
        });
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
        let rejected = (0..10_000).find(|job| scheduler.add(A, client(1), *job).is_err());
        assert_eq!(rejected, Some(1024));
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
