//! Requests to Litestream's control socket: HTTP over a Unix socket, one connection for each request.
//!
//! HTTP/1.0, so that the end of the connection is the end of the response and nothing is chunked.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use socket2::{Domain, SockAddr, Socket, Type};

/// The most bytes of a response: a list of 50,000 databases.
const MAX_RESPONSE: u64 = 16 << 20;

/// How long Litestream itself tries to confirm one request, in seconds. It is not shortened with the caller's deadline: a slow copy then
/// makes progress from request to request.
const SYNC_SECONDS: u64 = 5;

/// The control socket of a Litestream process.
#[derive(Clone, Debug)]
pub struct ControlSocket {
    path: PathBuf,
}

/// Why a request to the control socket failed.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Nobody listens, or the connection failed.
    #[error("{}: {cause}", .path.display())]
    Connection {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// Litestream did not respond in time.
    #[error("Litestream did not respond in time")]
    NoResponse,
    /// Litestream responded with an error.
    #[error("Litestream responded {status}: {message}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// Litestream's own text.
        message: String,
    },
    /// The response is not Litestream's.
    #[error("the response is not that of Litestream's control socket")]
    Malformed,
    /// The path of a database is not UTF-8.
    #[error("the path of the database is not UTF-8")]
    Path,
}

/// What Litestream says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Info {
    /// Its version, such as `0.5.17`.
    pub version: String,
}

/// A database that Litestream copies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CopiedDatabase {
    /// Its path as Litestream spells it.
    pub path: PathBuf,
    /// When the copy last had everything that Litestream knew of, RFC 3339.
    last_sync_at: Option<String>,
}

impl CopiedDatabase {
    /// When the copy last had everything that Litestream knew of; `None` if it never had.
    pub fn last_sync(&self) -> Option<Timestamp> {
        self.last_sync_at.as_ref()?.parse().ok()
    }
}

#[derive(Deserialize)]
struct DatabaseList {
    databases: Vec<CopiedDatabase>,
}

/// The response to `POST /sync`: numbers of transactions, as Litestream counts them.
#[derive(Deserialize)]
struct Synced {
    txid: u64,
    replicated_txid: u64,
}

