//! `health`: asks a running server whether it is ready, for the checks of a supervisor.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use http::Uri;
use serde_json::{Value, json};

use super::output::{print, print_json};
use super::serve::reachable;
use super::{GlobalOptions, reason};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The server's address, such as http://127.0.0.1:8080; /readyz is added. It is an IP address
    /// or localhost, and plain HTTP: this is the check of a server on its own machine. Ask one with
    /// --tls-cert by `curl --insecure`
    #[arg(env = "TENANTDESK_LISTEN", default_value = "127.0.0.1:8080", value_parser = target)]
    url: Target,
}

/// What is asked.
#[derive(Clone, Debug)]
struct Target {
    address: SocketAddr,
    host: String,
    path: String,
}

/// The maximum time until the server has answered.
const DEADLINE: Duration = Duration::from_secs(5);

/// The maximum number of bytes of an answer.
const MAX_ANSWER: usize = 64 * 1024;

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let target = &arguments.url;
    let url = format!("http://{}{}", target.host, target.path);
    let outcome = check(target).with_context(|| format!("{url} is not ready"));
    if options.json {
        let fault = outcome.as_ref().err().map(reason);
        print_json(&json!({"url": url, "ready": fault.is_none(), "reason": fault}))?;
    } else if outcome.is_ok() {
        print(&format!("{url} is ready"))?;
    }
    outcome
}

/// Parses `http://HOST:PORT`, or what `serve --listen` takes.
fn target(text: &str) -> Result<Target, &'static str> {
    const INVALID: &str = "not an address such as http://127.0.0.1:8080";
    let uri: Uri = text.parse().map_err(|_| INVALID)?;
    if uri.scheme_str().is_some_and(|scheme| scheme != "http") {
        return Err("only plain http is asked; use curl for https");
    }
    let authority = uri.authority().ok_or(INVALID)?;
    // Names are not resolved: a static binary cannot do so everywhere.
    let ip = match authority.host().trim_matches(['[', ']']) {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host.parse().map_err(|_| "the host is not an IP address or localhost")?,
    };
    let port = match authority.port_u16() {
        None if authority.as_str() != authority.host() => return Err(INVALID),
        port => port.unwrap_or(80),
    };
    let address = reachable(SocketAddr::new(ip, port));
    let path = format!("{}/readyz", uri.path().trim_end_matches('/'));
    Ok(Target { address, host: authority.to_string(), path })
}

fn check(target: &Target) -> anyhow::Result<()> {
    let answer = ask(target)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    match status {
        Some("200") => Ok(()),
        Some(status) => {
            let document: Value = serde_json::from_str(body).unwrap_or_default();
            match document.pointer("/error/message").and_then(Value::as_str) {
                Some(message) => bail!("{message}"),
                None => bail!("the answer has the status {status}"),
            }
        }
        None => bail!("the answer is not HTTP; perhaps the server is asked for HTTPS"),
    }
}

/// Sends the request and returns the answer.
fn ask(target: &Target) -> anyhow::Result<String> {
    let end = Instant::now() + DEADLINE;
    let mut stream = TcpStream::connect_timeout(&target.address, DEADLINE)?;
    stream.set_write_timeout(Some(DEADLINE))?;
    let Target { host, path, .. } = target;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "there was no answer within {} s", DEADLINE.as_secs());
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => (),
            // What a server does that awaits TLS.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error.into()),
        }
        ensure!(answer.len() <= MAX_ANSWER, "the answer is too long");
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_or_what_the_server_listens_on() {
        let parsed = |text| {
            let Target { address, path, .. } = target(text).unwrap();
            format!("{address}{path}")
        };
        assert_eq!(parsed("127.0.0.1:8080"), "127.0.0.1:8080/readyz");
        assert_eq!(parsed("0.0.0.0:80"), "127.0.0.1:80/readyz");
        assert_eq!(parsed("[::]:81"), "[::1]:81/readyz");
        assert_eq!(parsed("http://localhost"), "127.0.0.1:80/readyz");
        assert_eq!(parsed("http://[::1]:9/"), "[::1]:9/readyz");
        assert_eq!(parsed("http://10.0.0.1/desk/"), "10.0.0.1:80/desk/readyz");
        for text in
            ["", "/", "https://127.0.0.1", "http://example.com", "http://", "a b", "127.0.0.1:x"]
        {
            assert!(target(text).is_err(), "{text:?}");
        }
    }
}
