//! tiny_http on a private Unix socket, and the worker threads that handle its requests.
//!
//! Only the edge connects to the socket. Its directory is accessible to this user only, and both are removed as soon as it is bound.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use uuid::Uuid;

use crate::clock::Clock;
use crate::cpu_permits::CpuPermits;
use crate::fair_queue::FairQueue;
use crate::http::leader_lock::{Follower, LeaderLock};
use crate::http::request::{Body, MAX_BATCH_BODY, Method, Request};
use crate::http::responder::{self, Responder};
use crate::http::response::Response;
use crate::http::upstream_protocol::{self, RequestMetadata};
use crate::metrics::Metrics;
use crate::panics::{self, PanicInfo};

/// Handles a request and sends its response.
pub type Handler = Arc<dyn Fn(Request, Responder) + Send + Sync>;

/// The number of workers, and of those that may use the processor at the same time.
#[derive(Clone, Debug)]
pub struct Workers {
    /// The number of threads, at least one.
    pub threads: usize,
    /// A worker holds one while it handles a request and does not block.
    pub permits: Arc<CpuPermits>,
}

/// The stack of a worker in bytes. It is enough for SQLite and a deeply nested JSON document, also in a debug build.
const STACK: usize = 2 * 1024 * 1024;

/// The pause between two attempts to wake the workers of a server that stops.
const STOP_PAUSE: Duration = Duration::from_millis(5);

/// The number of attempts. A worker that has not ended by then is detached.
const STOP_ATTEMPTS: u32 = 300;

/// A running server. It stops when dropped.
pub struct Server {
    shared: Arc<Shared>,
    socket: UnlinkedSocket,
}

/// A bound Unix socket without a name in the file system, so that a killed process leaves no file.
struct UnlinkedSocket {
    /// Keeps the path below `/proc` valid.
    _descriptor: OwnedFd,
    /// The path of the descriptor below `/proc`. This process can connect to it.
    path: PathBuf,
}

/// A request whose body has not been read yet.
struct ReceivedRequest {
    request: tiny_http::Request,
    metadata: RequestMetadata,
}

struct Shared {
    listener: tiny_http::Server,
    handler: Handler,
    clock: Clock,
    permits: Arc<CpuPermits>,
    metrics: Arc<Metrics>,
    /// Only the leader receives requests, so that a request wakes one worker and not all.
    leader: LeaderLock,
    /// The received requests. Only the leader uses them.
    waiting: Mutex<FairQueue<ReceivedRequest>>,
    running: AtomicUsize,
    stopping: AtomicBool,
    /// tiny_http no longer accepts connections.
    failed: AtomicBool,
}

impl Server {
    /// Binds the private socket and starts the workers.
    ///
    /// # Errors
    ///
    /// An I/O error if there is no directory, descriptor or thread for it.
    pub fn start(handler: Handler, clock: Clock, metrics: Arc<Metrics>, workers: &Workers) -> io::Result<Server> {
        panics::install_hook();
        let (listener, socket) = listen()?;
        let shared = Arc::new(Shared {
            listener,
            handler,
            clock,
            permits: Arc::clone(&workers.permits),
            metrics,
            leader: LeaderLock::default(),
            waiting: Mutex::default(),
            running: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        });
        let server = Server { shared, socket };
        for number in 0..workers.threads.max(1) {
            server.start_worker(number)?;
        }
        Ok(server)
    }

    fn start_worker(&self, number: usize) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        let started = thread::Builder::new().name(format!("worker-{number}")).stack_size(STACK).spawn(move || {
            shared.work();
            shared.running.fetch_sub(1, Ordering::SeqCst);
        });
        if started.is_err() {
            self.shared.running.fetch_sub(1, Ordering::SeqCst);
        }
        started.map(drop)
    }

    /// The path of the socket. It is valid in this process until the server is dropped.
    pub fn socket(&self) -> &Path {
        &self.socket.path
    }

    /// Whether tiny_http has stopped accepting connections. Open connections are still served.
    pub fn failed(&self) -> bool {
        self.shared.failed.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    /// Waits for the workers to finish their requests, for 1.5 s at most.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for _ in 0..STOP_ATTEMPTS {
            if self.shared.running.load(Ordering::SeqCst) == 0 {
                break;
            }
            self.shared.listener.unblock();
            thread::sleep(STOP_PAUSE);
        }
    }
}

impl Shared {
    /// Handles requests until the server stops.
    fn work(&self) {
        let follower = Follower::of_this_thread();
        loop {
            let leader = self.leader.acquire(&follower);
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let mut waiting = self.waiting.lock();
            if waiting.is_empty() {
                self.receive(self.listener.recv().map(Some), &mut waiting);
                if waiting.is_empty() {
                    continue;
                }
            }
            let permit = self.permits.acquire();
            // Requests that have arrived meanwhile take part in the round-robin.
            while self.receive(self.listener.try_recv(), &mut waiting) {}
            let Some(next) = waiting.pop() else { continue };
            drop((waiting, leader));
            handle(next.request, next.metadata, &self.handler, &self.clock, &self.metrics);
            drop(permit);
        }
    }

