//! The health check of tiny_http. If it fails, the server is replaced; if that fails, the edge ends with an error.

use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::limits::{HEALTH_CHECK_PERIOD, MAX_PROBES, REPLACE_ATTEMPTS, REPLACE_PAUSE, REPLACE_TIMEOUT};
use super::parts::EdgeError;
use super::upstream_pool::{self, UpstreamPool};
use crate::http::workers::Server;

/// Starts the upstream server. It is called again to replace a server that has failed.
pub type StartServer = Box<dyn Fn() -> io::Result<Server> + Send>;

/// How long a replaced server may continue with its requests. It exceeds the time of any request.
const RETIRED_SERVER_TIME: Duration = Duration::from_secs(30);

/// The upstream server and the connections to it.
pub(super) struct Upstream {
    start_server: StartServer,
    server: Server,
    pool: Arc<UpstreamPool>,
    heartbeat: Arc<AtomicU64>,
}

impl Upstream {
    /// Starts the server and waits until it responds. `heartbeat` counts the successful health checks.
    ///
    /// # Errors
    ///
    /// [`EdgeError::Start`] if the server cannot be started or does not respond.
    pub(super) async fn start(start_server: StartServer, heartbeat: Arc<AtomicU64>) -> Result<Upstream, EdgeError> {
        let server = start_server().map_err(EdgeError::Start)?;
        let pool = UpstreamPool::start(server.socket()).await.map_err(EdgeError::Start)?;
        Ok(Upstream { start_server, server, pool, heartbeat })
    }

    pub(super) fn pool(&self) -> &Arc<UpstreamPool> {
        &self.pool
    }

    /// Checks the server periodically. Returns when it has failed and cannot be replaced.
    async fn monitor(&mut self) -> EdgeError {
        loop {
            // A connection that could not be opened triggers a check before the period has passed.
            let _ = timeout(HEALTH_CHECK_PERIOD, self.pool.connect_failed.notified()).await;
            if self.is_healthy().await {
                self.heartbeat.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            tracing::error!("the upstream server does not respond; it is replaced");
            if let Err(error) = self.replace().await {
                return EdgeError::Unresponsive(error.to_string());
            }
        }
    }

    /// Whether the server responds on a new connection. If that times out, a response to any other request counts too.
    async fn is_healthy(&self) -> bool {
        let before = self.pool.completed();
        for _ in 0..MAX_PROBES {
            if self.server.failed() {
                return false;
            }
            match upstream_pool::connect(self.server.socket()).await {
                Ok(_) => return true,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    if self.pool.completed() != before {
                        return true;
                    }
                }
                Err(error) if is_descriptor_shortage(&error) => {
                    tracing::warn!(%error, "the upstream server could not be checked");
                    return !self.server.failed();
                }
                Err(error) => {
                    tracing::warn!(%error, "the upstream server cannot be reached");
                    return false;
                }
            }
        }
        false
    }

    async fn replace(&mut self) -> io::Result<()> {
        let mut last = io::Error::other("no attempt was made");
        for _ in 0..REPLACE_ATTEMPTS {
            match self.try_replace().await {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
            sleep(REPLACE_PAUSE).await;
        }
        Err(last)
    }

    async fn try_replace(&mut self) -> io::Result<()> {
        let server = (self.start_server)()?;
        probe(server.socket()).await?;
        // Dropping a server blocks until its workers have ended, so a separate thread does it. The thread is started first: if that
        // fails, nothing has changed.
        let (retire, retired) = mpsc::channel();
        std::thread::Builder::new().name("retired".into()).spawn(move || {
            let old = retired.recv();
            std::thread::sleep(RETIRED_SERVER_TIME);
            drop::<Result<Server, _>>(old);
        })?;
        self.pool.switch_to(server.socket());
        let old = std::mem::replace(&mut self.server, server);
        retire.send(old).map_err(io::Error::other)
    }
}

/// Whether no descriptor was left. This says nothing about the server, which still serves the open connections.
fn is_descriptor_shortage(error: &io::Error) -> bool {
    let shortages = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    shortages.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

async fn probe(socket: &Path) -> io::Result<()> {
    timeout(REPLACE_TIMEOUT, upstream_pool::connect(socket))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map(drop)
}

/// Runs `accepting` to its end, or until the upstream server has failed and cannot be replaced.
///
/// # Errors
///
/// [`EdgeError::Unresponsive`] in the second case.
pub(super) async fn run_until_failure(
    accepting: impl Future<Output = ()>,
    mut upstream: Upstream,
) -> Result<(), EdgeError> {
    let result = {
        let mut accepting = pin!(accepting);
        let mut monitoring = pin!(upstream.monitor());
        poll_fn(|cx| match accepting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => monitoring.as_mut().poll(cx).map(Err),
        })
        .await
    };
    drop(upstream.server);
    result
}