impl ControlSocket {
    /// The control socket at `path`. It need not exist.
    pub fn new(path: impl Into<PathBuf>) -> ControlSocket {
        ControlSocket { path: path.into() }
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns when the copy has everything that is committed in `database`, an absolute path.
    ///
    /// # Errors
    ///
    /// [`SocketError`]: it is not certain that the copy has it.
    pub fn sync(&self, database: &Path, deadline: Instant) -> Result<(), SocketError> {
        let body = json!({"path": text(database)?, "wait": true, "timeout": SYNC_SECONDS});
        let Synced { txid, replicated_txid } = self.request("POST /sync", &body, deadline)?;
        // 0 before the first transaction: Litestream has not found the database.
        if txid > 0 && replicated_txid >= txid { Ok(()) } else { Err(SocketError::NoResponse) }
    }

    /// Returns when Litestream has read the log of `database`, an absolute path, whether or not the copy has it.
    ///
    /// # Errors
    ///
    /// [`SocketError`]: it is not certain that Litestream has read it.
    pub fn read_log(&self, database: &Path, deadline: Instant) -> Result<(), SocketError> {
        let body = json!({"path": text(database)?, "wait": false, "timeout": SYNC_SECONDS});
        let Synced { txid, .. } = self.request("POST /sync", &body, deadline)?;
        if txid > 0 { Ok(()) } else { Err(SocketError::NoResponse) }
    }

    /// Returns whether a process may listen at the socket. If not, Litestream does not run.
    pub fn may_be_served(&self, deadline: Instant) -> bool {
        let connected = self.connect(deadline).map(drop);
        !connected
            .is_err_and(|error| matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
    }

    /// Has Litestream open the file under the name `database` anew: it keeps a file open that was replaced by a rename.
    ///
    /// # Errors
    ///
    /// [`SocketError`]; `Rejected` also if Litestream does not know the database.
    pub fn reopen(&self, database: &Path, deadline: Instant) -> Result<(), SocketError> {
        let body = json!({"path": text(database)?, "timeout": SYNC_SECONDS});
        // The last synchronisation of the previous file may fail. The database is stopped all the same.
        let stopped = self.request::<Value>("POST /stop", &body, deadline);
        self.request::<Value>("POST /start", &body, deadline).map_err(|error| stopped.err().unwrap_or(error)).map(drop)
    }

    /// Returns what Litestream says of itself.
    ///
    /// # Errors
    ///
    /// [`SocketError`].
    pub fn info(&self, deadline: Instant) -> Result<Info, SocketError> {
        self.request("GET /info", &Value::Null, deadline)
    }

    /// Returns the databases that Litestream copies.
    ///
    /// # Errors
    ///
    /// [`SocketError`].
    pub fn databases(&self, deadline: Instant) -> Result<Vec<CopiedDatabase>, SocketError> {
        let DatabaseList { databases } = self.request("GET /list", &Value::Null, deadline)?;
        Ok(databases)
    }

    /// `target` is a method and a path.
    fn request<T: DeserializeOwned>(&self, target: &str, body: &Value, deadline: Instant) -> Result<T, SocketError> {
        let body = body.to_string();
        let request = format!(
            "{target} HTTP/1.0\r\nHost: litestream\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let response = self.exchange(request.as_bytes(), deadline).map_err(|cause| match cause.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => SocketError::NoResponse,
            _ => SocketError::Connection { path: self.path.clone(), cause },
        })?;
        let (status, body) = split(&response).ok_or(SocketError::Malformed)?;
        if status != 200 {
            return Err(SocketError::Rejected { status, message: error_text(body) });
        }
        serde_json::from_slice(body).map_err(|_| SocketError::Malformed)
    }

    fn exchange(&self, request: &[u8], deadline: Instant) -> io::Result<Vec<u8>> {
        let mut stream = self.connect(deadline)?;
        stream.write_all(request)?;
        let (mut response, mut part) = (Vec::new(), [0; 4096]);
        loop {
            stream.set_read_timeout(Some(remaining(deadline)?))?;
            let length = match stream.read(&mut part) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if length == 0 {
                return Ok(response);
            }
            response.extend(part.iter().take(length));
            if response.len() as u64 > MAX_RESPONSE {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
    }

    /// The time limit of writing holds for the connection attempt, too: it blocks where the listener accepts nothing.
    fn connect(&self, deadline: Instant) -> io::Result<UnixStream> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_write_timeout(Some(remaining(deadline)?))?;
        socket.connect(&SockAddr::unix(&self.path)?)?;
        Ok(UnixStream::from(OwnedFd::from(socket)))
    }
}

fn text(database: &Path) -> Result<&str, SocketError> {
    database.to_str().ok_or(SocketError::Path)
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The status and the body of a response.
fn split(response: &[u8]) -> Option<(u16, &[u8])> {
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    let end = response.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD)?;
    let head = str::from_utf8(response.get(..end)?).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.lines().next()?.parse().ok()?;
    Some((status, response.get(end + END_OF_HEAD.len()..)?))
}

/// The text of an error response: its member `error`, or its beginning.
fn error_text(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Rejection {
        error: String,
    }
    const LONGEST: usize = 500;
    let text = match serde_json::from_slice(body) {
        Ok(Rejection { error }) => error,
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    text.trim().chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_status_and_a_body() {
        assert_eq!(split(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}"), Some((200, &b"{}"[..])));
        assert_eq!(split(b"HTTP/1.1 404\r\n\r\n"), Some((404, &b""[..])));
        for malformed in [&b""[..], b"HTTP/1.0 200 OK\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.0 x\r\n\r\n", b"\xff\r\n\r\n"]
        {
            assert_eq!(split(malformed), None);
        }
    }

    #[test]
    fn the_text_of_an_error_is_bounded_and_printable() {
        assert_eq!(error_text(br#"{"error":"database not found: /x"}"#), "database not found: /x");
        assert_eq!(error_text("a\nb".as_bytes()), "a b");
        assert_eq!(error_text(&[b'a'; 1000]).len(), 500);
    }

    #[test]
    fn a_socket_that_does_not_exist_is_named() {
        let error = ControlSocket::new("/nowhere/socket").info(Instant::now() + Duration::from_secs(5)).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/socket: No such file"), "{error}");
        let over = ControlSocket::new("/nowhere/socket").info(Instant::now()).unwrap_err();
        assert!(matches!(over, SocketError::NoResponse), "{over}");
    }
}
