//! Faults inside the service: panics, workers that hang; and an orderly stop.

use std::net::TcpStream;

use serde_json::json;

use crate::edge_server::EdgeServer;
use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{self, get, request};
use crate::support::{database, until};

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
        let answer = server.ask(get("/panic"));
        answer.fails_with(500, "internal_error");
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
        assert_eq!((answer.status, answer.header("connection")), (201, "close"));
        assert!(client.is_closed());
    }
    assert_eq!(fixture.server.ended().code(), Some(0));
    // The last connection would empty the write-ahead log, so this one stays open.
    assert_eq!(fixture.tenant.files()[1].metadata().unwrap().len(), 0, "the log is empty");
    let kept: i64 =
        locked.query_row("SELECT count(*) FROM customers", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 20, "nothing acknowledged is lost");
}
