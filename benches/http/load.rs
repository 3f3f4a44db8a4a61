//! The load: keep-alive connections that each send the next request when the last is answered, on
//! one thread over epoll. It checks the status of every answer and keeps every latency, and is
//! cheap enough not to be what is measured.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// What is sent to whom, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub address: SocketAddr,
    pub connections: usize,
    /// How long is measured; a quarter of it goes before, unmeasured.
    pub time: Duration,
    /// The status that every answer must have.
    pub status: u16,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub answered: usize,
    pub seconds: f64,
    /// All answers, those outside of the measured time included.
    pub total: usize,
    /// Microseconds, ascending.
    pub latencies: Vec<u32>,
    /// Answers of another status.
    pub others: usize,
    /// Bytes of the last answer's body.
    pub body: usize,
}

impl Outcome {
    /// Of latencies that were measured one at a time in so many seconds.
    pub(crate) fn of(mut latencies: Vec<Duration>, seconds: f64) -> Outcome {
        latencies.sort_unstable();
        let microseconds: Vec<u32> =
            latencies.iter().map(|latency| latency.as_micros() as u32).collect();
        Outcome {
            answered: latencies.len(),
            seconds,
            latencies: microseconds,
            ..Outcome::default()
        }
    }

    /// Answers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds
    }

    /// The latency that the share `part` of all answers does not exceed, in microseconds.
    pub(crate) fn percentile(&self, part: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * part).round() as usize;
        self.latencies.get(at).copied().map_or(0.0, f64::from)
    }
}

struct Client {
    stream: TcpStream,
    out: Vec<u8>,
    answer: Vec<u8>,
    filled: usize,
    sent_at: Instant,
}

/// An answer's parts, once all of it is there.
struct Answer {
    status: u16,
    body: usize,
}

impl Load {
    /// Sends what `next` writes into its buffer, as fast as it is answered.
    pub(crate) fn run(&self, next: &mut dyn FnMut(&mut Vec<u8>)) -> io::Result<Outcome> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut clients = self.connect_all(&poll, next)?;
        let measured_from = Instant::now() + self.time / 4;
        let until = measured_from + self.time;
        for client in &mut clients {
            client.send(next)?;
        }
        let mut outcome = Outcome {
            seconds: self.time.as_secs_f64(),
            total: clients.len(),
            ..Outcome::default()
        };
        let mut under_way = clients.len();
        let mut events = Vec::with_capacity(clients.len());
        while under_way > 0 {
            events.clear();
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
            for event in &events {
                let client = &mut clients[event.data.u64() as usize];
                let Some(answer) = client.receive()? else { continue };
                let now = Instant::now();
                outcome.total += 1;
                if client.sent_at >= measured_from && now < until {
                    outcome.answered += 1;
                    outcome.latencies.push((now - client.sent_at).as_micros() as u32);
                    outcome.body = answer.body;
                }
                if answer.status != self.status {
                    outcome.others += 1;
                    if outcome.others == 1 {
                        eprintln!(
                            "unexpected: {}",
                            String::from_utf8_lossy(&client.answer[..client.filled.min(800)])
                        );
                    }
                }
                client.filled = 0;
                if now < until {
                    client.send(next)?;
                } else {
                    under_way -= 1;
                }
            }
        }
        outcome.latencies.sort_unstable();
        Ok(outcome)
    }

    /// Sends `rate` requests a second on a fixed schedule, each on any free connection at its time
    /// or, if none is free, as soon as one is. Latencies count from the scheduled time. The first
    /// response of another status is an error.
    pub(crate) fn run_at(
        &self,
        rate: f64,
        next: &mut dyn FnMut(&mut Vec<u8>),
    ) -> io::Result<Outcome> {
        const TIMER: u64 = u64::MAX;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut clients = self.connect_all(&poll, next)?;
        let timer = every(Duration::from_secs_f64(1.0 / rate))?;
        epoll::add(&poll, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)?;
        let mut schedule = Schedule {
            start: Instant::now(),
            rate,
            count: (self.time.as_secs_f64() * rate) as usize,
            sent: 0,
            free: (0..clients.len()).collect(),
        };
        let mut latencies = Vec::with_capacity(schedule.count);
        let mut events = Vec::with_capacity(clients.len() + 1);
        while latencies.len() < schedule.count {
            schedule.send_due(&mut clients, next)?;
            events.clear();
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
            for event in &events {
                if event.data.u64() == TIMER {
                    rustix::io::read(&timer, &mut [0; 8])?;
                    continue;
                }
                let number = event.data.u64() as usize;
                if let Some(latency) = clients[number].receive_scheduled(self.status)? {
                    latencies.push(latency);
                    schedule.free.push(number);
                }
            }
        }
        Ok(Outcome::of(latencies, schedule.start.elapsed().as_secs_f64()))
    }

    /// Connects all clients. Each sends one request, which is not measured.
    fn connect_all(
        &self,
        poll: &OwnedFd,
        next: &mut dyn FnMut(&mut Vec<u8>),
    ) -> io::Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(self.connections);
        for number in 0..self.connections {
            let mut stream = connect(self.address)?;
            // tiny_http alone leaves connections that come in a burst unserved: each is proved
            // before the next.
            let mut first = Vec::new();
            next(&mut first);
            exchange(&mut stream, &first)?;
            stream.set_nonblocking(true)?;
            epoll::add(
                poll,
                &stream,
                epoll::EventData::new_u64(number as u64),
                epoll::EventFlags::IN,
            )?;
            clients.push(Client {
                stream,
                out: Vec::with_capacity(1024),
                answer: vec![0; 128 * 1024],
                filled: 0,
                sent_at: Instant::now(),
            });
        }
        Ok(clients)
    }
}

