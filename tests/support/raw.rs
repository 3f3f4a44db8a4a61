//! A client that sends any bytes and shows what came, also from another address.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};

use super::client::peek;
use super::{DEADLINE, uninterrupted};

/// One connection of a client that may send anything.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).unwrap())
    }

    /// Takes over a connection.
    pub(crate) fn over(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    /// The same connection once more, for another thread.
    pub(crate) fn twin(&self) -> Client {
        Client { stream: BufReader::new(self.socket().try_clone().unwrap()) }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends as much as the other side takes; whether that was all.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer().expect("an answer")
    }

    /// `None` when the connection ended instead.
    pub(crate) fn try_answer(&mut self) -> Option<Answer> {
        read_answer(&mut self.stream)
    }

    /// Everything up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Whether the other side has closed; waits for it.
    pub(crate) fn is_closed(&mut self) -> bool {
        match uninterrupted(|| self.stream.read(&mut [0])) {
            Ok(read) => read == 0,
            Err(problem) => {
                !matches!(problem.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            }
        }
    }

    /// Whether something has come that was not read yet. Does not wait.
    pub(crate) fn is_answered(&self) -> bool {
        !matches!(peek(self.socket()), Err(problem) if problem.kind() == io::ErrorKind::WouldBlock)
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        SockRef::from(self.socket()).set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn stop_sending(&mut self) {
        self.stream.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

/// Returns `None` if the stream ends before the answer does.
pub(crate) fn read_answer(stream: &mut impl BufRead) -> Option<Answer> {
    let status = read_line(stream)?.split(' ').nth(1)?.parse().ok()?;
    let mut headers = BTreeMap::new();
    loop {
        let line = read_line(stream)?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; if status == 100 { 0 } else { length }];
    stream.read_exact(&mut body).ok()?;
    Some(Answer { status, headers, body })
}

fn read_line(stream: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    let read = stream.read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim_end().to_owned())
}

/// An answer on the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    /// The value of a header, whose name is in lower case.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Refused as contract section 6 says, with everything that goes with it.
    pub(crate) fn fails_with(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.json()["error"]["code"], code, "{self:?}");
        assert_eq!(self.json()["error"]["status"], status, "{self:?}");
        assert_eq!(self.header("x-api-version"), "v1");
        assert_eq!(self.header("x-request-id").len(), 36);
    }
}

/// A GET of `path`, as bytes.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: desk\r\n\r\n")
}

/// The same with a key and further header lines, each with its end.
pub(crate) fn request(method: &str, target: &str, key: &str, headers: &str, body: &str) -> String {
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!(
        "{method} {target} HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {key}\r\n{headers}{length}\r\n{body}"
    )
}

pub(crate) const GREEDY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const MODEST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Runs an ignored test of this binary in a network that has these addresses. Needs root.
#[track_caller]
pub(crate) fn run_in_own_network(test: &str) {
    let script = format!(
        "ip link set lo up; ip addr add {GREEDY}/32 dev lo; ip addr add {MODEST}/32 dev lo;
         exec \"$0\" --exact --ignored --nocapture {test}"
    );
    let this = std::env::current_exe().unwrap();
    let child =
        Command::new("unshare").args(["-n", "sh", "-ec", &script]).arg(&this).output().unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let said = format!("{output}{}", String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{said}");
    assert!(output.contains("1 passed"), "{test} was not run: {said}");
    eprint!("{said}");
}

/// A connection whose peer address is `address`.
pub(crate) fn from(address: Ipv4Addr, server: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&server.into()).unwrap();
    Client::over(TcpStream::from(socket))
}
