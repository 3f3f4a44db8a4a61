//! Two thousand clients that send nothing, or send or read slowly. Others are served meanwhile,
//! memory is bounded, and all resources are released afterwards.

use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{Client, request};
use crate::support::{ALL, Api};

const MANY: usize = 2_000;
const SOME: usize = 200;

/// The limit on the memory of the process, in KiB.
const MOST_MEMORY: usize = 300 * 1024;

fn fixture() -> Fixture {
    // The clients take descriptors of this process.
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
    Fixture::new()
}

/// Others are served while `clients` are connected, twice. The first ones disconnect. The service
/// closes the connections of the second ones and releases all resources.
fn harm_nobody(
    fixture: &Fixture,
    drip: Option<&[u8]>,
    mut clients: impl FnMut(&Fixture) -> Vec<Client>,
) {
    let before = fixture.settled();
    let other = fixture.server.tenant("other").with_scopes(ALL);
    others_are_served(&other, drip, &mut clients(fixture));
    let mut slow = clients(fixture);
    others_are_served(&other, drip, &mut slow);
    fixture.is_back_at(before.with_open_tenants(1));
    drop(slow);
    assert!(fixture.stats().peak_memory < MOST_MEMORY, "{:?}", fixture.stats());
    fixture.is_served();
}

fn others_are_served(other: &Api, drip: Option<&[u8]>, slow: &mut [Client]) {
    // The fair queue distinguishes clients by address.
    let ask = |method: &str, target: &str| {
        other.call(method, target).header("X-Forwarded-For", "198.51.100.7")
    };
    for _ in 0..20 {
        let made = ask("POST", RECORDS).json(&json!({"name": "Served meanwhile"})).send().created();
        ask("GET", &format!("{RECORDS}?id={}", made["id"])).send().is(200);
        if let Some(byte) = drip {
            slow.iter_mut().for_each(|client| _ = client.try_send(byte));
        }
        // The slow clients send a byte now and then, over longer than their timeouts.
        thread::sleep(Duration::from_millis(125));
    }
}

#[test]
fn two_thousand_that_say_nothing() {
    let fixture = fixture();
    let before = fixture.settled();
    let other = fixture.server.tenant("other").with_scopes(ALL);
    let mut silent: Vec<Client> = (0..MANY).map(|_| fixture.connect()).collect();
    others_are_served(&other, None, &mut silent);
    drop(silent);
    fixture.is_back_at(before.with_open_tenants(1));
    assert!(fixture.stats().peak_memory < MOST_MEMORY, "{:?}", fixture.stats());
}

#[test]
#[ignore = "takes 15 s; .ci/run runs it"]
fn long_two_thousand_that_send_a_byte_now_and_then() {
    let fixture = fixture();
    harm_nobody(&fixture, Some(b"a"), |fixture| {
        let begun = (0..MANY).map(|_| {
            let mut client = fixture.connect();
            client.send("GET / HTTP/1.1\r\nHost: desk\r\nX-Slow: ");
            client
        });
        begun.collect()
    });
}

#[test]
#[ignore = "takes 15 s; .ci/run runs it"]
fn long_two_hundred_that_send_a_body_byte_by_byte() {
    let fixture = fixture();
    harm_nobody(&fixture, Some(b" "), |fixture| {
        let whole = request(
            "POST",
            RECORDS,
            &fixture.key,
            "Content-Type: application/json\r\n",
            &" ".repeat(64 * 1024),
        );
        let head = &whole[..whole.len() - 64 * 1024];
        let begun = (0..SOME).map(|_| {
            let mut client = fixture.connect();
            client.send(head);
            client
        });
        begun.collect()
    });
}

#[test]
#[ignore = "takes 15 s; .ci/run runs it"]
fn long_two_hundred_that_never_read_their_mebibyte() {
    let fixture = fixture();
    let notes = "x".repeat(5_000);
    for _ in 0..200 {
        fixture.api().create(RECORDS, json!({"name": "Long", "notes": notes}));
    }
    let page = fixture.get(&format!("{RECORDS}?limit=200"));
    let mut one = fixture.connect();
    one.send(&page);
    assert!(one.answer().body.len() > 1_000_000);
    harm_nobody(&fixture, None, |fixture| {
        let mut asked: Vec<Client> = (0..SOME).map(|_| fixture.connect()).collect();
        asked.iter_mut().for_each(|client| client.send(&page));
        // Every response has begun before the others are measured.
        asked.iter().for_each(|client| _ = client.socket().peek(&mut [0]));
        asked
    });
}
