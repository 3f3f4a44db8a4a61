//! The limits that the proxy enforces, with the rates of the example.

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};

use crate::support::proxy::{Deployment, Kind, Proxy};
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

fn probe(proxy: &Proxy) -> String {
    format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.host())
}

/// The proxy's own error in the form of the contract.
#[track_caller]
fn assert_refused(answer: &Answer, status: u16, code: &str) {
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["status"]), (status, &status.into()), "{answer:?}");
    assert_eq!(error["code"], code, "{answer:?}");
    assert!(error["message"].is_string(), "{answer:?}");
    assert!(answer.header("content-type").starts_with("application/json"), "{answer:?}");
    let retry_after = if status < 500 { "" } else { "1" };
    assert_eq!(answer.header("retry-after"), retry_after, "{answer:?}");
}

#[test]
fn a_body_over_64_kib_is_a_413_of_the_service_and_one_of_megabytes_is_cut() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL).key;
    let head = |proxy: &Proxy, length: usize| {
        let host = proxy.host();
        format!(
            "POST /customers.php HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    for deployment in Deployment::all() {
        let proxy = deployment.start_with(server.address(), |text| text);
        let answer = ask(&proxy, &head(&proxy, 100_000), 100_000).expect("a response");
        answer.fails_with(413, "payload_too_large");
        // Either the proxy's own limit applies first, or the service closes the connection.
        if let Some(answer) = ask(&proxy, &head(&proxy, 3_000_000), 3_000_000) {
            let own = if answer.status == 413 { "payload_too_large" } else { "overloaded" };
            assert!(matches!(answer.status, 413 | 502), "{deployment:?}: {answer:?}");
            assert_refused(&answer, answer.status, own);
        }
    }
}

#[test]
fn a_service_that_is_stopped_is_a_502_at_once() {
    for deployment in Deployment::all() {
        let mut server = TestServer::start();
        let proxy = deployment.start_with(server.address(), |text| text);
        server.stop();
        let request = probe(&proxy);
        let answer = ask(&proxy, &request, 0).expect("a response");
        assert_refused(&answer, 502, "overloaded");
        assert!(!answer.header("strict-transport-security").is_empty(), "{answer:?}");
    }
}

#[test]
fn a_service_that_does_not_answer_is_a_504() {
    for deployment in Deployment::all() {
        // It accepts connections and says nothing.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = deployment.start_with(silent.local_addr().unwrap(), |text| {
            text.replace("read_timeout    65s", "read_timeout 100ms")
                .replace("header_timeout 65s", "header_timeout 100ms")
        });
        let request = probe(&proxy);
        assert_refused(&ask(&proxy, &request, 0).expect("a response"), 504, "overloaded");
    }
}

#[test]
fn a_burst_over_the_limit_of_nginx_gets_errors_of_the_contract() {
    let server = TestServer::start();
    for deployment in Deployment::all().filter(|deployment| deployment.kind == Kind::Nginx) {
        let proxy = deployment.start_with(server.address(), |text| {
            text.replace("rate=50r/s", "rate=1r/m").replace("burst=200", "burst=1")
        });
        let answers = [(); 3].map(|()| ask(&proxy, &probe(&proxy), 0).expect("a response"));
        assert_eq!(answers[0].status, 200);
        assert_refused(&answers[2], 503, "overloaded");
    }
}

/// A client that has sent its key in the clear must not go on without a word.
#[test]
fn a_browser_is_sent_to_https_and_a_key_in_the_clear_is_refused() {
    let server = TestServer::start();
    for deployment in Deployment::all() {
        let proxy = deployment.start_with(server.address(), |text| text);
        let ask = |header: &str| {
            let mut connection = proxy.connect_plainly().unwrap();
            let host = proxy.host();
            let request = format!("GET /docs?a=b HTTP/1.1\r\nHost: {host}\r\n{header}\r\n");
            connection.write_all(request.as_bytes()).unwrap();
            read_answer(&mut BufReader::new(connection)).expect("a response")
        };
        let sent = ask("");
        assert_eq!(sent.status, 301, "{deployment:?}: {sent:?}");
        assert_eq!(sent.header("location"), format!("https://{}/docs?a=b", proxy.host()));
        assert_eq!(ask("Authorization: Bearer x\r\n").status, 403, "{deployment:?}");
    }
}

#[test]
fn a_host_of_no_tenant_is_a_404() {
    let server = TestServer::start();
    for deployment in Deployment::all().filter(|deployment| deployment.several_machines) {
        let proxy = deployment.start(server.address());
        let request = "GET /customers.php HTTP/1.1\r\nHost: nobody.desk.example\r\n\r\n";
        assert_refused(&ask(&proxy, request, 0).expect("a response"), 404, "not_found");
    }
}

/// Caddy's own 431 has no body.
#[test]
fn an_address_that_is_too_long_for_nginx_is_a_414_of_the_contract() {
    let server = TestServer::start();
    for deployment in Deployment::all().filter(|deployment| deployment.kind == Kind::Nginx) {
        let proxy = deployment.start(server.address());
        let (path, host) = ("x".repeat(15_000), proxy.host());
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = ask(&proxy, &request, 0).expect("a response");
        assert_refused(&answer, 414, "malformed_request");
    }
}
