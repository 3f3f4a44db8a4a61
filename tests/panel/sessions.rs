//! Sessions: the sign-in and its throttle, the cookie, the end, and the protection against session
//! fixation.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::browser::Browser;
use crate::support::client::Call;
use crate::support::{Reply, TestServer, database, tree};
use crate::{NEW, Panel};

const SESSION: &str = "tenantdesk-session";

#[test]
fn the_cookie_is_out_of_reach_of_scripts_and_other_sites() {
    let panel = Panel::new();
    for (proto, name, end) in
        [("http", SESSION, "Strict"), ("https", "__Host-tenantdesk-session", "Strict; Secure")]
    {
        let mut browser = panel.browser();
        browser.headers.push(("X-Forwarded-Proto", proto));
        let page = browser.sign_in("acme", &panel.acme.password).is(303);
        let cookie = page.header("Set-Cookie").unwrap();
        let attributes = format!("; Max-Age=28800; Path=/; HttpOnly; SameSite={end}");
        assert!(
            cookie.starts_with(&format!("{name}=")) && cookie.ends_with(&attributes),
            "{cookie}"
        );
        assert!(browser.is_signed_in());
    }
}

#[test]
fn only_the_hash_of_a_sessions_token_is_stored() {
    let panel = Panel::new();
    let token = panel.signed_in().cookies[SESSION].clone();
    assert_eq!(token.len(), 43);
    assert!(!is_on_disk(&panel, &token));
}

/// Whether a file of the data directory contains these bytes.
pub(crate) fn is_on_disk(panel: &Panel, secret: &str) -> bool {
    let files = tree(&panel.service.data()).into_iter().filter(|path| path.is_file());
    let contents = files.map(|path| std::fs::read(path).unwrap());
    contents.into_iter().any(|bytes| bytes.windows(secret.len()).any(|it| it == secret.as_bytes()))
}

#[test]
fn a_session_that_was_brought_along_is_not_taken() {
    let panel = Panel::new();
    let planted = "A".repeat(43);
    let [mut victim, mut attacker] = [(); 2].map(|()| panel.browser());
    for browser in [&mut victim, &mut attacker] {
        browser.cookies.insert(SESSION.to_owned(), planted.clone());
        assert!(!browser.is_signed_in());
    }
    victim.sign_in("acme", &panel.acme.password).is(303);
    assert_ne!(victim.cookies[SESSION], planted);
    assert!(!attacker.is_signed_in());
}

#[test]
fn signing_in_again_ends_the_session_before() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    let mut former = panel.browser();
    former.cookies = browser.cookies.clone();
    browser.sign_in("acme", &panel.acme.password).is(303);
    assert!(browser.is_signed_in());
    assert!(!former.is_signed_in());
}

#[test]
fn a_stolen_cookie_is_worth_nothing_after_the_sign_out() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    let mut thief = panel.browser();
    thief.cookies = browser.cookies.clone();
    let page = browser.send("sign-out", &[]).is(303);
    browser.get(page.query()).is(200).showing("You are signed out.");
    let text = browser.get("?done=deleted").is(200).text();
    assert!(!text.contains("role=\"status\""), "a step back tells what the admin did: {text}");
    assert!(!thief.is_signed_in());
    let form = [("name", "x"), ("scope", "all")];
    thief.send("create", &form).is(403).showing("Your session is over");
}

#[test]
fn a_new_password_ends_every_session() {
    let panel = Panel::new();
    let other = panel.service.tenant("other");
    let (mut browser, mut second) = (panel.signed_in(), panel.signed_in());
    let mut other = panel.signed_in_to(&other);
    let mut thief = panel.browser();
    thief.cookies = browser.cookies.clone();
    let form = [("current", &*panel.acme.password), ("new", NEW), ("again", NEW)];
    assert_eq!(browser.send("password", &form).is(303).query(), "?done=password-changed");
    assert!(!thief.is_signed_in() && !browser.is_signed_in() && !second.is_signed_in());
    assert!(other.is_signed_in());
    panel.browser().sign_in("acme", &panel.acme.password).is(401);
    panel.browser().sign_in("acme", NEW).is(303);
}

/// Sends a form while a command of the operator changes the registry by `sql`.
fn send_during(panel: &Panel, sql: &str, form: Call<'_>) -> Reply {
    let command = database(&panel.service.registry_file());
    command.execute_batch(&format!("BEGIN IMMEDIATE; {sql}")).unwrap();
    let pending = form.start();
    // Nothing shows that the form waits. If it is late, the test asks for less.
    thread::sleep(Duration::from_millis(300));
    command.execute_batch("COMMIT").unwrap();
    pending.reply()
}

