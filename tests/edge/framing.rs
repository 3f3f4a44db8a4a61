//! HTTP framing: valid messages are handled correctly, ambiguous ones are rejected.

use crate::edge_server::EdgeServer;
use crate::support::raw::get;

/// A smuggled request, which the edge must never forward.
const SMUGGLED: &str = "DELETE /smuggled HTTP/1.1\r\nHost: desk\r\n\r\n";

#[test]
fn a_request_arrives_as_it_was_sent() {
    let server = EdgeServer::start();
    let reported = server.ask(
        "POST /customers.php?id=7&q=%C3%BC HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer x\r\nAuthorization: Bearer y\r\n\
         Content-Type: application/json\r\nUser-Agent: test\r\nContent-Length: 2\r\n\r\n{}",
    );
    let reported = reported.json();
    assert_eq!(reported["method"], "POST");
    assert_eq!(reported["path"], "/customers.php");
    assert_eq!(reported["query"], "id=7&q=%C3%BC");
    assert_eq!(reported["body"], "{}");
    assert_eq!(reported["client"], "127.0.0.1");
    assert_eq!(reported["secure"], false);
    let headers = reported["headers"].as_array().unwrap();
    let authorizations = headers.iter().filter(|header| header[0] == "authorization");
    assert_eq!(
        authorizations.map(|header| &header[1]).collect::<Vec<_>>(),
        ["Bearer x", "Bearer y"]
    );
}

#[test]
fn chunks_are_put_together() {
    let server = EdgeServer::start();
    let mut client = server.connect();
    for encoding in ["chunked", "Chunked"] {
        client.send(format!("POST /a HTTP/1.1\r\nHost: desk\r\nTransfer-Encoding: {encoding}\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n"));
        assert_eq!(client.answer().json()["body"], "abcde");
    }
}

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
fn absolute_targets_and_asterisk() {
    let server = EdgeServer::start();
    let reported = server.ask("GET http://other:81/a?b HTTP/1.1\r\nHost: desk\r\n\r\n").json();
    assert_eq!((&reported["path"], &reported["query"]), (&"/a".into(), &"b".into()));
    assert_eq!(reported["headers"][0], serde_json::json!(["host", "other:81"]));
    let without_path = server.ask(get("http://other?b")).json();
    assert_eq!((&without_path["path"], &without_path["query"]), (&"/".into(), &"b".into()));
    assert_eq!(server.ask("OPTIONS * HTTP/1.1\r\nHost: desk\r\n\r\n").json()["path"], "*");
    let address = server.ask("GET /a HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n");
    assert_eq!(address.status, 200);
}

