//! The share of one tenant or one client address, beside which others are served.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use tenantdesk::config::TlsFiles;
use tenantdesk::edge::CONNECTION_LIMITS;

use crate::edge_server::EdgeServer;
use crate::fixture::{Fixture, RECORDS};
use crate::support::network::{GREEDY, MODEST, from, run_in_own_network};
use crate::support::raw::{Client, get, request};
use crate::support::tls::Certificate;
use crate::support::{ALL, TestServer, database, encoded, until, uuid};

#[test]
fn a_request_whose_client_disconnected_has_a_line_with_the_status_499() {
    let fixture = Fixture::new();
    let locked = database(&fixture.tenant.file());
    locked.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").unwrap();
    // More requests than the tenant runs at a time: some disconnect while they run, some while
    // they wait.
    let ids: Vec<String> = (0..5).map(|_| uuid()).collect();
    for id in &ids {
        let header = format!("X-Request-Id: {id}\r\n");
        let mut client = fixture.connect();
        client.send(request("GET", RECORDS, &fixture.key, &header, ""));
        (0..3).for_each(|_| assert_eq!(fixture.ask("/healthz").status, 200));
    }
    drop(locked);
    for id in ids {
        until("the log has its line", || {
            let log = fixture.server.log();
            let line = log.lines().find(|line| line.contains(&id) && line.contains("duration"))?;
            assert!(line.contains("499"), "{line}");
            Some(())
        });
    }
}

#[test]
fn one_address_takes_a_quarter_of_the_connections() {
    run_in_own_network("shares::in_a_network_of_its_own");
    run_in_own_network("shares::silent_in_a_network_of_its_own");
}

#[test]
#[ignore = "run by the test above"]
fn in_a_network_of_its_own() {
    let server = EdgeServer::with(|config| {
        config.listen = SocketAddr::from((GREEDY, 0));
        config.connections.get_or_insert(CONNECTION_LIMITS).max_connections = 40;
    });
    let serves = |client: &mut Client| {
        client.send(get("/a"));
        assert_eq!(client.answer().status, 200);
    };
    let mut modest = from(MODEST, server.address);
    serves(&mut modest);
    let mut idle: Vec<Client> = Vec::new();
    for count in 0..30 {
        let mut client = from(GREEDY, server.address);
        serves(&mut client);
        idle.push(client);
        if count >= 10 {
            assert!(
                idle[count - 10].is_closed(),
                "the connection that was idle longest goes first"
            );
        }
    }
    // Busy connections stay, and one more connection is refused.
    let mut busy = idle.split_off(20);
    busy.iter_mut().for_each(|client| client.send(get("/held")));
    server.holds(10);
    let mut refused = from(GREEDY, server.address);
    refused.send(get("/a"));
    refused.answer().fails_with(503, "overloaded");
    assert!(refused.is_closed());
    serves(&mut modest);
    serves(&mut from(MODEST, server.address));
    server.release();
    busy.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
}

/// Clients that come in a burst and send nothing, not even a TLS handshake.
#[test]
#[ignore = "run by the test above"]
fn silent_in_a_network_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let Certificate { certificate, key } = Certificate::make(directory.path());
    for tls in [None, Some(TlsFiles { certificate, key })] {
        let server = EdgeServer::with(|config| {
            config.listen = SocketAddr::from((GREEDY, 0));
            let limits = config.connections.get_or_insert(CONNECTION_LIMITS);
            limits.max_connections = 40;
            limits.head_timeout = Duration::from_mins(5);
            limits.idle_timeout = Duration::from_mins(5);
            config.tls = tls;
        });
        let mut silent: Vec<Client> = (0..200).map(|_| from(GREEDY, server.address)).collect();
        let kept = silent.split_off(190);
        silent.iter_mut().for_each(|client| assert!(client.is_closed()));
        assert!(kept.iter().all(|client| !client.is_answered()), "they are open");
    }
}

/// Records whose texts are as bad for a search as they can be.
const HOSTILE: usize = 1_000;

/// Words that the texts nearly contain, at every place.
fn words(length: usize) -> String {
    let words: Vec<String> = (0..20).map(|n| "a".repeat(length - n % 2) + "b").collect();
    format!("{RECORDS}?total=true&limit=1&q={}", encoded(&words.join(" ")))
}

#[test]
fn searches_of_one_tenant_stop_no_other() {
    run_in_own_network("shares::hostile_searches");
}

#[test]
#[ignore = "run by the test above"]
fn hostile_searches() {
    let server = TestServer::without_rate_limit();
    let hostile = server.tenant("hostile").key(ALL).key;
    let other = server.tenant("other").key(ALL).key;
    let mut rows = "name,notes\n".to_owned();
    for n in 0..HOSTILE {
        writeln!(rows, "Hostile {n},{}b", "a".repeat(4_990)).unwrap();
    }
    std::fs::write(server.home().join("rows.csv"), rows).unwrap();
    server.cli(&["import", "hostile", "customers", "rows.csv"]).done();
    let ask = |target: &str| {
        let mut client = from(GREEDY, server.address());
        client.send(request("GET", target, &hostile, "", ""));
        client
    };
    let is_served = || {
        let mut modest = from(MODEST, server.address());
        modest.send(request("GET", RECORDS, &other, "", ""));
        assert_eq!(modest.answer().status, 200);
    };
    let searching: Vec<Client> = (0..64).map(|_| ask(&words(8))).collect();
    (0..100).for_each(|_| is_served());
    // If the searches took turns with the other tenant, all of them would be answered by now.
    assert!(
        searching.iter().any(|client| !client.is_answered()),
        "others take turns with the searches"
    );
}
