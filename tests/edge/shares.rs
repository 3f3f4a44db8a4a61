//! The share of one tenant or one client address, beside which others are served.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use crate::edge_server::EdgeServer;
use crate::fixture::{Fixture, RECORDS};
use crate::support::browser::Browser;
use crate::support::raw::{Client, GREEDY, MODEST, from, get, request, run_in_own_network};
use crate::support::syncs::Syncs;
use crate::support::{ALL, Setup, TestServer, database, encoded, until, uuid};

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
    run_in_own_network("shares::in_a_network_of_its_own");
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
        let is_known = |status: &u16| [303, 500, 503].contains(status);
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

/// Records whose texts are as bad for a search as they can be.
const HOSTILE: usize = 1_000;

/// Words that the texts nearly contain, at every place.
fn words(length: usize) -> String {
    let words: Vec<String> = (0..20).map(|n| "a".repeat(length - n % 2) + "b").collect();
    format!("{RECORDS}?total=true&limit=1&q={}", encoded(&words.join(" ")))
}

#[test]
#[ignore = "needs root; `make proof` runs it"]
fn proof_searches_of_one_tenant_stop_no_other() {
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
