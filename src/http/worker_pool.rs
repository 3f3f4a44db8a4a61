//! tiny_http, and the worker threads.
//!
//! The specification prescribes tiny_http, but tiny_http does not limit the memory, the connections
//! and the time that clients can take. So the edge, the thread that faces the clients, reads each
//! request and keeps it in memory. The edge sends only a short head with a number to tiny_http,
//! over one private connection. tiny_http hands the head to a worker. The worker takes the request
//! with that number. The response goes back to the edge in memory. tiny_http writes no response to
//! the connection, so the next head does not wait for one.
//!
//! The worker then looks up the key, which takes some 10 µs, and adds a job to the [`Scheduler`].
//! Requests wait there for their turn, because tiny_http's own queue knows no tenants: in that
//! queue, 100 slow lists of one tenant would delay all other tenants.
//!
//! The edge's thread calls [`WorkerPool::submit`] and [`WorkerPool::watchdog`]. Handlers and jobs
//! run in the workers.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::http::error::ApiError;
use crate::http::request::Request;
use crate::http::responder::Responder;
use crate::http::response::Response;
use crate::http::scheduler::{Lane, Scheduler};
use crate::metrics::Metrics;

/// Answers a request at once, or returns the job that will answer it. It is quick: it reads no
/// tenant's file and hashes no password.
pub type Handler = Arc<dyn Fn(Request, Responder) -> Option<Job> + Send + Sync>;

/// A request that waits for its turn.
pub struct Job {
    /// The queue in which the job waits for its turn.
    pub lane: Lane,
    pub request: Request,
    pub responder: Responder,
    /// Answers the request.
    pub run: Box<dyn FnOnce(Request, Responder) + Send>,
    /// The response if too many jobs wait.
    pub rejection: fn() -> Response,
}

/// The most requests that tiny_http has and no worker has taken. Eight heads with the longest
/// target (8 KiB) fit into the connection's buffer. A head that does not fit ends the process.
const MAX_SENT: usize = 8;

/// The most requests that wait to be sent. One worker takes all 1,024 in about 10 ms.
const MAX_UNSENT: usize = 1024;

/// The most workers that wait for requests at the same time. The others sleep. So each of the few
/// receivers runs often, and its memory is still in the processor's caches.
const MAX_RECEIVING: usize = 3;

/// The number of the watchdog's request.
const WATCHDOG: u64 = 0;

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
    server: tiny_http::Server,
    handler: Handler,
    metrics: Arc<Metrics>,
    outbox: Mutex<Outbox>,
    jobs: Mutex<Jobs>,
    /// Wakes a worker that sleeps.
    wake: Condvar,
}

/// The requests on their way through tiny_http.
struct Outbox {
    connection: UnixStream,
    /// Oldest first.
    unsent: VecDeque<Box<Exchange>>,
    /// The requests that tiny_http has, with their numbers. Workers take them in any order.
    sent: Vec<(u64, Box<Exchange>)>,
    last_number: u64,
    watchdog: Option<oneshot::Sender<()>>,
}

/// A request, and the way back for its response.
struct Exchange {
    request: Request,
    responder: Responder,
}

struct Jobs {
    scheduler: Scheduler<Box<Job>>,
    /// The workers that wait for a request.
    receiving: usize,
    is_stopping: bool,
}

