//! Forms: their origin, other tenants' keys, size limits, inactive tenants, and the change of the
//! password.

use tenantdesk::http::{Body, Method};
use tenantdesk::model::Scopes;
use tenantdesk::store::registry::{Admin, Inactive, KeyRow, KeyState, NewKey, TenantRow};

use super::browser_session::{PASSWORD, Panel};

const NEW: &str = "another horse battery";

fn key(panel: &Panel, tenant: &TenantRow) -> KeyRow {
    let operator = panel.app.registry.administer(tenant.id, Admin::CommandLine, panel.clock.now());
    operator.create_key(&NewKey::new("its secret name", Scopes::every())).unwrap().0
}

#[test]
fn a_form_from_elsewhere_changes_nothing() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let row = key(&panel, &acme);
    let id = row.id.to_string();
    let mut browser = panel.signed_in("acme");
    let host = ("host", "desk.example:8080");
    for headers in [
        vec![("sec-fetch-site", "cross-site")],
        // Another port of this host, or another host of this domain.
        vec![("sec-fetch-site", "same-site")],
        vec![("sec-fetch-site", "same-site"), host, ("origin", "http://desk.example:8080")],
        vec![("sec-fetch-site", "")],
        vec![host, ("origin", "http://desk.example")],
        vec![host, ("origin", "http://desk.example:8081")],
        vec![host, ("origin", "http://desk.example:8080.evil.example")],
        vec![host, ("origin", "null")],
        vec![host, ("origin", "desk.example:8080")],
        vec![("origin", "http://")],
        vec![host],
        vec![],
    ] {
        browser.headers.clone_from(&headers);
        for (action, fields) in [
            ("create", vec![("name", "x"), ("scope", "all")]),
            ("revoke", vec![("key", id.as_str())]),
            ("delete", vec![("key", id.as_str())]),
            ("replace", vec![("key", id.as_str()), ("overlap", "0")]),
            ("edit", vec![("key", id.as_str()), ("name", "x")]),
            ("password", vec![("current", PASSWORD), ("new", NEW), ("again", NEW)]),
            ("sign-in", vec![("tenant", "acme"), ("password", PASSWORD)]),
            ("sign-out", vec![]),
            ("", vec![]),
        ] {
            let page = browser.send(action, &fields).is(403).saying("Nothing was changed.");
            assert_eq!(page.header("Set-Cookie"), None, "{headers:?}");
        }
    }
    assert_eq!(panel.keys(&acme), [row]);
    assert!(browser.is_signed_in());
}

#[test]
fn a_form_of_this_origin_is_taken_from_every_browser() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    for headers in [
        vec![("sec-fetch-site", "same-origin")],
        // The user sends the form again from the history.
        vec![("sec-fetch-site", "none")],
        // Behind a proxy, the host may lack the port.
        vec![("sec-fetch-site", "same-origin"), ("origin", "https://desk.example:8443")],
        vec![("host", "desk.example:8080"), ("origin", "http://desk.example:8080")],
        vec![("host", "desk.example"), ("origin", "https://desk.example")],
        vec![("host", "[2001:db8::7]:8080"), ("origin", "http://[2001:db8::7]:8080")],
    ] {
        browser.headers = headers;
        browser.send("create", &[("name", "x"), ("scope", "all")]).is(303);
    }
    assert_eq!(panel.keys(&acme).len(), 6);
}

#[test]
fn a_get_changes_nothing() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let row = key(&panel, &acme);
    let mut browser = panel.signed_in("acme");
    for query in ["revoke=1", "delete=1"] {
        browser.get(query).is(200).saying("its secret name").saying("This cannot be undone.");
    }
    browser.get("replace=1").is(200).saying("its secret name").saying("The old key expires");
    browser.get("action=delete&key=1").is(200);
    assert_eq!(panel.keys(&acme), [row]);
}

#[test]
fn another_tenants_keys_are_like_none() {
    let panel = Panel::new();
    let (_, other) = (panel.tenant("acme"), panel.tenant("other"));
    let row = key(&panel, &other);
    let id = row.id.to_string();
    let mut browser = panel.signed_in("acme");
    for action in ["revoke", "delete", "replace", "edit"] {
        let others = browser.send(action, &[("key", &id), ("overlap", "1d")]).is(404);
        let others = others.saying("There is no such key");
        let none = browser.send(action, &[("key", "999"), ("overlap", "1d")]).is(404);
        assert_eq!(others.text(), none.text());
        let others = browser.get(&format!("{action}={id}")).is(404);
        let none = browser.get(&format!("{action}=999")).is(404);
        assert_eq!(others.text(), none.text());
        assert!(!others.text().contains("its secret name") && !others.text().contains(&row.prefix));
    }
    for bad in ["", "x", "-1", "99999999999999999999", "1 or 1=1"] {
        browser.send("delete", &[("key", bad)]).is(404);
        browser.get(&format!("delete={}", super::support::encoded(bad))).is(200);
    }
    let page = browser.get(&format!("new={id}")).is(200);
    assert!(page.new_key().is_none() && !page.text().contains("its secret name"));
    assert_eq!(panel.keys(&other), [row]);
}

