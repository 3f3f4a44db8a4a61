//! Noticing that tiny_http has died, and making a new one: never alive and deaf.

use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::EdgeError;
use super::limits::{HEALTH_CHECK_PERIOD, MAX_FAILED_PROBES, REPLACE_ATTEMPTS, REPLACE_PAUSE, REPLACE_TIMEOUT};
use super::upstream_pool::{self, UpstreamPool};
use crate::http::workers::Server;

/// Makes the server behind the gate; called again when that server has died.
pub type StartServer = Box<dyn Fn() -> io::Result<Server> + Send>;

/// How long the old server may go on with what it has: longer than any request.
const RETIRED_SERVER_TIME: Duration = Duration::from_secs(30);

/// The server behind the gate, and the lines to it.
pub(super) struct Upstream {
    start: StartServer,
    server: Server,
    pool: Arc<UpstreamPool>,
    heartbeat: Arc<AtomicU64>,
}

impl Upstream {
    /// Starts the server and proves that it answers.
    pub(super) async fn start(start: StartServer, heartbeat: Arc<AtomicU64>) -> Result<Upstream, EdgeError> {
        let server = start().map_err(EdgeError::Start)?;
        let pool = UpstreamPool::start(server.socket()).await.map_err(EdgeError::Start)?;
        Ok(Upstream { start, server, pool, heartbeat })
    }

    pub(super) fn pool(&self) -> &Arc<UpstreamPool> {
        &self.pool
    }

    /// Looks at the server again and again; returns when it is dead and there is no other to be had.
    async fn watch(&mut self) -> EdgeError {
        loop {
            // Whether it was the time or a line in trouble: it is looked at.
            let _ = timeout(HEALTH_CHECK_PERIOD, self.pool.trouble.notified()).await;
            if self.is_well().await {
                self.heartbeat.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            tracing::error!("the inner server does not answer; a new one takes its place");
            if let Err(error) = self.replace().await {
                return EdgeError::Unresponsive(error.to_string());
            }
        }
    }

    /// It takes a new connection and answers on it; or, where that takes long, it answers others meanwhile.
    async fn is_well(&self) -> bool {
        let before = self.pool.answered();
        for _ in 0..MAX_FAILED_PROBES {
            if self.server.failed() {
                return false;
            }
            match upstream_pool::connect(self.server.socket()).await {
                Ok(_) => return true,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    if self.pool.answered() != before {
                        return true;
                    }
                }
                Err(error) if is_shortage(&error) => {
                    tracing::warn!(%error, "the inner server could not be looked at");
                    return !self.server.failed();
                }
                Err(error) => {
                    tracing::warn!(%error, "the inner server cannot be reached");
                    return false;
                }
            }
        }
        false
    }

    async fn replace(&mut self) -> io::Result<()> {
        let mut last = io::Error::other("no try was made");
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
        let server = (self.start)()?;
        probe(server.socket()).await?;
        // What the old one still carries it may finish. Dropping waits for its workers, which the gate's thread must not.
        let (retire, retired) = mpsc::channel();
        std::thread::Builder::new().name("retired".into()).spawn(move || {
            let old = retired.recv();
            std::thread::sleep(RETIRED_SERVER_TIME);
            drop::<Result<Server, _>>(old);
        })?;
        self.pool.move_to(server.socket());
        let old = std::mem::replace(&mut self.server, server);
        retire.send(old).map_err(io::Error::other)
    }
}

/// No descriptor to be had: that says nothing about the server, which goes on with the lines that are open.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    shortages.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

async fn probe(socket: &Path) -> io::Result<()> {
    timeout(REPLACE_TIMEOUT, upstream_pool::connect(socket))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map(drop)
}

/// Runs `accepting` to its end, or until there is nothing behind the gate any more.
pub(super) async fn until(accepting: impl Future<Output = ()>, mut upstream: Upstream) -> Result<(), EdgeError> {
    let outcome = {
        let mut accepting = pin!(accepting);
        let mut watching = pin!(upstream.watch());
        poll_fn(|cx| match accepting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => watching.as_mut().poll(cx).map(Err),
        })
        .await
    };
    drop(upstream.server);
    outcome
}