impl WorkerPool {
    /// Starts tiny_http on a private socket, connects to it and starts `workers` threads.
    pub fn start(
        handler: Handler,
        workers: usize,
        metrics: Arc<Metrics>,
    ) -> io::Result<WorkerPool> {
        let (server, connection) = listen()?;
        // A server that does not read must not block the edge.
        connection.set_nonblocking(true)?;
        let outbox = Outbox {
            connection,
            unsent: VecDeque::new(),
            sent: Vec::new(),
            last_number: WATCHDOG,
            watchdog: None,
        };
        let scheduler = Scheduler::new(workers);
        let shared = Arc::new(Shared {
            server,
            handler,
            metrics,
            outbox: Mutex::new(outbox),
            jobs: Mutex::new(Jobs { scheduler, receiving: 0, is_stopping: false }),
            wake: Condvar::new(),
        });
        let mut pool = WorkerPool { shared, threads: Vec::new() };
        for number in 0..workers {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new().name(format!("worker-{number}")).stack_size(STACK);
            pool.threads.push(worker.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Brings a request to a worker. If the outbox is full, the request gets `overloaded`.
    pub fn submit(&self, request: Request, responder: Responder) {
        let mut outbox = self.shared.outbox.lock();
        if outbox.unsent.len() >= MAX_UNSENT {
            drop(outbox);
            return responder.send(ApiError::overloaded().into());
        }
        outbox.unsent.push_back(Box::new(Exchange { request, responder }));
        outbox.send();
    }

    /// Sends a request of its own through tiny_http. The receiver completes when a worker has
    /// received this request, and fails if tiny_http has failed.
    pub fn watchdog(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut outbox = self.shared.outbox.lock();
        outbox.watchdog = Some(sender);
        outbox.write(&head("GET", "/", None, WATCHDOG));
        receiver
    }
}

impl Drop for WorkerPool {
    /// Waits at most 1.5 s for running jobs. Jobs that still wait are dropped and answer 500, once
    /// the last worker has ended.
    fn drop(&mut self) {
        self.shared.jobs.lock().is_stopping = true;
        for _ in 0..STOP_ATTEMPTS {
            if self.threads.iter().all(JoinHandle::is_finished) {
                break;
            }
            self.shared.wake.notify_all();
            self.shared.server.unblock();
            thread::sleep(STOP_PAUSE);
        }
    }
}

impl Outbox {
    /// Sends requests to tiny_http, as many as it may have. Skips requests whose clients have
    /// disconnected.
    fn send(&mut self) {
        while self.sent.len() < MAX_SENT
            && let Some(exchange) = self.unsent.pop_front()
        {
            if exchange.responder.is_wanted() {
                self.last_number += 1;
                let Request { method, path, query, .. } = &exchange.request;
                let head = head(method.as_str(), path, query.as_deref(), self.last_number);
                self.sent.push((self.last_number, exchange));
                self.write(&head);
            }
        }
    }

    fn write(&mut self, head: &str) {
        if let Err(error) = self.connection.write_all(head.as_bytes()) {
            self.fail(&format!("it takes no requests ({error})"));
        }
    }

    /// Closes the connection, so that this watchdog and all later ones fail. The edge then ends the
    /// process: the requests that tiny_http has would never get a response.
    fn fail(&mut self, reason: &str) {
        tracing::error!("tiny_http failed: {reason}");
        self.watchdog = None;
        // It may be closed already.
        let _ = self.connection.shutdown(Shutdown::Both);
    }
}

/// The head of a request as tiny_http gets it.
fn head(method: &str, path: &str, query: Option<&str>, number: u64) -> String {
    let (mark, query) = query.map_or(("", ""), |query| ("?", query));
    format!("{method} {path}{mark}{query} HTTP/1.1\r\nN: {number}\r\n\r\n")
}

impl Shared {
    /// Runs jobs until the pool stops. If no job may run, the worker receives a request. If enough
    /// workers receive already, the worker sleeps.
    ///
    /// Example: 32 workers, and no requests. Workers 1, 2 and 3 wait for a request, and the other
    /// 29 sleep. Worker 1 receives a request, adds its job, and takes the job itself. Workers 2 and
    /// 3 still receive. If they take jobs, too, the last of the three wakes a fourth worker.
    /// Otherwise, new requests would wait until a job ends.
    ///
    /// No worker is woken for a job. A job can start once a worker has added it, or has finished
    /// another job. That worker looks for a job itself before it receives or sleeps.
    fn work(&self) {
        let mut jobs = self.jobs.lock();
        while !jobs.is_stopping {
            if let Some((lane, job)) = jobs.scheduler.start_next() {
                if jobs.receiving == 0 {
                    self.wake.notify_one();
                }
                MutexGuard::unlocked(&mut jobs, || self.run(*job));
                jobs.scheduler.finish(lane);
            } else if jobs.receiving < MAX_RECEIVING {
                jobs.receiving += 1;
                let received = MutexGuard::unlocked(&mut jobs, || self.receive());
                jobs.receiving -= 1;
                let Some(job) = received else { continue };
                if let Some(rejected) = jobs.scheduler.add(job.lane, job.request.client, job) {
                    let Job { responder, rejection, .. } = *rejected;
                    MutexGuard::unlocked(&mut jobs, || responder.send(rejection()));
                }
            } else {
                self.wake.wait(&mut jobs);
            }
        }
    }

    fn run(&self, job: Job) {
        let Job { request, responder, run, .. } = job;
        // The client may have disconnected while the job waited.
        if responder.is_wanted() {
            self.metrics.busy_workers.inc();
            guard(request.id, || run(request, responder));
            self.metrics.busy_workers.dec();
        }
    }

    /// Waits for a request from tiny_http. Returns its job. Returns `None` for a request that is
    /// answered already, for the watchdog's request, and if the pool stops.
    fn receive(&self) -> Option<Box<Job>> {
        let received = match self.server.recv() {
            Ok(received) => received,
            Err(error) => {
                // An error without a code of the operating system comes from `unblock`: the pool
                // stops.
                if error.raw_os_error().is_some() {
                    self.outbox.lock().fail(&format!("it accepts no connections ({error})"));
                }
                return None;
            }
        };
        let exchange = self.take(&received);
        // A dropped `tiny_http::Request` writes a 500 to the connection. Its writer, dropped
        // instead, writes nothing.
        drop(received.into_writer());
        let Exchange { request, responder } = *exchange?;
        guard(request.id, || (self.handler)(request, responder))?.map(Box::new)
    }

    /// The exchange that `received` names. `None` for the watchdog's request, and if tiny_http has
    /// failed.
    fn take(&self, received: &tiny_http::Request) -> Option<Box<Exchange>> {
        let number =
            received.headers().first().and_then(|header| header.value.as_str().parse().ok());
        let mut outbox = self.outbox.lock();
        if number == Some(WATCHDOG) {
            // If this took more than 30 s, the edge has given up, and sending fails. That does not
            // matter.
            outbox.watchdog.take().map(|watchdog| watchdog.send(()));
            return None;
        }
        let index = outbox.sent.iter().position(|(sent, _)| Some(*sent) == number);
        let exchange = index.map(|index| outbox.sent.swap_remove(index).1);
        outbox.send();
        let exchange = exchange.filter(|exchange| exchange.request.has_head_of(received));
        if exchange.is_none() {
            outbox.fail("it received a request that was not sent");
        }
        exchange
    }
}

/// Runs `work`. Returns `None` if it panics. Rust writes the place of the panic to standard error.
fn guard<T>(request_id: Uuid, work: impl FnOnce() -> T) -> Option<T> {
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    if result.is_err() {
        tracing::error!(%request_id, "a handler panicked");
    }
    result.ok()
}

impl Request {
    /// Whether tiny_http has read the head as it was written. If not, the numbers of tiny_http
    /// cannot be trusted, and a client could get the response to another request.
    fn has_head_of(&self, received: &tiny_http::Request) -> bool {
        let target = received.url();
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        self.method.as_str() == received.method().as_str()
            && self.path == path
            && self.query.as_deref() == query
    }
}

/// Starts tiny_http on a socket in a private directory, and connects to it. Then the directory is
/// removed, so nobody else can connect.
fn listen() -> io::Result<(tiny_http::Server, UnixStream)> {
    // The path of a socket has at most 108 bytes.
    const LONGEST: usize = 70;
    let usual = std::env::temp_dir();
    let parent = if usual.as_os_str().len() > LONGEST { PathBuf::from("/tmp") } else { usual };
    let own = Permissions::from_mode(0o700);
    let directory =
        tempfile::Builder::new().prefix("tenantdesk-").permissions(own).tempdir_in(parent)?;
    let socket = directory.path().join("s");
    let server = tiny_http::Server::http_unix(&socket).map_err(io::Error::other)?;
    Ok((server, UnixStream::connect(&socket)?))
}
