//! What is measured, each a process of its own: the real binary, and the bare edges that it is held against.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenantdesk::http::{Reply, Request, Response};
use tenantdesk::service::{Options, Service};

/// A process that listens. It ends when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pub address: SocketAddr,
    pub started: Instant,
}

/// Something with the service's edge, but nothing behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The gate, tiny_http, the workers and the log line, with a handler that sends fixed bytes.
    Bare,
    /// The same without its log line.
    Silent,
    /// tiny_http alone.
    TinyHttp,
}

impl Edge {
    const ALL: [(&'static str, Edge); 3] =
        [("--bare-edge", Edge::Bare), ("--silent-edge", Edge::Silent), ("--tiny-http", Edge::TinyHttp)];
}

/// The binary that is measured: cargo's, unless the environment names another to compare with.
pub fn binary() -> PathBuf {
    std::env::var_os("TENANTDESK_BENCH_BINARY")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_tenantdesk")), PathBuf::from)
}

impl Process {
    /// The service on a data directory. Its log goes where it costs least, but it is written.
    pub fn serve(data: &Path) -> io::Result<Process> {
        let mut command = Command::new(binary());
        command.arg("--data-dir").arg(data).args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "4000000000"]);
        Process::start(command)
    }

    /// An edge that answers with a body of `size` bytes.
    pub fn edge(edge: Edge, size: usize) -> io::Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        let (name, _) = Edge::ALL.into_iter().find(|(_, other)| *other == edge).unwrap_or(Edge::ALL[0]);
        command.arg(name).arg(size.to_string());
        Process::start(command)
    }

    /// Any command that says `listening on http://ADDRESS` once it does.
    pub fn start(mut command: Command) -> io::Result<Process> {
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
                Err(io::Error::other(format!("{command:?} did not say where it listens: {:?}", child.wait())))
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in megabytes (of 1,000,000 bytes).
    pub fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
        let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
        kibibytes * 1024.0 / 1e6
    }

    /// Processor time by stage, so far. Threads are grouped by what they are for.
    pub fn processor_time(&self) -> BTreeMap<&'static str, Duration> {
        let mut times = BTreeMap::new();
        let folder = format!("/proc/{}/task", self.id());
        let mut tasks: Vec<_> =
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|task| task.path()).collect();
        // tiny_http's threads are started by the gate's and have its name, but higher numbers.
        tasks.sort_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
        let mut gate_seen = false;
        for task in tasks {
            let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
            let stage = match read("comm").trim() {
                "gate" if !std::mem::replace(&mut gate_seen, true) => "gate",
                name if name.starts_with("worker-") => "workers",
                _ => "tiny_http",
            };
            let nanoseconds = read("schedstat").split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0);
            *times.entry(stage).or_default() += Duration::from_nanos(nanoseconds);
        }
        times
    }
}

impl Process {
    /// Asks it to end, and waits until it has.
    pub fn end(mut self) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.child.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where this process was started as an edge, it is one until it is killed.
pub fn be_an_edge(arguments: &[String]) -> io::Result<bool> {
    let [name, size] = arguments else { return Ok(false) };
    let Some((_, edge)) = Edge::ALL.into_iter().find(|(other, _)| other == name) else { return Ok(false) };
    let size = size.parse().map_err(io::Error::other)?;
    match edge {
        Edge::TinyHttp => tiny_http(size)?,
        Edge::Bare | Edge::Silent => bare_edge(size, edge == Edge::Bare)?,
    }
    Ok(true)
}

fn bare_edge(size: usize, logs: bool) -> io::Result<()> {
    if logs {
        // As `serve` does.
        let log = tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(tracing::Level::INFO);
        log.log_internal_errors(false).init();
    }
    let body: &'static [u8] = vec![b' '; size].leak();
    let handler = move |_: Request, mut reply: Reply| {
        reply.caller("tenant-1", "tdk_abcd");
        let response = Response::json_bytes(200, body)
            .header("Cache-Control", "no-store")
            .header("X-RateLimit-Limit", "4000000000")
            .header("X-RateLimit-Remaining", "3999999999")
            .header("X-RateLimit-Reset", "1800000000");
        reply.send(response);
    };
    let options = Options { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Options::default() };
    let service = Service::start_with(Arc::new(handler), &options).map_err(io::Error::other)?;
    println!("listening on http://{}", service.address());
    service.wait().map_err(io::Error::other)
}

fn tiny_http(size: usize) -> io::Result<()> {
    let server = Arc::new(tiny_http::Server::http("127.0.0.1:0").map_err(io::Error::other)?);
    println!("listening on http://{}", server.server_addr());
    let body: &'static [u8] = vec![b' '; size].leak();
    let work = move |server: &tiny_http::Server| {
        for request in server.incoming_requests() {
            let mut bytes = format!(
                "HTTP/1.1 200 \r\nX-Request-Id: 00000000-0000-0000-0000-000000000000\r\nX-API-Version: v1\r\n\
                 Content-Length: {size}\r\nContent-Type: application/json; charset=utf-8\r\nCache-Control: no-store\r\n\
                 X-RateLimit-Limit: 4000000000\r\nX-RateLimit-Remaining: 3999999999\r\nX-RateLimit-Reset: 1800000000\r\n\r\n"
            )
            .into_bytes();
            bytes.extend_from_slice(body);
            let mut line = request.into_writer();
            // A client that has left is no concern of a ceiling's.
            let _ = line.write_all(&bytes).and_then(|()| line.flush());
        }
    };
    let others: Vec<_> = (0..2)
        .map(|_| {
            let server = Arc::clone(&server);
            std::thread::spawn(move || work(&server))
        })
        .collect();
    work(&server);
    others.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}
