//! The load: keep-alive connections that each send the next request when the last is answered, on
//! one thread over epoll, so that it costs little beside what is measured.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll;

/// What is sent to whom, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub address: SocketAddr,
    pub connections: usize,
    pub time: Duration,
    /// The status of every response. Another one is an error.
    pub status: u16,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub seconds: f64,
    /// All requests, with the first of each connection, which is not measured.
    pub sent: usize,
    /// In microseconds, ascending.
    latencies: Vec<u32>,
}

impl Outcome {
    /// Responses a second.
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    /// The latency that the share `part` of all responses does not exceed, in milliseconds.
    pub(crate) fn percentile(&self, part: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * part).round() as usize;
        self.latencies.get(at).map_or(0.0, |latency| f64::from(*latency) / 1e3)
    }
}

/// A request. `headers` are lines with their ends.
pub(crate) fn request(method: &str, target: &str, headers: &str, body: &str) -> Vec<u8> {
    let content = match body.len() {
        0 => String::new(),
        length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
    };
    format!("{method} {target} HTTP/1.1\r\nHost: desk.example\r\n{headers}{content}\r\n{body}")
        .into_bytes()
}

impl Load {
    /// Sends what `next` returns, each request as soon as a connection is free, until the time is
    /// over or there is none left.
    pub(crate) fn run(&self, next: &mut dyn FnMut() -> Option<Vec<u8>>) -> io::Result<Outcome> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut clients = Vec::with_capacity(self.connections);
        for number in 0..self.connections {
            let Some(first) = next() else { break };
            clients.push(self.connect(&first)?);
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, &clients[number].stream, data, epoll::EventFlags::IN)?;
        }
        let mut outcome = Outcome { sent: clients.len(), ..Outcome::default() };
        let start = Instant::now();
        let mut busy = 0;
        for client in &mut clients {
            busy += usize::from(client.send(next())?);
        }
        let mut events = Vec::with_capacity(clients.len());
        while busy > 0 {
            events.clear();
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
            for event in &events {
                let client = &mut clients[event.data.u64() as usize];
                if !client.receive(self.status)? {
                    continue;
                }
                outcome.sent += 1;
                outcome.latencies.push(client.sent_at.elapsed().as_micros() as u32);
                let is_over = start.elapsed() >= self.time;
                if is_over || !client.send(next())? {
                    busy -= 1;
                }
            }
        }
        outcome.seconds = start.elapsed().as_secs_f64();
        outcome.latencies.sort_unstable();
        Ok(outcome)
    }

    /// Opens a connection and sends a request that is not measured: for it the server may have to
    /// open files, and some peers leave connections unserved that come in a burst.
    fn connect(&self, first: &[u8]) -> io::Result<Client> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        let response = Vec::with_capacity(64 * 1024);
        let mut client = Client { stream, response, sent_at: Instant::now() };
        client.stream.write_all(first)?;
        while !client.receive(self.status)? {}
        client.stream.set_nonblocking(true)?;
        Ok(client)
    }
}

struct Client {
    stream: TcpStream,
    response: Vec<u8>,
    sent_at: Instant,
}

impl Client {
    /// Returns whether there was a request.
    fn send(&mut self, request: Option<Vec<u8>>) -> io::Result<bool> {
        let Some(request) = request else { return Ok(false) };
        self.sent_at = Instant::now();
        // It is smaller than a socket's buffer, and one is under way at a time.
        self.stream.write_all(&request)?;
        Ok(true)
    }

    /// Reads what is there. Returns whether the response is whole.
    fn receive(&mut self, expected: u16) -> io::Result<bool> {
        let mut piece = [0; 64 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => self.response.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        let Some(status) = whole(&self.response) else { return Ok(false) };
        if status != expected {
            return Err(io::Error::other(String::from_utf8_lossy(&self.response).into_owned()));
        }
        self.response.clear();
        Ok(true)
    }
}

/// The status of a response, once all of it is there.
fn whole(bytes: &[u8]) -> Option<u16> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let mut lines = std::str::from_utf8(&bytes[..head]).ok()?.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => value.trim().parse().ok(),
            // Some peers send chunks. The text in a body escapes line ends.
            "transfer-encoding" if bytes.ends_with(b"\r\n0\r\n\r\n") => Some(0),
            "transfer-encoding" => Some(usize::MAX),
            _ => None,
        }
    });
    (bytes.len() >= head.saturating_add(length.unwrap_or(0))).then_some(status)
}
