//! What is measured, each a process of its own: the real binary, and the bare edge that it is held
//! against.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenantdesk::clock::Clock;
use tenantdesk::config::Config;
use tenantdesk::http::{Handler, Response};
use tenantdesk::server::Server;

use crate::process_stats::ProcessStats;

/// A process that listens. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub address: SocketAddr,
    pub started: Instant,
}

/// The binary that is measured: cargo's, unless the environment names another to compare with.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("TENANTDESK_BENCH_BINARY")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_tenantdesk")), PathBuf::from)
}

impl Process {
    /// The service on a data directory. Its log goes where it costs least, but it is written.
    pub(crate) fn serve(data: &Path) -> io::Result<Process> {
        let mut command = Command::new(binary());
        command.arg("--data-dir").arg(data).args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--rate-limit",
            "4000000000",
        ]);
        Process::start(command)
    }

    /// The service's edge, tiny_http, workers and log line, with a handler that answers with a body
    /// of `size` bytes.
    pub(crate) fn bare_edge(size: usize) -> io::Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(BARE_EDGE).arg(size.to_string());
        Process::start(command)
    }

    /// Any command that says `listening on http://ADDRESS` once it does.
    pub(crate) fn start(mut command: Command) -> io::Result<Process> {
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let started = Instant::now();
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let address = BufReader::new(output).lines().find_map(|line| {
            let line = line.ok()?;
            line.strip_prefix("listening on http://")?.parse().ok()
        });
        match address {
            Some(address) => Ok(Process { child, address, started }),
            None => {
                let _ = child.kill();
                Err(io::Error::other(format!(
                    "{command:?} did not say where it listens: {:?}",
                    child.wait()
                )))
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Threads, descriptors and memory, now.
    pub(crate) fn stats(&self) -> ProcessStats {
        ProcessStats::of(self.id())
    }

    /// Resident memory in megabytes (of 1,000,000 bytes).
    pub(crate) fn memory(&self) -> f64 {
        megabytes(self.stats().memory)
    }

    /// Processor time so far. Threads are told apart by their names; those that have ended count
    /// too.
    pub(crate) fn processor_time(&self) -> ProcessorTime {
        let directory = format!("/proc/{}/task", self.id());
        let mut tasks: Vec<_> = std::fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .map(|task| task.path())
            .collect();
        // tiny_http's threads are started by the edge's and have its name, but higher numbers.
        tasks.sort_by_key(|path| {
            path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok())
        });
        let (mut edge, mut workers) = (None, Duration::ZERO);
        for task in tasks {
            let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
            let nanoseconds = read("schedstat")
                .split(' ')
                .next()
                .and_then(|first| first.parse().ok())
                .unwrap_or(0);
            let spent = Duration::from_nanos(nanoseconds);
            match read("comm").trim() {
                "edge" if edge.is_none() => edge = Some(spent),
                name if name.starts_with("worker-") => workers += spent,
                _ => (),
            }
        }
        let edge = edge.unwrap_or_default();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        // User and system time are the 14th and 15th field; the second, a name, is in parentheses.
        let fields =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        let tiny_http = (TICK * ticks as u32).saturating_sub(edge + workers);
        ProcessorTime { edge, tiny_http, workers }
    }
}

/// In this unit Linux tells processes of each other's time, whatever its own clock does.
const TICK: Duration = Duration::from_millis(10);

/// Processor time by stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessorTime {
    pub edge: Duration,
    /// tiny_http's threads, with what little the rest takes.
    pub tiny_http: Duration,
    pub workers: Duration,
}

impl ProcessorTime {
    /// What was spent since `before`.
    pub(crate) fn since(self, before: ProcessorTime) -> ProcessorTime {
        ProcessorTime {
            edge: self.edge.saturating_sub(before.edge),
            tiny_http: self.tiny_http.saturating_sub(before.tiny_http),
            workers: self.workers.saturating_sub(before.workers),
        }
    }
}

/// Megabytes (of 1,000,000 bytes) in so many KiB.
pub(crate) fn megabytes(kibibytes: usize) -> f64 {
    kibibytes as f64 * 1024.0 / 1e6
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const BARE_EDGE: &str = "--bare-edge";

/// Where this process was started as a bare edge, it is one until it is killed.
pub(crate) fn be_an_edge(arguments: &[String]) -> io::Result<bool> {
    let [name, size] = arguments else { return Ok(false) };
    if name != BARE_EDGE {
        return Ok(false);
    }
    log();
    bare_edge(size.parse().map_err(io::Error::other)?)?;
    Ok(true)
}

/// As `serve` does.
fn log() {
    let log =
        tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(tracing::Level::INFO);
    log.log_internal_errors(false).init();
}

/// Answers with a body of `size` bytes and the headers of a record, whatever is asked.
fn fixed(size: usize) -> Handler {
    let body: &'static [u8] = vec![b' '; size].leak();
    Arc::new(move |_, mut reply, _| {
        reply.caller("tenant-1", "tdk_abcd");
        let response = Response::json_bytes(200, body)
            .header("Cache-Control", "no-store")
            .header("X-RateLimit-Limit", "4000000000")
            .header("X-RateLimit-Remaining", "3999999999")
            .header("X-RateLimit-Reset", "1800000000");
        reply.send(response);
    })
}

fn bare_edge(size: usize) -> io::Result<()> {
    let config = Config { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Config::new("unused") };
    let service =
        Server::start_with(fixed(size), config, Clock::system()).map_err(io::Error::other)?;
    println!("listening on http://{}", service.address());
    service.wait().map_err(io::Error::other)
}
