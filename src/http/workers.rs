//! tiny_http on a private Unix socket, and the workers that serve it.
//!
//! Only the gate connects here: the socket is bound in a folder that nobody else may enter, and both are removed at once.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use uuid::Uuid;

use crate::clock::Clock;
use crate::cpu_permits::CpuPermits;
use crate::fair_queue::FairQueue;
use crate::http::leader_lock::{Follower, LeaderLock};
use crate::http::request::{Body, MAX_BODY, Method, Request};
use crate::http::responder::{self, Responder};
use crate::http::response::Response;
use crate::http::upstream_protocol::{self, RequestMetadata};
use crate::metrics::Metrics;
use crate::panics::{self, Panicked};

/// What answers requests: the pipeline, or a test's or bench's own.
pub type Handler = Arc<dyn Fn(Request, Responder) + Send + Sync>;

/// How many workers there are, and how many of them may be busy at once.
#[derive(Clone, Debug)]
pub struct Workers {
    pub threads: usize,
    pub permits: Arc<CpuPermits>,
}

/// A worker's stack: enough for SQLite and a deep JSON document, in a debug build too.
const STACK: usize = 2 * 1024 * 1024;

/// Between two tries to wake the workers while the server stops.
const STOP_STEP: Duration = Duration::from_millis(5);

/// How often it is tried: a worker that still does not end is left behind.
const STOP_STEPS: u32 = 300;

/// A running server. Stops when dropped.
pub struct Server {
    shared: Arc<Shared>,
    socket: UnlinkedSocket,
}

/// A bound Unix socket without a name in the file system: even a killed process leaves nothing behind.
struct UnlinkedSocket {
    /// Refers to the socket itself, for as long as it is open.
    _descriptor: OwnedFd,
    /// The descriptor's path below `/proc`, which this process can connect to.
    path: PathBuf,
}

/// A request of the gate's, its body not yet read.
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
    /// One worker takes the next request, so that an arrival wakes one and not all.
    lead: LeaderLock,
    /// What has arrived and waits for a turn. Only the worker that has the lead looks.
    waiting: Mutex<FairQueue<ReceivedRequest>>,
    running: AtomicUsize,
    stopping: AtomicBool,
    /// tiny_http has given up accepting.
    failed: AtomicBool,
}

impl Server {
    /// Makes the private socket and starts the workers. Fails where there is no folder, descriptor or thread to be had.
    pub fn start(handler: Handler, clock: Clock, metrics: Arc<Metrics>, workers: &Workers) -> io::Result<Server> {
        panics::note();
        let (listener, socket) = listen()?;
        let shared = Arc::new(Shared {
            listener,
            handler,
            clock,
            permits: Arc::clone(&workers.permits),
            metrics,
            lead: LeaderLock::default(),
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

    /// Where the gate connects. Valid in this process, until the server is dropped.
    pub fn socket(&self) -> &Path {
        &self.socket.path
    }

    /// tiny_http takes no new connections any more; what is connected is still served.
    pub fn failed(&self) -> bool {
        self.shared.failed.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    /// Waits for the workers to finish what they are doing, for a second and a half at most.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for _ in 0..STOP_STEPS {
            if self.shared.running.load(Ordering::SeqCst) == 0 {
                break;
            }
            self.shared.listener.unblock();
            thread::sleep(STOP_STEP);
        }
    }
}

impl Shared {
    /// One worker's life.
    fn work(&self) {
        let worker = Follower::of_this_thread();
        loop {
            let leading = self.lead.take(&worker);
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.is_empty() {
                self.admit(self.listener.recv().map(Some), &mut waiting);
                if waiting.is_empty() {
                    continue;
                }
            }
            let turn = self.permits.take();
            // What came meanwhile is taken in turn too.
            while self.admit(self.listener.try_recv(), &mut waiting) {}
            let Some(next) = waiting.pop() else { continue };
            drop((waiting, leading));
            answer(next.request, next.metadata, &self.handler, &self.clock, &self.metrics);
            drop(turn);
        }
    }

    /// Adds what arrived to its client's requests, or answers the gate's probe; whether anything had arrived.
    fn admit(&self, arrived: io::Result<Option<tiny_http::Request>>, waiting: &mut FairQueue<ReceivedRequest>) -> bool {
        match arrived {
            Ok(Some(request)) => {
                match find_metadata(&request) {
                    Some(metadata) => waiting.push(metadata.client, ReceivedRequest { request, metadata }),
                    None => answer_probe(request),
                }
                true
            }
            Ok(None) => false,
            Err(error) => {
                if !self.stopping.load(Ordering::SeqCst) {
                    // Its accept loop has ended. Those already connected are served on; the gate looks at `failed`.
                    tracing::error!(%error, "the inner server stopped accepting connections");
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
    // Where the socket could not be bound it has no name.
    let _ = fs::remove_file(&name);
    fs::remove_dir(&directory)?;
    bound
}

/// tiny_http panics, in its caller's thread, where it has no thread to accept with.
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

/// Has the handler answer one request, and outlives its panic.
pub fn answer(
    mut arrived: tiny_http::Request,
    metadata: RequestMetadata,
    handler: &Handler,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) {
    let _busy = metrics.busy_workers.enter();
    let Ok(request) = read(&mut arrived, metadata, clock) else {
        // The line broke in the middle of a body: nobody is left to be answered.
        return;
    };
    let id = request.id;
    let responder = Responder::new(&request, arrived, clock.clone(), Arc::clone(metrics));
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| handler(request, responder)));
    if outcome.is_err() {
        let Panicked { place, message } = panics::last();
        tracing::error!(request_id = %id, place, panic = message, "a handler panicked");
    }
}

fn find_metadata(arrived: &tiny_http::Request) -> Option<RequestMetadata> {
    arrived
        .headers()
        .iter()
        .find(|header| header.field.equiv(upstream_protocol::METADATA_HEADER))
        .and_then(|h| RequestMetadata::decode(h.value.as_str()))
}

/// What comes without a metadata is the gate's probe.
fn answer_probe(arrived: tiny_http::Request) {
    let bytes = responder::encode(Response::empty(204), Uuid::nil(), false);
    let mut line = arrived.into_writer();
    let _ = line.write_all(&bytes).and_then(|()| line.flush());
}

fn read(arrived: &mut tiny_http::Request, metadata: RequestMetadata, clock: &Clock) -> io::Result<Request> {
    let received_at = clock.now();
    let announced = arrived.body_length().unwrap_or(0);
    let mut bytes = Vec::with_capacity(announced.min(MAX_BODY));
    if announced > 0 {
        arrived.as_reader().take(MAX_BODY as u64).read_to_end(&mut bytes)?;
        if bytes.len() != announced {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let target = arrived.url();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    let headers = arrived.headers().iter().filter(|header| !header.field.equiv(upstream_protocol::METADATA_HEADER));
    Ok(Request {
        method: Method::parse(arrived.method().as_str()),
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

/// A fresh folder that only this user may enter, with a short path: a socket's has at most 108 bytes.
fn private_directory() -> io::Result<PathBuf> {
    const LONGEST: usize = 70;
    let usual = std::env::temp_dir();
    let parent = if usual.as_os_str().len() > LONGEST { PathBuf::from("/tmp") } else { usual };
    let directory = parent.join(format!("tenantdesk-{}", Uuid::new_v4().simple()));
    DirBuilder::new().mode(0o700).create(&directory)?;
    Ok(directory)
}