    /// Queues a received request, or responds to a probe. Returns whether there was one.
    fn receive(
        &self,
        received: io::Result<Option<tiny_http::Request>>,
        waiting: &mut FairQueue<ReceivedRequest>,
    ) -> bool {
        match received {
            Ok(Some(request)) => {
                match find_metadata(&request) {
                    Some(metadata) => waiting.push(metadata.client, ReceivedRequest { request, metadata }),
                    None => respond_to_probe(request),
                }
                true
            }
            Ok(None) => false,
            Err(error) => {
                if !self.stopping.load(Ordering::SeqCst) {
                    // tiny_http's accept loop has ended. The health check of the edge sees `failed`.
                    tracing::error!(%error, "the upstream server stopped accepting connections");
                    self.failed.store(true, Ordering::SeqCst);
                }
                false
            }
        }
    }
}

/// Binds the private socket and removes its name.
fn listen() -> io::Result<(tiny_http::Server, UnlinkedSocket)> {
    let directory = private_directory()?;
    let name = directory.join("s");
    let bound = bind(&name).and_then(|listener| Ok((listener, UnlinkedSocket::open(&name)?)));
    // There is no file if the socket could not be bound.
    let _ = fs::remove_file(&name);
    fs::remove_dir(&directory)?;
    bound
}

/// Binds tiny_http to the socket. It panics in the calling thread if it cannot start its own thread.
fn bind(name: &Path) -> io::Result<tiny_http::Server> {
    match panic::catch_unwind(|| tiny_http::Server::http_unix(name)) {
        Ok(listener) => listener.map_err(io::Error::other),
        Err(_) => Err(io::Error::other(panics::last().message)),
    }
}

impl UnlinkedSocket {
    fn open(name: &Path) -> io::Result<UnlinkedSocket> {
        let descriptor = rustix::fs::open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        fs::metadata(&path).map_err(|error| io::Error::other(format!("/proc cannot be used: {error}")))?;
        Ok(UnlinkedSocket { _descriptor: descriptor, path })
    }
}

/// Reads the body of a request and calls the handler. A panic of the handler is logged.
pub fn handle(
    mut received: tiny_http::Request,
    metadata: RequestMetadata,
    handler: &Handler,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) {
    let _busy = metrics.busy_workers.enter();
    let Ok(request) = read(&mut received, metadata, clock) else {
        // The connection failed within the body, so there is no client to respond to.
        return;
    };
    let id = request.id;
    let responder = Responder::new(&request, received, clock.clone(), Arc::clone(metrics));
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| handler(request, responder)));
    if outcome.is_err() {
        let PanicInfo { location: place, message } = panics::last();
        tracing::error!(request_id = %id, place, panic = message, "a handler panicked");
    }
}

fn find_metadata(received: &tiny_http::Request) -> Option<RequestMetadata> {
    received
        .headers()
        .iter()
        .find(|header| header.field.equiv(upstream_protocol::METADATA_HEADER))
        .and_then(|h| RequestMetadata::decode(h.value.as_str()))
}

/// Responds to a probe of the edge, which is a request without metadata.
fn respond_to_probe(received: tiny_http::Request) {
    let bytes = responder::encode(Response::empty(204), Uuid::nil(), false);
    // The edge notices a missing response.
    let _ = responder::write(received, &bytes);
}

fn read(received: &mut tiny_http::Request, metadata: RequestMetadata, clock: &Clock) -> io::Result<Request> {
    let received_at = clock.now();
    let announced = received.body_length().unwrap_or(0);
    // The edge forwards no body that its path does not take.
    let mut bytes = Vec::with_capacity(announced.min(MAX_BATCH_BODY));
    if announced > 0 {
        received.as_reader().take(MAX_BATCH_BODY as u64).read_to_end(&mut bytes)?;
        if bytes.len() != announced {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let target = received.url();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    let headers = received.headers().iter().filter(|header| !header.field.equiv(upstream_protocol::METADATA_HEADER));
    Ok(Request {
        method: Method::parse(received.method().as_str()),
        path: path.to_owned(),
        query,
        headers: headers
            .map(|h| (h.field.as_str().as_str().to_ascii_lowercase(), upstream_protocol::unescape(h.value.as_str())))
            .collect(),
        body: if metadata.body_too_large { Body::TooLarge } else { Body::Whole(bytes) },
        id: metadata.id,
        client: metadata.client,
        secure: metadata.secure,
        received_at,
    })
}

/// Creates a directory for this user only. Its path is short, because the path of a socket has at most 108 bytes.
fn private_directory() -> io::Result<PathBuf> {
    const LONGEST: usize = 70;
    let usual = std::env::temp_dir();
    let parent = if usual.as_os_str().len() > LONGEST { PathBuf::from("/tmp") } else { usual };
    let directory = parent.join(format!("tenantdesk-{}", Uuid::new_v4().simple()));
    DirBuilder::new().mode(0o700).create(&directory)?;
    Ok(directory)
}