#[test]
fn http_1_0_closes_unless_asked_not_to() {
    let server = EdgeServer::start();
    let mut client = server.connect();
    client.send("GET /a HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    assert!(client.is_closed());
    let mut client = server.connect();
    for _ in 0..2 {
        client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.answer().status, 200);
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

#[test]
fn bytes_beyond_ascii_harm_nobody() {
    let server = EdgeServer::start();
    let mut client = server.connect();
    client.send(
        b"GET /a?\xc3\xbc HTTP/1.1\r\nHost: desk\r\nUser-Agent: caf\xe9\r\nAuthorization: Bearer \xe9%41\r\n\r\n",
    );
    let reported = client.answer().json();
    assert_eq!(reported["query"], "%C3%BC");
    let headers = reported["headers"].as_array().unwrap();
    assert!(headers.contains(&serde_json::json!(["authorization", "Bearer ?%41"])), "{headers:?}");
}

/// Each of these is followed by a request that must not run.
#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let post = |rest: &str| format!("POST /a HTTP/1.1\r\nHost: desk\r\n{rest}");
    let head = |line: &str| post(&format!("{line}\r\n\r\n{{}}"));
    let length = |value: &str| head(&format!("Content-Length: {value}"));
    let encoded = |value: &str| post(&format!("Transfer-Encoding: {value}\r\n\r\n0\r\n\r\n"));
    let chunk = |chunk: &str| post(&format!("Transfer-Encoding: chunked\r\n\r\n{chunk}"));
    let lengths = [
        "2\r\nContent-Length: 3",
        "2, 3",
        "two",
        "-1",
        "+2",
        "0x2",
        "",
        "999999999999999999 9",
        "9999999999999999999x",
    ];
    let lines = [
        "Content-Length : 2",
        " Content-Length: 2",
        "X-A: b\r\n c",
        "X-A: b\rc",
        "X-A: b\0c",
        "X\0A: b",
        "Nothing",
        "Host: desk",
    ];
    let chunks = ["xyz\r\n", "-1\r\n", "fffffffffffffffff\r\n", "2\r\nabc\r\n0\r\n\r\n"];
    let targets = ["a", "ftp://desk/a", "*", "http://user@desk/a"];
    let whole = [
        "GET /a HTTP/1.1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET /a\r\n\r\n",
        "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n",
        "CONNECT desk:443 HTTP/1.1\r\nHost: desk\r\n\r\n",
    ];
    let malformed = lengths.map(length).into_iter();
    let malformed = malformed.chain(lines.map(head)).chain(chunks.map(chunk));
    let malformed = malformed.chain(targets.map(get)).chain(whole.map(str::to_owned)).collect();
    let unknown = ["gzip", "identity", "chunked, gzip", "\x0bchunked"].map(encoded).to_vec();
    let unsupported =
        ["gzip, chunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: chunked"];
    let unsupported = unsupported.map(encoded).to_vec();
    let version = vec!["GET /a HTTP/2.0\r\nHost: desk\r\n\r\n".to_owned()];
    let server = EdgeServer::start();
    let cases: [(&[u16], Vec<String>); 4] = [
        (&[400], malformed),
        (&[400, 501], unknown),
        (&[501], unsupported),
        (&[400, 505], version),
    ];
    for (statuses, requests) in cases {
        for bytes in requests {
            let mut client = server.connect();
            client.send(format!("{bytes}{SMUGGLED}"));
            let answer = client.try_answer().unwrap_or_else(|| panic!("{bytes:?}: no answer"));
            assert!(statuses.contains(&answer.status), "{bytes:?}: {answer:?}");
            if !answer.body.is_empty() {
                assert_eq!(answer.code(), "malformed_request", "{answer}");
            }
            assert!(client.is_closed(), "{bytes:?}: open");
        }
    }
    assert_eq!(server.paths(), [""; 0], "something ran");
    assert_eq!(server.ask(get("/a")).status, 200);
}

/// The body of each request contains another request. A parser that ends the body too early runs
/// it.
#[test]
fn a_request_in_a_body_does_not_run() {
    let server = EdgeServer::start();
    let post = "POST /a HTTP/1.1\r\nHost: desk\r\n";
    let chunked = format!("{post}Transfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    let length = format!("Content-Length: {}\r\n", SMUGGLED.len());
    for bytes in [
        format!("GET /a HTTP/1.1\r\nHost: desk\r\n{length}\r\n{SMUGGLED}"),
        format!("DELETE /a HTTP/1.1\r\nHost: desk\r\n{length}\r\n{SMUGGLED}"),
        format!("{post}Transfer-Encoding: chunked\r\n{length}\r\n{chunk}"),
        format!("{post}X-A: b\r\n {length}\r\n{SMUGGLED}"),
        format!("{chunked}0;a\n\r\n{SMUGGLED}"),
        format!("{chunked}0\r\nContent-Length: 0\r\n \r\n{SMUGGLED}"),
        format!("{post}Expect: 100-continue\r\nContent-Length: 2097152\r\n\r\n{SMUGGLED}"),
        format!("{post}Content-Length: 1099511627776\r\n\r\n{SMUGGLED}"),
    ] {
        let mut client = server.connect();
        let _ = client.try_send(&bytes);
        client.stop_sending();
        client.rest();
        assert!(!server.paths().contains(&"/smuggled".to_owned()), "{bytes:?}");
    }
}

#[test]
fn an_incomplete_request_is_not_forwarded() {
    let server = EdgeServer::start();
    for whole in [
        "GET /a HTTP/1.1\r\nHost: desk\r\n",
        "POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: 5\r\n\r\nab",
    ] {
        let mut client = server.connect();
        client.send(whole);
        client.stop_sending();
        client.rest();
    }
    assert_eq!(server.paths(), [""; 0]);
}

/// A length beyond 64 bits is more than hyper reads, which answers with a status alone.
#[test]
fn a_length_of_any_size_is_a_number() {
    let server = EdgeServer::start();
    let ask = |length: &str| {
        server.ask(format!(
            "POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}"
        ))
    };
    for number in [
        "65537",
        "000000000000000000000000000000000000065537",
        "9223372036854775808",
        "18446744073709551613",
    ] {
        ask(number).fails_with(413, "payload_too_large");
    }
    for number in [
        "18446744073709551616",
        "99999999999999999999",
        "100000000000000000000000000000000000000000",
    ] {
        assert_eq!(ask(number).status, 400);
    }
    let short = server
        .ask("POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: 0000000000000000000002\r\n\r\n{}");
    assert_eq!(short.json()["body"], "{}");
    assert!(!server.paths().contains(&"/smuggled".to_owned()));
}
