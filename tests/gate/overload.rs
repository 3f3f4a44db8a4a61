//! Many at once.

use std::thread;
use std::time::{Duration, Instant};

use crate::desk::Desk;
use crate::support::raw::{Client, get};

#[test]
fn keep_alive_connections_that_come_together_are_all_served() {
    for _ in 0..3 {
        let desk = Desk::start();
        let mut clients: Vec<Client> = (0..200).map(|_| desk.connect()).collect();
        for _ in 0..2 {
            clients.iter_mut().for_each(|client| client.send(get("/a")));
            clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
        }
    }
}

#[test]
fn sixty_four_slow_requests_run_together() {
    let desk = Desk::start();
    let mut clients: Vec<Client> = (0..64).map(|_| desk.connect()).collect();
    let started = Instant::now();
    clients.iter_mut().for_each(|client| client.send(get("/slow?1000")));
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    assert!(started.elapsed() < Duration::from_millis(1900), "{:?}", started.elapsed());
}

#[test]
fn an_address_that_takes_all_it_can_leaves_room_for_others() {
    let desk = Desk::start();
    let ask =
        |client: &str, path: &str| format!("GET {path} HTTP/1.1\r\nHost: desk\r\nX-Forwarded-For: {client}\r\n\r\n");
    let mut greedy: Vec<Client> = (0..150).map(|_| desk.connect()).collect();
    greedy.iter_mut().for_each(|client| client.send(ask("203.0.113.9", "/slow?1500")));
    thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    let mut modest = desk.connect();
    modest.send(ask("203.0.113.10", "/a"));
    assert_eq!(modest.answer().json()["client"], "203.0.113.10");
    modest.send(get("/healthz"));
    assert_eq!(modest.answer().status, 200);
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    greedy.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
}

#[test]
fn a_request_whose_client_has_left_is_not_started() {
    let desk = Desk::start();
    let mut holding: Vec<Client> = (0..100).map(|_| desk.connect()).collect();
    holding.iter_mut().for_each(|client| client.send(get("/slow?1000")));
    thread::sleep(Duration::from_millis(300));
    for _ in 0..20 {
        let mut leaving = desk.connect();
        leaving.send(get("/left"));
        thread::sleep(Duration::from_millis(5));
    }
    holding.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    assert_eq!(desk.ask(get("/a")).status, 200);
    assert_eq!(desk.paths().iter().filter(|path| *path == "/left").count(), 0);
}

#[test]
fn beyond_the_cap_503_and_healthz() {
    let desk = Desk::with(|options| options.limits.max_connections = Some(4));
    let mut within: Vec<Client> = (0..4).map(|_| desk.connect()).collect();
    within.iter_mut().for_each(|client| client.send(get("/a")));
    within.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    let mut beyond = desk.connect();
    beyond.send(get("/a"));
    let refused = beyond.answer();
    refused.fails_with(503, "overloaded");
    assert_eq!(refused.header("retry-after"), "1");
    assert!(beyond.is_closed());
    let health = desk.ask(get("/healthz"));
    assert_eq!((health.status, health.body.as_slice()), (200, &br#"{"status":"ok"}"#[..]));
    drop(within);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(desk.ask(get("/a")).status, 200);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    const COUNT: usize = 10_000;
    let desk = Desk::start();
    let mut client = desk.connect();
    let mut sender = client.twin();
    let sending = thread::spawn(move || (0..COUNT).for_each(|n| sender.send(get(&format!("/{n}")))));
    for n in 0..COUNT {
        assert_eq!(client.answer().json()["path"], format!("/{n}"));
    }
    sending.join().unwrap();
}

#[test]
fn a_flood_that_is_not_read_holds_up_nobody() {
    let desk = Desk::start();
    let mut flood = desk.connect();
    flood.socket().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let all = get("/large").repeat(500_000);
    assert!(!flood.try_send(all), "it was all taken");
    for _ in 0..20 {
        assert_eq!(desk.ask(get("/a")).status, 200);
    }
    assert!(desk.paths().len() < 200);
}
