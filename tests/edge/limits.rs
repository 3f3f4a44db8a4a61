//! Size limits and timeouts.

use std::io::Read;
use std::time::Duration;

use tenantdesk::edge::CONNECTION_LIMITS;

use crate::edge_server::EdgeServer;
use crate::support::raw::get;
use crate::support::{uninterrupted, until};

#[test]
fn a_head_has_16_kib_and_a_target_8() {
    let server = EdgeServer::start();
    let head = |bytes: usize| {
        let start = "GET /a HTTP/1.1\r\nHost: desk\r\nX-A: ";
        format!("{start}{}\r\n\r\n", "a".repeat(bytes - start.len() - 4))
    };
    assert_eq!(server.ask(head(16 * 1024)).status, 200);
    assert_eq!(server.ask(head(16 * 1024 + 1)).status, 431);
    assert_eq!(server.ask(head(40 * 1024)).status, 431);
    let target = |bytes: usize| get(&format!("/{}", "a".repeat(bytes - 1)));
    assert_eq!(server.ask(target(8 * 1024)).status, 200);
    server.ask(target(8 * 1024 + 1)).fails_with(414, "malformed_request");
    // Each letter has six characters as the edge forwards it: %C3%BC.
    let encoded = server.ask(get(&format!("/{}", "ü".repeat(2_000))));
    encoded.fails_with(414, "malformed_request");
    let many: String = (0..200).map(|n| format!("X-{n}: a\r\n")).collect();
    assert_eq!(server.ask(format!("GET /a HTTP/1.1\r\nHost: desk\r\n{many}\r\n")).status, 431);
}

fn post(length: usize) -> Vec<u8> {
    let mut bytes =
        format!("POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    bytes.resize(bytes.len() + length, b'x');
    bytes
}

#[test]
fn a_body_has_64_kib() {
    let server = EdgeServer::start();
    let mut client = server.connect();
    client.send(post(64 * 1024));
    assert_eq!(client.answer().json()["body"].as_str().unwrap().len(), 64 * 1024);
    for length in [64 * 1024 + 1, 1024 * 1024] {
        let mut client = server.connect();
        client.send(post(length));
        let _ = client.try_send(get("/b"));
        client.answer().fails_with(413, "payload_too_large");
        assert!(client.is_closed());
    }
    assert_eq!(
        server.paths(),
        ["/a", "/a", "/a"],
        "what came after a body that is too large does not run"
    );
}

#[test]
fn a_large_body_in_chunks_is_rejected() {
    let server = EdgeServer::start();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let mut client = server.connect();
    client.send("POST /a HTTP/1.1\r\nHost: desk\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunk.repeat(18));
    client.answer().fails_with(413, "payload_too_large");
    assert!(client.is_closed());
}

fn with_short_timeouts() -> EdgeServer {
    EdgeServer::with(|config| {
        let limits = config.connections.get_or_insert(CONNECTION_LIMITS);
        limits.idle_timeout = Duration::from_secs(4);
        limits.head_timeout = Duration::from_millis(600);
        limits.body_timeout = Duration::from_millis(600);
        limits.write_timeout = Duration::from_millis(600);
    })
}

#[test]
fn an_idle_connection_ends() {
    let server = with_short_timeouts();
    let mut silent = server.connect();
    let mut kept = server.connect();
    kept.send(get("/a"));
    assert_eq!(kept.answer().status, 200);
    // Longer than the head timeout, but shorter than the idle timeout.
    std::thread::sleep(Duration::from_millis(1200));
    kept.send(get("/a"));
    assert_eq!(kept.answer().status, 200);
    assert!(silent.is_closed());
    assert!(kept.is_closed());
}

#[test]
fn a_slow_head_is_cut_however_it_drips() {
    let server = with_short_timeouts();
    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: desk\r\nX-A: ");
    until("it is cut", || (!client.try_send("a")).then_some(()));
}

#[test]
fn a_slow_body_is_a_timeout() {
    let server = with_short_timeouts();
    let mut client = server.connect();
    client.send("POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: 5\r\n\r\nab");
    let answer = client.answer();
    answer.fails_with(408, "malformed_request");
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("10 seconds"), "{message}");
    assert!(client.is_closed());
    assert_eq!(server.paths(), [""; 0]);
}

#[test]
fn a_peer_that_does_not_read_is_cut() {
    let server = with_short_timeouts();
    let mut client = server.connect();
    client.send(get("/large").repeat(20));
    std::thread::sleep(Duration::from_millis(1800));
    let mut read = 0;
    let mut buffer = vec![0; 65536];
    while let Ok(bytes @ 1..) = uninterrupted(|| client.socket().read(&mut buffer)) {
        read += bytes;
    }
    assert!(read < 20 * 1024 * 1024, "all of it was written");
    assert_eq!(server.ask(get("/a")).status, 200);
}

#[test]
fn a_reader_that_is_slow_but_reads_gets_everything() {
    let server = with_short_timeouts();
    let mut client = server.connect();
    client.send(
        get("/large").repeat(8) + "GET /a HTTP/1.1\r\nHost: desk\r\nConnection: close\r\n\r\n",
    );
    let mut read = 0;
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(bytes @ 1..) = uninterrupted(|| client.socket().read(&mut buffer)) {
        read += bytes;
        std::thread::sleep(Duration::from_millis(40));
    }
    assert!(read > 8 * 1024 * 1024, "{read}");
}
