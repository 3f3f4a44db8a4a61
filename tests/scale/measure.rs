//! Times and peak memory of commands and requests, and the table of them.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Desk;
use crate::support::client::Call;

/// One operation.
#[derive(Debug)]
struct Row {
    operation: String,
    time: Duration,
    /// Peak memory of the process that did it, in KiB.
    memory: u64,
}

/// What was measured, in its order.
#[derive(Debug, Default)]
pub struct Table(Vec<Row>);

/// Shorter times are not compared with others: the noise of the machine is larger.
const COMPARED_FROM: Duration = Duration::from_millis(500);

impl Table {
    pub fn add(&mut self, operation: impl Into<String>, time: Duration, memory: u64) {
        self.0.push(Row { operation: operation.into(), time, memory });
    }

    /// Runs `work` and adds the time that it took and the most memory that the server had meanwhile.
    pub fn add_served(&mut self, desk: &Desk, operation: &str, work: impl FnOnce() -> Duration) {
        forget_peak(desk.pid());
        let time = work();
        self.add(operation, time, peak_memory(desk.pid()).expect("the server runs"));
    }

    /// Of the last row, in KiB.
    pub fn last_memory(&self) -> u64 {
        self.0.last().map_or(0, |row| row.memory)
    }

    pub fn assert_memory_below(&self, mebibytes: u64) {
        for row in &self.0 {
            assert!(row.memory < mebibytes << 10, "{} took {} KiB\n{self}", row.operation, row.memory);
        }
    }

    /// With `factor` times the records no operation takes longer than four times `factor`: it would take `factor` times that
    /// if it were quadratic.
    pub fn assert_grows_with(&self, smaller: &Table, factor: f64) {
        assert_eq!(self.0.len(), smaller.0.len());
        for (large, small) in self.0.iter().zip(&smaller.0).filter(|(large, _)| large.time > COMPARED_FROM) {
            let most = small.time.mul_f64(4.0 * factor) + COMPARED_FROM;
            assert!(large.time < most, "{} took {:?}, and {:?} before", large.operation, large.time, small.time);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| operation | seconds | peak MiB |\n|---|---|---|")?;
        for Row { operation, time, memory } in &self.0 {
            writeln!(f, "| {operation} | {} | {} |", seconds(*time), memory >> 10)?;
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

/// Peak memory of a process in KiB; nothing once it has ended.
fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Has a process's peak begin with what it takes at the moment.
fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Runs a command on a data directory, which has to end with 0. Returns the JSON that it prints.
#[track_caller]
pub fn command(desk: &Desk, data: &Path, operation: &str, arguments: &[&str], table: &mut Table) -> Value {
    let mut command: Command = desk.command();
    command.arg("--data-dir").arg(data).arg("--json").args(arguments);
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let memory = await_end(&mut child);
    let time = begun.elapsed();
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{operation}: {stdout}{stderr}");
    table.add(operation, time, memory);
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{operation}: {error}: {stdout}"))
}

/// The peak memory of a process, asked for until it ends. What it prints fits into a pipe.
fn await_end(child: &mut Child) -> u64 {
    let mut memory = 0;
    while child.try_wait().unwrap().is_none() {
        memory = peak_memory(child.id()).unwrap_or(memory);
        std::thread::sleep(Duration::from_millis(2));
    }
    memory
}

/// Sends a request that has to succeed. Returns how long the reply took, and its body as JSON.
#[track_caller]
pub fn request(call: Call<'_>) -> (Duration, Value) {
    let begun = Instant::now();
    let reply = call.try_send().unwrap();
    let time = begun.elapsed();
    assert!((200..300).contains(&reply.status), "{reply}");
    let body = if reply.body.is_empty() { Value::Null } else { reply.json() };
    (time, body)
}

/// The shortest of some times that a request takes, which others on the machine disturbed least, and its last reply.
#[track_caller]
pub fn fastest<'a>(make: impl Fn() -> Call<'a>) -> (Duration, Value) {
    let (mut least, mut body) = request(make());
    for _ in 0..2 {
        let (time, again) = request(make());
        (least, body) = (least.min(time), again);
    }
    (least, body)
}
