//! Sessions: the sign-in and its throttle, the cookie, the end, and the protection against session
//! fixation.

use std::thread;
use std::time::{Duration, Instant};

use tenantdesk::clock::Timestamp;
use tenantdesk::secret;
use tenantdesk::store::registry::KeyRow;

use super::browser_session::{BrowserSession, PASSWORD, Page, Panel, SESSION};
use crate::support::database;

const NEW: &str = "another horse battery";

#[test]
fn the_cookie_is_out_of_reach_of_scripts_and_other_sites() {
    let panel = Panel::new();
    panel.tenant("acme");
    let page = panel.browser().sign_in("acme", PASSWORD).is(303);
    let cookie = page.cookie(SESSION).unwrap();
    assert!(cookie.ends_with("; Max-Age=28800; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");

    let mut browser = panel.browser();
    browser.secure = true;
    let page = browser.sign_in("acme", PASSWORD).is(303);
    let cookie = page.cookie("__Host-tenantdesk-session").unwrap();
    assert!(
        cookie.ends_with("; Max-Age=28800; Path=/; HttpOnly; SameSite=Strict; Secure"),
        "{cookie}"
    );
    assert!(browser.is_signed_in());
}

#[test]
fn only_the_hash_of_a_sessions_token_is_stored() {
    let panel = Panel::new();
    panel.tenant("acme");
    let browser = panel.signed_in("acme");
    let token = browser.cookies[SESSION].clone();
    assert_eq!(token.len(), 43);
    assert!(!panel.is_on_disk(&token));
}

#[test]
fn a_session_that_was_brought_along_is_not_taken() {
    let panel = Panel::new();
    panel.tenant("acme");
    let planted = "A".repeat(43);
    let mut victim = panel.browser();
    victim.cookies.insert(SESSION.to_owned(), planted.clone());
    assert!(!victim.is_signed_in());
    victim.sign_in("acme", PASSWORD).is(303);
    assert_ne!(victim.cookies[SESSION], planted);
    let mut attacker = panel.browser();
    attacker.cookies.insert(SESSION.to_owned(), planted);
    assert!(!attacker.is_signed_in());
}

#[test]
fn signing_in_again_ends_the_session_before() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let mut former = panel.browser();
    former.cookies = browser.cookies.clone();
    browser.sign_in("acme", PASSWORD).is(303);
    assert!(browser.is_signed_in());
    assert!(!former.is_signed_in());
}

#[test]
fn a_stolen_cookie_is_worth_nothing_after_the_sign_out() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let stolen = browser.cookies.clone();
    let page = browser.send("sign-out", &[]).is(303);
    assert_eq!(page.query(), "done=signed-out");
    browser.get("done=signed-out").is(200).saying("You are signed out.");
    let text = browser.get("done=deleted").is(200).text();
    assert!(!text.contains("role=\"status\""), "a step back tells what the admin did: {text}");
    let mut thief = panel.browser();
    thief.cookies = stolen;
    assert!(!thief.is_signed_in());
    thief.send("create", &[("name", "x"), ("scope", "all")]).is(403).saying("Your session is over");
}

#[test]
fn a_new_password_ends_every_session() {
    let panel = Panel::new();
    panel.tenant("acme");
    panel.tenant("other");
    let mut browser = panel.signed_in("acme");
    let mut second = panel.signed_in("acme");
    let mut other = panel.signed_in("other");
    let stolen = browser.cookies.clone();
    let page =
        browser.send("password", &[("current", PASSWORD), ("new", NEW), ("again", NEW)]).is(303);
    assert_eq!(page.query(), "done=password-changed");
    let mut thief = panel.browser();
    thief.cookies = stolen;
    assert!(!thief.is_signed_in() && !browser.is_signed_in() && !second.is_signed_in());
    assert!(other.is_signed_in());
    panel.browser().sign_in("acme", PASSWORD).is(401);
    panel.browser().sign_in("acme", NEW).is(303);
}

/// Sends a form while a command of the operator changes the registry by `sql`.
fn send_during(
    panel: &Panel,
    sql: &str,
    browser: &mut BrowserSession<'_>,
    form: &Form<'_>,
) -> Page {
    let command = database(&panel.directory.path().join("data/registry.db"));
    command.execute_batch(&format!("BEGIN IMMEDIATE; {sql}")).unwrap();
    thread::scope(|scope| {
        let page = scope.spawn(|| browser.send(form.0, form.1));
        // Nothing shows that the form waits. If it is late, the test asks for less.
        thread::sleep(Duration::from_millis(300));
        command.execute_batch("COMMIT").unwrap();
        page.join().unwrap()
    })
}

/// The action and the fields of a form.
type Form<'a> = (&'a str, &'a [(&'a str, &'a str)]);

