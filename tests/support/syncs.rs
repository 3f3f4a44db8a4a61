//! Syncs of files and folders: which ones a program does, and what it does when one fails. `syncs.c` stands between the program
//! and the system.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Setup;

/// Records the syncs of programs, and makes chosen ones fail.
#[derive(Debug)]
pub struct Syncs {
    folder: tempfile::TempDir,
}

impl Syncs {
    pub fn new() -> Syncs {
        let syncs = Syncs { folder: tempfile::tempdir().unwrap() };
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(syncs.path("syncs.so")).arg("tests/support/syncs.c");
        assert!(compiler.status().unwrap().success(), "the C compiler failed");
        syncs
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn variables(&self) -> [(&'static str, String); 4] {
        [("LD_PRELOAD", "syncs.so"), ("SYNCS_LOG", "log"), ("SYNCS_FAIL", "fail"), ("SYNCS_HOLD", "hold")]
            .map(|(name, file)| (name, self.path(file).to_str().unwrap().to_owned()))
    }

    /// Has a command run under the observation.
    pub fn observe(&self, command: &mut Command) {
        command.envs(self.variables());
    }

    /// Has a server run under the observation.
    pub fn observe_server(&self, setup: Setup) -> Setup {
        self.variables().into_iter().fold(setup, |setup, (name, value)| setup.variable(name, &value))
    }

    /// From now on, syncs of files and folders fail whose path ends with `end`.
    pub fn fail(&self, end: &str) {
        self.choose("fail", end);
    }

    /// From now on, syncs of files and folders wait whose path ends with `end`.
    pub fn hold(&self, end: &str) {
        self.choose("hold", end);
    }

    /// From now on, no sync waits.
    pub fn release(&self) {
        std::fs::remove_file(self.path("hold")).unwrap();
    }

    /// Writes the end of a path to the file of this name at once.
    fn choose(&self, name: &str, end: &str) {
        let new = self.path("new");
        std::fs::write(&new, end).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    /// From now on, no sync fails.
    pub fn succeed(&self) {
        std::fs::remove_file(self.path("fail")).unwrap();
    }

    /// Returns the files and folders that were synced since the last call, in their order.
    pub fn take(&self) -> Vec<PathBuf> {
        let log = self.path("log");
        let synced = std::fs::read_to_string(&log).unwrap_or_default();
        let _ = std::fs::remove_file(log);
        synced.lines().map(PathBuf::from).collect()
    }

    /// Returns whether `path` was synced since the last call of [`Syncs::take`].
    pub fn has_synced(&self, path: &Path) -> bool {
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().any(|line| Path::new(line) == path)
    }
}
