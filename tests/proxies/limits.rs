//! What the proxy holds off by itself, with the rates of the example.

use std::io::{Read, Write};
use std::net::Ipv4Addr;

use crate::support::proxy::{HOST, Kind, Proxy};
use crate::support::{ALL, TestServer};

fn ask(proxy: &Proxy, request: &str, body: usize) -> String {
    let mut connection = proxy.connect_from(Ipv4Addr::LOCALHOST).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    // It may be refused before all of it is sent.
    let _ = connection.write_all(&vec![b' '; body]);
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_body_over_the_services_limit_gets_the_services_answer_and_a_huge_one_is_cut_short() {
    let server = TestServer::start();
    let key = server.tenant("acme").key(ALL).key;
    let proxy = Proxy::start_with(Kind::of_this_binary().unwrap(), server.address(), |text| text);
    let head = |length: usize| {
        format!(
            "POST /customers.php HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let answer = ask(&proxy, &head(100_000), 100_000);
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("payload_too_large"), "{answer}");
    let answer = ask(&proxy, &head(3_000_000), 3_000_000);
    // Whoever gives up first: the proxy at its own limit, or the service, which does not read so much and closes.
    let ends = ["HTTP/1.1 413", "HTTP/1.1 502"].iter().any(|start| answer.starts_with(start));
    assert!(answer.is_empty() || ends, "{answer}");
}

#[test]
fn a_service_that_is_away_is_a_gateway_error_and_no_hang() {
    let mut server = TestServer::start();
    let proxy = Proxy::start_with(Kind::of_this_binary().unwrap(), server.address(), |text| text);
    server.stop();
    let answer = ask(&proxy, &format!("GET /healthz HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"), 0);
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}
