//! The way of a request through tiny_http. No other file knows tiny_http.
//!
//! The specification prescribes tiny_http, but tiny_http does not limit the memory, the connections
//! and the time that clients can take. So the edge, the thread that faces the clients, reads each
//! request and keeps it in memory. Only a short head with a number goes to tiny_http, over one
//! private connection. tiny_http hands the head to a worker. The worker takes the request with that
//! number. The response goes back to the edge in memory. tiny_http writes no response to the
//! connection, so the next head does not wait for one.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::http::{Request, Responder};

/// The most requests that tiny_http has and no worker has taken. Eight heads with the longest
/// method and target (8 KiB) fit into the connection's buffer. A head that does not fit ends the
/// process.
const MAX_SENT: usize = 8;

/// The most requests that wait to be sent. One worker takes all 1,024 in about 10 ms.
const MAX_UNSENT: usize = 1024;

/// The number of the watchdog's request.
const WATCHDOG: u64 = 0;

/// A request, and the way back for its response.
pub(super) struct Exchange {
    pub(super) request: Request,
    pub(super) responder: Responder,
}

/// The edge sends requests, and workers receive them.
pub(super) struct Relay {
    server: tiny_http::Server,
    outbox: Mutex<Outbox>,
}

/// The requests on their way through tiny_http.
struct Outbox {
    connection: UnixStream,
    /// Oldest first.
    unsent: VecDeque<Box<Exchange>>,
    /// The requests that tiny_http has, with their numbers. Workers take them in any order.
    sent: Vec<(u64, Box<Exchange>)>,
    last_number: u64,
    watchdog: Option<oneshot::Sender<()>>,
}

impl Relay {
    /// Starts tiny_http on a private socket, and connects to it.
    pub(super) fn open() -> io::Result<Relay> {
        let (server, connection) = listen()?;
        // A server that does not read must not block the edge.
        connection.set_nonblocking(true)?;
        let outbox = Outbox {
            connection,
            unsent: VecDeque::new(),
            sent: Vec::new(),
            last_number: WATCHDOG,
            watchdog: None,
        };
        Ok(Relay { server, outbox: Mutex::new(outbox) })
    }

    /// Sends a request to the worker that receives next. Returns the request if too many wait.
    pub(super) fn send(&self, exchange: Box<Exchange>) -> Result<(), Box<Exchange>> {
        let mut outbox = self.outbox.lock();
        if outbox.unsent.len() >= MAX_UNSENT {
            return Err(exchange);
        }
        outbox.unsent.push_back(exchange);
        outbox.send();
        Ok(())
    }

    /// Sends a request of its own. The result completes when a worker has received this request,
    /// and fails if tiny_http has failed.
    pub(super) fn send_watchdog(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut outbox = self.outbox.lock();
        outbox.watchdog = Some(sender);
        outbox.write(&head("GET", "/", None, WATCHDOG));
        receiver
    }

    /// Waits for a request. Returns `None` for the watchdog's request, after
    /// [`Relay::wake_receiver`], and if tiny_http has failed.
    pub(super) fn receive(&self) -> Option<Box<Exchange>> {
        match self.server.recv() {
            Ok(received) => {
                let exchange = self.take(&received);
                // A dropped `tiny_http::Request` writes a 500 to the connection. Its writer,
                // dropped instead, writes nothing.
                drop(received.into_writer());
                exchange
            }
            Err(error) => {
                // An error without a code of the operating system comes from `unblock`.
                if error.raw_os_error().is_some() {
                    self.outbox.lock().fail(&format!("it accepts no connections ({error})"));
                }
                None
            }
        }
    }

    /// Ends the wait of one worker.
    pub(super) fn wake_receiver(&self) {
        self.server.unblock();
    }

    /// The exchange that `received` names. `None` for the watchdog's request, and if tiny_http has
    /// failed.
    fn take(&self, received: &tiny_http::Request) -> Option<Box<Exchange>> {
        let number =
            received.headers().first().and_then(|header| header.value.as_str().parse().ok());
        let mut outbox = self.outbox.lock();
        if number == Some(WATCHDOG) {
            // If this took more than 30 s, the edge has given up, and sending fails. That does not
            // matter.
            outbox.watchdog.take().map(|watchdog| watchdog.send(()));
            return None;
        }
        let index = outbox.sent.iter().position(|(sent, _)| Some(*sent) == number);
        let exchange = index.map(|index| outbox.sent.swap_remove(index).1);
        outbox.send();
        let exchange = exchange.filter(|exchange| has_head_of(&exchange.request, received));
        if exchange.is_none() {
            outbox.fail("it received a request that was not sent");
        }
        exchange
    }
}

impl Outbox {
    /// Sends requests to tiny_http, as many as it may have. Skips requests whose clients have
    /// disconnected.
    fn send(&mut self) {
        while self.sent.len() < MAX_SENT
            && let Some(exchange) = self.unsent.pop_front()
        {
            if !exchange.request.is_abandoned() {
                self.last_number += 1;
                let Request { method, path, query, .. } = &exchange.request;
                let head = head(method.as_str(), path, query.as_deref(), self.last_number);
                self.sent.push((self.last_number, exchange));
                self.write(&head);
            }
        }
    }

    fn write(&mut self, head: &str) {
        if let Err(error) = self.connection.write_all(head.as_bytes()) {
            self.fail(&format!("it takes no requests ({error})"));
        }
    }

    /// Closes the connection, so that this watchdog and all later ones fail. The edge then ends the
    /// process: the requests that tiny_http has would never get a response.
    fn fail(&mut self, reason: &str) {
        tracing::error!("tiny_http failed: {reason}");
        self.watchdog = None;
        // It may be closed already.
        let _ = self.connection.shutdown(Shutdown::Both);
    }
}

/// The head of a request as tiny_http gets it.
fn head(method: &str, path: &str, query: Option<&str>, number: u64) -> String {
    let (mark, query) = query.map_or(("", ""), |query| ("?", query));
    format!("{method} {path}{mark}{query} HTTP/1.1\r\nN: {number}\r\n\r\n")
}

/// Whether tiny_http has read the head as it was written. If not, the numbers of tiny_http cannot
/// be trusted, and a client could get the response to another request.
fn has_head_of(request: &Request, received: &tiny_http::Request) -> bool {
    let target = received.url();
    let (path, query) =
        target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    request.method.as_str() == received.method().as_str()
        && request.path == path
        && request.query.as_deref() == query
}

/// Starts tiny_http on a socket in a private directory, and connects to it. Then the directory is
/// removed, so nobody else can connect.
fn listen() -> io::Result<(tiny_http::Server, UnixStream)> {
    // The path of a socket has at most 108 bytes.
    const LONGEST: usize = 70;
    let usual = std::env::temp_dir();
    let parent = if usual.as_os_str().len() > LONGEST { PathBuf::from("/tmp") } else { usual };
    let own = Permissions::from_mode(0o700);
    let directory =
        tempfile::Builder::new().prefix("tenantdesk-").permissions(own).tempdir_in(parent)?;
    let socket = directory.path().join("s");
    let server = tiny_http::Server::http_unix(&socket).map_err(io::Error::other)?;
    Ok((server, UnixStream::connect(&socket)?))
}
