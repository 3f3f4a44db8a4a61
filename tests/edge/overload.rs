//! Many concurrent requests, and the share of one tenant or one client address, beside which others
//! are served; faults inside the service: panics, workers that hang; an orderly stop.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use serde_json::json;
use tenantdesk::config::Config;

use crate::edge_server::EdgeServer;
use crate::fixture::{Fixture, RECORDS};
use crate::support::browser::Browser;
use crate::support::raw::{Client, GREEDY, MODEST, from, get, request, run_in_own_network};
use crate::support::syncs::Syncs;
use crate::support::{ALL, Setup, database, until, uuid};

/// A request of `client`, as a trusted proxy reports it.
fn ask(client: Ipv4Addr, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: desk\r\nX-Forwarded-For: {client}\r\n\r\n")
}

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
        let mut client = Client::connect(address);
        client.send(bytes);
        client
    };
    let mut idle: Vec<Client> = (0..100).map(|_| begin(&get("/readyz"))).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    let silent = Client::connect(address);
    let half = begin("GET /readyz HTTP/1.1\r\nHost: ");
    let body = json!({"name": "Under way"}).to_string();
    let post = request("POST", RECORDS, &fixture.key, "Content-Type: application/json\r\n", &body);
    let locked = database(&fixture.tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut under_way: Vec<Client> = (0..20).map(|_| begin(&post)).collect();
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
    assert!(!fixture.server.log().contains("ERROR"), "nothing is wrong with the server");
}

#[test]
#[ignore = "needs root; `make proof` runs it"]
fn proof_one_address_takes_a_quarter_of_the_connections() {
    run_in_own_network("overload::in_a_network_of_its_own");
}

/// The greedy clients come in a burst and send nothing.
#[test]
#[ignore = "run by the test above"]
fn in_a_network_of_its_own() {
    let server = EdgeServer::with(|config| {
        config.listen = SocketAddr::from((GREEDY, 0));
        config.connections.max_connections = 40;
    });
    let is_served = |client: &mut Client| {
        client.try_send(get("/a")) && client.try_answer().is_some_and(|answer| answer.status == 200)
    };
    let mut greedy: Vec<Client> = (0..200).map(|_| from(GREEDY, server.address)).collect();
    assert!(is_served(&mut from(MODEST, server.address)));
    let mut refused = greedy.split_off(10);
    refused.iter_mut().for_each(|client| assert!(client.is_closed()));
    assert!(greedy.iter_mut().all(is_served), "the first ten are served");
    drop(greedy.pop());
    until("there is room again", || is_served(&mut from(GREEDY, server.address)).then_some(()));
}

/// Sends forms of some admins while `block` keeps the registry from a commit. Another tenant and the
/// probes are served at once meanwhile.
fn others_are_served_beside_forms<B>(
    setup: Setup,
    admins: usize,
    counts: &[usize],
    block: impl Fn(&Path) -> B,
) {
    let fixture = Fixture::with(setup);
    let server = &fixture.server;
    let admins: Vec<_> = (0..admins)
        .map(|number| {
            let busy = server.tenant(&format!("busy-{number}"));
            let id = busy.key(ALL).id.to_string();
            let mut browser = Browser::at(server, "127.0.0.1");
            browser.sign_in(&busy.name, &busy.password).is(303);
            (browser, id)
        })
        .collect();
    for count in counts {
        let name = format!("named by {count}");
        let blocked = block(&server.registry_file());
        let mut waiting = Vec::new();
        for (browser, id) in &admins {
            let fields = [("key", &**id), ("name", &name), ("expires", "never")];
            waiting.extend((0..*count).map(|_| browser.form("edit", &fields).start()));
        }
        let others_are_served = || {
            fixture.is_served();
            assert_eq!(fixture.ask("/readyz").status, 200);
        };
        others_are_served();
        // A form waits for 5 s. Others behind it would have had to wait for its response.
        assert!(waiting.iter().any(|form| !form.is_answered()), "others waited for {count} forms");
        (0..20).for_each(|_| others_are_served());
        drop(blocked);
        let statuses: Vec<u16> = waiting.into_iter().map(|form| form.reply().status).collect();
        let is_known = |status: &u16| [303, 503].contains(status);
        assert!(statuses.iter().all(is_known) && statuses.contains(&303), "{statuses:?}");
    }
}

#[test]
fn forms_that_wait_for_another_process_delay_no_other_tenant_and_no_probe() {
    let lock = |registry: &Path| {
        let locked = database(registry);
        locked.execute_batch("BEGIN IMMEDIATE").unwrap();
        locked
    };
    others_are_served_beside_forms(Setup::without_rate_limit(), 1, &[3, 14, 240], lock);
}

#[test]
fn forms_on_a_disk_that_hangs_delay_no_other_tenant_and_no_probe() {
    struct Release<'a>(&'a Syncs);
    impl Drop for Release<'_> {
        fn drop(&mut self) {
            self.0.release();
        }
    }
    let syncs = Syncs::new();
    let hang = |_: &Path| {
        syncs.hold("registry.db-wal");
        Release(&syncs)
    };
    let setup = syncs.observe_server(Setup::without_rate_limit());
    // More admins than workers.
    others_are_served_beside_forms(setup.option("--workers").option("4"), 5, &[3], hang);
}
