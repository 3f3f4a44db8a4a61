//! Many concurrent requests; faults inside the service: panics, workers that hang; an orderly stop.

use std::net::TcpStream;
use std::thread;

use serde_json::json;
use tenantdesk::config::Config;

use crate::edge_server::EdgeServer;
use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{self, Client, get, request};
use crate::support::{database, until};

/// A request of `client`, as a trusted proxy reports it.
fn ask(client: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: desk\r\nX-Forwarded-For: {client}\r\n\r\n")
}

const GREEDY: &str = "203.0.113.9";
const MODEST: &str = "203.0.113.10";

/// Connections that have sent one request each.
fn asking(server: &EdgeServer, count: usize, bytes: &str) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(bytes));
    clients
}

/// Waits until the edge has processed earlier events on other connections. It has one thread, which
/// responds to this request itself.
fn is_seen_by_now(server: &EdgeServer) {
    (0..3).for_each(|_| assert_eq!(server.ask(get("/healthz")).status, 200));
}

#[track_caller]
fn are_all_served(mut clients: Vec<Client>) {
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
}

/// Two tenants occupy all workers that they may have, and more of their requests wait. A third
/// tenant is served meanwhile.
#[test]
fn two_busy_tenants_do_not_stop_a_third() {
    let server = EdgeServer::start();
    let busy: Vec<Client> = ["/occupied", "/2/occupied"]
        .into_iter()
        .flat_map(|path| asking(&server, 200, &get(path)))
        .collect();
    server.has_forwarded(400);
    assert_eq!(server.ask(get("/3/a")).status, 200);
    server.release();
    are_all_served(busy);
}

/// Requests of one tenant that occupy the workers which it may have, until the release.
fn occupying(server: &EdgeServer) -> Vec<Client> {
    let clients = asking(server, Config::new("").workers, &get("/occupied"));
    server.has_forwarded(clients.len());
    clients
}

#[test]
fn a_request_whose_client_has_left_is_not_started() {
    let server = EdgeServer::start();
    let busy = occupying(&server);
    for n in 1..=20 {
        let mut leaving = server.connect();
        leaving.send(get("/left"));
        server.has_forwarded(busy.len() + n);
    }
    server.has_seen_leave(20);
    server.release();
    are_all_served(busy);
    assert_eq!(server.ask(get("/a")).status, 200);
    assert_eq!(server.paths().iter().filter(|path| *path == "/left").count(), 0);
}

#[test]
fn a_connection_beyond_the_limit_closes() {
    let server = EdgeServer::with(|config| config.connections.max_connections = 4);
    let within = asking(&server, 4, &get("/held"));
    server.holds(4);
    assert!(server.connect().is_closed());
    server.release();
    are_all_served(within);
    until("there is room again", || {
        let mut client = server.connect();
        let sent = client.try_send(get("/a"));
        sent.then(|| client.try_answer()).flatten().filter(|answer| answer.status == 200)
    });
}

/// The number of requests that fill a tenant's lane.
const WAITING: usize = 1_024;

#[test]
fn a_tenant_with_too_many_requests_is_refused_at_once_and_others_are_served() {
    let server = EdgeServer::start();
    let busy = occupying(&server);
    // From loopback, which has no share of its own.
    let mut waiting = asking(&server, WAITING, &get("/waited"));
    let mut client = until("one more is refused", || {
        waiting.extend(asking(&server, 1, &get("/waited")));
        let refused = waiting.iter().position(Client::is_answered)?;
        Some(waiting.swap_remove(refused))
    });
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("Retry-After")), (503, Some("1")));
    client.send(get("/2/a"));
    assert_eq!(client.answer().status, 200, "on the same connection, which is good");
    server.release();
    let statuses: Vec<u16> = waiting.iter_mut().map(|client| client.answer().status).collect();
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    are_all_served(busy);
}

#[test]
fn unread_responses_of_one_address_cut_no_download_of_another() {
    const LENGTH: usize = 1024 * 1024;
    /// More than the server keeps for all clients.
    const UNREAD: usize = 100;
    let server = EdgeServer::start();
    let download = || {
        let mut modest = server.connect();
        modest.send(ask(MODEST, "/large"));
        until("the download begins", || modest.is_answered().then_some(()));
        modest
    };
    let mut before = download();
    let last = ask(GREEDY, "/large").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let greedy = asking(&server, UNREAD, &last);
    until("all run", || (server.paths().len() > UNREAD).then_some(()));
    is_seen_by_now(&server);
    let mut meanwhile = download();
    assert_eq!(before.answer().body.len(), LENGTH);
    assert_eq!(meanwhile.answer().body.len(), LENGTH);
    let read: Vec<_> = greedy.into_iter().map(|mut client| client.rest().len()).collect();
    let complete = read.iter().filter(|length| **length > LENGTH).count();
    assert!(complete < UNREAD / 2, "{complete} are complete, and the others are cut");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    const COUNT: usize = 10_000;
    let server = EdgeServer::start();
    let mut client = server.connect();
    let mut sender = client.twin();
    let sending =
        thread::spawn(move || (0..COUNT).for_each(|n| sender.send(get(&format!("/{n}")))));
    for n in 0..COUNT {
        assert_eq!(client.answer().json()["path"], format!("/{n}"));
    }
    sending.join().unwrap();
}

