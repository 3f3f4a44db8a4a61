//! The probe of `/readyz` (contract section 1) and its last result.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;

/// How long a result is used.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a request waits for a probe that another one runs.
const WAIT: Duration = Duration::from_secs(2);

/// The file that a probe writes. The name is always the same, so a probe removes what a killed
/// process left behind.
const FILE: &str = ".ready";

/// Bytes that a probe writes: a whole block, since some file systems store less in the inode, even
/// on a full disk.
const SIZE: usize = 4096;

/// When the last probe began, in monotonic time, and its result.
#[derive(Debug)]
pub struct Readiness(Mutex<(Duration, Result<(), String>)>);

impl Readiness {
    /// Runs the first probe. `now` is monotonic time.
    pub fn new(now: Duration, probe: impl FnOnce() -> Result<(), String>) -> Readiness {
        Readiness(Mutex::new((now, probe())))
    }

    /// The result of the last probe, or of `probe` if the last one began at least a second before
    /// `now`, which is monotonic time.
    pub fn check(
        &self,
        now: Duration,
        probe: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(mut last) = self.0.try_lock_for(WAIT) else {
            return Err("a probe does not end; the disk does not respond".to_owned());
        };
        if now.saturating_sub(last.0) >= PERIOD {
            *last = (now, probe());
        }
        last.1.clone()
    }
}

/// Writes a file in `directory`, syncs it and removes it.
pub fn probe_write(directory: &Path) -> io::Result<()> {
    let path = directory.join(FILE);
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(&[b'.'; SIZE])?;
        file.sync_all()
    };
    let written = write();
    // A write that failed may still have created the file.
    let removed = fs::remove_file(&path);
    written.and(removed)
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
        let readiness = Readiness::new(at(0), probe);
        assert_eq!([0, 999].map(|now| readiness.check(at(now), probe)), [Ok(()), Ok(())]);
        assert_eq!([1000, 1999].map(|now| readiness.check(at(now), probe)), [failed(), failed()]);
        assert_eq!(readiness.check(at(2000), probe), Ok(()));
        assert_eq!(runs.get(), 3);
    }

    #[test]
    fn a_probe_that_does_not_end_is_a_failure() {
        let readiness = Readiness::new(at(0), || Ok(()));
        let outcome = readiness.check(at(1000), || {
            readiness.check(at(1000), || unreachable!("a second probe at once"))
        });
        assert!(outcome.unwrap_err().contains("does not respond"));
    }

    #[test]
    fn a_file_of_a_killed_process_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), "left").unwrap();
        probe_write(directory.path()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(probe_write(&directory.path().join("missing")).is_err());
    }
}
