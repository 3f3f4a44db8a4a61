//! Limits of size, time and descriptors. A body that is too large is rejected in the order of checks, and the
//! client receives the response.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use crate::edge_server::EdgeServer;
use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{Client, get, request};
use crate::support::{ALL, Setup, TestServer, uninterrupted, until};

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

fn with_short_timeouts() -> EdgeServer {
    EdgeServer::with(|config| {
        let limits = &mut config.connections;
        limits.idle_timeout = Duration::from_secs(3);
        limits.body_timeout = Duration::from_secs(2);
        limits.write_timeout = Duration::from_secs(3);
    })
}

#[test]
fn an_idle_connection_ends() {
    let server = with_short_timeouts();
    let mut silent = server.connect();
    let mut kept = server.connect();
    for _ in 0..2 {
        kept.send(get("/a"));
        assert_eq!(kept.answer().status, 200);
    }
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
    client.answer().fails_with(408, "malformed_request").saying("10 seconds");
    assert!(client.is_closed());
    assert_eq!(server.paths(), [""; 0]);
}

#[test]
fn a_peer_that_does_not_read_is_cut() {
    let server = with_short_timeouts();
    let mut client = server.connect();
    client.send(get("/large").repeat(20));
    until("it is cut", || (!client.try_send("a")).then_some(()));
    assert!(client.rest().len() < 20 * 1024 * 1024, "all of it was written");
    assert_eq!(server.ask(get("/a")).status, 200);
}

/// A response takes longer than an idle connection may last.
#[test]
fn a_reader_that_is_slow_but_reads_gets_everything() {
    let server = with_short_timeouts();
    let mut client = server.connect();
    client.send(get("/large"));
    let (mut read, mut buffer) = (0, vec![0; 24 * 1024]);
    while read < 1024 * 1024 {
        let bytes = uninterrupted(|| client.socket().read(&mut buffer)).unwrap();
        assert!(bytes > 0, "it was cut after {read} bytes");
        read += bytes;
        thread::sleep(Duration::from_millis(100));
    }
}

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn a_client_that_is_still_sending_gets_its_refusal() {
    let fixture = Fixture::new();
    for length in [200_000, 1 << 20, 3 << 20, 20 << 20] {
        for (key, status) in [(fixture.key.as_str(), 413), ("tdk_short", 401)] {
            let mut client = Client::connect(fixture.server.address());
            let head = format!(
                "POST {RECORDS} HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {key}\r\n{JSON}Content-Length: {length}\r\n\r\n"
            );
            client.send(head);
            let mut sender = client.socket().try_clone().unwrap();
            let sending = thread::spawn(move || {
                let pieces = vec![b' '; length];
                pieces.chunks(16 * 1024).all(|piece| sender.write_all(piece).is_ok())
            });
            assert_eq!(client.answer().status, status, "{length}");
            drop(client);
            sending.join().unwrap();
        }
    }
    fixture.is_served();
}

/// A request that announces more than 64 KiB and sends no body, or stops within a chunk.
fn stalled(method: &str, target: &str, key: &str, headers: &str) -> Vec<String> {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {key}\r\n{headers}"
    );
    let chunk = " ".repeat(64 * 1024 + 1);
    vec![
        format!("{head}Content-Length: 65537\r\n\r\n"),
        format!("{head}Content-Length: 1048576\r\n\r\n"),
        format!("{head}Content-Length: 99999999999\r\n\r\n{{"),
        format!("{head}Content-Length: 18446744073709551613\r\n\r\n"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n20000\r\n{chunk}"),
    ]
}