#[test]
fn pipelined_requests_take_a_turn_each() {
    const CONNECTIONS: usize = 20;
    const PIPELINED: usize = 16;
    let server = EdgeServer::start();
    let mut flood = asking(&server, CONNECTIONS, &get("/healthz"));
    flood.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    let mut modest = server.connect();
    modest.send(get("/healthz"));
    assert_eq!(modest.answer().status, 200);
    // All requests arrive while the edge is occupied, the modest client's last.
    let mut occupying = server.connect();
    occupying.send(get("/probe/occupied"));
    until("the edge is occupied", || (!server.probes().is_empty()).then_some(()));
    flood.iter_mut().for_each(|client| client.send(get("/probe/flood").repeat(PIPELINED)));
    modest.send(get("/probe/modest"));
    server.release();
    assert_eq!(modest.answer().status, 200);
    for client in &mut flood {
        (0..PIPELINED).for_each(|_| assert_eq!(client.answer().status, 200));
    }
    let probes = server.probes();
    let before = probes.iter().position(|path| path == "/probe/modest").unwrap();
    // Two rounds, and the request that has occupied the edge.
    assert!(before <= 2 * CONNECTIONS + 1, "{before} requests were answered before");
}

/// A read ends early then (contract section 4).
#[test]
fn a_handler_knows_that_its_client_has_gone() {
    let server = EdgeServer::start();
    let clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let mut clients = clients.into_iter();
    for client in clients.as_mut_slice() {
        client.send(get("/held"));
    }
    server.holds(3);
    assert_eq!(server.abandoned(), [false; 3]);
    clients.next().unwrap().reset();
    drop(clients.next());
    until("two have gone", || {
        (server.abandoned().iter().filter(|gone| **gone).count() == 2).then_some(())
    });
    server.release();
    assert_eq!(clients.next().unwrap().answer().status, 200);
}

#[test]
fn a_panic_is_answered_without_its_cause_and_the_workers_live_on() {
    let server = EdgeServer::start();
    // More often than there are workers.
    for _ in 0..40 {
        let answer = server.ask(get("/panic")).fails_with(500, "internal_error");
        assert!(!answer.json().to_string().contains("on purpose"), "{answer:?}");
    }
    assert_eq!(server.ask(get("/a")).status, 200);
}

#[test]
#[ignore = "takes 30 s; `make proof` runs it"]
fn proof_workers_that_take_no_request_for_half_a_minute_end_the_server() {
    let server = EdgeServer::start();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/stuck")));
    assert_eq!(server.failure(), "no worker has received a request for 30 seconds");
}

#[test]
fn a_signal_ends_what_waits_and_answers_what_is_under_way() {
    ends_in_order("TERM");
    ends_in_order("INT");
}

fn ends_in_order(signal: &str) {
    let mut fixture = Fixture::new();
    let address = fixture.server.address();
    let begin = |bytes: &str| {
        let mut client = raw::Client::connect(address);
        client.send(bytes);
        client
    };
    let mut idle: Vec<raw::Client> = (0..100).map(|_| begin(&get("/readyz"))).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    let silent = raw::Client::connect(address);
    let half = begin("GET /readyz HTTP/1.1\r\nHost: ");
    let body = json!({"name": "Under way"}).to_string();
    let post = request("POST", RECORDS, &fixture.key, "Content-Type: application/json\r\n", &body);
    let locked = database(&fixture.tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut under_way: Vec<raw::Client> = (0..20).map(|_| begin(&post)).collect();
    assert_eq!(fixture.ask(RECORDS).status, 200, "those before it are with the service");

    fixture.server.signal(signal);
    until("it stops listening", || TcpStream::connect(address).is_err().then_some(()));
    for mut client in idle.into_iter().chain([silent, half]) {
        assert!(client.is_closed());
    }
    assert!(under_way.iter().all(|client| !client.is_answered()), "they wait for the lock");
    locked.execute_batch("COMMIT").unwrap();
    for client in &mut under_way {
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("Connection")), (201, Some("close")));
        assert!(client.is_closed());
    }
    assert_eq!(fixture.server.ended().code(), Some(0));
    // The last connection would empty the write-ahead log, so this one stays open.
    assert_eq!(fixture.tenant.files()[1].metadata().unwrap().len(), 0, "the log is empty");
    let kept: i64 =
        locked.query_row("SELECT count(*) FROM customers", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 20, "nothing acknowledged is lost");
}