#[test]
fn a_body_over_16_kib_is_refused() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    browser
        .send("create", &[("name", &"x".repeat(16 * 1024)), ("scope", "all")])
        .is(413)
        .saying("too large");
    let mut request = browser.request(Method::POST, "", None);
    request.body = Body::TooLarge;
    panel.ask(&request).is(413);
    let start = "action=create&scope=all&expires=1y&name=fits&padding=";
    let fits = format!("{start}{}", "x".repeat(16 * 1024 - start.len()));
    browser.ask(Method::POST, "", Some(fits)).is(303);
    assert_eq!(panel.keys(&acme).len(), 1);
}

#[test]
fn a_suspended_tenants_admin_reads_why_revokes_and_deletes_but_makes_nothing() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let (first, second) = (key(&panel, &acme), key(&panel, &acme));
    let mut early = panel.signed_in("acme");
    panel.app.registry.suspend("acme", Inactive::Suspended).unwrap();
    early
        .send("create", &[("name", "x"), ("scope", "all")])
        .is(403)
        .saying("suspended this tenant. Nothing was changed.");

    let mut browser = panel.signed_in("acme");
    let page = browser
        .get("")
        .is(200)
        .saying("The operator has suspended this tenant.")
        .saying("its secret name");
    assert!(!page.text().contains("New key"));
    browser.send("create", &[("name", "x"), ("scope", "all")]).is(403);
    assert!(!page.text().contains("?edit="));
    browser.get("create").is(403).saying("The operator has suspended this tenant.");
    browser
        .get(&format!("replace={}", first.id))
        .is(403)
        .saying("The operator has suspended this tenant.");
    let replacement = [("key", &*first.id.to_string()), ("overlap", "0")];
    browser
        .send("replace", &replacement)
        .is(403)
        .saying("suspended this tenant. Nothing was changed.");
    browser.send("revoke", &[("key", &first.id.to_string())]).is(303);
    browser.send("delete", &[("key", &second.id.to_string())]).is(303);
    let left = panel.keys(&acme);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].state(panel.clock.now()), KeyState::Revoked);
}

#[test]
fn a_trial_that_is_over_is_named_with_its_last_day() {
    let panel = Panel::new();
    panel.tenant("acme");
    panel.app.registry.set_trial("acme", "2026-11-20").unwrap();
    let mut browser = panel.signed_in("acme");
    browser.create_key("on the last day", &["all"]);
    panel.advance(5 * 3600);
    browser.get("").is(200).saying("The trial of this tenant ended on 2026-11-20 (UTC).");
    browser
        .send("create", &[("name", "x"), ("scope", "all")])
        .is(403)
        .saying("ended on 2026-11-20 (UTC). Nothing was changed.");
    panel.app.registry.suspend("acme", Inactive::Suspended).unwrap();
    browser.get("").is(200).saying("The operator has suspended this tenant.");
}

/// A change on the old machine would be lost.
#[test]
fn a_tenant_that_moves_takes_no_form() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let row = key(&panel, &acme);
    let mut browser = panel.signed_in("acme");
    panel.app.registry.suspend("acme", Inactive::Moving).unwrap();
    let id = row.id.to_string();
    for action in ["revoke", "delete"] {
        browser.send(action, &[("key", &*id)]).is(403).saying("another machine");
    }
    browser.send("create", &[("name", "x"), ("scope", "all")]).is(403).saying("another machine");
    assert_eq!(panel.keys(&acme), [row]);
}

#[test]
fn a_new_password_needs_the_present_one_and_fits_the_rule() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let long = "x".repeat(129);
    for (current, new, again, reason) in [
        ("not the current one", NEW, NEW, "This is not the current password."),
        ("", NEW, NEW, "This is not the current password."),
        (PASSWORD, "elevenchars", "elevenchars", "A password has 12 to 128 characters."),
        (PASSWORD, &long, &long, "A password has 12 to 128 characters."),
        (PASSWORD, NEW, "another one again", "This is not the same password."),
    ] {
        let page = browser
            .send("password", &[("current", current), ("new", new), ("again", again)])
            .is(422)
            .saying(reason);
        assert!(
            !page.text().contains(NEW) && !page.text().contains(PASSWORD),
            "no password is sent back"
        );
    }
    assert!(browser.is_signed_in());
    panel.browser().sign_in("acme", PASSWORD).is(303);
}

#[test]
fn the_present_password_cannot_be_tried_without_end_either() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let change = |current| [("current", current), ("new", NEW), ("again", NEW)];
    for _ in 0..5 {
        browser.send("password", &change("not the current one")).is(422);
    }
    browser.send("password", &change(PASSWORD)).is(429);
    // An attacker with a stolen session cannot lock the tenant out of signing in this way.
    panel.browser().sign_in("acme", PASSWORD).is(303);
    panel.advance(60);
    browser.send("password", &change(PASSWORD)).is(303);
}

#[test]
fn only_a_visit_of_the_page_is_served_and_no_script_of_another_page() {
    let panel = Panel::new();
    let tenant = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let fields = [("name", "Web shop"), ("scope", "customers:read")];
    for purpose in ["empty", "iframe", "script"] {
        browser.headers = vec![("sec-fetch-site", "same-origin"), ("sec-fetch-dest", purpose)];
        assert!(!browser.get("").is(403).text().contains("<form"), "{purpose}");
        browser.send("create", &fields).is(403);
        assert!(panel.keys(&tenant).is_empty(), "{purpose}");
    }
    browser.headers = vec![("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "document")];
    let page = browser.send("create", &fields).is(303);
    assert_eq!(page.header("Cross-Origin-Opener-Policy"), Some("same-origin"));
    assert_eq!(panel.keys(&tenant).len(), 1);
}
