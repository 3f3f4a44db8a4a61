//! The probe of `/readyz` (contract section 1) and its last result.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;

/// How long a result is used.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a request waits for a probe that another one runs.
const WAIT: Duration = Duration::from_secs(2);

/// When the last probe began, in monotonic time, and its result.
#[derive(Debug, Default)]
pub struct Readiness(Mutex<Option<(Duration, Result<(), String>)>>);

impl Readiness {
    /// The result of the last probe, or of `probe` if none began in the second before `now`, which
    /// is monotonic time.
    pub fn check(
        &self,
        now: Duration,
        probe: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(mut last) = self.0.try_lock_for(WAIT) else {
            return Err("a probe does not end; the disk does not respond".to_owned());
        };
        let recent = last.take().filter(|(began, _)| now.saturating_sub(*began) < PERIOD);
        last.insert(recent.unwrap_or_else(|| (now, probe()))).1.clone()
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
    use super::*;
    use std::cell::Cell;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn failed() -> Result<(), String> {
        Err("full".to_owned())
    }

    #[test]
    fn a_probe_runs_once_a_second() {
        let runs = Cell::new(0);
        let probe = || {
            runs.set(runs.get() + 1);
            if runs.get() == 2 { failed() } else { Ok(()) }
        };
        let readiness = Readiness::default();
        assert_eq!([0, 999].map(|now| readiness.check(at(now), probe)), [Ok(()), Ok(())]);
        assert_eq!([1000, 1999].map(|now| readiness.check(at(now), probe)), [failed(), failed()]);
        assert_eq!(readiness.check(at(2000), probe), Ok(()));
        assert_eq!(runs.get(), 3);
    }

    #[test]
    fn a_probe_that_does_not_end_is_a_failure() {
        let readiness = Readiness::default();
        let outcome = readiness
            .check(at(0), || readiness.check(at(0), || unreachable!("a second probe at once")));
        assert!(outcome.unwrap_err().contains("does not respond"));
    }
}