/// A fixed number of requests, evenly spread over time.
struct Schedule {
    start: Instant,
    /// Requests a second.
    rate: f64,
    count: usize,
    sent: usize,
    /// The indexes of the clients that wait for no response.
    free: Vec<usize>,
}

impl Schedule {
    /// Sends what is due, as far as clients are free.
    fn send_due(
        &mut self,
        clients: &mut [Client],
        next: &mut dyn FnMut(&mut Vec<u8>),
    ) -> io::Result<()> {
        while self.sent < self.count {
            let due = self.start + Duration::from_secs_f64(self.sent as f64 / self.rate);
            if due > Instant::now() {
                break;
            }
            let Some(number) = self.free.pop() else { break };
            clients[number].send(next)?;
            clients[number].sent_at = due;
            self.sent += 1;
        }
        Ok(())
    }
}

/// A timer that becomes readable at this interval. `epoll::wait` takes whole milliseconds only.
fn every(interval: Duration) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let interval = Timespec::try_from(interval).map_err(io::Error::other)?;
    let value = Itimerspec { it_interval: interval, it_value: interval };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &value)?;
    Ok(timer)
}

impl Client {
    fn send(&mut self, next: &mut dyn FnMut(&mut Vec<u8>)) -> io::Result<()> {
        self.out.clear();
        next(&mut self.out);
        self.sent_at = Instant::now();
        // A request is far smaller than a socket's buffer, and one is under way at a time.
        self.stream.write_all(&self.out)
    }

    /// Returns the time since the scheduled time, once the whole response is there. Fails if it has
    /// another status.
    fn receive_scheduled(&mut self, expected: u16) -> io::Result<Option<Duration>> {
        let Some(answer) = self.receive()? else { return Ok(None) };
        if answer.status != expected {
            return Err(io::Error::other(format!("a response had the status {}", answer.status)));
        }
        self.filled = 0;
        Ok(Some(self.sent_at.elapsed()))
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        loop {
            let free = self.answer.get_mut(self.filled..).unwrap_or_default();
            let room = free.len();
            match self.stream.read(free) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.filled += bytes;
                    match whole(&self.answer[..self.filled]) {
                        Some(answer) => return Ok(Some(answer)),
                        None if bytes < room => return Ok(None),
                        None => self.answer.resize(self.answer.len() * 2, 0),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The bytes that a body in chunks takes, once the line of its last chunk is there. Peers send
/// such; we do not.
fn chunked(body: &[u8]) -> Option<usize> {
    let mut taken = 0;
    loop {
        let rest = body.get(taken..)?;
        let line = rest.iter().position(|byte| *byte == b'\n')?;
        let size =
            usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?.trim(), 16).ok()?;
        taken += line + 1 + size + 2;
        if size == 0 {
            return Some(taken);
        }
    }
}

fn whole(bytes: &[u8]) -> Option<Answer> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let status = std::str::from_utf8(bytes.get(9..12)?).ok()?.parse().ok()?;
    let header = |name: &[u8]| {
        bytes[..head].split(|byte| *byte == b'\n').find_map(|line| {
            let (this, value) = line.split_at_checked(name.len())?;
            this.eq_ignore_ascii_case(name).then_some(value)
        })
    };
    let body = match header(b"content-length:") {
        Some(value) => std::str::from_utf8(value).ok()?.trim().parse().ok()?,
        None if header(b"transfer-encoding:").is_some() => chunked(&bytes[head..])?,
        None => 0,
    };
    (bytes.len() >= head + body).then_some(Answer { status, body })
}

/// A connection that sends at once what is written.
pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// One request and its answer, on a connection of its own.
pub(crate) fn once(address: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    exchange(&mut connect(address)?, request)
}

/// One request and its answer, head and body.
pub(crate) fn exchange(stream: &mut TcpStream, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut answer = vec![0; 16 * 1024];
    let mut filled = 0;
    loop {
        match stream.read(&mut answer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => filled += bytes,
        }
        if whole(&answer[..filled]).is_some() {
            answer.truncate(filled);
            return Ok(answer);
        }
        if filled == answer.len() {
            answer.resize(filled * 4, 0);
        }
    }
}

/// The status of a response.
pub(crate) fn status(answer: &[u8]) -> Option<u16> {
    whole(answer).map(|answer| answer.status)
}

/// One request and its response. Fails if the response has another status.
pub(crate) fn expect(stream: &mut TcpStream, request: &[u8], expected: u16) -> io::Result<()> {
    let answer = exchange(stream, request)?;
    match status(&answer) {
        Some(status) if status == expected => Ok(()),
        _ => Err(io::Error::other(format!("unexpected: {}", String::from_utf8_lossy(&answer)))),
    }
}

/// Sends one request after the other on one connection, for `time` or until there is none left. The
/// first is not measured: for it the server may have to open files.
pub(crate) fn one_by_one(
    address: SocketAddr,
    expected: u16,
    time: Duration,
    next: &mut dyn FnMut() -> Option<Vec<u8>>,
) -> io::Result<Outcome> {
    let mut stream = connect(address)?;
    if let Some(first) = next() {
        expect(&mut stream, &first, expected)?;
    }
    let (begun, mut latencies) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        let Some(request) = next() else { break };
        let sent = Instant::now();
        expect(&mut stream, &request, expected)?;
        latencies.push(sent.elapsed());
    }
    Ok(Outcome::of(latencies, begun.elapsed().as_secs_f64()))
}
