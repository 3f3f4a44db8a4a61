//! Forms: their origin, other tenants' keys, size limits, inactive tenants, and the change of the
//! password.

use serde_json::json;

use crate::support::ALL;
use crate::{NEW, Panel, new_key};

const CREATE: [(&str, &str); 2] = [("name", "x"), ("scope", "all")];

#[test]
fn a_form_from_elsewhere_changes_nothing() {
    let panel = Panel::new();
    let (_, id) = panel.key();
    let before = panel.keys();
    let mut browser = panel.signed_in();
    browser.at_host("desk.example:8080");
    let key = ("key", &*id);
    let present = &*panel.acme.password;
    let forms = [
        ("create", CREATE.to_vec()),
        ("revoke", vec![key]),
        ("delete", vec![key]),
        ("replace", vec![key, ("overlap", "0s")]),
        ("edit", vec![key, ("name", "x")]),
        ("password", vec![("current", present), ("new", NEW), ("again", NEW)]),
        ("sign-in", vec![("tenant", "acme"), ("password", present)]),
        ("sign-out", vec![]),
        ("", vec![]),
    ];
    for headers in [
        vec![("Sec-Fetch-Site", "cross-site")],
        // Another port of this host, or another host of this domain.
        vec![("Sec-Fetch-Site", "same-site")],
        vec![("Sec-Fetch-Site", "same-site"), ("Origin", "http://desk.example:8080")],
        vec![("Sec-Fetch-Site", "")],
        vec![("Origin", "http://desk.example")],
        vec![("Origin", "http://desk.example:8081")],
        vec![("Origin", "http://desk.example:8080.evil.example")],
        vec![("Origin", "null")],
        vec![("Origin", "desk.example:8080")],
        vec![("Origin", "http://")],
        vec![],
    ] {
        browser.headers.clone_from(&headers);
        for (action, fields) in &forms {
            let page = browser.send(action, fields).is(403).showing("Nothing was changed.");
            assert_eq!(page.header("Set-Cookie"), None, "{headers:?}");
        }
    }
    assert_eq!(panel.keys(), before);
    assert!(browser.is_signed_in());
}

#[test]
fn a_form_of_this_origin_is_taken_from_every_browser() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    for (host, headers) in [
        ("desk.example", vec![("Sec-Fetch-Site", "same-origin")]),
        // The user sends the form again from the history.
        ("desk.example", vec![("Sec-Fetch-Site", "none")]),
        // Behind a proxy, the host may lack the port.
        (
            "desk.example",
            vec![("Sec-Fetch-Site", "same-origin"), ("Origin", "https://desk.example:8443")],
        ),
        ("desk.example:8080", vec![("Origin", "http://desk.example:8080")]),
        ("desk.example", vec![("Origin", "https://desk.example")]),
        ("[2001:db8::7]:8080", vec![("Origin", "http://[2001:db8::7]:8080")]),
    ] {
        browser.at_host(host);
        browser.headers = headers;
        browser.send("create", &CREATE).is(303);
    }
    assert_eq!(panel.keys().len(), 6);
}

#[test]
fn a_get_changes_nothing() {
    let panel = Panel::new();
    let (_, id) = panel.key();
    let before = panel.keys();
    let mut browser = panel.signed_in();
    for (action, words) in [
        ("revoke", "This cannot be undone."),
        ("delete", "This cannot be undone."),
        ("replace", "The old key expires"),
    ] {
        let page = browser.get(&format!("?{action}={id}")).is(200);
        page.showing("a test&#39;s").showing(words);
    }
    browser.get(&format!("?action=delete&key={id}")).is(200);
    assert_eq!(panel.keys(), before);
}

#[test]
fn another_tenants_keys_are_like_none() {
    let panel = Panel::new();
    let theirs = panel.service.tenant("other").key(ALL);
    let before = panel.service.cli_json(&["key", "list", "other"]);
    let id = theirs.id.to_string();
    let mut browser = panel.signed_in();
    for action in ["revoke", "delete", "replace", "edit"] {
        let mut ask = |id: &str| {
            let sent = browser.send(action, &[("key", id), ("overlap", "1d")]).is(404);
            let read = browser.get(&format!("?{action}={id}")).is(404);
            [sent.showing("There is no such key"), read].map(|page| page.text())
        };
        let pages = ask(&id);
        assert!(pages.iter().all(|page| !page.contains(&theirs.prefix)));
        assert_eq!(pages, ask("999"));
    }
    for bad in ["", "x", "-1", "99999999999999999999", "1 or 1=1"] {
        browser.send("delete", &[("key", bad)]).is(404);
        browser.get(&format!("?delete={}", crate::support::encoded(bad))).is(200);
    }
    let page = browser.get(&format!("?new={id}")).is(200);
    assert!(new_key(&page).is_none() && !page.text().contains(&theirs.prefix));
    assert_eq!(panel.service.cli_json(&["key", "list", "other"]), before);
}

