//! A tenant whose keys do what they may, and what the other tenants are served beside it.

use std::fmt::Write as _;

use crate::browser::Browser;
use crate::support::network::{GREEDY, MODEST, from, run_in_own_network};
use crate::support::raw::{Client, request};
use crate::support::{ALL, Setup, TestServer, encoded};

const RECORDS: &str = "/customers.php";

/// Records whose texts are as bad for a search as they can be.
const HOSTILE: usize = 1_000;

/// Words that the texts nearly contain, at every place.
fn words(length: usize) -> String {
    let words: Vec<String> = (0..20).map(|n| "a".repeat(length - n % 2) + "b").collect();
    format!("{RECORDS}?total=true&limit=1&q={}", encoded(&words.join(" ")))
}

#[test]
fn a_search_of_long_words_is_refused() {
    let server = TestServer::start();
    let api = server.tenant("acme").with_scopes(ALL);
    api.get(&words(380)).fails_with(400, "bad_request");
}

#[test]
fn searches_of_one_tenant_stop_no_other() {
    run_in_own_network("tenant::hostile_searches");
}

#[test]
#[ignore = "run by the test above"]
fn hostile_searches() {
    let server = Setup::without_rate_limit().start();
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
    let mut refused: Vec<Client> = (0..16).map(|_| ask(&words(380))).collect();
    (0..20).for_each(|_| is_served());
    for answered in refused.iter_mut().filter(|client| client.is_answered()) {
        assert_ne!(answered.answer().status, 200, "others wait for the end of a search");
    }
    let searching: Vec<Client> = (0..64).map(|_| ask(&words(8))).collect();
    (0..100).for_each(|_| is_served());
    // Whoever takes turns with them has seen all of their answers.
    assert!(
        searching.iter().any(|client| !client.is_answered()),
        "others take turns with the searches"
    );
}

const NEW_KEY: [(&str, &str); 3] =
    [("name", "One"), ("scope", "customers:read"), ("expires", "never")];

/// F6.
#[test]
fn a_tenant_has_at_most_200_keys() {
    let server = TestServer::start();
    let acme = server.tenant("acme");
    let mut browser = Browser::signed_in(&server, &acme, "203.0.113.9");
    let mut create = || browser.send("create", &NEW_KEY);
    (0..200).for_each(|_| _ = create().is(303));
    create().is(422);
    server.cli(&["key", "create", "acme", "--name", "One", "--scope", "all"]).fails_saying("200");
    let listed = server.cli(&["--json", "key", "list", "acme"]).done().json();
    assert_eq!(listed.as_array().unwrap().len(), 200);
}

/// F8.
#[test]
fn the_panel_says_that_a_write_answers_with_the_record() {
    let server = TestServer::start();
    let acme = server.tenant("acme");
    let page = Browser::signed_in(&server, &acme, "203.0.113.9").page_at("?create=");
    assert!(page.contains("It sees only the records that it writes."), "{page}");
}

/// F9: the sign-in of whoever makes many keys stays among the events, with its address, and the log
/// names the tenant.
#[test]
fn many_changes_of_keys_remove_no_sign_in_from_the_events() {
    let server = TestServer::start();
    let acme = server.tenant("acme");
    let mut browser = Browser::signed_in(&server, &acme, "203.0.113.9");
    for _ in 0..501 {
        browser.send("create", &NEW_KEY).is(303);
        let page = browser.page();
        let id = page.split("?edit=").nth(1).unwrap().split('"').next().unwrap();
        browser.send("delete", &[("key", id)]).is(303);
    }
    let page = Browser::signed_in(&server, &acme, "203.0.113.10").page();
    for address in ["203.0.113.9", "203.0.113.10"] {
        assert!(page.contains(address), "{address}: {page}");
    }
    let log = server.log();
    let line = log.lines().find(|line| line.contains("203.0.113.9") && line.contains("acme"));
    assert!(line.is_some(), "the log does not name the tenant");
}
