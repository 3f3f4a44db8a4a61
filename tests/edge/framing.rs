//! HTTP framing: valid messages are handled correctly, ambiguous ones are rejected.

use crate::edge_server::EdgeServer;
use crate::support::raw::get;

/// A smuggled request, which the edge must never forward.
const SMUGGLED: &str = "DELETE /smuggled HTTP/1.1\r\nHost: desk\r\n\r\n";

#[test]
fn a_length_beside_chunked_is_dropped_and_the_connection_closes() {
    let server = EdgeServer::start();
    let mut client = server.connect();
    client.send("POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    client.try_send(SMUGGLED);
    assert_eq!(client.answer().json()["body"], "abc");
    assert!(client.is_closed());
    assert_eq!(server.paths(), ["/a"]);
}

#[test]
fn rare_forms_of_a_head_are_taken() {
    let server = EdgeServer::start();
    let reported = server.ask("GET http://other:81/a?b HTTP/1.1\r\nHost: desk\r\n\r\n").json();
    assert_eq!((&reported["path"], &reported["query"]), (&"/a".into(), &"b".into()));
    assert_eq!(reported["headers"][0], serde_json::json!(["host", "other:81"]));
    for head in ["GET /a HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", "GET /a HTTP/1.0\r\n\r\n"] {
        assert_eq!(server.ask(head).status, 200);
    }
}

#[test]
fn continue_is_sent_if_the_body_is_read() {
    let server = EdgeServer::start();
    let mut client = server.connect();
    client.send(
        "POST /a HTTP/1.1\r\nHost: desk\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n",
    );
    assert_eq!(client.answer().status, 100);
    client.send("{}");
    assert_eq!(client.answer().json()["body"], "{}");
    client.send(
        "POST /a HTTP/1.1\r\nHost: desk\r\nExpect: 100-continue\r\nContent-Length: 70000\r\n\r\n",
    );
    client.answer().fails_with(413, "payload_too_large");
    assert!(client.is_closed());
}

/// Each of these is followed by a request that must not run.
#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let post = |rest: &str| format!("POST /a HTTP/1.1\r\nHost: desk\r\n{rest}");
    let line = |line: &str| post(&format!("{line}\r\n\r\n{{}}"));
    let chunk = |chunk: &str| post(&format!("Transfer-Encoding: chunked\r\n\r\n{chunk}"));
    let encoded = |value: &str| post(&format!("Transfer-Encoding: {value}\r\n\r\n0\r\n\r\n"));
    let lines = [
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2, 3",
        "Content-Length: +2",
        "Content-Length : 2",
        "X-A: b\r\n c",
        "X-A: b\rc",
        "Host: desk",
    ];
    let chunks = ["xyz\r\n", "2\r\nabc\r\n0\r\n\r\n"];
    let encodings = ["identity", "chunked, gzip", "gzip, chunked", "chunked, chunked"];
    let targets = ["a", "ftp://desk/a", "*", "http://user@desk/a"];
    let whole = [
        "GET /a HTTP/1.1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET /a\r\n\r\n",
        "GET /a HTTP/2.0\r\nHost: desk\r\n\r\n",
        "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "CONNECT desk:443 HTTP/1.1\r\nHost: desk\r\n\r\n",
    ];
    let requests = lines.map(line).into_iter().chain(chunks.map(chunk));
    let requests = requests.chain(encodings.map(encoded)).chain(targets.map(get));
    let server = EdgeServer::start();
    for bytes in requests.chain(whole.map(str::to_owned)) {
        let mut client = server.connect();
        client.send(format!("{bytes}{SMUGGLED}"));
        let answer = client.try_answer().unwrap_or_else(|| panic!("{bytes:?}: no answer"));
        assert!([400, 501, 505].contains(&answer.status), "{bytes:?}: {answer:?}");
        if !answer.body.is_empty() {
            assert_eq!(answer.code(), "malformed_request", "{answer}");
        }
        assert!(client.is_closed(), "{bytes:?}: open");
    }
    assert_eq!(server.paths(), [""; 0], "something ran");
    assert_eq!(server.ask(get("/a")).status, 200);
}

/// The body of each request contains another request. A parser that ends the body too early runs
/// it.
#[test]
fn a_request_in_a_body_does_not_run() {
    let server = EdgeServer::start();
    let length = SMUGGLED.len();
    for head in [
        format!("GET /a HTTP/1.1\r\nHost: desk\r\nContent-Length: {length}\r\n\r\n"),
        format!("DELETE /a HTTP/1.1\r\nHost: desk\r\nContent-Length: {length}\r\n\r\n"),
        "POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: 1099511627776\r\n\r\n".to_owned(),
    ] {
        let mut client = server.connect();
        let _ = client.try_send(format!("{head}{SMUGGLED}"));
        client.stop_sending();
        client.rest();
        assert!(!server.paths().contains(&"/smuggled".to_owned()), "{head:?}");
    }
}
