//! What a supervisor such as systemd is told: datagrams to the socket that it names in `NOTIFY_SOCKET` (sd_notify(3)).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Who started this process and wants to hear from it; nobody, usually.
#[derive(Debug)]
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    /// How long it waits for a sign of life before it starts the service again.
    patience: Option<Duration>,
}

/// Of a supervisor's patience, the part after which a sign of life is due.
const SIGNS: u32 = 3;

impl Supervisor {
    /// As the environment says. Where the socket cannot be reached that is logged, and nobody is told anything.
    pub fn from_environment() -> Supervisor {
        let socket = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()).and_then(|name| {
            let reached = reach(&name);
            reached.inspect_err(|error| tracing::warn!(%error, "the socket in NOTIFY_SOCKET cannot be used")).ok()
        });
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let for_another = number("WATCHDOG_PID").is_some_and(|id| id != u64::from(std::process::id()));
        let patience = number("WATCHDOG_USEC").filter(|_| !for_another).map(Duration::from_micros);
        Supervisor { socket, patience: patience.filter(|patience| !patience.is_zero()) }
    }

    /// The service answers.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// Configuration is read again; [`Supervisor::ready`] follows.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// The service takes no new requests.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=finishing the requests under way");
    }

    fn tell(&self, message: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(message.as_bytes())) {
            tracing::warn!(%error, "the supervisor cannot be told that {}", message.lines().next().unwrap_or_default());
        }
    }

    /// Gives signs of life for as long as the service does: `pulse` counts what it was seen to answer, and a sign is given
    /// only where that has risen. Nothing where nobody waits for signs.
    pub fn watch(self: &Arc<Self>, pulse: impl Fn() -> u64 + Send + 'static) -> io::Result<Option<Watch>> {
        let Some(patience) = self.patience.filter(|_| self.socket.is_some()) else { return Ok(None) };
        let supervisor = Arc::clone(self);
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let mut seen = None;
            loop {
                let now = pulse();
                if seen != Some(now) {
                    supervisor.tell("WATCHDOG=1");
                } else {
                    tracing::warn!("nothing was answered since the last sign of life; the supervisor gets none now");
                }
                seen = Some(now);
                if stopped.recv_timeout(patience / SIGNS) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Some(Watch { _stop: stop, _thread: thread }))
    }
}

/// Signs of life are given until this is dropped.
#[derive(Debug)]
pub struct Watch {
    _stop: mpsc::Sender<()>,
    _thread: JoinHandle<()>,
}

/// A path, or with `@` a name in the abstract namespace.
fn reach(name: &OsStr) -> io::Result<UnixDatagram> {
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
    fn who_answers_nothing_gives_no_sign_of_life() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
        let patience = Some(Duration::from_millis(60));
        let supervisor = Arc::new(Supervisor { socket: Some(ours), patience });
        let answered = Arc::new(AtomicU64::new(1));
        let pulse = Arc::clone(&answered);
        let _watch = supervisor.watch(move || pulse.load(Ordering::SeqCst)).unwrap().unwrap();
        let heard = || {
            let mut message = [0; 64];
            theirs.recv(&mut message).map(|length| message[..length].to_vec())
        };
        assert_eq!(heard().unwrap(), b"WATCHDOG=1");
        assert!(heard().is_err(), "nothing was answered since");
        answered.store(2, Ordering::SeqCst);
        assert_eq!(heard().unwrap(), b"WATCHDOG=1");
    }
}
