//! A client without a key, and what others are served beside it. In a network namespace, since
//! loopback addresses have no share.

use crate::browser::Browser;
use crate::support::network::{GREEDY, MODEST, from, run_in_own_network};
use crate::support::raw::{Client, get, request};
use crate::support::{ALL, Setup, TestServer, until};

const JSON: &str = "Content-Type: application/json\r\n";

/// A key of the right form that nobody has.
const NO_KEY: &str = "tdk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[test]
fn bodies_of_one_address_stop_no_other() {
    run_in_own_network("client::held_bodies");
}

#[test]
#[ignore = "run by the test above"]
fn held_bodies() {
    let server = TestServer::start();
    let key = server.tenant("acme").key(ALL).key;
    let held = request("POST", "/batch.php", NO_KEY, JSON, &" ".repeat(1 << 20));
    let held = &held[..held.len() - 1];
    let mut greedy: Vec<Client> = Vec::new();
    for _ in 0..36 {
        let mut client = from(GREEDY, server.address());
        client.try_send(held);
        await_read(&client);
        greedy.push(client);
    }
    let operation = r#"{"operations": [{"method": "POST", "path": "/customers.php",
        "body": {"name": "Served"}}]}"#;
    for _ in 0..10 {
        let mut modest = from(MODEST, server.address());
        modest.send(request("POST", "/batch.php", &key, JSON, operation));
        assert_eq!(modest.answer().status, 200);
    }
    assert!(greedy.iter().any(|client| !client.is_answered()), "bodies are still held");
}

/// Waits until the server has read all that a client has sent, or has answered.
fn await_read(client: &Client) {
    let port = format!(":{:04X}", client.socket().local_addr().unwrap().port());
    until("the server has read it", || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let own = sockets.lines().filter(|line| line.contains(&port));
        let is_read = own.into_iter().all(|line| line.contains(" 00000000:00000000 "));
        (is_read || client.is_answered()).then_some(())
    });
}

#[test]
fn connections_of_one_address_stop_no_other() {
    run_in_own_network("client::idle_connections");
}

#[test]
#[ignore = "run by the test above"]
fn idle_connections() {
    // Half of the descriptors are for connections.
    let server = Setup::plain().limited_to("-n 100").start();
    let key = server.tenant("acme").key(ALL).key;
    let mut idle: Vec<Client> = Vec::new();
    for _ in 0..50 {
        let mut client = from(GREEDY, server.address());
        client.try_send(get("/healthz"));
        client.try_answer(false);
        idle.push(client);
    }
    for _ in 0..10 {
        let mut modest = from(MODEST, server.address());
        modest.send(request("GET", "/customers.php", &key, "", ""));
        assert_eq!(modest.answer().status, 200);
    }
    assert!(idle.iter().any(|client| !client.is_answered()), "connections are still open");
}

#[test]
fn json_is_not_sniffed() {
    let server = TestServer::start();
    let mut client = Client::connect(server.address());
    client.send(get("/customers.php"));
    assert_eq!(client.answer().header("x-content-type-options"), "nosniff");
}

/// F10.
#[test]
fn wrong_passwords_from_one_address_lock_nobody_else_out() {
    let server = TestServer::start();
    let acme = server.tenant("acme");
    let mut stranger = Browser::new(&server, "203.0.113.5");
    (0..5).for_each(|_| _ = stranger.sign_in(&acme, "a wrong password").is(401));
    stranger.sign_in(&acme, &acme.password).is(429);
    Browser::new(&server, "198.51.100.1").sign_in(&acme, &acme.password).is(303);
}