#[test]
fn a_large_body_that_stalls_is_rejected_at_once() {
    let fixture = Fixture::with(Setup::plain().option("--rate-limit").option("40"));
    let ask = |cases: Vec<String>, status: u16, code: &str| {
        for bytes in cases {
            let mut client = fixture.connect();
            client.send(bytes);
            // If the server waited for the body, the status would be 408.
            let answer = client.answer().fails_with(status, code);
            assert_eq!(answer.header("Connection"), Some("close"));
            assert!(client.is_closed());
        }
    };
    let post = |target: &str, key: &str, headers: &str| stalled("POST", target, key, headers);
    let reader = fixture.tenant.key(&["customers:read"]).key;
    ask(post("/nowhere", &fixture.key, JSON), 404, "endpoint_not_found");
    ask(post(RECORDS, "tdk_short", JSON), 401, "malformed_api_key");
    // These checks do not wait for a small body either.
    let small = format!("{JSON}Content-Length: 60000\r\n");
    ask(vec![request("POST", "/docs", "tdk_short", &small, "")], 405, "method_not_allowed");
    ask(vec![request("POST", "/v1/batch.php", "tdk_short", &small, "")], 401, "malformed_api_key");
    ask(post(RECORDS, &reader, JSON), 403, "insufficient_scope");
    ask(stalled("PATCH", RECORDS, &fixture.key, JSON), 405, "method_not_allowed");
    ask(post(RECORDS, &fixture.key, "Idempotency-Key: x\r\n"), 400, "invalid_idempotency_key");
    ask(post(RECORDS, &fixture.key, ""), 415, "unsupported_media_type");
    ask(post(RECORDS, &fixture.key, JSON), 413, "payload_too_large");
    let limited = fixture.tenant.key(ALL).key;
    for _ in 0..40 {
        let mut client = fixture.connect();
        client.send(request("GET", RECORDS, &limited, "", ""));
        assert_eq!(client.answer().status, 200);
    }
    ask(post(RECORDS, &limited, JSON), 429, "rate_limited");
    fixture.tenant.ask("suspend", &[]);
    ask(post(RECORDS, &limited, JSON), 403, "tenant_inactive");
}

#[test]
fn bodies_of_one_address_take_no_memory_from_others() {
    const LENGTH: usize = 1 << 20;
    let fixture = Fixture::new();
    let batch = |client: &str| {
        let headers = format!("X-Forwarded-For: {client}\r\n{JSON}");
        request("POST", "/batch.php", &fixture.key, &headers, &" ".repeat(LENGTH))
    };
    let mut greedy = Vec::new();
    for _ in 0..40 {
        let mut client = fixture.connect();
        let bytes = batch("203.0.113.9");
        client.try_send(&bytes[..bytes.len() - 1]);
        greedy.push(client);
    }
    until("a body is refused", || greedy.iter().any(Client::is_answered).then_some(()));
    let mut refused = greedy.iter_mut().filter(|client| client.is_answered());
    refused.next().unwrap().answer().fails_with(503, "overloaded");
    for _ in 0..5 {
        let mut modest = fixture.connect();
        modest.send(batch("203.0.113.10"));
        modest.answer().fails_with(400, "invalid_json");
    }
    fixture.api().customer("Served");
}

#[test]
fn more_connections_than_half_of_the_descriptors() {
    let fixture = Fixture::with(Setup::without_rate_limit().limited_to("-n 100"));
    let mut clients: Vec<Client> = (0..60).map(|_| fixture.connect()).collect();
    let mut beyond = clients.split_off(50);
    assert!(beyond.iter_mut().all(Client::is_closed));
    let is_served = |client: &mut Client| {
        let answer = client.try_send(fixture.get(RECORDS)).then(|| client.try_answer());
        answer.flatten().is_some_and(|answer| answer.status == 200)
    };
    assert!(clients.iter_mut().all(is_served));
    drop(clients);
    until("there is room again", || is_served(&mut fixture.connect()).then_some(()));
}

fn set_descriptor_limit(server: &TestServer, number: u64) {
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let limit = Rlimit { current: Some(number), maximum: Some(4_096) };
    prlimit(pid, Resource::Nofile, limit).unwrap();
}

#[test]
fn no_descriptor_to_be_had_for_a_while() {
    let fixture = Fixture::new();
    let mut kept = fixture.connect();
    let ask = |client: &mut Client| {
        client.send(fixture.get(RECORDS));
        client.answer().status
    };
    assert_eq!(ask(&mut kept), 200);
    set_descriptor_limit(&fixture.server, 0);
    let mut waiting = fixture.connect();
    waiting.send(fixture.get(RECORDS));
    until("the connection could not be accepted", || {
        assert_eq!(ask(&mut kept), 200, "{}", fixture.server.log());
        fixture.server.log().contains("a connection could not be accepted").then_some(())
    });
    set_descriptor_limit(&fixture.server, 4_096);
    assert_eq!(waiting.answer().status, 200);
}

#[test]
fn two_thousand_that_say_nothing() {
    /// In KiB.
    const MOST_MEMORY: usize = 300 * 1024;
    // The clients take descriptors of this process.
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
    let fixture = Fixture::new();
    let before = fixture.settled();
    let silent: Vec<Client> = (0..2_000).map(|_| fixture.connect()).collect();
    fixture.is_served();
    drop(silent);
    fixture.is_back_at(before);
    assert!(fixture.stats().peak_memory < MOST_MEMORY, "{:?}", fixture.stats());
}
