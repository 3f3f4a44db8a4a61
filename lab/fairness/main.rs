//! `cargo bench --bench fairness`: what a quiet tenant notices of tenants that send the slowest
//! requests which the contract allows (contract section 6).
//!
//! `cargo bench --bench fairness -- [--seconds S] [--records N] [LOAD…]` with the loads lists,
//! pages, includes, batches and mixed; all of them unless some are named. `TENANTDESK_BENCH_BINARY`
//! names the binary to measure. `lab/README.md` has results.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench fails by panicking")]

#[path = "../http/load.rs"]
#[expect(dead_code, reason = "the other bench needs the rest")]
mod load;
#[path = "../http/records.rs"]
mod records;
#[path = "../http/server.rs"]
#[expect(dead_code, reason = "the other bench needs the rest")]
mod server;

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use serde_json::json;

use server::Server;

/// The busy tenants of a run. The quiet tenant comes after them.
const BUSY: [usize; 5] = [0, 1, 2, 4, 8];

/// Connections of each busy tenant, and the addresses that they come from.
const CONNECTIONS: [(usize, usize); 2] = [(4, 1), (20, 20)];

/// The quiet tenant sends a GET this often, and a POST at every fourth.
const QUIET_PERIOD: Duration = Duration::from_millis(50);

/// A quiet request that has no answer by then counts as not answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// The slow lists. The words are in nearly all records, or in none.
const LISTS: [&str; 2] = [
    "/customers.php?sort=-email&q=a+e+o+n+t+1+2+st+no+zq&total=true",
    "/customers.php?q=zz+yy&total=true",
];
const PAGES: [&str; 1] = ["/customers.php?limit=200&status=active&total=true"];
const INCLUDES: [&str; 1] = ["/employees.php?limit=200&include=customer&total=true&sort=-id"];

const LOADS: [&str; 5] = ["lists", "pages", "includes", "batches", "mixed"];

struct Settings {
    time: Duration,
    records: u64,
    loads: Vec<String>,
}

impl Settings {
    fn parse() -> Result<Settings, Box<dyn Error>> {
        let (time, records) = (Duration::from_secs(10), 100_000);
        let mut settings = Settings { time, records, loads: Vec::new() };
        let mut rest = env::args().skip(1);
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                // Passed by cargo.
                "--bench" => (),
                "--seconds" => settings.time = Duration::from_secs_f64(value()?.parse()?),
                "--records" => settings.records = value()?.parse()?,
                load if LOADS.contains(&load) => settings.loads.push(load.to_owned()),
                other => return Err(format!("{other} is unknown; loads: {LOADS:?}").into()),
            }
        }
        if settings.loads.is_empty() {
            settings.loads = LOADS.map(str::to_owned).to_vec();
        }
        Ok(settings)
    }
}

/// A connection that sends one request after the other.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr, patience: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Client(BufReader::new(stream)))
    }

    /// Returns the status.
    fn ask(&mut self, request: &[u8]) -> io::Result<u16> {
        self.0.get_mut().write_all(request)?;
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest[..3].parse().unwrap_or(0);
            } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        io::copy(&mut self.0.by_ref().take(length), &mut io::sink())?;
        Ok(status)
    }
}

/// The requests of one busy connection, which it sends in turn.
fn busy_requests(server: &Server, load: &str, tenant: usize, address: usize) -> Vec<Vec<u8>> {
    let from = format!("X-Forwarded-For: 203.0.{tenant}.{address}\r\n");
    let get = |target: &str| server.request(tenant, "GET", target, &from, "");
    let operation = |n| {
        json!({"method": "POST", "path": "/customers.php",
                               "body": records::wide_customer(n)})
    };
    let batch = || {
        let operations: Vec<_> = (0..100).map(operation).collect();
        let body = json!({ "operations": operations }).to_string();
        server.request(tenant, "POST", "/batch.php", &from, &body)
    };
    match load {
        "lists" => LISTS.map(get).to_vec(),
        "pages" => PAGES.map(get).to_vec(),
        "includes" => INCLUDES.map(get).to_vec(),
        "batches" => vec![batch()],
        _ => {
            [&LISTS[..], &PAGES, &INCLUDES].concat().into_iter().map(get).chain([batch()]).collect()
        }
    }
}

/// Sends requests until the run is over. Statuses do not matter: a list may end after 5 s.
fn be_busy(address: SocketAddr, requests: &[Vec<u8>], is_over: &AtomicBool) {
    let mut client = None;
    for request in requests.iter().cycle() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let connected =
            client.take().map_or_else(|| Client::connect(address, Duration::from_secs(60)), Ok);
        client = connected.and_then(|mut open| open.ask(request).map(|_| open)).ok();
    }
}

