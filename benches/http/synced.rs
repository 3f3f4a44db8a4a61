//! Counts how many acknowledged writes were on disk before their response.
//!
//! The server runs under strace, which names the file of each descriptor. For each response 201,
//! the write-ahead log of its tenant must have been written after the request was read, and synced
//! successfully before the response was written to the edge. Without strace the section is left
//! out.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Settings;
use crate::data::Data;
use crate::load::Load;
use crate::process::{Process, binary};
use crate::sections::{data_dir, post, tenant_file};
use crate::table::{Bar, Table, thousands};

/// A system call in the trace: its start and end in seconds, and its text after the thread's
/// number.
struct Call<'a> {
    began: f64,
    ended: f64,
    text: &'a str,
    succeeded: bool,
}

/// A tenant's write-ahead log.
#[derive(Debug, Default)]
struct Log {
    /// When its last write began and ended.
    written: Option<(f64, f64)>,
    /// When the last write before a sync began, and when that sync ended.
    synced: Vec<(f64, f64)>,
}

/// The result of the trace.
#[derive(Debug, Default)]
struct Count {
    /// Responses whose tenant's log was written and synced between request and response.
    synced: usize,
    /// Syncs of the tenants' logs.
    syncs: usize,
}

pub(crate) fn synced(_: &Settings, table: &mut Table) -> io::Result<()> {
    if Command::new("strace").arg("-V").output().is_err() {
        table.note("writes synced before their response", "not counted: strace is not installed");
        return Ok(());
    }
    for (name, tenants, connections) in [
        ("one tenant", 1, 32),
        ("one tenant, one connection", 1, 1),
        ("4 tenants", 4, 32),
        ("20 tenants", 20, 32),
    ] {
        let data_dir = data_dir()?;
        let data = Data::make(&data_dir.path().join("data"), tenants, 20)?;
        let trace = data_dir.path().join("trace");
        let answered = trace_posts(&data, &trace, connections)?;
        let count = read_trace(&std::fs::read(&trace)?, &data)?;
        let ratio = count.synced as f64 / answered as f64;
        let against = format!(
            "{} responses, {} syncs",
            thousands(answered as f64),
            thousands(count.syncs as f64)
        );
        let figure = format!("POSTs whose tenant's file was synced before their response, {name}");
        table.add(&figure, thousands(count.synced as f64), against, ratio, Bar::AtLeast(1.0));
    }
    Ok(())
}

/// Sends POSTs to a traced server for two seconds, to the tenants round-robin. Returns the number
/// of responses 201.
fn trace_posts(data: &Data, trace: &Path, connections: usize) -> io::Result<usize> {
    let mut command = Command::new("/usr/bin/env");
    // 256 bytes of each text reach beyond a request's key. With `-I2` a signal ends strace, which
    // passes it on.
    let calls = "trace=recvfrom,read,sendto,write,pwrite64,fdatasync,fsync";
    command
        .args(["strace", "-f", "-qq", "-I2", "-y", "-T", "-ttt", "-s", "256", "-e", calls, "-o"]);
    command.arg(trace).arg(binary()).arg("--data-dir").arg(&data.dir);
    command.args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "4000000000"]);
    let server = Process::start(command)?;
    let mut keys = data.keys.iter().cycle();
    let time = Duration::from_secs(2);
    let load = Load { address: server.address, from: None, connections, time, status: 201 };
    let outcome = load.run(&mut |out| post(keys.next().map_or("", String::as_str), out));
    // The trace is complete when strace has ended.
    server.end()?;
    outcome.map(|outcome| outcome.total - outcome.others)
}

