//! Many slow clients: their effect on the latency of others, their memory, and what remains after
//! them.
//!
//! The server has its default limits. A client whose connection it closes connects again, evenly
//! spread over time, so the group stays for the whole measurement. The group has an address of its
//! own, because the edge queues requests by address; the other clients have a different address in
//! one load and the same in another.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Settings;
use crate::data::{self, Data};
use crate::load::{Outcome, connect, once};
use crate::process::{Process, megabytes};
use crate::process_stats::ProcessStats;
use crate::sections::{
    CONNECTIONS, body_length, data_dir, get, load_gets, load_gets_from, milliseconds, per_second,
    tenant_file,
};
use crate::table::{Bar, Table, median};

/// The address of the group. The other clients have 127.0.0.1.
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The records of each of the two tenants. The group reads the second one's, which are long.
const RECORDS: u64 = 1000;

/// The default timeout of the server for slow clients. A client that does not read cannot see its
/// connection close.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than the server keeps idle upstream connections and threads.
const IDLE: Duration = Duration::from_secs(12);

/// Memory that page caches may keep, in MB.
const CACHED: f64 = 16.0;

/// The most memory that the server may use with any group, in MB.
const MOST_MEMORY: f64 = 300.0;

/// Many clients with the same behaviour.
#[derive(Clone)]
struct Group {
    name: &'static str,
    clients: usize,
    /// The first bytes that each sends.
    first: Vec<u8>,
    then: Then,
    /// The interval at which each client acts.
    pace: Duration,
}

#[derive(Clone, Copy)]
enum Then {
    Nothing,
    /// Sends one byte at each interval.
    Send(u8),
    /// Does not read its response.
    NeverRead,
}

/// A group that is connected.
struct Connected {
    leave: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<usize>>,
}

struct Client {
    stream: TcpStream,
    /// When it closes its connection, if the server does not close it before.
    leaves: Option<Instant>,
}

pub(crate) fn slow_clients(settings: &Settings, table: &mut Table) -> io::Result<()> {
    // The clients are descriptors of this process.
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?;
    let data_dir = data_dir()?;
    let data = Data::make(&data_dir.path().join("data"), 2, RECORDS)?;
    data::open(&tenant_file(&data, 2))
        .and_then(|tenant| tenant.execute("UPDATE customers SET notes = ?", ["x".repeat(5000)]))
        .map_err(io::Error::other)?;
    for group in groups(&data) {
        beside(settings, table, &data, &group)?;
    }
    Ok(())
}

fn groups(data: &Data) -> [Group; 4] {
    let key = &data.keys[1];
    let body = format!(
        "POST /customers.php HTTP/1.1\r\nHost: desk.example\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: 65536\r\n\r\n"
    );
    let (seldom, often) = (Duration::from_secs(3), Duration::from_millis(100));
    [
        Group {
            name: "2,000 idle",
            clients: 2000,
            first: Vec::new(),
            then: Then::Nothing,
            pace: seldom,
        },
        Group {
            name: "2,000 slow heads",
            clients: 2000,
            first: b"GET / HTTP/1.1\r\nHost: desk.example\r\nX-Slow: ".to_vec(),
            then: Then::Send(b'a'),
            pace: seldom,
        },
        Group {
            name: "200 slow bodies",
            clients: 200,
            first: body.into(),
            then: Then::Send(b' '),
            pace: often,
        },
        Group {
            name: "200 unread pages",
            clients: 200,
            first: get(key, "/customers.php?limit=200"),
            then: Then::NeverRead,
            pace: seldom,
        },
    ]
}

impl Group {
    /// Connects all clients and reactions when they are connected.
    fn connect_all(&self, address: SocketAddr) -> io::Result<Connected> {
        let leave = Arc::new(AtomicBool::new(false));
        let (all_connected, wait) = mpsc::channel();
        let (group, stop) = (self.clone(), Arc::clone(&leave));
        let thread = thread::spawn(move || group.keep_connected(address, &all_connected, &stop));
        // If a client cannot connect, the thread ends, and `end` reactions the error.
        let _ = wait.recv();
        Ok(Connected { leave, thread })
    }

