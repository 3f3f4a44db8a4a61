//! The limits that the proxy enforces, with the rates of the example.

use std::io::{BufReader, Write};
use std::net::Ipv4Addr;

use crate::support::proxy::{HOST, Kind, Proxy};
use crate::support::raw::{Answer, read_answer};
use crate::support::{ALL, TestServer};

/// Returns `None` if the proxy closes the connection without a response.
///
/// The connection stays open after the response. If it did not, the proxy would close it before it
/// has read the whole body. The reset that follows can remove the response before a client reads it.
fn ask(proxy: &Proxy, request: &str, body: usize) -> Option<Answer> {
    let mut connection = proxy.connect_from(Ipv4Addr::LOCALHOST).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    // The request may be rejected before the whole body is sent.
    let _ = connection.write_all(&vec![b' '; body]);
    read_answer(&mut BufReader::new(connection))
}

#[test]
fn a_body_over_64_kib_is_a_413_of_the_service_and_one_of_megabytes_is_cut() {
    let server = TestServer::start();
    let key = server.tenant("acme").key(ALL).key;
    let head = |length: usize| {
        format!(
            "POST /customers.php HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    for kind in Kind::installed() {
        let proxy = Proxy::start_with(kind, server.address(), |text| text);
        let answer = ask(&proxy, &head(100_000), 100_000).expect("a response");
        answer.fails_with(413, "payload_too_large");
        // Either the proxy's own limit applies first, or the service closes the connection.
        if let Some(answer) = ask(&proxy, &head(3_000_000), 3_000_000) {
            assert!(matches!(answer.status, 413 | 502), "{kind:?}: {answer:?}");
        }
    }
}

#[test]
fn a_service_that_is_stopped_is_a_502_at_once() {
    for kind in Kind::installed() {
        let mut server = TestServer::start();
        let proxy = Proxy::start_with(kind, server.address(), |text| text);
        server.stop();
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        let answer = ask(&proxy, &request, 0).expect("a response");
        assert_eq!(answer.status, 502, "{kind:?}: {answer:?}");
    }
}