fn read_trace(trace: &[u8], data: &Data) -> io::Result<Count> {
    let text = String::from_utf8_lossy(trace);
    let mut begun: HashMap<&str, (f64, &str)> = HashMap::new();
    // By request id: when the request was read, and the key it came with.
    let mut requests: HashMap<&str, (f64, &str)> = HashMap::new();
    // By path, and the path by the tenant's key.
    let mut logs: HashMap<String, Log> = HashMap::new();
    let mut paths: HashMap<&str, String> = HashMap::new();
    for (key, id) in data.keys.iter().zip(1..) {
        let path = format!("{}-wal", tenant_file(data, id).canonicalize()?.display());
        logs.insert(path.clone(), Log::default());
        paths.insert(key, path);
    }
    let mut count = Count::default();
    for line in text.lines() {
        let Some(call) = finished(line, &mut begun) else { continue };
        if let Some(log) = written(call.text).and_then(|path| logs.get_mut(path)) {
            if !is_sync(call.text) {
                log.written = Some((call.began, call.ended));
            } else if call.succeeded {
                count.syncs += 1;
                let written = log.written.filter(|(_, ended)| *ended <= call.began);
                log.synced.extend(written.map(|(began, _)| (began, call.ended)));
            }
        } else if let Some((_, request)) =
            call.text.split_once("POST /customers.php HTTP/1.1\\r\\nrequest-metadata: ")
            && let Some((_, key)) = request.split_once("authorization: Bearer ")
            && let (Some(id), Some((key, _))) = (request.get(..36), key.split_once("\\r\\n"))
        {
            // The edge writes it, then tiny_http reads it; the later of both counts.
            requests.insert(id, (call.ended, key));
        } else if let Some((_, answer)) = call.text.split_once("HTTP/1.1 201 \\r\\nX-Request-Id: ")
            && let Some((read, key)) = answer.get(..36).and_then(|id| requests.remove(id))
        {
            let log = paths.get(key).and_then(|path| logs.get(path));
            let mut syncs = log.into_iter().flat_map(|log| log.synced.iter().rev().take(64));
            let between = syncs.any(|(written, synced)| *written > read && *synced <= call.began);
            count.synced += usize::from(between);
        }
    }
    Ok(count)
}

fn is_sync(text: &str) -> bool {
    text.starts_with("fdatasync(") || text.starts_with("fsync(")
}

/// The file that a call writes or syncs.
fn written(text: &str) -> Option<&str> {
    if !is_sync(text) && !text.starts_with("write(") && !text.starts_with("pwrite64(") {
        return None;
    }
    // `fdatasync(23</directory/1.db-wal>)`: what is written may contain any character, but comes
    // after the file.
    let (_, path) = text.split_once('<')?;
    path.split_once('>').map(|(path, _)| path)
}

/// Joins a call that strace shows in two pieces. The text is that of the first piece, or for reads,
/// whose data is only in the second, that of the second.
fn finished<'a>(line: &'a str, begun: &mut HashMap<&'a str, (f64, &'a str)>) -> Option<Call<'a>> {
    let (thread, rest) = line.split_once(' ')?;
    let (time, text) = rest.trim_start().split_once(' ')?;
    let at: f64 = time.parse().ok()?;
    if text.ends_with("<unfinished ...>") {
        begun.insert(thread, (at, text));
        // A response is sent when its write begins.
        return is_answer(text).then_some(Call { began: at, ended: at, text, succeeded: true });
    }
    let (outcome, spent) = text.rsplit_once(" <")?;
    let succeeded = !outcome.rsplit_once(" = ").is_none_or(|(_, value)| value.starts_with('-'));
    if let Some(resumed) = text.strip_prefix("<... ") {
        let (began, first) = begun.remove(thread)?;
        let reads = first.starts_with("read(") || first.starts_with("recvfrom(");
        let text = if reads { resumed } else { first };
        return (!is_answer(first)).then_some(Call { began, ended: at, text, succeeded });
    }
    let spent: f64 = spent.trim_end_matches('>').parse().ok()?;
    Some(Call { began: at, ended: at + spent, text, succeeded })
}

/// Whether it writes a response to the edge.
fn is_answer(text: &str) -> bool {
    text.contains("\"HTTP/1.1 201 ")
}
