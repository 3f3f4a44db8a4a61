//! Other clients beside masses of slow ones: what these cost the others, what memory they take, and what is left of them.
//!
//! The server has the limits that it has by default. Whom it cuts comes again, evenly spread over time, so a mass stands for as
//! long as is measured. It comes from an address of its own, since the gate takes turns by address; the others come once from
//! a different one and once from the same.

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
    CONNECTIONS, body_length, data_dir, get, load_gets, load_gets_from, milliseconds, per_second, tenant_file,
};
use crate::table::{Bar, Table, median};

/// Where the masses come from. The others come from 127.0.0.1, as everything does.
const MASS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The records of either tenant. The others read the first one's, the masses the second one's, which are long.
const RECORDS: u64 = 1000;

/// How long the server bears a client that is slow, by default. One that does not read cannot see its end.
const BORNE: Duration = Duration::from_secs(10);

/// Longer than the server keeps lines and threads that have nothing to do.
const REST: Duration = Duration::from_secs(12);

/// What pages of the databases that were read may keep, in MB.
const CACHED: f64 = 16.0;

/// What the server may take with any mass, in megabytes.
const MOST_MEMORY: f64 = 300.0;

/// Many clients that all do the same.
#[derive(Clone)]
struct Mass {
    name: &'static str,
    clients: usize,
    /// What each sends when it comes.
    first: Vec<u8>,
    then: Then,
    /// The time in which each has one turn.
    pace: Duration,
}

#[derive(Clone, Copy)]
enum Then {
    Nothing,
    /// One byte at each turn.
    Send(u8),
    /// It does not read its answer.
    NeverRead,
}

/// A mass that stands, until it is told to go.
struct Standing {
    leave: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<usize>>,
}

struct Client {
    stream: TcpStream,
    /// When it leaves and comes again, if it is not cut before.
    leaves: Option<Instant>,
}

pub fn masses(settings: &Settings, table: &mut Table) -> io::Result<()> {
    // The clients are descriptors of this process.
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?;
    let data_dir = data_dir()?;
    let data = Data::make(&data_dir.path().join("data"), 2, RECORDS)?;
    data::open(&tenant_file(&data, 2))
        .and_then(|tenant| tenant.execute("UPDATE customers SET notes = ?", ["x".repeat(5000)]))
        .map_err(io::Error::other)?;
    for mass in all_masses(&data) {
        beside(settings, table, &data, &mass)?;
    }
    Ok(())
}

fn all_masses(data: &Data) -> [Mass; 4] {
    let key = &data.keys[1];
    let body = format!(
        "POST /customers.php HTTP/1.1\r\nHost: desk.example\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: 65536\r\n\r\n"
    );
    let (seldom, often) = (Duration::from_secs(3), Duration::from_millis(100));
    [
        Mass { name: "2,000 idle", clients: 2000, first: Vec::new(), then: Then::Nothing, pace: seldom },
        Mass {
            name: "2,000 slow heads",
            clients: 2000,
            first: b"GET / HTTP/1.1\r\nHost: desk.example\r\nX-Slow: ".to_vec(),
            then: Then::Send(b'a'),
            pace: seldom,
        },
        Mass { name: "200 slow bodies", clients: 200, first: body.into(), then: Then::Send(b' '), pace: often },
        Mass {
            name: "200 unread pages",
            clients: 200,
            first: get(key, "/customers.php?limit=200"),
            then: Then::NeverRead,
            pace: seldom,
        },
    ]
}

impl Mass {
    /// Returns once all have come.
    fn stand(&self, address: SocketAddr) -> io::Result<Standing> {
        let leave = Arc::new(AtomicBool::new(false));
        let (all_came, wait) = mpsc::channel();
        let (mass, told) = (self.clone(), Arc::clone(&leave));
        let thread = thread::spawn(move || mass.keep_standing(address, &all_came, &told));
        // Where it could not come the thread ends, and says why in the end.
        let _ = wait.recv();
        Ok(Standing { leave, thread })
    }

