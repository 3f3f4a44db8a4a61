//! The limits that the proxy enforces, with the rates of the example.

use std::io::{Read, Write};
use std::net::Ipv4Addr;

use crate::support::proxy::{HOST, Kind, Proxy};
use crate::support::{ALL, TestServer};

fn ask(proxy: &Proxy, request: &str, body: usize) -> String {
    let mut connection = proxy.connect_from(Ipv4Addr::LOCALHOST).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    // The request may be rejected before the whole body is sent.
    let _ = connection.write_all(&vec![b' '; body]);
    let mut response = Vec::new();
    let _ = connection.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

#[test]
fn a_body_over_64_kib_is_a_413_of_the_service_and_one_of_megabytes_is_cut() {
    let server = TestServer::start();
    let key = server.tenant("acme").key(ALL).key;
    let head = |length: usize| {
        format!(
            "POST /customers.php HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    for kind in Kind::installed() {
        let proxy = Proxy::start_with(kind, server.address(), |text| text);
        let response = ask(&proxy, &head(100_000), 100_000);
        assert!(
            response.starts_with("HTTP/1.1 413") && response.contains("payload_too_large"),
            "{kind:?}: {response}"
        );
        let response = ask(&proxy, &head(3_000_000), 3_000_000);
        // Either the proxy's own limit applies first, or the service closes the connection.
        let is_rejected =
            ["HTTP/1.1 413", "HTTP/1.1 502"].iter().any(|start| response.starts_with(start));
        assert!(response.is_empty() || is_rejected, "{kind:?}: {response}");
    }
}

#[test]
fn a_service_that_is_stopped_is_a_502_at_once() {
    for kind in Kind::installed() {
        let mut server = TestServer::start();
        let proxy = Proxy::start_with(kind, server.address(), |text| text);
        server.stop();
        let response = ask(
            &proxy,
            &format!("GET /healthz HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"),
            0,
        );
        assert!(response.starts_with("HTTP/1.1 502"), "{kind:?}: {response}");
    }
}
