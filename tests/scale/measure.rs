//! Times, peak memory and temporary files of commands and requests, and the table of them.

use std::fmt;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::TestServer;
use crate::support::client::Call;

/// One operation.
#[derive(Debug)]
struct Row {
    operation: String,
    time: Duration,
    usage: Usage,
}

/// The most that a process took of its machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Memory in KiB.
    memory: u64,
    /// SQLite's temporary files in bytes.
    pub temporary: u64,
}

/// The measurements, in their order.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Row>);

/// Shorter times are not compared with others: the noise of the machine is larger.
const COMPARED_FROM: Duration = Duration::from_millis(500);

impl Table {
    pub(crate) fn add(&mut self, operation: impl Into<String>, time: Duration, usage: Usage) {
        self.0.push(Row { operation: operation.into(), time, usage });
    }

    /// Runs `work`, which returns a time, and adds that.
    pub(crate) fn add_served(
        &mut self,
        server: &TestServer,
        operation: &str,
        work: impl FnOnce() -> Duration,
    ) {
        let (time, usage) = watch(server, work);
        self.add(operation, time, usage);
    }

    /// No process took more, in bytes.
    pub(crate) fn assert_below(&self, memory: u64, temporary: u64) {
        for Row { operation, usage, .. } in &self.0 {
            assert!(usage.memory << 10 < memory, "{operation}: {usage:?}\n{self}");
            assert!(usage.temporary < temporary, "{operation}: {usage:?}\n{self}");
        }
    }

    /// With `factor` times the records no operation takes longer than four times `factor`: it would
    /// take `factor` times that if it were quadratic.
    pub(crate) fn assert_grows_with(&self, smaller: &Table, factor: f64) {
        assert_eq!(self.0.len(), smaller.0.len());
        for (large, small) in
            self.0.iter().zip(&smaller.0).filter(|(large, _)| large.time > COMPARED_FROM)
        {
            let most = small.time.mul_f64(4.0 * factor) + COMPARED_FROM;
            assert!(
                large.time < most,
                "{} took {:?}, and {:?} before",
                large.operation,
                large.time,
                small.time
            );
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| operation | seconds | peak MiB |\n|---|---|---|")?;
        for Row { operation, time, usage } in &self.0 {
            writeln!(f, "| {operation} | {} | {} |", seconds(*time), usage.memory >> 10)?;
        }
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        long if long >= 1.0 => format!("{long:.1}"),
        short => format!("{short:.4}"),
    }
}

/// Runs `work` and returns the most that the server took meanwhile.
pub(crate) fn watch<T>(server: &TestServer, work: impl FnOnce() -> T) -> (T, Usage) {
    let pid = server.pid();
    // Resets the peak to the present memory of the process.
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut usage = Usage::default();
            while !done.load(Ordering::Relaxed) {
                usage.take(pid);
                thread::sleep(Duration::from_micros(200));
            }
            usage.take(pid);
            usage
        });
        // The scope ends only when the thread ends, even if the work fails.
        let answer = panic::catch_unwind(AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        let usage = watching.join().unwrap();
        (answer.unwrap_or_else(|panic| panic::resume_unwind(panic)), usage)
    })
}

impl Usage {
    /// Adds the present usage of a process. One that has ended uses nothing more.
    fn take(&mut self, pid: u32) {
        self.memory = self.memory.max(peak_memory(pid).unwrap_or(0));
        self.temporary = self.temporary.max(temporary_bytes(pid).unwrap_or(0));
    }
}

fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// SQLite's temporary files have no name any more, but the process has them open.
fn temporary_bytes(pid: u32) -> Option<u64> {
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let is_temporary = |file: &PathBuf| {
        fs::read_link(file).is_ok_and(|name| name.to_string_lossy().contains("etilqs_"))
    };
    Some(
        open.filter(is_temporary)
            .filter_map(|file| fs::metadata(file).ok())
            .map(|file| file.len())
            .sum(),
    )
}

/// Runs a command on a data directory, which has to end with 0. Returns the JSON that it prints.
#[track_caller]
pub(crate) fn command(
    server: &TestServer,
    data: &Path,
    operation: &str,
    arguments: &[&str],
    table: &mut Table,
) -> Value {
    let mut command: Command = server.command();
    command.arg("--data-dir").arg(data).arg("--json").args(arguments);
    let begun = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let usage = await_end(&mut child);
    let time = begun.elapsed();
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{operation}: {stdout}{stderr}");
    table.add(operation, time, usage);
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{operation}: {error}: {stdout}"))
}

/// The most that a process takes until it ends. Its output fits into a pipe.
fn await_end(child: &mut Child) -> Usage {
    let mut usage = Usage::default();
    while child.try_wait().unwrap().is_none() {
        usage.take(child.id());
        thread::sleep(Duration::from_millis(2));
    }
    usage
}

/// Sends a request that has to succeed. Returns how long the reply took, and its body as JSON.
#[track_caller]
pub(crate) fn request(call: Call<'_>) -> (Duration, Value) {
    let begun = Instant::now();
    let reply = call.try_send().unwrap();
    let time = begun.elapsed();
    assert!((200..300).contains(&reply.status), "{reply}");
    let body = if reply.body.is_empty() { Value::Null } else { reply.json() };
    (time, body)
}

/// The shortest of some times that a request takes, which others on the machine disturbed least,
/// and its last reply.
#[track_caller]
pub(crate) fn fastest<'a>(make: impl Fn() -> Call<'a>) -> (Duration, Value) {
    let (mut least, mut body) = request(make());
    for _ in 0..2 {
        let (time, again) = request(make());
        (least, body) = (least.min(time), again);
    }
    (least, body)
}