    /// How many came again before it was told to leave.
    fn keep_standing(&self, address: SocketAddr, all_came: &mpsc::Sender<()>, leave: &AtomicBool) -> io::Result<usize> {
        // The first time they leave one after the other.
        let share = BORNE / self.clients as u32;
        let mut clients =
            (1..=self.clients as u32).map(|n| self.come(address, share * n)).collect::<io::Result<Vec<_>>>()?;
        if matches!(self.then, Then::NeverRead) {
            // That the answers take time to make is no fault of those who do not read them.
            clients.iter().try_for_each(|client| client.is_being_answered())?;
        }
        let _ = all_came.send(());
        let began = Instant::now();
        let (mut turns, mut again) = (0, 0);
        while !leave.load(Ordering::Relaxed) {
            let due = (began.elapsed().as_secs_f64() / self.pace.as_secs_f64() * self.clients as f64) as usize;
            while turns < due {
                let client = &mut clients[turns % self.clients];
                if !client.stays(self.then) {
                    *client = self.come(address, BORNE)?;
                    again += 1;
                }
                turns += 1;
            }
            sleep(Duration::from_millis(10));
        }
        Ok(again)
    }

    fn come(&self, address: SocketAddr, stay: Duration) -> io::Result<Client> {
        let mut stream = connect(address, Some(MASS))?;
        stream.write_all(&self.first)?;
        stream.set_nonblocking(true)?;
        let leaves = (!matches!(self.then, Then::Nothing)).then(|| Instant::now() + stay);
        Ok(Client { stream, leaves })
    }
}

impl Standing {
    /// Sends all of them away. How many came again meanwhile.
    fn end(self) -> io::Result<usize> {
        self.leave.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("a mass panicked")))
    }
}

impl Client {
    /// A client's turn. False when the server has sent it away, or its time is over.
    fn stays(&mut self, then: Then) -> bool {
        let blocked =
            |outcome: io::Result<usize>| outcome.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if self.leaves.is_some_and(|leaves| leaves <= Instant::now()) {
            return false;
        }
        match then {
            Then::NeverRead => true,
            // Whatever comes is a refusal, or the end.
            Then::Nothing => blocked(self.stream.peek(&mut [0])),
            Then::Send(byte) => blocked(self.stream.peek(&mut [0])) && self.stream.write(&[byte]).is_ok(),
        }
    }

    /// Waits for the first byte of its answer, or for its being cut.
    fn is_being_answered(&self) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(BORNE))?;
        let _ = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(true)
    }
}

/// What was measured with one mass.
#[derive(Default)]
struct Measured {
    /// Without the mass, before and after each time that it stood.
    without: Vec<Outcome>,
    /// Beside it, from another address.
    other: Vec<Outcome>,
    /// Beside it, from its own.
    same: Vec<Outcome>,
}

