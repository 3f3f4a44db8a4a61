//! A service with a handler that tells what it received, and clients that send it any bytes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tenantdesk::error::Error;
use tenantdesk::http::{Body, Reply, Request, Response};
use tenantdesk::service::{Options, Service};

/// Longer than anything here should take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running service, and every request that came through its gate.
pub struct Desk {
    service: Option<Service>,
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Desk {
    pub fn start() -> Desk {
        Desk::with(|_| {})
    }

    /// With options other than the usual.
    pub fn with(change: impl FnOnce(&mut Options)) -> Desk {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let mut options = Options { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Options::default() };
        change(&mut options);
        let handler = move |request: Request, reply: Reply| {
            record.lock().unwrap().push(request.clone());
            answer(&request, reply);
        };
        let service = Service::start_with(Arc::new(handler), &options).unwrap();
        Desk { address: service.address(), service: Some(service), seen }
    }

    /// The path of every request that came through, in order.
    pub fn paths(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|request| request.path.clone()).collect()
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// One whole request on a connection of its own.
    pub fn ask(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect();
        client.send(bytes);
        client.answer()
    }

    /// Stops it from another thread's view: how long it took and whether well.
    pub fn stop(mut self) {
        self.service.take().unwrap().stop().unwrap();
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            let _ = service.stop();
        }
    }
}

/// What the handler does, by path; everything unknown is told back.
fn answer(request: &Request, reply: Reply) {
    match request.path.as_str() {
        "/panic" => panic!("as the test asked"),
        "/forgotten" => drop(reply),
        "/nothing" => reply.send(Response::empty(204)),
        "/large" => reply.send(Response::new(200, "text/plain", vec![b'x'; 1024 * 1024])),
        "/slow" => {
            let wait = request.query.as_deref().unwrap_or("").parse().unwrap_or(300);
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(wait));
                reply.send(Response::json(200, &json!({})));
            });
        }
        _ if request.body == Body::TooLarge => reply.send(Response::from(Error::PayloadTooLarge)),
        _ => reply.send(Response::json(200, &tell(request))),
    }
}

fn tell(request: &Request) -> Value {
    let Body::Whole(body) = &request.body else { return Value::Null };
    json!({
        "method": request.method.as_str(),
        "path": request.path,
        "query": request.query,
        "headers": request.headers,
        "body": String::from_utf8_lossy(body),
        "id": request.id.to_string(),
        "client": request.client.to_string(),
        "secure": request.secure,
    })
}

/// One connection of a client that may send anything.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    /// The same connection once more, for another thread.
    pub fn twin(&self) -> Client {
        Client { stream: BufReader::new(self.socket().try_clone().unwrap()) }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends as much as the other side takes; whether that was all.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    pub fn answer(&mut self) -> Answer {
        self.try_answer(false).expect("an answer")
    }

    /// An answer to HEAD: no body, whatever its length says.
    pub fn head_answer(&mut self) -> Answer {
        self.try_answer(true).expect("an answer")
    }

    /// `None` when the connection ended instead.
    pub fn try_answer(&mut self, head_only: bool) -> Option<Answer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; if head_only || status == 100 { 0 } else { length }];
        self.stream.read_exact(&mut body).ok()?;
        Some(Answer { status, headers, body })
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Everything up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Whether the other side has closed; waits for it.
    pub fn is_closed(&mut self) -> bool {
        self.rest().is_empty()
    }

    pub fn stop_sending(&mut self) {
        self.stream.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

/// An answer on the wire.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    /// The value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Refused as contract section 6 says, with everything that goes with it.
    pub fn fails_with(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.json()["error"]["code"], code, "{self:?}");
        assert_eq!(self.json()["error"]["status"], status, "{self:?}");
        assert_eq!(self.header("x-api-version"), "v1");
        assert_eq!(self.header("x-request-id").len(), 36);
    }
}

/// A GET of `path`, as bytes.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: desk\r\n\r\n")
}
