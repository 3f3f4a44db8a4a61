//! Traffic that makes tiny_http fail without the edge, and two thousand clients that send nothing, or
//! send or read slowly. Others are served meanwhile, memory is bounded, and all resources are released
//! afterwards.

use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde_json::json;

use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{Client, get, request};
use crate::support::{ALL, Api, Setup, TestServer, until};

#[test]
fn sixty_bytes_that_announce_a_hundred_gigabytes() {
    let fixture = Fixture::new();
    let bytes = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000000\r\n\r\n";
    assert_eq!(bytes.len(), 60 - 2);
    for round in 0..100 {
        let mut client = fixture.connect();
        client.send(bytes);
        match round % 3 {
            0 => assert_eq!(client.answer().status, 405),
            1 => client.reset(),
            _ => drop(client),
        }
    }
    fixture.is_served();
    assert!(fixture.stats().peak_memory < 100 * 1024, "{:?}", fixture.stats());
}

#[test]
fn two_hundred_keep_alive_connections_at_once_twenty_times_from_a_fresh_start() {
    let mut fixture = Fixture::new();
    for _ in 0..20 {
        let mut clients: Vec<Client> = (0..200).map(|_| fixture.connect()).collect();
        for _ in 0..2 {
            clients.iter_mut().for_each(|client| client.send(fixture.get(RECORDS)));
            clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
        }
        drop(clients);
        fixture.server.restart();
    }
}

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
fn a_hundred_heads_without_end() {
    let fixture = Fixture::new();
    let lines = "X-Endless: and one more line of it\r\n".repeat(100);
    let mut clients: Vec<Client> = (0..100).map(|_| fixture.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: desk\r\n"));
    for _ in 0..20 {
        // Connections that were rejected meanwhile accept no more.
        clients.iter_mut().for_each(|client| _ = client.try_send(&lines));
    }
    fixture.is_served();
    assert!(fixture.stats().peak_memory < 100 * 1024, "{:?}", fixture.stats());
    let refused = clients.iter_mut().filter_map(|client| client.try_answer());
    assert!(refused.inspect(|answer| assert_eq!(answer.status, 431)).count() > 0);
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

fn threads_of_nobody() -> usize {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let processes =
        processes.filter_map(|name| std::fs::read_to_string(format!("/proc/{name}/status")).ok());
    let number = |status: &str, name: &str| -> Option<usize> {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    let its = processes.filter(|status| number(status, "Uid:") == Some(65_534));
    its.map(|status| number(&status, "Threads:").unwrap_or(0)).sum()
}

#[test]
fn more_work_than_threads() {
    threads_run_out(|| threads_of_nobody() + 6);
}

#[test]
fn no_thread_to_be_had() {
    threads_run_out(|| 0);
}

/// The limit applies to a user, so the process runs as a user of its own. Only root can start it.
fn threads_run_out(limit: fn() -> usize) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut fixture = Fixture::with(Setup::without_rate_limit().unprivileged());
    fixture.is_served();
    let mut prlimit = Command::new("prlimit");
    prlimit.args([format!("--pid={}", fixture.server.pid()), format!("--nproc={}:", limit())]);
    // To change the limits of another user's process, root would need a capability.
    fixture.server.as_its_user(&mut prlimit);
    assert!(prlimit.status().unwrap().success());
    thread::scope(|scope| {
        for _ in 0..60 {
            scope.spawn(|| ask_for(&fixture, Duration::from_secs(3)));
        }
    });
    // The process either still serves, or has ended with an error.
    if ask_once(&fixture).is_none() {
        let status = fixture.server.ended_whatever_it_said();
        let log = fixture.server.log();
        assert_eq!(status.code(), Some(1), "{status}: {log}");
        assert!(log.contains("tiny_http failed") || log.contains("error: no worker"), "{log}");
        fixture.server.restart();
    }
    fixture.is_served();
    fixture.server.kill();
}

/// The status of one request on a new connection; `None` without a response.
fn ask_once(fixture: &Fixture) -> Option<u16> {
    let stream = TcpStream::connect(fixture.server.address()).ok()?;
    let mut client = Client::over(stream);
    let sent = client.try_send(fixture.get(RECORDS));
    sent.then(|| client.try_answer()).flatten().map(|answer| answer.status)
}

/// Repeats a request for `time`, or until there is no response.
fn ask_for(fixture: &Fixture, time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time && ask_once(fixture).is_some() {}
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
