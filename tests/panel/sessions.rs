//! Sessions: the cookie, the end, and the protection against session fixation.

use super::browser_session::{PASSWORD, Panel, SESSION};

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
    // The form of a page that was opened earlier.
    let mut other = panel.browser();
    other.get("");
    browser.cookies.extend(other.cookies);
    browser
        .send_with(&other.token, "sign-in", &[("tenant", "acme"), ("password", PASSWORD)])
        .is(303);
    assert!(browser.is_signed_in());
    assert!(!former.is_signed_in());
}

#[test]
fn a_stolen_cookie_is_worth_nothing_after_the_sign_out() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let stolen = browser.cookies.clone();
    let token = browser.token.clone();
    let page = browser.send("sign-out", &[]).is(303);
    assert_eq!(page.query(), "done=signed-out");
    browser.get("done=signed-out").is(200).saying("You are signed out.");
    let text = browser.get("done=deleted").is(200).text();
    assert!(!text.contains("role=\"status\""), "a step back tells what the admin did: {text}");
    let mut thief = panel.browser();
    thief.cookies = stolen;
    assert!(!thief.is_signed_in());
    thief
        .send_with(&token, "create", &[("name", "x"), ("scope", "all")])
        .is(403)
        .saying("Your session is over");
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
