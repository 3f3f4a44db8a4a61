//! A body that is too large has its place in the order of checks, and its answer arrives.

use std::io::Write;
use std::thread;

use crate::scene::{RECORDS, Scene};
use crate::support::raw::{Client, get, request};
use crate::support::{ALL, Setup};

const JSON: &str = "Content-Type: application/json\r\n";

fn large(target: &str, key: &str) -> String {
    request("POST", target, key, JSON, &" ".repeat(64 * 1024 + 1))
}

#[test]
fn a_large_body_is_refused_in_its_turn_and_the_next_request_is_in_step() {
    let scene = Scene::with(Setup::plain().option("--rate-limit").option("2"));
    let mut client = scene.connect();
    let mut ask = |bytes: String, status: u16, code: &str| {
        client.send(bytes);
        client.answer().fails_with(status, code);
        client.send(get("/readyz"));
        assert_eq!(client.answer().status, 200, "the next one is in step");
    };
    ask(large("/nowhere", &scene.key), 404, "endpoint_not_found");
    ask(large(RECORDS, "tdk_short"), 401, "malformed_api_key");
    ask(large(RECORDS, &format!("tdk_{}", "x".repeat(43))), 401, "invalid_api_key");
    ask(large(RECORDS, &scene.key), 413, "payload_too_large");
    // 415 comes before 413.
    ask(request("POST", RECORDS, &scene.key, "", &" ".repeat(70_000)), 415, "unsupported_media_type");
    ask(large(RECORDS, &scene.key), 429, "rate_limited");
    let reader = scene.tenant.key(&["customers:read"]).key;
    ask(large(RECORDS, &reader), 403, "insufficient_scope");
    scene.tenant.ask("suspend", &[]);
    ask(large(RECORDS, &scene.tenant.key(ALL).key), 403, "tenant_inactive");
}

#[test]
fn a_client_that_is_still_sending_gets_its_refusal() {
    let scene = Scene::new();
    for length in [200_000, 1 << 20, 3 << 20, 20 << 20] {
        for (key, status) in [(scene.key.as_str(), 413), ("tdk_short", 401)] {
            let mut client = Client::connect(scene.desk.address());
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
    scene.is_served();
}