#[test]
fn a_form_that_waits_while_its_session_ends_changes_nothing() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let new = secret::hash_password(NEW).unwrap();
    let sql = format!("UPDATE tenants SET password_hash = '{new}'; DELETE FROM sessions");
    let other = "a third horse battery";
    let password: Form<'_> = ("password", &[("current", NEW), ("new", other), ("again", other)]);
    for (password, form) in
        [(PASSWORD, ("create", &[("name", "x"), ("scope", "all")][..])), (NEW, password)]
    {
        let mut browser = panel.browser();
        browser.sign_in("acme", password).is(303);
        browser.get("").is(200);
        let page = send_during(&panel, &sql, &mut browser, &form);
        let text = page.is(403).saying("Your session is over. Nothing was changed.").text();
        assert!(!text.contains("Sign out"), "a page of the tenant: {text}");
    }
    assert_eq!(panel.keys(&acme), []);
    panel.browser().sign_in("acme", other).is(401);
    panel.browser().sign_in("acme", NEW).is(303);
}

#[test]
fn a_form_keeps_the_end_that_the_operator_sets_while_it_waits() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    browser.send("create", &[("name", "old"), ("scope", "all")]).is(303);
    let key = panel.keys(&acme).remove(0);
    let (end, id) = (Timestamp::end_of_day("2027-01-01"), key.id.to_string());
    let sql = "UPDATE keys SET expires_at = '2027-01-01T23:59:59Z'";
    let fields = [("key", &*id), ("name", "new"), ("expires", "keep")];
    send_during(&panel, sql, &mut browser, &("edit", &fields)).is(303);
    let expected = KeyRow { name: "new".to_owned(), expires_at: end, ..key };
    assert_eq!(panel.keys(&acme), [expected]);
}

#[test]
fn a_session_outlives_a_restart_and_dies_with_its_tenant() {
    let panel = Panel::new();
    panel.tenant("acme");
    let cookies = panel.signed_in("acme").cookies;
    let panel = panel.restarted();
    let mut browser = panel.browser();
    browser.cookies = cookies;
    assert!(browser.is_signed_in());
    panel.app.registry.delete_tenant("acme").unwrap();
    assert!(!browser.is_signed_in());
}

#[test]
fn a_wrong_sign_in_is_401_and_does_not_say_what_is_wrong() {
    let panel = Panel::new();
    panel.tenant("acme");
    let wrong = panel.browser().sign_in("acme", "not the password").is(401);
    let unknown = panel.browser().sign_in("acmf", "not the password").is(401);
    assert_eq!(wrong.text(), unknown.text().replace("acmf", "acme"));
    assert!(wrong.text().contains("The tenant or the password is wrong."));
    panel.browser().sign_in("", "").is(401);
}

#[test]
fn an_unknown_tenant_costs_the_same_work_as_a_wrong_password() {
    let panel = Panel::new();
    panel.tenant("acme");
    // A hash with 19 MiB of memory cannot be computed in less time than this. A unit test in
    // src/secret.rs checks that the hash for unknown tenants has the same parameters.
    for name in ["acme", "nobody", "Not a name!"] {
        assert!(time_of(&panel, name, 401) >= TIME_OF_A_HASH, "{name}");
    }
}

const TIME_OF_A_HASH: Duration = Duration::from_millis(3);

/// The time that a rejected sign-in takes.
fn time_of(panel: &Panel, name: &str, status: u16) -> Duration {
    let start = Instant::now();
    panel.browser().sign_in(name, "not the password").is(status);
    start.elapsed()
}

#[test]
fn the_sixth_wrong_password_in_a_minute_is_refused_and_so_is_the_right_one() {
    let panel = Panel::new();
    panel.tenant("acme");
    panel.tenant("other");
    for _ in 0..5 {
        panel.browser().sign_in("acme", "not the password").is(401);
        panel.advance(10);
    }
    panel.browser().sign_in("acme", "not the password").is(429).saying("Too many wrong passwords");
    panel.browser().sign_in("acme", PASSWORD).is(429);
    let fastest = (0..20).map(|_| time_of(&panel, "acme", 429)).min().unwrap();
    assert!(fastest < TIME_OF_A_HASH, "a rejected sign-in computes no hash: {fastest:?}");
    panel.browser().sign_in("other", PASSWORD).is(303);
    panel.advance(9);
    panel.browser().sign_in("acme", PASSWORD).is(429);
    panel.advance(1);
    panel.browser().sign_in("acme", PASSWORD).is(303);
}

#[test]
fn wrong_passwords_from_elsewhere_do_not_lock_an_admin_out() {
    let panel = Panel::new();
    panel.tenant("acme");
    let wrong =
        |client: &str| panel.browser_at(client).sign_in("acme", "not the password").status();
    for _ in 0..5 {
        assert_eq!(wrong("2001:db8:0:1::66"), 401);
    }
    assert_eq!(wrong("2001:db8:0:1::67"), 429, "the same /64");
    panel.browser_at("192.0.2.1").sign_in("acme", PASSWORD).is(303);
}

#[test]
fn names_are_counted_as_typed_known_or_not() {
    let panel = Panel::new();
    panel.tenant("acme");
    for name in ["nobody", "Acme", " acme"] {
        for _ in 0..5 {
            panel.browser().sign_in(name, PASSWORD).is(401);
        }
        panel.browser().sign_in(name, PASSWORD).is(429);
    }
    panel.browser().sign_in("acme", PASSWORD).is(303);
}
