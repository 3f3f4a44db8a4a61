//! Syncs of files and directories: some of a program's syncs wait.
//! `syncs.c` stands between the program and the system.

use std::path::PathBuf;
use std::process::Command;

use super::Setup;

/// Makes chosen syncs of programs wait.
#[derive(Debug)]
pub(crate) struct Syncs {
    directory: tempfile::TempDir,
}

impl Syncs {
    pub(crate) fn new() -> Syncs {
        let syncs = Syncs { directory: tempfile::tempdir().unwrap() };
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(syncs.path("syncs.so"))
            .arg("tests/support/syncs.c");
        assert!(compiler.status().unwrap().success(), "the C compiler failed");
        syncs
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn variables(&self) -> [(&'static str, String); 2] {
        [("LD_PRELOAD", "syncs.so"), ("SYNCS_HOLD", "hold")]
            .map(|(name, file)| (name, self.path(file).to_str().unwrap().to_owned()))
    }

    /// Has a command run under the observation.
    pub(crate) fn observe(&self, command: &mut Command) {
        command.envs(self.variables());
    }

    /// Has a server run under the observation.
    pub(crate) fn observe_server(&self, setup: Setup) -> Setup {
        self.variables()
            .into_iter()
            .fold(setup, |setup, (name, value)| setup.variable(name, &value))
    }

    /// From now on, syncs of files and directories wait whose path ends with `end`.
    pub(crate) fn hold(&self, end: &str) {
        let new = self.path("new");
        std::fs::write(&new, end).unwrap();
        std::fs::rename(new, self.path("hold")).unwrap();
    }

    /// From now on, no sync waits.
    pub(crate) fn release(&self) {
        std::fs::remove_file(self.path("hold")).unwrap();
    }
}
