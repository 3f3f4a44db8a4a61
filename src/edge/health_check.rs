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

use super::GateError;
use super::limits::{PROBES, TRIES, TRY_PAUSE, TRY_TIMEOUT, WATCH_PERIOD};
use super::upstream::{self, Lines};
use crate::http::workers::Server;

/// Makes the server behind the gate; called again when that server has died.
pub type StartServer = Box<dyn Fn() -> io::Result<Server> + Send>;

/// How long the old server may go on with what it has: longer than any request.
const OLD_SERVER_TIME: Duration = Duration::from_secs(30);

/// The server behind the gate, and the lines to it.
pub(super) struct Behind {
    start: StartServer,
    server: Server,
    lines: Arc<Lines>,
    pulse: Arc<AtomicU64>,
}

impl Behind {
    /// Starts the server and proves that it answers.
    pub(super) async fn start(start: StartServer, pulse: Arc<AtomicU64>) -> Result<Behind, GateError> {
        let server = start().map_err(GateError::Start)?;
        let lines = Lines::start(server.socket()).await.map_err(GateError::Start)?;
        Ok(Behind { start, server, lines, pulse })
    }

    pub(super) fn lines(&self) -> &Arc<Lines> {
        &self.lines
    }

    /// Looks at the server again and again; returns when it is dead and there is no other to be had.
    async fn watch(&mut self) -> GateError {
        loop {
            // Whether it was the time or a line in trouble: it is looked at.
            let _ = timeout(WATCH_PERIOD, self.lines.trouble.notified()).await;
            if self.is_well().await {
                self.pulse.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            tracing::error!("the inner server does not answer; a new one takes its place");
            if let Err(problem) = self.replace().await {
                return GateError::Deaf(problem.to_string());
            }
        }
    }

    /// It takes a new connection and answers on it; or, where that takes long, it answers others meanwhile.
    async fn is_well(&self) -> bool {
        let before = self.lines.answered();
        for _ in 0..PROBES {
            if self.server.failed() {
                return false;
            }
            match upstream::connect(self.server.socket()).await {
                Ok(_) => return true,
                Err(problem) if problem.kind() == io::ErrorKind::TimedOut => {
                    if self.lines.answered() != before {
                        return true;
                    }
                }
                Err(problem) if is_shortage(&problem) => {
                    tracing::warn!(%problem, "the inner server could not be looked at");
                    return !self.server.failed();
                }
                Err(problem) => {
                    tracing::warn!(%problem, "the inner server cannot be reached");
                    return false;
                }
            }
        }
        false
    }

    async fn replace(&mut self) -> io::Result<()> {
        let mut last = io::Error::other("no try was made");
        for _ in 0..TRIES {
            match self.try_replace().await {
                Ok(()) => return Ok(()),
                Err(problem) => last = problem,
            }
            sleep(TRY_PAUSE).await;
        }
        Err(last)
    }

    async fn try_replace(&mut self) -> io::Result<()> {
        let server = (self.start)()?;
        prove(server.socket()).await?;
        // What the old one still carries it may finish. Dropping waits for its workers, which the gate's thread must not.
        let (retire, retired) = mpsc::channel();
        std::thread::Builder::new().name("retired".into()).spawn(move || {
            let old = retired.recv();
            std::thread::sleep(OLD_SERVER_TIME);
            drop::<Result<Server, _>>(old);
        })?;
        self.lines.move_to(server.socket());
        let old = std::mem::replace(&mut self.server, server);
        retire.send(old).map_err(io::Error::other)
    }
}

/// No descriptor to be had: that says nothing about the server, which goes on with the lines that are open.
fn is_shortage(problem: &io::Error) -> bool {
    let shortages = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    shortages.iter().any(|errno| problem.raw_os_error() == Some(errno.raw_os_error()))
}

async fn prove(socket: &Path) -> io::Result<()> {
    timeout(TRY_TIMEOUT, upstream::connect(socket))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map(drop)
}

/// Runs `accepting` to its end, or until there is nothing behind the gate any more.
pub(super) async fn until(accepting: impl Future<Output = ()>, mut behind: Behind) -> Result<(), GateError> {
    let outcome = {
        let mut accepting = pin!(accepting);
        let mut watching = pin!(behind.watch());
        poll_fn(|cx| match accepting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => watching.as_mut().poll(cx).map(Err),
        })
        .await
    };
    drop(behind.server);
    outcome
}
