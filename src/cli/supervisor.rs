//! The notification protocol of systemd: datagrams to the socket that `NOTIFY_SOCKET` names
//! (sd_notify(3)).
//!
//! The crate `sd-notify` does not support the abstract sockets that systemd uses for containers.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::repetition::Repetition;

/// The supervisor that started this process, such as systemd, if there is one.
#[derive(Debug)]
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// The time after the last watchdog ping at which the supervisor restarts the service.
    watchdog_timeout: Option<Duration>,
}

/// How long the supervisor waits for the next message while the service starts.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of watchdog pings within the watchdog timeout.
const PINGS_PER_TIMEOUT: u32 = 3;

impl Supervisor {
    /// Reads the environment variables of systemd. If the socket cannot be reached, this is logged
    /// and no messages are sent.
    pub(super) fn from_environment() -> Supervisor {
        let socket = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()).and_then(|name| {
            let socket = connect(&name);
            socket.inspect_err(|error| tracing::warn!(%error, "the socket in NOTIFY_SOCKET cannot be used")).ok()
        });
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let is_for_other_process =
            number("WATCHDOG_PID").is_some_and(|id| id != u64::from(std::process::id()));
        let timeout =
            number("WATCHDOG_USEC").filter(|_| !is_for_other_process).map(Duration::from_micros);
        Supervisor { socket, watchdog_timeout: timeout.filter(|timeout| !timeout.is_zero()) }
    }

    /// Has the supervisor wait while the databases are recovered and migrated, until the returned
    /// value is dropped. `None` without a supervisor.
    pub(super) fn starting(self: &Arc<Self>) -> io::Result<Option<Repetition>> {
        let supervisor = Arc::clone(self);
        let prolong = move || {
            let time = START_TIMEOUT.as_micros();
            supervisor.send(&format!("EXTEND_TIMEOUT_USEC={time}\nSTATUS=opening the databases"));
        };
        let start = || Repetition::start("starting", START_TIMEOUT / 3, prolong);
        self.socket.is_some().then(start).transpose()
    }

    /// Reports that the service is ready. `status` is shown to the operator.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that the configuration is being reloaded. A call of [`Supervisor::ready`] must
    /// follow.
    pub(super) fn reloading(&self) {
        let time = clock_gettime(ClockId::Monotonic);
        let microseconds =
            time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// Reports that the service accepts no new requests.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=completing the requests in progress");
    }

    fn send(&self, message: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(message.as_bytes()))
        {
            tracing::warn!(%error, "the supervisor cannot be notified of {}", message.lines().next().unwrap_or_default());
        }
    }

    /// Starts a thread that sends watchdog pings. It sends a ping only if `heartbeat`, a counter of
    /// successful health checks, has increased. Returns `None` if the supervisor has no watchdog.
    pub(super) fn start_watchdog(
        self: &Arc<Self>,
        heartbeat: impl Fn() -> u64 + Send + 'static,
    ) -> io::Result<Option<Repetition>> {
        let Some(timeout) = self.watchdog_timeout.filter(|_| self.socket.is_some()) else {
            return Ok(None);
        };
        let supervisor = Arc::clone(self);
        let mut last = None;
        let ping = move || {
            let count = heartbeat();
            if last != Some(count) {
                supervisor.send("WATCHDOG=1");
            } else {
                tracing::warn!(
                    "no health check has succeeded since the last watchdog ping; the next ping is omitted"
                );
            }
            last = Some(count);
        };
        Repetition::start("watchdog", timeout / PINGS_PER_TIMEOUT, ping).map(Some)
    }
}

/// Connects to a socket: a path, or `@` and a name in the abstract namespace.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn pings_stop_with_the_heartbeat() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let watchdog_timeout = Some(Duration::from_millis(60));
        let supervisor = Arc::new(Supervisor { socket: Some(ours), watchdog_timeout });
        let count = Arc::new(AtomicU64::new(1));
        let heartbeat = Arc::clone(&count);
        let _watchdog =
            supervisor.start_watchdog(move || heartbeat.load(Ordering::SeqCst)).unwrap().unwrap();
        let receive_within = |time: Duration| {
            theirs.set_read_timeout(Some(time)).unwrap();
            let mut message = [0; 64];
            loop {
                match theirs.recv(&mut message) {
                    // The test was stopped and continued (signal(7)).
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => return result.map(|length| message[..length].to_vec()),
                }
            }
        };
        assert_eq!(receive_within(Duration::from_secs(30)).unwrap(), b"WATCHDOG=1");
        let none = receive_within(Duration::from_millis(400));
        assert!(none.is_err(), "the heartbeat has not increased");
        count.store(2, Ordering::SeqCst);
        assert_eq!(receive_within(Duration::from_secs(30)).unwrap(), b"WATCHDOG=1");
    }
}
