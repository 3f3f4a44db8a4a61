//! An import into a tenant that a server serves meanwhile: its time and memory, and how long the
//! tenant's clients wait.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::Settings;
use crate::device;
use crate::latency::spread;
use crate::load::{Outcome, connect, exchange, status};
use crate::prepared::{Prepared, SMALL, employees, import};
use crate::process::megabytes;
use crate::sections::{get, milliseconds};
use crate::table::{Bar, Table, thousands};

/// The interval of the tenant's writes, and of its reads.
const INTERVAL: Duration = Duration::from_millis(50);

/// How many seconds an import of a million rows may take.
const SECONDS: f64 = 60.0;

/// The memory that an import may use, in MB.
const MEMORY: f64 = 200.0;

/// How long a writer may wait, in microseconds.
const WAIT: f64 = 2e6;

pub(crate) fn import_beside(settings: &Settings, table: &mut Table) -> io::Result<()> {
    let rows = settings.records.iter().copied().max().unwrap_or(SMALL);
    let prepared = Prepared::copy(SMALL)?;
    let csv = prepared.directory.path().join("hardware.csv");
    // Records that the tenant does not have yet.
    device::write_csv(&csv, rows, |n| device::hardware(n + 10 * SMALL, employees(SMALL)))?;
    rustix::fs::sync();
    let server = prepared.serve()?;
    let read = get(&prepared.data.keys[0], "/hardware.php?sort=name");
    let done = AtomicBool::new(false);
    let (imported, writes, reads) = thread::scope(|scope| {
        let writer = scope.spawn(|| paced(server.address, 201, &done, &|| prepared.post()));
        let reader = scope.spawn(|| paced(server.address, 200, &done, &|| read.clone()));
        let mut command = import(&prepared.data.dir, "large", "hardware", &csv);
        let begun = Instant::now();
        let imported = command.stdout(Stdio::null()).spawn().and_then(peak_memory);
        let seconds = begun.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        let join = |client: thread::ScopedJoinHandle<'_, io::Result<Outcome>>| {
            client.join().map_err(|_| io::Error::other("a client panicked"))?
        };
        io::Result::Ok(((seconds, imported?), join(writer)?, join(reader)?))
    })?;
    show(table, rows, imported, &writes, &reads);
    Ok(())
}

fn show(
    table: &mut Table,
    rows: u64,
    (seconds, memory): (f64, f64),
    writes: &Outcome,
    reads: &Outcome,
) {
    let figure =
        |text: &str| format!("import of {} rows beside a server, {text}", thousands(rows as f64));
    let longest = SECONDS * rows as f64 / 1e6;
    let against = format!("{longest:.1} s");
    table.add(
        &figure("time"),
        format!("{seconds:.1} s"),
        against,
        seconds / longest,
        Bar::AtMost(1.0),
    );
    let against = format!("{MEMORY} MB");
    table.add(
        &figure("peak memory"),
        format!("{memory:.0} MB"),
        against,
        memory / MEMORY,
        Bar::AtMost(1.0),
    );
    let wait = writes.percentile(1.0);
    table.add(&figure("longest write"), milliseconds(wait), "2 s", wait / WAIT, Bar::AtMost(1.0));
    let refused = writes.others as f64;
    let against = format!("{} writes", writes.answered);
    table.add(&figure("refused writes"), thousands(refused), against, refused, Bar::AtMost(0.0));
    table.note(&figure("writes"), spread(writes));
    table.note(&figure("reads"), format!("{}, {} refused", spread(reads), reads.others));
}

/// Waits for a process. Returns the most memory that it used, in MB.
fn peak_memory(mut child: Child) -> io::Result<f64> {
    let mut peak = 0;
    loop {
        // A process that has ended has no such line.
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(peak);
        if let Some(status) = child.try_wait()? {
            return if status.success() {
                Ok(megabytes(peak))
            } else {
                Err(io::Error::other("the import failed"))
            };
        }
        sleep(Duration::from_millis(20));
    }
}

/// Sends one request at a time at a steady interval until `done`. A response of another status, or
/// none, counts as refused.
fn paced(
    address: SocketAddr,
    expected: u16,
    done: &AtomicBool,
    next: &dyn Fn() -> Vec<u8>,
) -> io::Result<Outcome> {
    let (mut stream, mut latencies, mut refused) = (connect(address)?, Vec::new(), 0);
    let begun = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let answer = exchange(&mut stream, &next());
        latencies.push(sent.elapsed());
        if answer.as_ref().ok().and_then(|answer| status(answer)) != Some(expected) {
            refused += 1;
        }
        if answer.is_err() {
            stream = connect(address)?;
        }
        sleep(INTERVAL.saturating_sub(sent.elapsed()));
    }
    Ok(Outcome { others: refused, ..Outcome::of(latencies, begun.elapsed().as_secs_f64()) })
}