#[test]
fn a_body_over_16_kib_is_refused() {
    let panel = Panel::new();
    let browser = panel.signed_in();
    let start = "action=create&scope=all&expires=1y&name=fits&padding=";
    let padded = |length: usize| format!("{start}{}", "x".repeat(length - start.len()));
    for length in [16 * 1024 + 1, 70_000] {
        browser.post(padded(length)).send().is(413).showing("too large");
    }
    browser.post(padded(16 * 1024)).send().is(303);
    assert_eq!(panel.keys().len(), 1);
}

#[test]
fn a_suspended_tenants_admin_reads_why_revokes_and_deletes_but_makes_nothing() {
    let panel = Panel::new();
    let (first, second) = (panel.key().1, panel.key().1);
    let mut early = panel.signed_in();
    panel.acme.ask("suspend", &[]);
    let mut browser = panel.signed_in();
    let reason = "The operator has suspended this tenant.";
    let page = browser.get("").is(200).showing(reason).showing("a test&#39;s");
    assert!(!page.text().contains("New key") && !page.text().contains("?edit="));
    for query in ["?create".to_owned(), format!("?replace={first}")] {
        browser.get(&query).is(403).showing(reason);
    }
    let refusal = "suspended this tenant. Nothing was changed.";
    for browser in [&mut early, &mut browser] {
        browser.send("create", &CREATE).is(403).showing(refusal);
    }
    browser.send("replace", &[("key", &first), ("overlap", "0s")]).is(403).showing(refusal);
    browser.send("revoke", &[("key", &first)]).is(303);
    browser.send("delete", &[("key", &second)]).is(303);
    let left = panel.keys();
    assert_eq!((left.len(), &left[0]["state"]), (1, &json!("revoked")));
}

#[test]
fn a_trial_that_is_over_is_named_with_its_last_day() {
    let panel = Panel::new();
    panel.acme.ask("trial", &["2026-11-20"]);
    let mut browser = panel.signed_in();
    browser.create_key("on the last day", &["all"]);
    panel.service.advance(5 * 3600);
    browser.get("").is(200).showing("The trial of this tenant ended on 2026-11-20 (UTC).");
    let refused = browser.send("create", &CREATE).is(403);
    refused.showing("ended on 2026-11-20 (UTC). Nothing was changed.");
    panel.acme.ask("suspend", &[]);
    browser.get("").is(200).showing("The operator has suspended this tenant.");
}

/// A change on the old machine would be lost.
#[test]
fn a_tenant_that_moves_takes_no_form() {
    let panel = Panel::new();
    let (_, id) = panel.key();
    let before = panel.keys();
    let mut browser = panel.signed_in();
    panel.acme.ask("suspend", &["--moving"]);
    for (action, fields) in
        [("revoke", &[("key", &*id)][..]), ("delete", &[("key", &*id)]), ("create", &CREATE)]
    {
        browser.send(action, fields).is(403).showing("another machine");
    }
    assert_eq!(panel.keys(), before);
}

#[test]
fn a_new_password_needs_the_present_one_and_fits_the_rule() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    let (present, long) = (&*panel.acme.password, "x".repeat(129));
    for (current, new, again, reason) in [
        ("not the current one", NEW, NEW, "This is not the current password."),
        ("", NEW, NEW, "This is not the current password."),
        (present, "elevenchars", "elevenchars", "A password has 12 to 128 characters."),
        (present, &long, &long, "A password has 12 to 128 characters."),
        (present, NEW, "another one again", "This is not the same password."),
    ] {
        let form = [("current", current), ("new", new), ("again", again)];
        let text = browser.send("password", &form).is(422).showing(reason).text();
        assert!(!text.contains(NEW) && !text.contains(present), "no password is sent back");
    }
    assert!(browser.is_signed_in());
    panel.signed_in();
}

#[test]
fn the_present_password_cannot_be_tried_without_end_either() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    let change = |current| [("current", current), ("new", NEW), ("again", NEW)];
    for _ in 0..5 {
        browser.send("password", &change("not the current one")).is(422);
    }
    browser.send("password", &change(&panel.acme.password)).is(429);
    // An attacker with a stolen session cannot lock the tenant out of signing in this way.
    panel.signed_in();
    panel.service.advance(60);
    browser.send("password", &change(&panel.acme.password)).is(303);
}

#[test]
fn only_a_visit_of_the_page_is_served_and_no_script_of_another_page() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    for purpose in ["empty", "iframe", "script"] {
        browser.headers = vec![("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Dest", purpose)];
        assert!(!browser.get("").is(403).text().contains("<form"), "{purpose}");
        browser.send("create", &CREATE).is(403);
        assert!(panel.keys().is_empty(), "{purpose}");
    }
    browser.headers = vec![("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Dest", "document")];
    browser.send("create", &CREATE).is(303);
    assert_eq!(panel.keys().len(), 1);
}
