//! POSTs on a fixed schedule, whether or not the server keeps up: latencies count from the scheduled time.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Settings;
use crate::latency::spread;
use crate::load::{Load, Outcome, connect, expect};
use crate::prepared::Prepared;
use crate::sections::{CONNECTIONS, milliseconds, per_second};
use crate::table::{Bar, Table, thousands};

/// How long the highest rate is measured.
const CLOSED: Duration = Duration::from_secs(4);

/// The share of the highest rate.
const SHARE: f64 = 0.7;

/// A fixed number of requests, evenly spread over time.
struct Schedule {
    start: Instant,
    interval: Duration,
    count: u64,
    /// The number of the next request. Any free connection takes it.
    next: AtomicU64,
}

pub fn open_loop(settings: &Settings, table: &mut Table) -> io::Result<()> {
    for records in &settings.records {
        let prepared = Prepared::copy(*records)?;
        let server = prepared.serve()?;
        let load = Load { address: server.address, from: None, connections: CONNECTIONS, time: CLOSED, status: 201 };
        let highest = load.run(&mut |out| out.extend_from_slice(&prepared.post()))?.rate();
        let outcome = scheduled(server.address, highest * SHARE, settings.long_time, &|| prepared.post())?;
        let figure = format!("POST at 70 % of {}, {} records", per_second(highest), thousands(*records as f64));
        table.note(&figure, spread(&outcome));
        let [median, p99] = [0.5, 0.99].map(|part| outcome.percentile(part));
        let against = format!("median {}", milliseconds(median));
        table.add(&format!("{figure}, p99"), milliseconds(p99), against, p99 / median, Bar::AtMost(5.0));
    }
    Ok(())
}

fn scheduled(
    address: SocketAddr,
    rate: f64,
    time: Duration,
    request: &(dyn Fn() -> Vec<u8> + Sync),
) -> io::Result<Outcome> {
    let schedule = Schedule {
        start: Instant::now() + Duration::from_millis(100),
        interval: Duration::from_secs_f64(1.0 / rate),
        count: (time.as_secs_f64() * rate) as u64,
        next: AtomicU64::new(0),
    };
    let latencies = thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(|| schedule.follow(address, request))).collect();
        let joined =
            clients.into_iter().map(|client| client.join().map_err(|_| io::Error::other("a client panicked"))?);
        joined.collect::<io::Result<Vec<_>>>()
    })?;
    Ok(Outcome::of(latencies.concat(), schedule.start.elapsed().as_secs_f64()))
}

impl Schedule {
    /// Sends requests on one connection, each at its time or, if the connection is late, at once.
    fn follow(&self, address: SocketAddr, request: &dyn Fn() -> Vec<u8>) -> io::Result<Vec<Duration>> {
        let mut stream = connect(address, None)?;
        let mut latencies = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return Ok(latencies);
            }
            let request = request();
            let due = self.start + self.interval.mul_f64(number as f64);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            expect(&mut stream, &request, 201)?;
            latencies.push(due.elapsed());
        }
    }
}
