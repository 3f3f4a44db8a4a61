//! An HTTP client that sends requests byte for byte and returns responses with every header. It
//! keeps one connection alive and reads one response for each request, so a surplus response is
//! detected.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use serde_json::Value;

use super::proxy;
use super::reply::{Asked, Reply};
use super::server::DataDir;
use super::tls::Stream;
use super::{DEADLINE, contract};

/// A client with one key, or with none. A clone has a connection of its own.
#[derive(Debug)]
pub(crate) struct Api {
    data_dir: Arc<DataDir>,
    /// The value of `Authorization`.
    authorization: Option<String>,
    /// The prefix of every path: nothing, or `/v1`.
    base: &'static str,
    /// The value of `Host`.
    host: String,
    connection: RefCell<Option<BufReader<Stream>>>,
}

impl Clone for Api {
    fn clone(&self) -> Api {
        Api {
            data_dir: Arc::clone(&self.data_dir),
            authorization: self.authorization.clone(),
            base: self.base,
            host: self.host.clone(),
            connection: RefCell::new(None),
        }
    }
}

impl Api {
    pub(crate) fn new(data_dir: Arc<DataDir>, key: Option<&str>) -> Api {
        let authorization = key.map(|key| format!("Bearer {key}"));
        Api {
            data_dir,
            authorization,
            base: "",
            host: proxy::HOST.to_owned(),
            connection: RefCell::new(None),
        }
    }

    /// The same client, which names another host.
    pub(crate) fn at_host(&self, host: &str) -> Api {
        Api { host: host.to_owned(), ..self.clone() }
    }

    /// The same client below `/v1`.
    pub(crate) fn below_v1(&self) -> Api {
        Api { base: "/v1", ..self.clone() }
    }

    /// The same client with this `Authorization` header, whatever it is.
    pub(crate) fn authorized_by(&self, value: &str) -> Api {
        Api { authorization: Some(value.to_owned()), ..self.clone() }
    }

    pub(crate) fn call(&self, method: &str, target: &str) -> Call<'_> {
        let authorization =
            self.authorization.iter().map(|value| ("Authorization".to_owned(), value.clone()));
        Call {
            api: self,
            method: method.to_owned(),
            target: format!("{}{target}", self.base),
            headers: authorization.collect(),
            body: None,
        }
    }

    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Reply {
        self.call("GET", target).send()
    }

    #[track_caller]
    pub(crate) fn head(&self, target: &str) -> Reply {
        self.call("HEAD", target).send()
    }

    #[track_caller]
    pub(crate) fn post(&self, target: &str, body: Value) -> Reply {
        self.call("POST", target).json(&body).send()
    }

    #[track_caller]
    pub(crate) fn put(&self, target: &str, body: Value) -> Reply {
        self.call("PUT", target).json(&body).send()
    }

    #[track_caller]
    pub(crate) fn delete(&self, target: &str) -> Reply {
        self.call("DELETE", target).send()
    }

    /// Posts these bytes as JSON.
    #[track_caller]
    pub(crate) fn post_bytes(&self, target: &str, body: impl Into<Vec<u8>>) -> Reply {
        self.call("POST", target).header("Content-Type", "application/json").body(body).send()
    }

    /// Makes a record and returns its id.
    #[track_caller]
    pub(crate) fn create(&self, path: &str, body: Value) -> i64 {
        self.post(path, body).created()["id"].as_i64().unwrap()
    }

    /// Makes a customer and returns its id.
    #[track_caller]
    pub(crate) fn customer(&self, name: &str) -> i64 {
        self.create("/customers.php", serde_json::json!({"name": name}))
    }

    /// Makes an employee of the customer and returns its id.
    #[track_caller]
    pub(crate) fn employee(&self, customer: i64) -> i64 {
        self.create(
            "/employees.php",
            serde_json::json!({"customer_id": customer, "email": "eva@shop.example"}),
        )
    }

    /// The smallest body that makes a record of `resource`. It makes the customer that an employee
    /// needs.
    #[track_caller]
    pub(crate) fn smallest(&self, resource: &contract::Resource) -> Value {
        match resource.plural {
            "employees" => {
                serde_json::json!({"customer_id": self.customer("Its customer"), "email": "eva@shop.example"})
            }
            _ => serde_json::json!({"name": "Something"}),
        }
    }

    /// How many records a list has in all.
    #[track_caller]
    pub(crate) fn total(&self, target: &str) -> i64 {
        let sign = if target.contains('?') { '&' } else { '?' };
        self.get(&format!("{target}{sign}total=true&limit=1")).found()["total"].as_i64().unwrap()
    }

    /// All records of a list, by its cursors.
    #[track_caller]
    pub(crate) fn all(&self, target: &str) -> Vec<Value> {
        let sign = if target.contains('?') { '&' } else { '?' };
        let mut records = Vec::new();
        let mut page = self.get(target).found();
        loop {
            records.extend(page["data"].as_array().unwrap().iter().cloned());
            match page["next_cursor"].as_str() {
                Some(cursor) => page = self.get(&format!("{target}{sign}cursor={cursor}")).found(),
                None => return records,
            }
        }
    }

    /// The ids of all records of a list, in its order.
    #[track_caller]
    pub(crate) fn ids(&self, target: &str) -> Vec<i64> {
        self.all(target).iter().map(|record| record["id"].as_i64().unwrap()).collect()
    }
}