    /// Reactions the number of reconnections.
    fn keep_connected(
        &self,
        address: SocketAddr,
        all_connected: &mpsc::Sender<()>,
        leave: &AtomicBool,
    ) -> io::Result<usize> {
        // At first they leave one after the other.
        let share = TIMEOUT / self.clients as u32;
        let mut clients = (1..=self.clients as u32)
            .map(|n| self.connect(address, share * n))
            .collect::<io::Result<Vec<_>>>()?;
        if matches!(self.then, Then::NeverRead) {
            // Every response has begun before the measurement.
            clients.iter().try_for_each(|client| client.await_response())?;
        }
        let _ = all_connected.send(());
        let began = Instant::now();
        let (mut actions, mut reconnections) = (0, 0);
        while !leave.load(Ordering::Relaxed) {
            let due = (began.elapsed().as_secs_f64() / self.pace.as_secs_f64()
                * self.clients as f64) as usize;
            while actions < due {
                let client = &mut clients[actions % self.clients];
                if !client.stays(self.then) {
                    *client = self.connect(address, TIMEOUT)?;
                    reconnections += 1;
                }
                actions += 1;
            }
            sleep(Duration::from_millis(10));
        }
        Ok(reconnections)
    }

    fn connect(&self, address: SocketAddr, stay: Duration) -> io::Result<Client> {
        let mut stream = connect(address, Some(GROUP))?;
        stream.write_all(&self.first)?;
        stream.set_nonblocking(true)?;
        let leaves = (!matches!(self.then, Then::Nothing)).then(|| Instant::now() + stay);
        Ok(Client { stream, leaves })
    }
}

impl Connected {
    /// Disconnects all clients and returns the number of reconnections.
    fn end(self) -> io::Result<usize> {
        self.leave.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("a group panicked")))
    }
}

impl Client {
    /// Acts once. Returns false if the server has closed the connection, or the client's time is
    /// over.
    fn stays(&mut self, then: Then) -> bool {
        let blocked = |outcome: io::Result<usize>| {
            outcome.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        if self.leaves.is_some_and(|leaves| leaves <= Instant::now()) {
            return false;
        }
        match then {
            Then::NeverRead => true,
            // Any bytes are an error response, or the end.
            Then::Nothing => blocked(self.stream.peek(&mut [0])),
            Then::Send(byte) => {
                blocked(self.stream.peek(&mut [0])) && self.stream.write(&[byte]).is_ok()
            }
        }
    }

    /// Waits for the first byte of its response, or the end of the connection.
    fn await_response(&self) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(TIMEOUT))?;
        let _ = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(true)
    }
}

/// The measurements with one group.
#[derive(Default)]
struct Measured {
    /// Without the group, before and after each time.
    without: Vec<Outcome>,
    /// With the group, from another address.
    other: Vec<Outcome>,
    /// With the group, from its address.
    same: Vec<Outcome>,
}

