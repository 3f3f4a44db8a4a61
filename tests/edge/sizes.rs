//! A body that is too large is rejected in the order of checks, and the client receives the
//! response.

use std::io::Write;
use std::thread;

use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{Client, request};
use crate::support::{ALL, Setup, until};

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
fn stalled(method: &str, target: &str, key: &str, headers: &str) -> [String; 5] {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {key}\r\n{headers}"
    );
    let chunk = " ".repeat(64 * 1024 + 1);
    [
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
    let ask = |cases: [String; 5], status: u16, code: &str| {
        for bytes in cases {
            let mut client = fixture.connect();
            client.send(bytes);
            // If the server waited for the body, the status would be 408.
            let answer = client.answer();
            answer.fails_with(status, code);
            assert_eq!(answer.header("connection"), "close");
            assert!(client.is_closed());
        }
    };
    let post = |target: &str, key: &str, headers: &str| stalled("POST", target, key, headers);
    let reader = fixture.tenant.key(&["customers:read"]).key;
    ask(post("/nowhere", &fixture.key, JSON), 404, "endpoint_not_found");
    ask(post(RECORDS, "tdk_short", JSON), 401, "malformed_api_key");
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
fn no_body_is_read_that_no_check_needs() {
    let fixture = Fixture::new();
    let head = |target: &str, authorization: &str| {
        format!(
            "POST {target} HTTP/1.1\r\nHost: desk\r\n{authorization}{JSON}Content-Length: 60000\r\n\r\n"
        )
    };
    let key = format!("Authorization: Bearer {}\r\n", fixture.key);
    for (bytes, status, code) in [
        (head("/nowhere", &key), 404, "endpoint_not_found"),
        (head("/docs", &key), 405, "method_not_allowed"),
        (head(RECORDS, ""), 401, "missing_authorization"),
        (head(RECORDS, "Authorization: Bearer tdk_short\r\n"), 401, "malformed_api_key"),
        (head("/v1/batch.php", ""), 401, "missing_authorization"),
    ] {
        let mut client = fixture.connect();
        client.send(bytes);
        // If the server waited for the body, the status would be 408.
        client.answer().fails_with(status, code);
        assert!(client.is_closed());
    }
}