/// Latencies in milliseconds, and the number of requests that were not answered as they should.
#[derive(Default)]
struct Latencies {
    answered: Vec<f64>,
    failed: usize,
}

impl Latencies {
    fn ask(&mut self, client: &mut Option<Client>, address: SocketAddr, request: &[u8], good: u16) {
        let begun = Instant::now();
        let connected = client.take().map_or_else(|| Client::connect(address, PATIENCE), Ok);
        let asked = connected.and_then(|mut open| Ok((open.ask(request)?, open)));
        match asked {
            Ok((status, open)) if status == good => {
                self.answered.push(begun.elapsed().as_secs_f64() * 1e3);
                *client = Some(open);
            }
            _ => self.failed += 1,
        }
    }

    fn share(&self, part: f64) -> f64 {
        let mut sorted = self.answered.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1) as f64;
        sorted.get((last * part).round() as usize).copied().unwrap_or(f64::NAN)
    }

    fn cells(&self) -> String {
        let [median, p99, worst] = [0.5, 0.99, 1.0].map(|part| self.share(part));
        let all = self.answered.len() + self.failed;
        format!("{} of {all} | {median:.1} | {p99:.1} | {worst:.1}", self.answered.len())
    }
}

/// The quiet tenant's GETs and POSTs until the time is over.
fn be_quiet(server: &Server, tenant: usize, time: Duration) -> [Latencies; 2] {
    let from = "X-Forwarded-For: 198.51.100.7\r\n";
    let get = server.request(tenant, "GET", "/customers.php?id=1", from, "");
    let body = json!({"name": "Quiet GmbH"}).to_string();
    let post = server.request(tenant, "POST", "/customers.php", from, &body);
    let [mut gets, mut posts] = [Latencies::default(), Latencies::default()];
    let (mut client, begun) = (None, Instant::now());
    for n in 0.. {
        if begun.elapsed() > time {
            break;
        }
        let due = Instant::now() + QUIET_PERIOD;
        gets.ask(&mut client, server.address(), &get, 200);
        if n % 4 == 0 {
            posts.ask(&mut client, server.address(), &post, 201);
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    [gets, posts]
}

fn measure(server: &Server, load: &str, busy: usize, connections: (usize, usize), time: Duration) {
    let is_over = AtomicBool::new(false);
    let quiet_tenant = BUSY[BUSY.len() - 1];
    let [gets, posts] = thread::scope(|scope| {
        for tenant in 0..busy {
            for connection in 0..connections.0 {
                let requests = busy_requests(server, load, tenant, connection % connections.1);
                let (address, is_over) = (server.address(), &is_over);
                scope.spawn(move || be_busy(address, &requests, is_over));
            }
        }
        // The busy tenants' requests fill the queue first.
        thread::sleep(Duration::from_secs(1));
        let quiet = be_quiet(server, quiet_tenant, time);
        is_over.store(true, Ordering::Relaxed);
        quiet
    });
    let (connections, addresses) = connections;
    println!(
        "| {load} | {busy} | {connections} from {addresses} | {} | {} |",
        gets.cells(),
        posts.cells()
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let settings = Settings::parse()?;
    let binary = env::var_os("TENANTDESK_BENCH_BINARY")
        .map_or_else(|| env!("CARGO_BIN_EXE_tenantdesk").into(), PathBuf::from);
    let tenants = BUSY[BUSY.len() - 1] + 1;
    let server = Server::start(&binary, tenants)?;
    server.fill(0, settings.records)?;
    server.copy_first_tenant(tenants)?;
    for tenant in 0..tenants {
        let employee = json!({"customer_id": 1, "first_name": "Eva", "last_name": "Ems"});
        let operation = json!({"method": "POST", "path": "/employees.php", "body": employee});
        let body = json!({ "operations": vec![operation; 100] }).to_string();
        for _ in 0..2 {
            let request = server.request(tenant, "POST", "/batch.php", "", &body);
            Client::connect(server.address(), PATIENCE)?.ask(&request)?;
        }
    }
    println!(
        "| load | busy tenants | connections of each | GETs answered | median ms | p99 | worst | \
         POSTs answered | median ms | p99 | worst |\n|{}",
        "---|".repeat(11)
    );
    for load in &settings.loads {
        for busy in BUSY {
            for connections in CONNECTIONS {
                if busy > 0 || connections == CONNECTIONS[0] {
                    measure(&server, load, busy, connections, settings.time);
                }
            }
        }
    }
    Ok(())
}
