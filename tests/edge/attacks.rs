//! Traffic that makes tiny_http fail without the edge, and clients that send nothing, or do not read. Others are served meanwhile, memory is bounded, and all resources are released
//! afterwards.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde_json::json;

use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{Client, get};
use crate::support::{ALL, Api, Setup, TestServer, until};

#[test]
fn three_thousand_resets_after_a_whole_request() {
    let fixture = Fixture::new();
    let before = fixture.settled();
    for _ in 0..3_000 {
        let mut client = fixture.connect();
        client.send(fixture.get(RECORDS));
        client.reset();
    }
    fixture.is_served();
    fixture.is_back_at(before);
}

#[test]
fn more_connections_than_descriptors() {
    // A tenth of a usual limit: enough for some 50 clients and the databases.
    let fixture = Fixture::with(Setup::without_rate_limit().limited_to("-n 100"));
    let mut clients: Vec<Client> = (0..300).map(|_| fixture.connect()).collect();
    let bytes = fixture.get(RECORDS);
    let served = clients.iter_mut().filter_map(|client| {
        let sent = client.try_send(&bytes);
        let answer = sent.then(|| client.try_answer()).flatten()?;
        assert!([200, 503].contains(&answer.status), "{answer:?}");
        (answer.status == 200).then_some(())
    });
    assert!(served.count() >= 40);
    drop(clients);
    until("all are served again", || ask_once(&fixture).filter(|status| *status == 200));
    fixture.is_served();
}

/// Sets the descriptor limit so that the process can open `more` descriptors.
fn leave_descriptors(server: &TestServer, more: usize) {
    let taken = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let taken: Vec<u64> =
        taken.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let limit = (0..).filter(|number| !taken.contains(number)).nth(more).unwrap();
    set_descriptor_limit(server, limit);
}

fn set_descriptor_limit(server: &TestServer, number: u64) {
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    prlimit(
        pid,
        Resource::Nofile,
        Rlimit { current: Some(number), maximum: Some(number.max(4_096)) },
    )
    .unwrap();
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
    leave_descriptors(&fixture.server, 0);
    let mut waiting = fixture.connect();
    waiting.send(fixture.get(RECORDS));
    // Longer than the period of the watchdog.
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        assert_eq!(ask(&mut kept), 200, "{}", fixture.server.log());
        thread::sleep(Duration::from_millis(100));
    }
    assert!(fixture.server.log().contains("a connection could not be accepted"));
    set_descriptor_limit(&fixture.server, 4_096);
    assert_eq!(waiting.answer().status, 200);
    fixture.is_served();
}

/// The status of one request on a new connection; `None` without a response.
fn ask_once(fixture: &Fixture) -> Option<u16> {
    let stream = TcpStream::connect(fixture.server.address()).ok()?;
    let mut client = Client::over(stream);
    let sent = client.try_send(fixture.get(RECORDS));
    sent.then(|| client.try_answer()).flatten().map(|answer| answer.status)
}

#[test]
fn a_hundred_thousand_pipelined_requests_whose_answers_nobody_reads() {
    let fixture = Fixture::new();
    let mut flood = fixture.connect();
    flood.socket().set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // The kernel buffers of both sides hold megabytes of it.
    let _ = flood.try_send(get("/openapi.json").repeat(100_000));
    for _ in 0..20 {
        fixture.is_served();
    }
    assert!(
        fixture.server.log().matches("/openapi.json").count() < 1_000,
        "responses are produced only when they are read"
    );
    assert!(fixture.stats().peak_memory < 100 * 1024, "{:?}", fixture.stats());
    drop(flood);
    fixture.is_served();
}

const MANY: usize = 2_000;
/// The limit on the memory of the process, in KiB.
const MOST_MEMORY: usize = 300 * 1024;

fn fixture() -> Fixture {
    // The clients take descriptors of this process.
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
    Fixture::new()
}

/// Others are served while clients are connected that keep the service waiting.
fn others_are_served(other: &Api) {
    // The fair queue distinguishes clients by address.
    let ask = |method: &str, target: &str| {
        other.call(method, target).header("X-Forwarded-For", "198.51.100.7")
    };
    for _ in 0..20 {
        let made = ask("POST", RECORDS).json(&json!({"name": "Served meanwhile"})).send().created();
        ask("GET", &format!("{RECORDS}?id={}", made["id"])).send().is(200);
    }
}

#[test]
fn two_thousand_that_say_nothing() {
    let fixture = fixture();
    let before = fixture.settled();
    let other = fixture.server.tenant("other").with_scopes(ALL);
    let silent: Vec<Client> = (0..MANY).map(|_| fixture.connect()).collect();
    others_are_served(&other);
    drop(silent);
    fixture.is_back_at(before.with_open_tenants(1));
    assert!(fixture.stats().peak_memory < MOST_MEMORY, "{:?}", fixture.stats());
}
