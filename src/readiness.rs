//! Readiness (contract section 1). A thread probes the registry and the disk beside the requests,
//! and `/readyz` answers with the last result. So no request waits for a disk that hangs.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// The pause between two probes. Each writes to the disk.
const PAUSE: Duration = Duration::from_secs(2);

/// A probe that takes longer is a failure.
const MAX_DURATION: Duration = Duration::from_secs(5);

/// The result of a probe: a warning to a service that is ready, or why the service is not ready.
pub type Outcome = Result<Option<String>, String>;

/// The last result. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Readiness(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// When the probe that runs began, in monotonic time.
    running_since: Option<Duration>,
    last: Outcome,
}

impl Readiness {
    /// Runs `probe` once, then starts the thread.
    pub fn start(
        clock: Clock,
        probe: impl Fn() -> Outcome + Send + 'static,
    ) -> io::Result<Readiness> {
        let state = Arc::new(Mutex::new(State { running_since: None, last: probe() }));
        let shared = Arc::downgrade(&state);
        let run = move || {
            loop {
                thread::sleep(PAUSE);
                let Some(state) = shared.upgrade() else { return };
                state.lock().running_since = Some(clock.now().monotonic);
                let last = probe();
                *state.lock() = State { running_since: None, last };
            }
        };
        thread::Builder::new().name("readiness".to_owned()).spawn(run)?;
        Ok(Readiness(state))
    }

    /// The last result at the monotonic time `now`.
    pub fn check(&self, now: Duration) -> Outcome {
        let state = self.0.lock();
        match state.running_since {
            Some(since) if now.saturating_sub(since) >= MAX_DURATION => {
                Err("a probe does not end; the disk does not respond".to_owned())
            }
            _ => state.last.clone(),
        }
    }
}

/// Writes a block to a file without a name in `directory`, and syncs it. Some file systems store
/// less than a block in the inode, even on a full disk.
pub fn probe_write(directory: &Path) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.write_all(&[b'.'; 4096])?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_last_result_counts_while_a_probe_runs_for_less_than_5_s() {
        let clock = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap());
        let (begins, begun) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        end.send(Ok(None)).unwrap();
        let probe = move || {
            begins.send(()).unwrap();
            ends.recv().unwrap()
        };
        let readiness = Readiness::start(clock.clone(), probe).unwrap();
        let check = |after: u64| {
            clock.advance(Duration::from_millis(after));
            readiness.check(clock.now().monotonic)
        };
        (0..2).for_each(|_| begun.recv().unwrap());
        assert_eq!([check(0), check(4_999)], [Ok(None), Ok(None)]);
        assert!(check(1).unwrap_err().contains("does not respond"));
        end.send(Err("full".to_owned())).unwrap();
        begun.recv().unwrap();
        assert_eq!(check(0), Err("full".to_owned()));
    }
}
