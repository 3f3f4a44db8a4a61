//! The lines to tiny_http: kept connections to its private socket, each with one request at a time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::forward::{ForwardError, ForwardResult, QueuedRequest};
use super::limits::{
    MAX_UPSTREAM_CONNECTIONS, MIN_UPSTREAM_CONNECTIONS, PROBE_TIMEOUT, RESPONSE_TIMEOUT, UPSTREAM_IDLE_TIMEOUT,
};
use super::queue::RequestQueue;
use super::response;
use crate::http::upstream_protocol::{METADATA_HEADER, PROBE};

/// After a line could not be opened.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// All lines, and the requests that wait for one.
pub(super) struct UpstreamPool {
    queue: RequestQueue,
    /// Rings for each request that arrives.
    arrived: Notify,
    /// Rings when there are too few lines.
    wanted: Notify,
    /// Rings when a line could not be opened.
    pub(super) trouble: Notify,
    open: AtomicUsize,
    idle: AtomicUsize,
    answered: AtomicU64,
    /// Where tiny_http listens. A line of another generation leads to a server that was given up.
    socket: Mutex<PathBuf>,
    generation: AtomicU64,
}

impl UpstreamPool {
    /// The first lines to the server at `socket`, each proved, and the task that opens more.
    pub(super) async fn start(socket: &Path) -> io::Result<Arc<UpstreamPool>> {
        let lines = Arc::new(UpstreamPool {
            queue: RequestQueue::default(),
            arrived: Notify::new(),
            wanted: Notify::new(),
            trouble: Notify::new(),
            open: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            socket: Mutex::new(socket.to_owned()),
            generation: AtomicU64::new(0),
        });
        for _ in 0..MIN_UPSTREAM_CONNECTIONS {
            lines.open_one().await?;
        }
        tokio::spawn(Arc::clone(&lines).open_more());
        Ok(lines)
    }

    /// Queues a queued; gives it back when too many wait.
    pub(super) fn forward(&self, queued: QueuedRequest) -> Result<(), QueuedRequest> {
        self.queue.push(queued)?;
        self.arrived.notify_last();
        self.open_if_needed();
        Ok(())
    }

    /// Whether requests have to wait.
    pub(super) fn is_crowded(&self) -> bool {
        self.queue.waiting() > 0
    }

    /// How many requests were answered so far.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// From now on lines lead to another server; the old ones end with what they carry.
    pub(super) fn move_to(&self, socket: &Path) {
        socket.clone_into(&mut self.socket.lock().unwrap_or_else(PoisonError::into_inner));
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.arrived.notify_waiters();
        self.open_if_needed();
    }

    fn open_if_needed(&self) {
        let open = self.open.load(Ordering::Relaxed);
        if self.idle.load(Ordering::Relaxed) == 0 && open < MAX_UPSTREAM_CONNECTIONS && self.queue.waiting() > 0 {
            self.wanted.notify_one();
        }
    }

    fn socket(&self) -> PathBuf {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens lines one at a time: of connections that come in a burst, tiny_http leaves some unserved.
    async fn open_more(self: Arc<UpstreamPool>) {
        loop {
            self.wanted.notified().await;
            while self.idle.load(Ordering::Relaxed) == 0
                && self.open.load(Ordering::Relaxed) < MAX_UPSTREAM_CONNECTIONS
                && self.is_crowded()
            {
                if let Err(error) = self.open_one().await {
                    tracing::warn!(%error, "a line to the inner server could not be opened");
                    self.trouble.notify_one();
                    sleep(RECONNECT_PAUSE).await;
                }
                // The line takes its first queued before it is asked whether one more is needed.
                tokio::task::yield_now().await;
            }
        }
    }

    async fn open_one(self: &Arc<UpstreamPool>) -> io::Result<()> {
        let generation = self.generation.load(Ordering::SeqCst);
        let stream = connect(&self.socket()).await?;
        self.open.fetch_add(1, Ordering::Relaxed);
        self.idle.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(Arc::clone(self).run(stream, generation));
        Ok(())
    }

    /// One line's life.
    async fn run(self: Arc<UpstreamPool>, mut stream: UnixStream, generation: u64) {
        while let Some(queued) = self.next(generation).await {
            if is_dead(&stream) {
                self.queue.put_back(queued);
                self.arrived.notify_last();
                break;
            }
            self.idle.fetch_sub(1, Ordering::Relaxed);
            self.open_if_needed();
            let QueuedRequest { bytes, head_only, client, answer, memory } = queued;
            let outcome = exchange(&mut stream, &bytes, head_only).await;
            drop((bytes, memory));
            self.queue.done(client);
            self.idle.fetch_add(1, Ordering::Relaxed);
            let broken = outcome.is_err();
            // The client may have left meanwhile.
            let _ = answer.send(outcome);
            if broken {
                tracing::warn!("a line to the inner server broke");
                break;
            }
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.idle.fetch_sub(1, Ordering::Relaxed);
        self.open_if_needed();
    }

    /// The next queued for a line; `None` when the line is to close.
    async fn next(&self, generation: u64) -> Option<QueuedRequest> {
        loop {
            let arrived = self.arrived.notified();
            if self.generation.load(Ordering::SeqCst) != generation {
                // It may have been woken for a request that is now another line's.
                self.arrived.notify_last();
                return None;
            }
            if let Some(queued) = self.queue.take() {
                return Some(queued);
            }
            if timeout(UPSTREAM_IDLE_TIMEOUT, arrived).await.is_err()
                && self.open.load(Ordering::Relaxed) > MIN_UPSTREAM_CONNECTIONS
            {
                return None;
            }
        }
    }
}

/// Opens a connection and proves that a worker answers on it.
pub(super) async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let probing = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("GET / HTTP/1.1\r\n{METADATA_HEADER}: {PROBE}\r\n\r\n").as_bytes()).await?;
        match response::read(&mut stream, false).await {
            Ok(_) => Ok(stream),
            Err(_) => Err(io::Error::other("a new line was not answered")),
        }
    };
    timeout(PROBE_TIMEOUT, probing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Whether the other end has closed a line on which nothing is due.
fn is_dead(stream: &UnixStream) -> bool {
    !matches!(stream.try_read(&mut [0; 1]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

async fn exchange(stream: &mut UnixStream, bytes: &[u8], head_only: bool) -> ForwardResult {
    let exchanging = async {
        stream.write_all(bytes).await.map_err(|_| ForwardError::Broken)?;
        response::read(stream, head_only).await
    };
    timeout(RESPONSE_TIMEOUT, exchanging).await.unwrap_or(Err(ForwardError::Broken))
}