/// One request on its way.
#[derive(Debug)]
#[must_use]
pub(crate) struct Call<'a> {
    api: &'a Api,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Call<'_> {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json").body(body.to_string())
    }

    /// With this idempotency key.
    pub(crate) fn key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    /// Sends it, awaits the reply and checks what is true of every reply.
    #[track_caller]
    pub(crate) fn send(self) -> Reply {
        let what = format!("{} {}", self.method, self.target);
        let reply = self.try_send().unwrap_or_else(|error| panic!("{what}: {error}"));
        reply.check();
        reply
    }

    /// Sends it where the server may go away at any moment. The reply is not checked.
    pub(crate) fn try_send(self) -> io::Result<Reply> {
        let mut idle = self.api.connection.borrow_mut();
        let mut connection = match idle.take().filter(is_alive) {
            Some(connection) => connection,
            None => self.connect()?,
        };
        say(&mut connection, &self.bytes())?;
        let asked = self.asked();
        let reply = read_reply(&mut connection, asked)?;
        if reply.status == 502 {
            // A proxy reports that the service is not reachable.
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let closes =
            reply.headers.iter().any(|(n, v)| n.eq_ignore_ascii_case("connection") && v == "close");
        if !closes {
            *idle = Some(connection);
        }
        Ok(reply)
    }

    /// Sends it without awaiting the reply: the connection from which to read it.
    pub(crate) fn start(self) -> Pending {
        let mut connection = self.connect().unwrap();
        say(&mut connection, &self.bytes()).unwrap();
        Pending { connection, asked: self.asked() }
    }

    fn asked(self) -> Asked {
        let is_proxied = self.api.data_dir.is_proxied();
        Asked { method: self.method, target: self.target, headers: self.headers, is_proxied }
    }

    fn connect(&self) -> io::Result<BufReader<Stream>> {
        let data_dir = &self.api.data_dir;
        match data_dir.connect_to_proxy() {
            Some(stream) => stream.map(BufReader::new),
            None => Ok(BufReader::new(Stream::new(dial(data_dir.address())?, data_dir.https()))),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head =
            format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.target, self.api.host);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(self.body.iter().flatten());
        bytes
    }
}

/// A request whose reply is still to come.
#[derive(Debug)]
pub(crate) struct Pending {
    connection: BufReader<Stream>,
    asked: Asked,
}

impl Pending {
    /// Awaits the reply and checks it.
    #[track_caller]
    pub(crate) fn reply(mut self) -> Reply {
        let reply = read_reply(&mut self.connection, self.asked).unwrap();
        reply.check();
        reply
    }

    /// Whether a reply has begun to come.
    pub(crate) fn is_answered(&self) -> bool {
        !matches!(peek(self.connection.get_ref().socket()), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Sends raw bytes on a connection of their own and returns all that comes until it closes.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut connection = dial(address).unwrap();
    connection.write_all(bytes).unwrap();
    let mut response = Vec::new();
    // A reset after the response ends the connection, too.
    let _ = connection.read_to_end(&mut response);
    response
}

fn say(connection: &mut BufReader<Stream>, bytes: &[u8]) -> io::Result<()> {
    connection.get_mut().write_all(bytes)?;
    connection.get_mut().flush()
}

fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(stream)
}

/// Whether unread bytes have come (1), the peer has closed (0), or neither (`WouldBlock`). Does not
/// wait.
pub(crate) fn peek(stream: &TcpStream) -> io::Result<usize> {
    stream.set_nonblocking(true)?;
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    seen
}

/// Whether an idle connection can be used again. Bytes without a request fail the test.
fn is_alive(connection: &BufReader<Stream>) -> bool {
    assert!(connection.buffer().is_empty(), "bytes after the reply: {:?}", connection.buffer());
    match peek(connection.get_ref().socket()) {
        Ok(0) => false,
        // The close of TLS is a message.
        Ok(_) if matches!(connection.get_ref(), Stream::Tls(_)) => false,
        Ok(_) => panic!("bytes without a request"),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

pub(crate) fn read_reply(connection: &mut impl BufRead, asked: Asked) -> io::Result<Reply> {
    let status_line = read_line(connection)?;
    let status = status_line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
    let status: u16 = status.ok_or_else(|| broken(format!("no status line: {status_line:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(connection)?;
        if line.is_empty() {
            break;
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| broken(format!("no header: {line:?}")))?;
        if !(asked.is_proxied && proxy::adds(name)) {
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }
    let body = read_body(connection, &asked.method, status, &headers)?;
    Ok(Reply { asked, status, headers, body })
}

fn read_line(connection: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    connection.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = String::from_utf8(line).map_err(broken)?;
    line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| broken(format!("no line: {line:?}")))
}

fn read_body(
    connection: &mut impl BufRead,
    method: &str,
    status: u16,
    headers: &[(String, String)],
) -> io::Result<Vec<u8>> {
    let header = |name: &str| {
        headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    };
    let mut body = Vec::new();
    if method == "HEAD" || status < 200 || status == 204 || status == 304 {
        return Ok(body);
    }
    match (header("content-length"), header("transfer-encoding")) {
        (Some(length), None) => {
            body.resize(length.parse().map_err(broken)?, 0);
            connection.read_exact(&mut body)?;
        }
        (None, Some("chunked")) => loop {
            let size = usize::from_str_radix(&read_line(connection)?, 16).map_err(broken)?;
            let start = body.len();
            body.resize(start + size, 0);
            connection.read_exact(&mut body[start..])?;
            read_line(connection)?;
            if size == 0 {
                break;
            }
        },
        (None, None) => {
            connection.read_to_end(&mut body)?;
        }
        other => return Err(broken(format!("two lengths: {other:?}"))),
    }
    Ok(body)
}

fn broken(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}