fn beside(settings: &Settings, table: &mut Table, data: &Data, mass: &Mass) -> io::Result<()> {
    let server = Process::serve(&data.dir)?;
    let page = body_length(&once(server.address, &get(&data.keys[1], "/customers.php?limit=200"))?);
    if page < 1024 * 1024 {
        return Err(io::Error::other(format!("a page has {page} bytes, not a mebibyte")));
    }
    let requests: Vec<Vec<u8>> = (1..=997).map(|id| get(&data.keys[0], &format!("/customers.php?id={id}"))).collect();
    let both = [requests[0].clone(), get(&data.keys[1], "/customers.php?id=1")];
    load_gets(&server, CONNECTIONS, settings.time, &both)?;
    let before = settled(&server, REST);

    let standing = mass.stand(server.address)?;
    at_rest(settings, table, mass, &server, before)?;
    let mut again = standing.end()?;
    settled(&server, Duration::from_millis(500));

    let load = |from| load_gets_from(&server, from, CONNECTIONS, settings.time, &requests);
    let mut measured = Measured { without: vec![load(None)?], ..Measured::default() };
    for round in 0..settings.rounds {
        let standing = mass.stand(server.address)?;
        // In turn, so that neither always meets a mass that has just come.
        if round % 2 == 0 {
            measured.other.push(load(None)?);
        }
        measured.same.push(load(Some(MASS))?);
        if round % 2 == 1 {
            measured.other.push(load(None)?);
        }
        again += standing.end()?;
        settled(&server, Duration::from_millis(500));
        measured.without.push(load(None)?);
    }
    let after = settled(&server, REST);
    measured.show(table, mass);

    let name = mass.name;
    let peak = megabytes(after.peak_memory);
    let against = format!("{MOST_MEMORY} MB");
    table.add(&format!("most memory, {name}"), format!("{peak:.0} MB"), against, peak / MOST_MEMORY, Bar::AtMost(1.0));
    let ratio =
        (after.threads as f64 / before.threads as f64).max(after.descriptors as f64 / before.descriptors as f64);
    let count = |stats: ProcessStats| format!("{} and {}", stats.threads, stats.descriptors);
    let figure = format!("threads and descriptors after {name}");
    table.add(&figure, count(after), format!("before {}", count(before)), ratio, Bar::AtMost(1.1));
    let (now, was) = (megabytes(after.memory), megabytes(before.memory));
    let against = format!("before {was:.0} MB, and {CACHED:.0}");
    let figure = format!("memory after {name}, {} times", settings.rounds);
    table.add(&figure, format!("{now:.0} MB"), against, now / (was + CACHED), Bar::AtMost(1.0));
    table.note(&format!("{name}, come again"), again.to_string());
    Ok(())
}

/// What the mass takes while nothing else happens.
fn at_rest(
    settings: &Settings,
    table: &mut Table,
    mass: &Mass,
    server: &Process,
    before: ProcessStats,
) -> io::Result<()> {
    let began = (Instant::now(), server.processor_time());
    sleep(settings.time * 3);
    let spent = server.processor_time().since(began.1).sum();
    let share = spent.as_secs_f64() / began.0.elapsed().as_secs_f64() * 100.0;
    let stats = server.stats();
    let connections = stats.descriptors.saturating_sub(before.descriptors);
    let each = megabytes(stats.memory.saturating_sub(before.memory)) * 1e3 / mass.clients as f64;
    let text = format!("{each:.1} KB each, {share:.1} % of a core, {connections} descriptors");
    table.note(&format!("{} and nothing else", mass.name), text);
    // Of those who do not read, the ones beyond the budget are cut at once.
    if connections < mass.clients * 9 / 10 && !matches!(mass.then, Then::NeverRead) {
        return Err(io::Error::other(format!("only {connections} of {} connections are open", mass.clients)));
    }
    Ok(())
}

impl Measured {
    fn show(&self, table: &mut Table, mass: &Mass) {
        let p99 = |outcome: &Outcome| outcome.percentile(0.99);
        let show = |outcomes: &[Outcome]| {
            let middle = |of: &dyn Fn(&Outcome) -> f64| median(outcomes.iter().map(of).collect());
            format!("{}, {}", milliseconds(middle(&p99)), per_second(middle(&Outcome::rate)))
        };
        for (address, beside) in [("", &self.other), (", same address", &self.same)] {
            let without = self.without.windows(2).map(|pair| pair.iter().map(p99).sum::<f64>() / 2.0);
            let ratio = median(beside.iter().zip(without).map(|(beside, without)| p99(beside) / without).collect());
            let figure = format!("GET beside {}{address}, p99", mass.name);
            table.add(&figure, show(beside), format!("without {}", show(&self.without)), ratio, Bar::AtMost(3.0));
        }
    }
}

/// Waits until nothing has come or gone for that long, a minute at most.
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
