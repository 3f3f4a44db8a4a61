//! The harness of every test binary: a server and a client. The client checks in each response the
//! rules that hold for all responses.
//!
//! [`TestServer`] runs the shipped binary on a data directory of its own. [`InProcess`] runs the
//! library in this process, for tests that move the clock or break something on purpose. Both are a
//! [`DataDir`] with tenants, keys and a command line.

pub(crate) mod browser;
pub(crate) mod client;
pub(crate) mod contract;
pub(crate) mod in_process;
pub(crate) mod process_stats;
pub(crate) mod proxy;
pub(crate) mod random;
pub(crate) mod raw;
pub(crate) mod reply;
pub(crate) mod schema;
pub(crate) mod server;
pub(crate) mod syncs;
pub(crate) mod tls;

pub(crate) use client::Api;
pub(crate) use in_process::InProcess;
pub(crate) use reply::Reply;
pub(crate) use server::{ALL, DataDir, Setup, Tenant, TestServer};

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The time after which a test fails. It is generous, so that a busy machine does not fail a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Polls `ask` until it returns a value, and returns that. Panics after [`DEADLINE`].
#[track_caller]
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = ask() {
            return value;
        }
        assert!(Instant::now() < deadline, "deadline exceeded; waited until {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Repeats a call that was interrupted. A read or write with a time limit is, when this process is
/// stopped and continued (signal(7)).
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Sends a process the signal of this name, such as `TERM`. After `STOP`, waits until no thread
/// runs: on a busy machine, some go on for a while, and could take a lock.
#[track_caller]
pub(crate) fn signal(process: u32, name: &str) {
    let signal = match name {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        _ => panic!("{name} is no signal of a test"),
    };
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), signal).unwrap();
    if name == "STOP" {
        until("the process is stopped", || is_stopped(process).then_some(()));
    }
}

/// Whether each thread is stopped or ended (proc_pid_stat(5)).
fn is_stopped(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.map(|thread| thread.unwrap().path().join("stat")).all(|path| {
        // A thread that has ended since has no file.
        fs::read_to_string(path).map_or(true, |stat| {
            let (_, state) = stat.rsplit_once(") ").unwrap();
            state.starts_with(['T', 't', 'Z', 'X'])
        })
    })
}

/// Opens a database of the service as another process would.
#[expect(
    clippy::disallowed_methods,
    reason = "the test is the other process here and wants no pragmas of the service"
)]
pub(crate) fn database(path: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(DEADLINE).unwrap();
    connection
}

/// Every file and directory below `directory`, sorted. No link is followed.
pub(crate) fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&entry.path()));
        }
        found.push(entry.path());
    }
    found.sort();
    found
}

/// The path of a file below `examples/`.
pub(crate) fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path)
}

/// A free port outside the range from which the system chooses. So no server of another test gets
/// the same one, and no client that tries to connect to it connects to itself.
pub(crate) fn free_port() -> u16 {
    loop {
        let [first, second, ..] = *uuid::Uuid::new_v4().as_bytes();
        let port = 20_000 + u16::from_ne_bytes([first, second]) % 12_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A new idempotency key.
pub(crate) fn uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// `text` as it stands in a query.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
