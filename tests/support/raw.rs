//! A client that sends any bytes and shows what came, also from another address.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::Command;

use socket2::{Domain, Socket, Type};

use super::client::{peek, read_reply};
use super::contract::is_uuid;
use super::reply::{Asked, Reply};
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

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends as much as the other side takes; whether that was all.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    pub(crate) fn answer(&mut self) -> Reply {
        self.try_answer().expect("an answer")
    }

    /// `None` when the connection ended instead.
    pub(crate) fn try_answer(&mut self) -> Option<Reply> {
        let reply = read_answer(&mut self.stream)?;
        if !reply.code().is_empty() {
            assert_eq!(reply.json()["error"]["status"], reply.status, "{reply}");
            assert_eq!(reply.header("X-API-Version"), Some("v1"), "{reply}");
            assert!(reply.header("X-Request-Id").is_some_and(is_uuid), "{reply}");
        }
        Some(reply)
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

    pub(crate) fn stop_sending(&mut self) {
        self.stream.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

/// Reads an answer of which the request is not known. Returns `None` if the stream ends before.
pub(crate) fn read_answer(stream: &mut impl BufRead) -> Option<Reply> {
    read_reply(stream, Asked::default()).ok()
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
