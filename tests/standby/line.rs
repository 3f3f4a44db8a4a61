//! A line between Litestream and the machine that receives the copy. Each is in a network namespace of its own, and the line can be cut.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::until;

/// The receiver's address, from 198.51.100.0/24 (RFC 5737).
pub const RECEIVER: &str = "198.51.100.2";

/// Both namespaces and the line between them.
#[derive(Debug)]
pub struct Line {
    sender: Namespace,
    receiver: Namespace,
}

impl Line {
    /// A bridge in the sender's namespace stands for a switch, so that a cable that is pulled behind it goes unnoticed.
    pub fn new() -> Line {
        let (sender, receiver) = (Namespace::new(), Namespace::new());
        sender.ip(&format!("link add cable type veth peer name eth0 netns {}", receiver.0.id()));
        for change in [
            "link add switch type bridge",
            "address add 198.51.100.1/30 dev switch",
            "link set switch up",
            "link set lo up",
        ] {
            sender.ip(change);
        }
        for change in ["address add 198.51.100.2/30 dev eth0", "link set eth0 up", "link set lo up"] {
            receiver.ip(change);
        }
        let line = Line { sender, receiver };
        line.sender.ip("link set cable up");
        line.mend();
        line
    }

    /// What is sent is lost from now on, and no side is told.
    pub fn cut(&self) {
        self.sender.ip("link set cable nomaster");
    }

    pub fn mend(&self) {
        self.sender.ip("link set cable master switch");
    }

    /// A command that runs at the sender.
    pub fn at_sender(&self, command: &Command) -> Command {
        self.sender.enter(command)
    }

    /// A command that runs at the receiver.
    pub fn at_receiver(&self, command: &Command) -> Command {
        self.receiver.enter(command)
    }
}

/// A network namespace. It exists as long as its process.
#[derive(Debug)]
struct Namespace(Child);

impl Namespace {
    fn new() -> Namespace {
        let child = Command::new("unshare").args(["--net", "sleep", "infinity"]).stdin(Stdio::null()).spawn().unwrap();
        let namespace = Namespace(child);
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        until("the namespace exists", || (fs::read_link(namespace.path()).unwrap() != own).then_some(()));
        namespace
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.0.id()))
    }

    fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net={}", self.path().display())).arg(command.get_program()).args(command.get_args());
        inside
    }

    /// Runs `ip` with these words.
    fn ip(&self, words: &str) {
        let mut command = Command::new("ip");
        command.args(words.split(' '));
        let output = self.enter(&command).output().unwrap();
        assert!(output.status.success(), "ip {words}: {output:?}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
