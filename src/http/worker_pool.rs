//! tiny_http, and the worker threads that handle its requests.
//!
//! The edge has parsed each request already. tiny_http gets its method, its target and a number,
//! over one private connection on which requests follow each other without waiting for responses.
//! It parses them, queues them and hands them to the workers. A worker finds the whole request
//! under the number, and the response goes back in memory: nothing is written to the connection.

use std::fs::Permissions;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::fair_queue::FairQueue;
use crate::http::error::ApiError;
use crate::http::request::Request;
use crate::http::responder::Responder;
use crate::metrics::Metrics;
use crate::turns::Turns;

/// Handles a request and sends its response, now or in a job that waits for its turn.
pub type Handler = Arc<dyn Fn(Request, Responder, &Turns) + Send + Sync>;

/// The requests that wait to be sent to tiny_http.
const MAX_WAITING: usize = 1024;

/// The requests that tiny_http has and no worker has taken. They are few, because it serves them
/// in their order, and the queue before it is fair.
const MAX_SENT: usize = 8;

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
    turns: Turns,
    metrics: Arc<Metrics>,
    queue: Mutex<Queue>,
    stopping: AtomicBool,
}

/// The requests on their way to a worker.
struct Queue {
    waiting: FairQueue<Box<Exchange>>,
    /// What tiny_http has, by number.
    sent: Vec<(u64, Box<Exchange>)>,
    last_number: u64,
    watchdog: Option<oneshot::Sender<()>>,
    connection: UnixStream,
}

struct Exchange {
    request: Request,
    responder: Responder,
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
        let shared = Arc::new(Shared {
            server,
            handler,
            turns: Turns::new(workers),
            metrics,
            queue: Mutex::new(Queue {
                waiting: FairQueue::default(),
                sent: Vec::new(),
                last_number: WATCHDOG,
                watchdog: None,
                connection,
            }),
            stopping: AtomicBool::new(false),
        });
        let mut pool = WorkerPool { shared, threads: Vec::new() };
        for number in 0..workers {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new().name(format!("worker-{number}")).stack_size(STACK);
            pool.threads.push(worker.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Queues a request, fairly among client addresses. Where there is no room, also after those
    /// whose clients have left are dropped, the newest request of the address with the most is
    /// answered with `overloaded`.
    pub fn submit(&self, request: Request, responder: Responder) {
        let mut queue = self.shared.queue.lock();
        if queue.waiting.len() >= MAX_WAITING {
            queue.waiting.retain(|exchange| exchange.responder.is_wanted());
        }
        let client = request.client;
        let exchange = Box::new(Exchange { request, responder });
        let refused = queue.waiting.push(MAX_WAITING, client, exchange);
        queue.send_waiting();
        drop(queue);
        if let Some(refused) = refused {
            refused.responder.send(ApiError::overloaded().into());
        }
    }

    /// Sends a request of its own through tiny_http. The receiver hears of the worker that gets it,
    /// or that tiny_http has failed.
    pub fn watchdog(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut queue = self.shared.queue.lock();
        queue.watchdog = Some(sender);
        queue.write(&head("GET", "/", None, WATCHDOG));
        receiver
    }
}

impl Drop for WorkerPool {
    /// Waits for the workers to finish their requests, for 1.5 s at most.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for _ in 0..STOP_ATTEMPTS {
            if self.threads.iter().all(JoinHandle::is_finished) {
                break;
            }
            self.shared.server.unblock();
            thread::sleep(STOP_PAUSE);
        }
    }
}

impl Queue {
    /// Sends waiting requests to tiny_http, as many as it may have. Skips those whose clients have
    /// left.
    fn send_waiting(&mut self) {
        while self.sent.len() < MAX_SENT
            && let Some(exchange) = self.waiting.pop()
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

    /// Closes the connection, so that this watchdog and all later ones fail.
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
    /// Handles jobs that have waited for their turn, and requests, alternately, until the pool
    /// stops.
    fn work(&self) {
        while !self.stopping.load(Ordering::SeqCst) {
            let had_job = self.guard(None, || self.turns.run_next()).unwrap_or(true);
            let received =
                if had_job { self.server.try_recv() } else { self.server.recv().map(Some) };
            match received {
                Ok(Some(request)) => {
                    // Another worker runs the jobs that this one puts off.
                    if had_job {
                        self.server.unblock();
                    }
                    self.metrics.busy_workers.inc();
                    self.handle(request);
                    self.metrics.busy_workers.dec();
                }
                Err(error) if error.raw_os_error().is_some() => {
                    return self.queue.lock().fail(&format!("it accepts no connections ({error})"));
                }
                // There is no new request, or `unblock` woke this worker.
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Handles what tiny_http received, and lets it have the next request.
    fn handle(&self, received: tiny_http::Request) {
        let exchange = self.take(&received);
        // Dropped unused, the writer writes nothing. The request itself would write a 500.
        drop(received.into_writer());
        let Some(exchange) = exchange else { return };
        let Exchange { request, responder } = *exchange;
        self.guard(Some(request.id), || (self.handler)(request, responder, &self.turns));
    }

    /// The exchange that `received` names. `None` for the watchdog's request.
    fn take(&self, received: &tiny_http::Request) -> Option<Box<Exchange>> {
        let number =
            received.headers().first().and_then(|header| header.value.as_str().parse().ok());
        let mut queue = self.queue.lock();
        if number == Some(WATCHDOG) {
            // The receiver is gone if the time for it is over.
            queue.watchdog.take().map(|watchdog| watchdog.send(()));
            return None;
        }
        let index = queue.sent.iter().position(|(sent, _)| Some(*sent) == number);
        let exchange = index.map(|index| queue.sent.swap_remove(index).1);
        queue.send_waiting();
        let exchange = exchange.filter(|exchange| exchange.request.is(received));
        if exchange.is_none() {
            queue.fail("it received a request that was not sent");
        }
        exchange
    }

    /// Runs `work`. Returns `None` if it panics, whose place Rust has written to standard error.
    fn guard<T>(&self, request_id: Option<Uuid>, work: impl FnOnce() -> T) -> Option<T> {
        let result = panic::catch_unwind(AssertUnwindSafe(work));
        if result.is_err() {
            let request_id = request_id.map(tracing::field::display);
            tracing::error!(request_id, "a handler panicked");
        }
        result.ok()
    }
}

impl Request {
    /// Whether tiny_http received this request.
    fn is(&self, received: &tiny_http::Request) -> bool {
        let target = received.url();
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        self.method.as_str() == received.method().as_str()
            && self.path == path
            && self.query.as_deref() == query
    }
}

/// Starts tiny_http on a socket in a directory of this user only, and connects to it. The
/// connection is the only one: the directory is removed.
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
