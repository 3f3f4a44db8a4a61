//! The connections to tiny_http. Each is kept open and carries one request at a time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::forward::{ForwardResult, QueuedRequest};
use super::limits::{
    MAX_UPSTREAM_CONNECTIONS, MIN_UPSTREAM_CONNECTIONS, PROBE_TIMEOUT, RESPONSE_TIMEOUT, UPSTREAM_IDLE_TIMEOUT,
};
use super::queue::RequestQueue;
use super::upstream_response::{self, ForwardError};
use crate::http::upstream_protocol::{METADATA_HEADER, PROBE};

/// The pause after a connection could not be opened.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The upstream connections, and the requests that wait for one.
pub(super) struct UpstreamPool {
    queue: RequestQueue,
    /// Wakes one idle connection for each queued request.
    request_queued: Notify,
    /// Wakes the task that opens connections.
    connection_needed: Notify,
    /// Signalled when a connection could not be opened.
    pub(super) connect_failed: Notify,
    open: AtomicUsize,
    idle: AtomicUsize,
    completed: AtomicU64,
    /// The socket of the current server.
    socket: Mutex<PathBuf>,
    /// The number of times the server was replaced. Connections of an earlier generation close.
    generation: AtomicU64,
}

impl UpstreamPool {
    /// Opens [`MIN_UPSTREAM_CONNECTIONS`] connections to the server at `socket` and starts the task that opens more.
    ///
    /// # Errors
    ///
    /// An I/O error if the server does not respond on one of them.
    pub(super) async fn start(socket: &Path) -> io::Result<Arc<UpstreamPool>> {
        let pool = Arc::new(UpstreamPool {
            queue: RequestQueue::default(),
            request_queued: Notify::new(),
            connection_needed: Notify::new(),
            connect_failed: Notify::new(),
            open: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            completed: AtomicU64::new(0),
            socket: Mutex::new(socket.to_owned()),
            generation: AtomicU64::new(0),
        });
        for _ in 0..MIN_UPSTREAM_CONNECTIONS {
            pool.open_connection().await?;
        }
        tokio::spawn(Arc::clone(&pool).open_on_demand());
        Ok(pool)
    }

    /// Queues a request.
    ///
    /// # Errors
    ///
    /// Returns the request if the queue has no room for it.
    pub(super) fn forward(&self, request: QueuedRequest) -> Result<(), QueuedRequest> {
        self.queue.push(request)?;
        self.request_queued.notify_last();
        self.request_connection();
        Ok(())
    }

    /// Whether requests wait for a connection.
    pub(super) fn is_saturated(&self) -> bool {
        self.queue.waiting() > 0
    }

    /// The number of responses received so far.
    pub(super) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Connects to another server from now on. Connections to the previous one close after their current request.
    pub(super) fn switch_to(&self, socket: &Path) {
        socket.clone_into(&mut self.socket.lock());
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.request_queued.notify_waiters();
        self.request_connection();
    }

    /// Whether another connection should be opened.
    fn needs_connection(&self) -> bool {
        self.idle.load(Ordering::Relaxed) == 0
            && self.open.load(Ordering::Relaxed) < MAX_UPSTREAM_CONNECTIONS
            && self.is_saturated()
    }

    fn request_connection(&self) {
        if self.needs_connection() {
            self.connection_needed.notify_one();
        }
    }

    /// Opens connections one at a time, because tiny_http does not serve all connections of a burst.
    async fn open_on_demand(self: Arc<UpstreamPool>) {
        loop {
            self.connection_needed.notified().await;
            while self.needs_connection() {
                if let Err(error) = self.open_connection().await {
                    tracing::warn!(%error, "an upstream connection could not be opened");
                    self.connect_failed.notify_one();
                    sleep(CONNECT_PAUSE).await;
                }
                // Lets the new connection take a request before the next check.
                tokio::task::yield_now().await;
            }
        }
    }

    async fn open_connection(self: &Arc<UpstreamPool>) -> io::Result<()> {
        let generation = self.generation.load(Ordering::SeqCst);
        let socket = self.socket.lock().clone();
        let stream = connect(&socket).await?;
        self.open.fetch_add(1, Ordering::Relaxed);
        self.idle.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(Arc::clone(self).run_connection(stream, generation));
        Ok(())
    }

    /// Sends requests over one connection until it closes.
    async fn run_connection(self: Arc<UpstreamPool>, mut stream: UnixStream, generation: u64) {
        while let Some(request) = self.next_request(generation).await {
            if is_closed(&stream) {
                self.queue.push_front(request);
                self.request_queued.notify_last();
                break;
            }
            self.idle.fetch_sub(1, Ordering::Relaxed);
            self.request_connection();
            let QueuedRequest { bytes, head_only, client, sender, memory } = request;
            let result = exchange(&mut stream, &bytes, head_only).await;
            drop((bytes, memory));
            self.queue.complete(client);
            self.idle.fetch_add(1, Ordering::Relaxed);
            let failed = result.is_err();
            // The receiver is gone if the client has left.
            let _ = sender.send(result);
            if failed {
                tracing::warn!("an upstream connection failed");
                break;
            }
            self.completed.fetch_add(1, Ordering::Relaxed);
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.idle.fetch_sub(1, Ordering::Relaxed);
        self.request_connection();
    }

    /// Waits for the next request of a connection. Returns `None` if the connection is to close.
    async fn next_request(&self, generation: u64) -> Option<QueuedRequest> {
        loop {
            let queued = self.request_queued.notified();
            if self.generation.load(Ordering::SeqCst) != generation {
                // This connection may have received the wake-up for a request. It is passed on to another one.
                self.request_queued.notify_last();
                return None;
            }
            if let Some(request) = self.queue.pop() {
                return Some(request);
            }
            let is_idle = timeout(UPSTREAM_IDLE_TIMEOUT, queued).await.is_err();
            if is_idle && self.open.load(Ordering::Relaxed) > MIN_UPSTREAM_CONNECTIONS {
                return None;
            }
        }
    }
}

/// Opens a connection and waits until a worker responds to a probe on it.
///
/// # Errors
///
/// An I/O error if it cannot be opened; `TimedOut` after [`PROBE_TIMEOUT`].
pub(super) async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let probing = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("GET / HTTP/1.1\r\n{METADATA_HEADER}: {PROBE}\r\n\r\n").as_bytes()).await?;
        match upstream_response::read(&mut stream, false).await {
            Ok(_) => Ok(stream),
            Err(_) => Err(io::Error::other("no response on a new connection")),
        }
    };
    timeout(PROBE_TIMEOUT, probing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Whether tiny_http has closed an idle connection.
fn is_closed(stream: &UnixStream) -> bool {
    !matches!(stream.try_read(&mut [0; 1]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

async fn exchange(stream: &mut UnixStream, bytes: &[u8], head_only: bool) -> ForwardResult {
    let exchanging = async {
        stream.write_all(bytes).await.map_err(|_| ForwardError::Broken)?;
        upstream_response::read(stream, head_only).await
    };
    timeout(RESPONSE_TIMEOUT, exchanging).await.unwrap_or(Err(ForwardError::Broken))
}