fn beside(settings: &Settings, table: &mut Table, data: &Data, group: &Group) -> io::Result<()> {
    let server = Process::serve(&data.dir)?;
    let page = body_length(&once(server.address, &get(&data.keys[1], "/customers.php?limit=200"))?);
    if page < 1024 * 1024 {
        return Err(io::Error::other(format!("a page has {page} bytes, not a mebibyte")));
    }
    let requests: Vec<Vec<u8>> =
        (1..=997).map(|id| get(&data.keys[0], &format!("/customers.php?id={id}"))).collect();
    let both = [requests[0].clone(), get(&data.keys[1], "/customers.php?id=1")];
    load_gets(&server, CONNECTIONS, settings.time, &both)?;
    let before = settled(&server, IDLE);

    let standing = group.connect_all(server.address)?;
    at_rest(settings, table, group, &server, before)?;
    let mut again = standing.end()?;
    settled(&server, Duration::from_millis(500));

    let load = |from| load_gets_from(&server, from, CONNECTIONS, settings.time, &requests);
    let mut measured = Measured { without: vec![load(None)?], ..Measured::default() };
    for round in 0..settings.rounds {
        let standing = group.connect_all(server.address)?;
        // The order alternates, so that neither always runs directly after the group has connected.
        if round % 2 == 0 {
            measured.other.push(load(None)?);
        }
        measured.same.push(load(Some(GROUP))?);
        if round % 2 == 1 {
            measured.other.push(load(None)?);
        }
        again += standing.end()?;
        settled(&server, Duration::from_millis(500));
        measured.without.push(load(None)?);
    }
    let after = settled(&server, IDLE);
    measured.show(table, group);

    let name = group.name;
    let peak = megabytes(after.peak_memory);
    let against = format!("{MOST_MEMORY} MB");
    table.add(
        &format!("most memory, {name}"),
        format!("{peak:.0} MB"),
        against,
        peak / MOST_MEMORY,
        Bar::AtMost(1.0),
    );
    let ratio = (after.threads as f64 / before.threads as f64)
        .max(after.descriptors as f64 / before.descriptors as f64);
    let count = |stats: ProcessStats| format!("{} and {}", stats.threads, stats.descriptors);
    let figure = format!("threads and descriptors after {name}");
    table.add(&figure, count(after), format!("before {}", count(before)), ratio, Bar::AtMost(1.1));
    let (now, was) = (megabytes(after.memory), megabytes(before.memory));
    let against = format!("before {was:.0} MB, and {CACHED:.0}");
    let figure = format!("memory after {name}, {} times", settings.rounds);
    table.add(&figure, format!("{now:.0} MB"), against, now / (was + CACHED), Bar::AtMost(1.0));
    table.note(&format!("{name}, reconnections"), again.to_string());
    Ok(())
}

/// The resources that an otherwise idle server uses for the group.
fn at_rest(
    settings: &Settings,
    table: &mut Table,
    group: &Group,
    server: &Process,
    before: ProcessStats,
) -> io::Result<()> {
    let began = (Instant::now(), server.processor_time());
    sleep(settings.time * 3);
    let spent = server.processor_time().since(began.1).sum();
    let share = spent.as_secs_f64() / began.0.elapsed().as_secs_f64() * 100.0;
    let stats = server.stats();
    let connections = stats.descriptors.saturating_sub(before.descriptors);
    let each = megabytes(stats.memory.saturating_sub(before.memory)) * 1e3 / group.clients as f64;
    let text = format!("{each:.1} KB each, {share:.1} % of a core, {connections} descriptors");
    table.note(&format!("{} and no other client", group.name), text);
    // Clients that do not read are disconnected at once if the memory budget is used up.
    if connections < group.clients * 9 / 10 && !matches!(group.then, Then::NeverRead) {
        return Err(io::Error::other(format!(
            "only {connections} of {} connections are open",
            group.clients
        )));
    }
    Ok(())
}

impl Measured {
    fn show(&self, table: &mut Table, group: &Group) {
        let p99 = |outcome: &Outcome| outcome.percentile(0.99);
        let show = |outcomes: &[Outcome]| {
            let middle = |of: &dyn Fn(&Outcome) -> f64| median(outcomes.iter().map(of).collect());
            format!("{}, {}", milliseconds(middle(&p99)), per_second(middle(&Outcome::rate)))
        };
        for (address, beside) in [("", &self.other), (", same address", &self.same)] {
            let without =
                self.without.windows(2).map(|pair| pair.iter().map(p99).sum::<f64>() / 2.0);
            let ratio = median(
                beside.iter().zip(without).map(|(beside, without)| p99(beside) / without).collect(),
            );
            let figure = format!("GET beside {}{address}, p99", group.name);
            table.add(
                &figure,
                show(beside),
                format!("without {}", show(&self.without)),
                ratio,
                Bar::AtMost(3.0),
            );
        }
    }
}

/// Waits until nothing has changed for `quiet`, at most a minute.
fn settled(server: &Process, quiet: Duration) -> ProcessStats {
    let began = Instant::now();
    let (mut last, mut since) = (server.stats(), began);
    while since.elapsed() < quiet && began.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(100));
        let now = server.stats();
        if (now.threads, now.descriptors) != (last.threads, last.descriptors) {
            since = Instant::now();
        }
        last = now;
    }
    last
}
