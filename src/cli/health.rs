//! `health`: asks a running server whether it is ready, for the checks of a supervisor.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::options::{GlobalOptions, reason};
use super::serve::reachable;

#[derive(Debug, Args)]
pub(super) struct HealthArguments {
    /// The server's address, such as http://127.0.0.1:8080, with an IP address or localhost; /readyz
    /// is added. A server with --tls-cert does not answer plain HTTP: use `curl --insecure`
    #[arg(env = "TENANTDESK_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    url: SocketAddr,
}

/// The maximum time for each step: to connect, to send and to receive.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of bytes of an answer.
const MAX_ANSWER: u64 = 64 * 1024;

pub(super) fn run(options: &GlobalOptions, arguments: &HealthArguments) -> anyhow::Result<()> {
    let url = format!("http://{}/readyz", arguments.url);
    let outcome = check(arguments.url).with_context(|| format!("{url} is not ready"));
    let (is_ready, found) = match &outcome {
        Ok(warning) => (true, warning.clone()),
        Err(error) => (false, Some(reason(error))),
    };
    let warning = found.as_ref().map(|found| format!("\nwarning: {found}")).unwrap_or_default();
    let document = json!({"url": url, "ready": is_ready, "reason": found});
    if options.json || is_ready {
        options.report(&document, &format!("{url} is ready{warning}"))?;
    }
    outcome.map(drop)
}

/// Parses `http://HOST:PORT`, or what `serve --listen` takes. Names are not resolved: a static
/// binary cannot do so everywhere.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    let authority = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let parsed = authority.replace("localhost", "127.0.0.1").parse().map(reachable);
    parsed.map_err(
        |_| "not an address such as http://127.0.0.1:8080, with an IP address or localhost",
    )
}

/// Returns the server's warning, if there is one.
fn check(address: SocketAddr) -> anyhow::Result<Option<String>> {
    let answer = ask(address)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let document: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |pointer| document.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    match head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)) {
        Some("200") => Ok(text("/warning")),
        Some(status) => match text("/error/message") {
            Some(message) => bail!("{message}"),
            None => bail!("the answer has the status {status}"),
        },
        None => bail!("the answer is not HTTP; perhaps the server takes only HTTPS"),
    }
}

fn ask(address: SocketAddr) -> anyhow::Result<String> {
    let connected = TcpStream::connect_timeout(&address, TIMEOUT);
    let mut stream = connected.context("cannot connect; start the server or name its address")?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // One write: a server that speaks TLS closes the connection at the first bytes.
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let sent = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let read = stream.take(MAX_ANSWER).read_to_end(&mut answer);
    ensure!(
        sent.is_ok() && read.is_ok(),
        "no answer within 5 s; the server hangs, or it takes only HTTPS"
    );
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_or_what_the_server_listens_on() {
        let parsed = |text| address(text).unwrap().to_string();
        assert_eq!(parsed("127.0.0.1:8080"), "127.0.0.1:8080");
        assert_eq!(parsed("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!(parsed("[::]:81"), "[::1]:81");
        assert_eq!(parsed("http://localhost:80"), "127.0.0.1:80");
        assert_eq!(parsed("http://[::1]:9/"), "[::1]:9");
        for text in [
            "",
            "/",
            "https://127.0.0.1:80",
            "http://example.com:80",
            "http://",
            "a b",
            "127.0.0.1",
            "127.0.0.1:x",
            "http://10.0.0.1:80/desk",
        ] {
            assert!(address(text).is_err(), "{text:?}");
        }
    }
}
