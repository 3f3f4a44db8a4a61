//! Counted, not claimed: every answered write was on disk before its answer.
//!
//! The server runs under strace. For each answer 201 that it writes to the gate, a sync of the tenant's files must have begun
//! after the request was read and ended before the answer was written. Without strace the section is left out.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Settings;
use crate::data::Data;
use crate::load::Load;
use crate::process::{Process, binary};
use crate::sections::{place, post};
use crate::table::{Bar, Table, thousands};

/// One line of strace's: when the call began and ended, in seconds, and the text after the thread's number.
struct Call<'a> {
    began: f64,
    ended: f64,
    text: &'a str,
}

/// What the trace says.
#[derive(Debug, Default)]
struct Count {
    answered: usize,
    /// Answers with a sync between their request and themselves.
    synced: usize,
    syncs: usize,
}

pub fn synced(_: &Settings, table: &mut Table) -> io::Result<()> {
    if Command::new("strace").arg("-V").output().is_err() {
        table.note("writes synced before their answer", "not counted: there is no strace here");
        return Ok(());
    }
    for (name, tenants, connections) in
        [("one tenant", 1, 32), ("one tenant, one connection", 1, 1), ("20 tenants", 20, 32)]
    {
        let place = place()?;
        let data = Data::make(&place.path().join("data"), tenants, 20)?;
        let trace = place.path().join("trace");
        count(&data, &trace, connections)?;
        let count = read_trace(&std::fs::read(&trace)?);
        let ratio = count.synced as f64 / count.answered.max(1) as f64;
        let against = format!("{} answers, {} syncs", thousands(count.answered as f64), thousands(count.syncs as f64));
        let figure = format!("POSTs synced before their answer, {name}");
        table.add(&figure, thousands(count.synced as f64), against, ratio, Bar::AtLeast(1.0));
    }
    Ok(())
}

/// Puts two seconds of POSTs to a traced server.
fn count(data: &Data, trace: &Path, connections: usize) -> io::Result<()> {
    let mut command = Command::new("/usr/bin/env");
    command.args([
        "strace",
        "-f",
        "-qq",
        "-T",
        "-ttt",
        "-s",
        "160",
        "-e",
        "trace=recvfrom,read,sendto,write,fdatasync,fsync",
        "-o",
    ]);
    command.arg(trace).arg(binary()).arg("--data-dir").arg(&data.dir);
    command.args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "4000000000"]);
    let server = Process::start(command)?;
    let mut keys = data.keys.iter().cycle();
    let load = Load { address: server.address, connections, time: Duration::from_secs(2), status: 201 };
    load.run(&mut |out| post(keys.next().map_or("", String::as_str), out))?;
    Ok(())
}

fn read_trace(trace: &[u8]) -> Count {
    let text = String::from_utf8_lossy(trace);
    let mut begun: HashMap<&str, (f64, &str)> = HashMap::new();
    // By request id: when the request was read.
    let mut requests: HashMap<String, f64> = HashMap::new();
    let mut syncs: Vec<(f64, f64)> = Vec::new();
    let mut count = Count::default();
    for line in text.lines() {
        let Some(call) = finished(line, &mut begun) else { continue };
        if call.text.starts_with("fdatasync") || call.text.starts_with("fsync") {
            syncs.push((call.began, call.ended));
            count.syncs += 1;
        } else if let Some(id) = after(call.text, "POST /customers.php HTTP/1.1\\r\\ngate: ") {
            // The gate writes it first, then a line to tiny_http reads it: the later of both counts.
            requests.insert(id, call.began);
        } else if let Some(id) = after(call.text, "HTTP/1.1 201 \\r\\nX-Request-Id: ")
            && let Some(read) = requests.remove(&id)
        {
            count.answered += 1;
            let between = syncs.iter().rev().take(64).any(|(began, ended)| *began > read && *ended <= call.began);
            count.synced += usize::from(between);
        }
    }
    count
}

/// The request id that follows `start`.
fn after(text: &str, start: &str) -> Option<String> {
    let (_, rest) = text.split_once(start)?;
    rest.get(..36).map(str::to_owned)
}

/// Puts a call that strace shows in two pieces together; the text is that of its first piece, or of the second where the
/// buffer was filled then.
fn finished<'a>(line: &'a str, begun: &mut HashMap<&'a str, (f64, &'a str)>) -> Option<Call<'a>> {
    let (thread, rest) = line.split_once(' ')?;
    let (time, text) = rest.trim_start().split_once(' ')?;
    let at: f64 = time.parse().ok()?;
    if text.ends_with("<unfinished ...>") {
        begun.insert(thread, (at, text));
        // An answer is on its way from the moment the write begins.
        return text.contains("HTTP/1.1 201").then_some(Call { began: at, ended: at, text });
    }
    if let Some(resumed) = text.strip_prefix("<... ") {
        let (began, first) = begun.remove(thread)?;
        let text = if first.starts_with("fdatasync") || first.starts_with("fsync") { first } else { resumed };
        return (!first.contains("HTTP/1.1 201")).then_some(Call { began, ended: at, text });
    }
    let spent = text.rsplit_once('<').and_then(|(_, spent)| spent.trim_end_matches('>').parse().ok()).unwrap_or(0.0);
    Some(Call { began: at, ended: at + spent, text })
}
