//! tiny_http's queue of requests and the threads before it, with a channel in place of the socket.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::error::Error;
use std::io::{self, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex as RealMutex};

use shuttle::sync::{Arc, mpsc};

use super::monitor::Monitor;

/// The sockets to which nobody has connected.
static SOCKETS: LazyLock<RealMutex<HashMap<PathBuf, mpsc::Sender<String>>>> =
    LazyLock::new(RealMutex::default);

pub struct Server(Arc<Monitor<VecDeque<Message>>>);

enum Message {
    Request(Request),
    Unblock,
}

#[derive(Debug)]
pub struct Request {
    method: String,
    target: String,
    headers: Vec<Header>,
}

#[derive(Debug)]
pub struct Header {
    pub value: String,
}

impl Server {
    pub fn http_unix(path: &Path) -> Result<Server, Box<dyn Error + Send + Sync>> {
        let (sender, heads) = mpsc::channel::<String>();
        SOCKETS.lock().unwrap().insert(path.to_owned(), sender);
        let messages = Arc::new(Monitor::default());
        let server = Server(Arc::clone(&messages));
        shuttle::thread::spawn(move || {
            for head in heads {
                let request = Message::Request(Request::parse(&head));
                messages.change_for_one(|queue| queue.push_back(request));
            }
        });
        Ok(server)
    }

    pub fn recv(&self) -> io::Result<Request> {
        match self.0.wait_until(|queue| !queue.is_empty()).pop_front() {
            Some(Message::Request(request)) => Ok(request),
            Some(Message::Unblock) | None => Err(io::Error::other("unblocked")),
        }
    }

    pub fn unblock(&self) {
        self.0.change_for_one(|queue| queue.push_back(Message::Unblock));
    }
}

impl Request {
    fn parse(head: &str) -> Request {
        let mut lines = head.split("\r\n");
        let mut first = lines.next().unwrap().split(' ').map(str::to_owned);
        let (method, target) = (first.next().unwrap(), first.next().unwrap());
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(_, value)| Header { value: value.to_owned() }).collect();
        Request { method, target, headers }
    }

    pub fn method(&self) -> &String {
        &self.method
    }

    pub fn url(&self) -> &str {
        &self.target
    }

    pub fn headers(&self) -> &[Header] {
        &self.headers
    }

    pub fn into_writer(self) -> Box<dyn Write> {
        Box::new(io::sink())
    }
}

/// The connection to tiny_http. The pool closes it only if tiny_http fails, which this one does
/// not.
pub struct UnixStream(mpsc::Sender<String>);

impl UnixStream {
    pub fn connect(path: &Path) -> io::Result<UnixStream> {
        Ok(UnixStream(SOCKETS.lock().unwrap().remove(path).expect("a socket")))
    }

    pub fn set_nonblocking(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    pub fn shutdown(&self, _: Shutdown) -> Result<(), Infallible> {
        panic!("the pool closed its connection")
    }
}

impl Write for UnixStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let head = String::from_utf8(bytes.to_vec()).expect("a head is text");
        self.0.send(head).expect("the server reads");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
