//! Whose address it is: behind a proxy the client's, and never one that the client made up.

use std::io::{Read, Write};
use std::net::Ipv4Addr;

use serde_json::Value;

use crate::support::proxy::{HOST, Kind, Proxy};
use crate::support::{Setup, TestServer, until, uuid};

/// Sends a request with these headers through the proxy, from an address of this machine, and returns what the service logs
/// of it.
fn logged(proxy: &Proxy, server: &TestServer, from: Ipv4Addr, headers: &str) -> Value {
    let id = uuid();
    let mut connection = proxy.connect_from(from).unwrap();
    let request = format!(
        "GET /customers.php HTTP/1.1\r\nHost: {HOST}\r\nX-Request-Id: {id}\r\n{headers}Connection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&answer));
    until("the request is in the log", || {
        server.log().lines().find(|line| line.contains(&id)).map(|line| serde_json::from_str(line).unwrap())
    })
}

fn server() -> (TestServer, Proxy) {
    let server = Setup::plain().option("--log-format").option("json").start();
    let proxy = Proxy::start(Kind::of_this_binary().unwrap(), server.address());
    (server, proxy)
}

#[test]
fn the_clients_own_address_is_logged() {
    let (server, proxy) = server();
    for from in [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 9, 8, 7)] {
        assert_eq!(logged(&proxy, &server, from, "")["client"], from.to_string());
    }
}

#[test]
fn an_address_that_the_client_made_up_is_not_believed() {
    let (server, proxy) = server();
    let from = Ipv4Addr::new(127, 0, 0, 3);
    for forged in [
        "X-Forwarded-For: 203.0.113.9\r\n",
        "X-Forwarded-For: 203.0.113.9, 127.0.0.1\r\n",
        "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 203.0.113.10\r\n",
        "x-forwarded-for: nonsense\r\n",
        "Forwarded: for=203.0.113.9\r\nX-Real-IP: 203.0.113.9\r\nTrue-Client-IP: 203.0.113.9\r\n",
        "Connection: X-Forwarded-For\r\nX-Forwarded-For: 203.0.113.9\r\n",
    ] {
        assert_eq!(logged(&proxy, &server, from, forged)["client"], from.to_string(), "{forged}");
    }
}

#[test]
fn the_panels_cookie_knows_that_the_client_came_by_https() {
    let (server, proxy) = server();
    let mut connection = proxy.connect_from(Ipv4Addr::LOCALHOST).unwrap();
    let request = format!("GET /api_keys.php HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = connection.read_to_string(&mut answer);
    let cookie = answer.lines().find(|line| line.to_lowercase().starts_with("set-cookie:")).unwrap_or_default();
    assert!(cookie.contains("Secure"), "{answer}");
    drop(server);
}