#[test]
fn a_form_that_waits_while_its_session_ends_changes_nothing() {
    let panel = Panel::new();
    let other = panel.service.tenant("other");
    let sql = "UPDATE tenants SET password_hash =
                 (SELECT password_hash FROM tenants WHERE name = 'other') WHERE name = 'acme';
               DELETE FROM sessions";
    let password = [("current", &*other.password), ("new", NEW), ("again", NEW)];
    for (present, action, fields) in [
        (&panel.acme.password, "create", &[("name", "x"), ("scope", "all")][..]),
        (&other.password, "password", &password),
    ] {
        let mut browser = panel.browser();
        browser.sign_in("acme", present).is(303);
        let page = send_during(&panel, sql, browser.form(action, fields)).is(403);
        let page = page.showing("Your session is over. Nothing was changed.");
        assert!(!page.text().contains("Sign out"), "a page of the tenant: {page}");
    }
    assert!(panel.keys().is_empty());
    panel.browser().sign_in("acme", NEW).is(401);
    panel.browser().sign_in("acme", &other.password).is(303);
}

#[test]
fn a_form_keeps_the_end_that_the_operator_sets_while_it_waits() {
    let panel = Panel::new();
    let browser = panel.signed_in();
    let (mut key, id) = panel.key();
    let sql = "UPDATE keys SET expires_at = '2999-01-01T23:59:59Z'";
    let fields = [("key", &*id), ("name", "new"), ("expires", "keep")];
    send_during(&panel, sql, browser.form("edit", &fields)).is(303);
    key["name"] = "new".into();
    key["expires_at"] = "2999-01-01T23:59:59Z".into();
    assert_eq!(panel.keys(), [key]);
}

#[test]
fn a_session_outlives_a_restart_and_dies_with_its_tenant() {
    let (mut server, acme) = TestServer::with_tenant();
    let mut browser = Browser::at(&server, "127.0.0.1");
    browser.sign_in("acme", &acme.password).is(303);
    server.restart();
    assert!(browser.is_signed_in());
    acme.ask("delete", &["--yes"]);
    assert!(!browser.is_signed_in());
}

#[test]
fn a_wrong_sign_in_is_401_and_does_not_say_what_is_wrong() {
    let panel = Panel::new();
    // A hash with 19 MiB of memory cannot be computed in less time than this. A unit test of the
    // program checks that the hash for unknown tenants has the same parameters.
    let time_of_a_hash = Duration::from_millis(3);
    let pages = ["acme", "acmf", "Not a name!"].map(|name| {
        let start = Instant::now();
        let page = panel.browser().sign_in(name, "not the password").is(401);
        assert!(start.elapsed() >= time_of_a_hash, "{name}");
        page
    });
    assert_eq!(pages[0].text(), pages[1].text().replace("acmf", "acme"));
    assert!(pages[0].text().contains("The tenant or the password is wrong."));
    panel.browser().sign_in("", "").is(401);
}

#[test]
fn the_sixth_wrong_password_in_a_minute_is_refused_and_so_is_the_right_one() {
    let panel = Panel::new();
    let other = panel.service.tenant("other");
    let sign_in = |password: &str| panel.browser().sign_in("acme", password);
    for _ in 0..5 {
        sign_in("not the password").is(401);
        panel.service.advance(10);
    }
    sign_in("not the password").is(429).showing("Too many wrong passwords");
    sign_in(&panel.acme.password).is(429);
    panel.signed_in_to(&other);
    panel.service.advance(9);
    sign_in(&panel.acme.password).is(429);
    panel.service.advance(1);
    sign_in(&panel.acme.password).is(303);
}

#[test]
fn wrong_passwords_from_elsewhere_do_not_lock_an_admin_out() {
    let panel = Panel::new();
    let sign_in = |address: &str, password: &str| {
        Browser::at(&panel.service, address).sign_in("acme", password).status
    };
    for _ in 0..5 {
        assert_eq!(sign_in("2001:db8:0:1::66", "not the password"), 401);
    }
    assert_eq!(sign_in("2001:db8:0:1::67", "not the password"), 429, "the same /64");
    assert_eq!(sign_in("192.0.2.1", &panel.acme.password), 303);
}

#[test]
fn names_are_counted_as_typed_known_or_not() {
    let panel = Panel::new();
    for name in ["nobody", "Acme", " acme"] {
        for _ in 0..5 {
            panel.browser().sign_in(name, &panel.acme.password).is(401);
        }
        panel.browser().sign_in(name, &panel.acme.password).is(429);
    }
    panel.signed_in();
}

#[test]
fn a_form_that_waits_too_long_for_a_command_can_be_sent_again() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    let command = database(&panel.service.registry_file());
    command.execute_batch("BEGIN IMMEDIATE").unwrap();
    let fields = [("name", "x"), ("scope", "all"), ("expires", "never")];
    browser.send("create", &fields).is(503).showing("Nothing was changed. Please try again");
    command.execute_batch("COMMIT").unwrap();
    browser.send("create", &fields).is(303);
}
