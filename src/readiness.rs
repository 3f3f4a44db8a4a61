//! The probe of `/readyz` (contract section 1) and the cache of its result.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;

/// How long a result is cached.
const PERIOD: Duration = Duration::from_secs(1);

/// A probe that runs longer counts as failed.
const DEADLINE: Duration = Duration::from_secs(5);

/// The file that a probe writes. The name is always the same, so a probe removes what a killed
/// process left behind.
const FILE: &str = ".ready";

/// Bytes that a probe writes: a whole block, since some file systems store less in the inode, even
/// on a full disk.
const SIZE: usize = 4096;

/// The last probe and its result.
#[derive(Debug)]
pub struct Readiness(Mutex<ProbeState>);

#[derive(Debug)]
struct ProbeState {
    /// When the last probe began, in monotonic time.
    started_at: Duration,
    is_running: bool,
    /// What the last finished probe returned.
    result: Result<(), String>,
}

impl Readiness {
    /// Runs the first probe. `now` is monotonic time.
    pub fn new(now: Duration, probe: impl FnOnce() -> Result<(), String>) -> Readiness {
        Readiness(Mutex::new(ProbeState { started_at: now, is_running: false, result: probe() }))
    }

    /// Returns the result of a probe, or what failed. Runs `probe` if the last one began at least a
    /// second before `now`, which is monotonic time, and none is running. Otherwise it returns the
    /// last result without waiting.
    pub fn check(
        &self,
        now: Duration,
        probe: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        if let Some(result) = self.begin(now) {
            return result;
        }
        let result = probe();
        let mut state = self.0.lock();
        state.is_running = false;
        state.result.clone_from(&result);
        result
    }

    /// Returns the result to use, or `None` if the caller has to probe.
    fn begin(&self, now: Duration) -> Option<Result<(), String>> {
        let mut state = self.0.lock();
        let age = now.saturating_sub(state.started_at);
        if state.is_running && age >= DEADLINE {
            return Some(Err(format!(
                "a probe has not ended for {} s; the disk does not respond",
                age.as_secs()
            )));
        }
        if state.is_running || age < PERIOD {
            return Some(state.result.clone());
        }
        state.started_at = now;
        state.is_running = true;
        None
    }
}

/// Writes a file in `directory`, syncs it and removes it.
///
/// # Errors
///
/// Any error of the file system, such as no space.
pub fn probe_write(directory: &Path) -> io::Result<()> {
    let path = directory.join(FILE);
    let written = write_synced(&path);
    // A write that failed may still have created the file.
    let removed = fs::remove_file(&path);
    written.and(removed)
}

fn write_synced(path: &Path) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&[b'.'; SIZE])?;
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
        let readiness = Readiness::new(at(0), probe);
        assert_eq!([0, 999].map(|now| readiness.check(at(now), probe)), [Ok(()), Ok(())]);
        assert_eq!([1000, 1999].map(|now| readiness.check(at(now), probe)), [failed(), failed()]);
        assert_eq!(readiness.check(at(2000), probe), Ok(()));
        assert_eq!(runs.get(), 3);
    }

    #[test]
    fn one_probe_runs_at_a_time_and_other_calls_do_not_wait() {
        let readiness = Readiness::new(at(0), || Ok(()));
        let nested = |now| readiness.check(at(now), || unreachable!("a second probe at once"));
        let slow = || {
            assert_eq!(nested(5999), Ok(()), "the last result");
            assert!(nested(6000).is_err(), "the disk does not respond");
            Ok(())
        };
        assert_eq!(readiness.check(at(1000), slow), Ok(()));
        assert_eq!(readiness.check(at(1001), failed), Ok(()));
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
