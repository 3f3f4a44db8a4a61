//! The client's address and scheme behind a proxy are the real ones, whatever the client claims.

use std::io::{Read, Write};
use std::net::Ipv4Addr;

use serde_json::Value;

use crate::support::browser::encode;
use crate::support::proxy::{Deployment, Proxy};
use crate::support::{Setup, TestServer, until, uuid};

/// Sends a request with these headers through the proxy, from the address `from` of this machine,
/// and returns the entry of the service's access log.
fn logged(proxy: &Proxy, server: &TestServer, from: Ipv4Addr, headers: &str) -> Value {
    let (id, host) = (uuid(), proxy.host());
    let mut connection = proxy.connect_from(from).unwrap();
    let request = format!(
        "GET /customers.php HTTP/1.1\r\nHost: {host}\r\nX-Request-Id: {id}\r\n{headers}Connection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    let _ = connection.read_to_end(&mut response);
    assert!(response.starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&response));
    until("the request is in the log", || {
        server
            .log()
            .lines()
            .find(|line| line.contains(&id))
            .map(|line| serde_json::from_str(line).unwrap())
    })
}

/// A server behind each proxy.
fn deployments() -> impl Iterator<Item = (TestServer, Proxy)> {
    Deployment::all().map(|deployment| {
        let server = Setup::plain().option("--log-format").option("json").start();
        let proxy = deployment.start(server.address());
        (server, proxy)
    })
}

#[test]
fn the_clients_own_address_is_logged_and_one_that_it_made_up_is_ignored() {
    let from = Ipv4Addr::new(127, 0, 0, 3);
    let forged = [
        "",
        "X-Forwarded-For: 203.0.113.9\r\n",
        "X-Forwarded-For: 203.0.113.9, 127.0.0.1\r\n",
        "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 203.0.113.10\r\n",
        "x-forwarded-for: nonsense\r\n",
        "Forwarded: for=203.0.113.9\r\nX-Real-IP: 203.0.113.9\r\nTrue-Client-IP: 203.0.113.9\r\n",
        "Connection: X-Forwarded-For\r\nX-Forwarded-For: 203.0.113.9\r\n",
    ];
    for (server, proxy) in deployments() {
        for headers in forged {
            assert_eq!(
                logged(&proxy, &server, from, headers)["client"],
                from.to_string(),
                "{headers}"
            );
        }
    }
}

/// A browser without `Sec-Fetch-Site` sends a form through the proxy. The panel compares `Origin` and
/// `Host` as they arrive.
#[test]
fn a_sign_in_through_https_sets_a_secure_cookie() {
    for (server, proxy) in deployments() {
        let tenant = server.tenant("acme");
        let sign_in =
            [("action", "sign-in"), ("tenant", &*tenant.name), ("password", &tenant.password)];
        let form = encode(&sign_in);
        let send = |origin: &str| {
            let host = proxy.host();
            let mut connection = proxy.connect_from(Ipv4Addr::LOCALHOST).unwrap();
            let request = format!(
                "POST /api_keys.php HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{form}",
                form.len()
            );
            connection.write_all(request.as_bytes()).unwrap();
            let mut response = String::new();
            let _ = connection.read_to_string(&mut response);
            response
        };
        let response = send(&format!("https://{}", proxy.host()));
        assert!(response.starts_with("HTTP/1.1 303"), "{response}");
        let mut lines = response.lines();
        let cookie = lines.find(|line| line.to_lowercase().starts_with("set-cookie:")).unwrap();
        assert!(cookie.contains("Secure"), "{response}");
        let response = send("https://evil.example");
        assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    }
}

/// The status line of a response.
fn status(proxy: &Proxy, from: Ipv4Addr, target: &str) -> String {
    let mut connection = proxy.connect_from(from).unwrap();
    let host = proxy.host();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    let _ = connection.read_to_end(&mut response);
    String::from_utf8_lossy(&response).lines().next().unwrap_or_default().to_owned()
}

/// Of the loopback addresses, the examples name 127.0.0.1 alone. The others are outside.
#[test]
fn the_panel_and_readiness_are_for_private_networks_only() {
    let (inside, outside) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    for (_server, proxy) in deployments() {
        for target in ["/api_keys.php", "/readyz"] {
            assert!(status(&proxy, inside, target).starts_with("HTTP/1.1 200"), "{target}");
        }
        assert!(status(&proxy, outside, "/docs").starts_with("HTTP/1.1 200"));
        let same = ["/api_keys.php?x=1", "/api%5Fkeys.php", "/./api_keys.php"];
        for target in ["/api_keys.php", "/readyz"].into_iter().chain(same) {
            let status = status(&proxy, outside, target);
            assert!(status.starts_with("HTTP/1.1 403"), "{target}: {status}");
        }
    }
}
