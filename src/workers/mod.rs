//! The worker threads. They receive requests through the `Relay`, and run jobs from the
//! `Scheduler`.
//!
//! The whole way of a request, with the thread that makes each step:
//!
//! | thread | step |
//! |---|---|
//! | edge | `EdgeContext::respond` reads the request, and calls [`WorkerPool::submit`] |
//! | edge | `Relay::send` queues the request, and gives its head to tiny_http |
//! | a worker | `Relay::receive` takes the oldest request when tiny_http hands out a head |
//! | the same worker | `App::admit` responds from memory, or looks up the key or the session |
//! | the same worker | `Scheduler::add` lets the request wait in the lane of its tenant |
//! | a worker | `Scheduler::start_next` takes the request when the lane has its turn |
//! | the same worker | `App::run` responds, or gives a change to the tenant's writer thread |
//! | any of these | `Responder::send` logs the request, and wakes the edge with the response |
//!
//! Requests wait in lanes, because tiny_http's own queue knows no tenants: in that queue, 100 slow
//! lists of one tenant would delay all other tenants.

mod relay;
mod scheduler;

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::app::{Application, FirstStep, Job, Lane};
use crate::http::{ApiError, Request, Responder};
use crate::metrics::Metrics;
use relay::{Exchange, Relay};
use scheduler::Scheduler;

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

/// Running workers. They stop when it is dropped.
pub struct WorkerPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    app: Arc<dyn Application>,
    relay: Relay,
    queue: Mutex<Queue>,
    /// Wakes a worker that sleeps.
    wake: Condvar,
    metrics: Arc<Metrics>,
}

struct Queue {
    scheduler: Scheduler<WaitingRequest>,
    /// The workers that wait for a request.
    receiving: usize,
    is_stopping: bool,
}

/// A request that waits for its turn.
struct WaitingRequest {
    job: Job,
    exchange: Box<Exchange>,
}

impl WorkerPool {
    pub fn start(
        app: Arc<dyn Application>,
        workers: usize,
        metrics: Arc<Metrics>,
    ) -> io::Result<WorkerPool> {
        let scheduler = Scheduler::new(workers);
        let shared = Arc::new(Shared {
            app,
            relay: Relay::open()?,
            queue: Mutex::new(Queue { scheduler, receiving: 0, is_stopping: false }),
            wake: Condvar::new(),
            metrics,
        });
        let mut pool = WorkerPool { shared, threads: Vec::new() };
        for number in 0..workers {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new().name(format!("worker-{number}")).stack_size(STACK);
            pool.threads.push(worker.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Brings a request to a worker. If too many are on the way, the request gets `overloaded`.
    pub fn submit(&self, request: Request, responder: Responder) {
        if let Err(rejected) = self.shared.relay.send(Box::new(Exchange { request, responder })) {
            rejected.responder.send(ApiError::overloaded().into());
        }
    }

    /// Sends a request that only shows that workers receive. The result completes when a worker has
    /// received it, and fails if tiny_http has failed.
    pub fn probe(&self) -> oneshot::Receiver<()> {
        self.shared.relay.send_watchdog()
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
    /// No worker is woken for a job. A job can start once a worker has added it, or has finished
    /// another job. That worker looks for a job itself before it receives or sleeps.
    fn work(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_stopping {
            if let Some((lane, waiting)) = queue.scheduler.start_next() {
                if queue.receiving == 0 {
                    self.wake.notify_one();
                }
                MutexGuard::unlocked(&mut queue, || self.run(waiting));
                queue.scheduler.finish(lane);
            } else if queue.receiving < MAX_RECEIVING {
                queue.receiving += 1;
                let admitted = MutexGuard::unlocked(&mut queue, || survive(|| self.receive()));
                queue.receiving -= 1;
                let Some((lane, waiting)) = admitted.flatten() else { continue };
                let client = waiting.exchange.request.client;
                if let Err(rejected) = queue.scheduler.add(lane, client, waiting) {
                    let WaitingRequest { job, exchange } = rejected;
                    let respond = || exchange.responder.send(job.overloaded());
                    MutexGuard::unlocked(&mut queue, respond);
                }
            } else {
                self.wake.wait(&mut queue);
            }
        }
    }

    /// Receives a request, and makes its first step. Returns the request if it waits for its turn.
    fn receive(&self) -> Option<(Lane, WaitingRequest)> {
        let mut exchange = self.relay.receive()?;
        if exchange.request.is_abandoned() {
            return None;
        }
        match self.app.admit(&exchange.request, &mut exchange.responder) {
            FirstStep::Respond(response) => {
                exchange.responder.send(response);
                None
            }
            FirstStep::Wait(lane, job) => Some((lane, WaitingRequest { job, exchange })),
        }
    }

    fn run(&self, WaitingRequest { job, exchange }: WaitingRequest) {
        self.metrics.busy_workers.inc();
        survive(|| {
            let Exchange { request, responder } = *exchange;
            // The client may have disconnected while the request waited.
            if !request.is_abandoned() {
                self.app.run(job, &request, responder);
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
