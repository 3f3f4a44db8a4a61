//! The way of a request through tiny_http.
//!
//! The specification prescribes tiny_http, but tiny_http does not limit the memory, the connections
//! and the time that clients can take. So the edge, the thread that faces the clients, reads each
//! request and keeps it in a queue in memory. Only the method and the target go to tiny_http, over
//! one private connection. tiny_http hands them to a worker. The worker takes the oldest request
//! from the queue. It need not be the one that tiny_http handed out, because each request
//! has its own way back. The response goes back to the edge in memory. tiny_http writes no response
//! to the connection, so the next head does not wait for one.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::http::{ApiError, Request, Responder};

/// The most heads that tiny_http has and no worker has received. Eight heads with the longest
/// method and target (8 KiB) fit into the connection's buffer. A head that does not fit ends the
/// process.
const MAX_SENT: usize = 8;

/// The most requests in the queue. Open connections can have no more under way. Those of clients
/// that have disconnected stay until a worker takes them.
const MAX_QUEUED: usize = 10_000;

/// The edge sends requests, and workers receive them.
pub(super) struct Relay {
    server: tiny_http::Server,
    outbox: Mutex<Outbox>,
}

struct Outbox {
    connection: UnixStream,
    /// Oldest first.
    queue: VecDeque<Queued>,
    /// tiny_http has the heads of this many requests, the oldest of the queue.
    sent: usize,
}

enum Queued {
    Request(Responder),
    /// A request that only shows that workers receive.
    Watchdog(oneshot::Sender<()>),
}

impl Relay {
    /// Starts tiny_http on a private socket, and connects to it.
    pub(super) fn open() -> io::Result<Relay> {
        let (server, connection) = listen()?;
        // A server that does not read must not block the edge.
        connection.set_nonblocking(true)?;
        let outbox = Outbox { connection, queue: VecDeque::new(), sent: 0 };
        Ok(Relay { server, outbox: Mutex::new(outbox) })
    }

    /// Sends a request to the worker that receives next. If too many wait, the request gets
    /// `overloaded`.
    pub(super) fn send(&self, responder: Responder) {
        let mut outbox = self.outbox.lock();
        if outbox.queue.len() >= MAX_QUEUED {
            drop(outbox);
            return responder.send(ApiError::overloaded().into());
        }
        outbox.queue.push_back(Queued::Request(responder));
        outbox.send_heads();
    }

    /// Sends a request that only shows that workers receive. The result completes when a worker has
    /// received it, and fails if tiny_http has failed.
    pub(super) fn send_watchdog(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut outbox = self.outbox.lock();
        outbox.queue.push_back(Queued::Watchdog(sender));
        outbox.send_heads();
        receiver
    }

    /// Waits for a request. Returns `None` for the watchdog's request, after
    /// [`Relay::wake_receiver`], and if tiny_http has failed.
    pub(super) fn receive(&self) -> Option<Responder> {
        match self.server.recv() {
            Ok(received) => {
                let queued = self.outbox.lock().take_oldest();
                // A dropped `tiny_http::Request` writes a 500 to the connection. Its writer,
                // dropped instead, writes nothing.
                drop(received.into_writer());
                match queued? {
                    Queued::Request(responder) => Some(responder),
                    Queued::Watchdog(sender) => {
                        // If this took more than 30 s, the edge has given up.
                        let _ = sender.send(());
                        None
                    }
                }
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

    pub(super) fn wake_receiver(&self) {
        self.server.unblock();
    }
}

impl Outbox {
    /// Sends heads to tiny_http if it has none, as many as it may have. Under load, one write
    /// brings several.
    fn send_heads(&mut self) {
        if self.sent > 0 {
            return;
        }
        let mut heads = String::new();
        for queued in self.queue.iter().take(MAX_SENT) {
            match queued {
                Queued::Watchdog(_) => heads.push_str("GET / HTTP/1.1\r\n\r\n"),
                Queued::Request(responder) => {
                    let Request { method, path, query, .. } = &*responder.request;
                    let (mark, query) = query.as_deref().map_or(("", ""), |query| ("?", query));
                    // Writing to a string does not fail.
                    let _ = write!(heads, "{method} {path}{mark}{query} HTTP/1.1\r\n\r\n");
                }
            }
            self.sent += 1;
        }
        if let Err(error) = self.connection.write_all(heads.as_bytes()) {
            self.fail(&format!("it takes no requests ({error})"));
        }
    }

    /// Takes the oldest request, since a worker has received a head.
    fn take_oldest(&mut self) -> Option<Queued> {
        let oldest = self.queue.pop_front();
        self.sent = self.sent.saturating_sub(1);
        self.send_heads();
        oldest
    }

    /// Closes the connection, and drops all requests. So they get 500, and this watchdog and all
    /// later ones fail. The edge then ends the process.
    fn fail(&mut self, reason: &str) {
        tracing::error!("tiny_http failed: {reason}");
        self.queue.clear();
        self.sent = 0;
        // It may be closed already.
        let _ = self.connection.shutdown(Shutdown::Both);
    }
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
