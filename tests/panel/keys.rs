//! Keys on the page: created, shown once, listed, revoked, deleted, and the events that the page shows.

use std::fs;
use std::path::Path;

use tenantdesk::http::Method;
use tenantdesk::model::Scopes;
use tenantdesk::password;
use tenantdesk::secret;
use tenantdesk::store::registry::{Actor, NewKey};

use super::browser_session::{BrowserSession, PASSWORD, Panel};

impl Panel {
    /// Whether a file of the data directory contains these bytes.
    pub fn is_on_disk(&self, secret: &str) -> bool {
        fn search(folder: &Path, secret: &[u8]) -> bool {
            fs::read_dir(folder).unwrap().any(|entry| {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => search(&path, secret),
                    false => fs::read(&path).unwrap().windows(secret.len()).any(|piece| piece == secret),
                }
            })
        }
        search(self.folder.path(), secret.as_bytes())
    }
}

#[test]
fn a_new_key_works_and_is_shown_once_and_never_stored() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let made =
        browser.send("create", &[("name", "  Web shop "), ("scope", "customers:read"), ("scope", "hardware:write")]);
    let data_dir = made.is(303).query().to_owned();
    // Neither HEAD nor another session consumes it.
    browser.ask(Method::Head, &data_dir, None).is(200);
    assert_eq!(panel.signed_in("acme").get(&data_dir).new_key(), None);
    let key = browser.get(&data_dir).is(200).new_key().unwrap();

    let caller = panel.app.registry.find_principal(&secret::hash(&key)).unwrap().unwrap();
    assert_eq!((caller.tenant_id, caller.scopes.to_string().as_str()), (acme.id, "customers:read hardware:write"));
    assert_eq!(panel.keys(&acme)[0].name, "Web shop");
    assert!(!panel.is_on_disk(&key));

    let again = browser.get(&data_dir).is(200).saying("shown once");
    assert!(!again.text().contains(&key));
    assert!(!browser.get("").text().contains(&key));
    assert_eq!(panel.keys(&acme).len(), 1, "reloading makes no second key");
}

#[test]
fn a_key_that_nobody_fetched_is_forgotten() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let data_dir = browser.send("create", &[("name", "x"), ("scope", "all")]).is(303).query().to_owned();
    panel.advance(5 * 60);
    assert_eq!(browser.get(&data_dir).is(200).new_key(), None);
}

#[test]
fn two_keys_made_at_once_are_both_shown() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let places: Vec<String> = ["one", "two"]
        .map(|name| browser.send("create", &[("name", name), ("scope", "read")]).is(303).query().to_owned())
        .into();
    let keys: Vec<_> = places.iter().map(|data_dir| browser.get(data_dir).new_key().unwrap()).collect();
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn a_form_that_cannot_be_accepted_says_why_and_keeps_what_was_typed() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let page = browser.send("create", &[("name", " \u{3000} "), ("scope", "employees:write")]).is(422);
    let page = page.saying("A key&#39;s name must not be empty.").saying("aria-invalid=\"true\"");
    page.saying("value=\"employees:write\" checked");
    browser.send("create", &[("name", "Web shop")]).is(422).saying("at least one scope").saying("value=\"Web shop\"");
    browser.send("create", &[("name", "Web shop"), ("scope", "customers:fly")]).is(422).saying("at least one scope");
    browser.send("create", &[("name", "a\u{7}b"), ("scope", "all")]).is(422).saying("no control characters");
    browser.send("create", &[("name", &"x".repeat(101)), ("scope", "all")]).is(422).saying("at most 100 characters");
    browser.send("create", &[("name", &"ü".repeat(100)), ("scope", "all")]).is(303);
    browser.send("create", &[("name", &"ü".repeat(100)), ("scope", "all")]).is(303);
    assert_eq!(panel.keys(&acme).len(), 2, "names need not differ");
}

#[test]
fn shortcuts_tick_boxes_and_make_nothing() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let all = browser.send("select-all", &[("name", "Web shop")]).is(200).saying("value=\"Web shop\"");
    assert_eq!(all.text().matches(" checked>").count(), 6);
    let read = browser.send("select-read", &[("scope", "hardware:write")]).is(200);
    assert_eq!(read.text().matches(" checked>").count(), 3);
    assert_eq!(read.text().matches(":read\" checked>").count(), 3);
    assert!(panel.keys(&acme).is_empty());
}

#[test]
fn a_name_of_any_kind_is_harmless() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let names = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'; DROP TABLE keys; --",
        "</title></style>&amp;<!--",
        "\u{202e}evil\u{2066}\u{200f}",
        "{{ 7 * 7 }}{% raw %}",
    ];
    for name in names {
        browser.create_key(name, &["all"]);
    }
    let id = browser.panel.keys(&browser.panel.app.registry.find_tenant("acme").unwrap().unwrap())[1].id;
    for page in [browser.get(""), browser.get(&format!("delete={id}"))] {
        let text = page.is(200).text();
        for harm in ["<script>alert", "<img", "</title></style>", "<!--", ">49"] {
            assert!(!text.contains(harm), "{harm}: {text}");
        }
    }
    let list = browser.get("").text();
    // Characters that change the text direction must not affect other elements.
    assert!(list.contains("<bdi>\u{202e}evil\u{2066}\u{200f}</bdi>"));
    assert_eq!(list.matches('\u{202e}').count(), list.matches("<bdi>\u{202e}").count());

    let page = browser.send("create", &[("name", &format!("<x>{}", "x".repeat(9_997))), ("scope", "all")]).is(422);
    assert!(page.text().len() < 30 * 1024, "{}", page.text().len());
    assert!(!page.text().contains("<x>"));
}

#[test]
fn the_list_shows_all_of_a_key_but_the_key() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    browser.get("").is(200).saying("No keys yet.");
    let key = browser.create_key("Web shop", &["customers:read"]);
    let row = panel.keys(&acme)[0].clone();
    browser.get("").saying("Web shop").saying(&key[..8]).saying("customers:read").saying("Never").saying("Active");
    let shown = "<time datetime=\"2026-11-20T19:30:42Z\"><span>2026-11-20</span> <span>19:30 UTC</span></time>";
    browser.get("").saying(shown);
    panel.advance(3600);
    panel.app.registry.record_use(row.id, panel.clock.now());
    browser.get("").saying("<span>20:30 UTC</span>");

    let page = browser.send("revoke", &[("key", &row.id.to_string())]).is(303);
    let data_dir = page.query().to_owned();
    browser.get(&data_dir).saying("The key is revoked.").saying("Revoked");
    assert!(panel.app.registry.find_principal(&secret::hash(&key)).unwrap().unwrap().revoked);
    // Revoking it again is not an error and adds no event.
    browser.send("revoke", &[("key", &row.id.to_string())]).is(303);
    browser.get(&format!("revoke={}", row.id)).is(200);
    browser.send("delete", &[("key", &row.id.to_string())]).is(303);
    browser.get("done=deleted").saying("The key is deleted.").saying("No keys yet.");
    browser.send("delete", &[("key", &row.id.to_string())]).is(422);
    let events_shown: Vec<_> =
        panel.app.registry.key_events(acme.id, 20).unwrap().into_iter().map(|event| event.action).collect();
    assert_eq!(events_shown, ["deleted", "revoked", "created", "signed in"]);
}

impl BrowserSession<'_> {
    /// The events on the page, the newest first.
    fn events(&mut self) -> Vec<String> {
        self.get("").is(200).text().split("<li>").skip(1).map(str::to_owned).collect()
    }
}

#[test]
fn the_last_twenty_events_stand_at_the_foot() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    for count in 0..20 {
        browser.create_key(&format!("panel's {count}"), &["read"]);
    }
    let now = panel.clock.now();
    panel.app.registry.create_key(acme.id, NewKey::new("typed", Scopes::every()), Actor::CommandLine, now).unwrap();
    let events = browser.events();
    assert_eq!(events.len(), 20);
    assert!(
        events[0].contains("Created <bdi>typed</bdi>") && events[0].contains("via the command line"),
        "{}",
        events[0]
    );
    assert!(events[19].contains("panel&#39;s 1</bdi>") && events[19].contains("via the panel"), "{}", events[19]);
    assert!(events.iter().all(|event| event.contains("UTC")));
}

#[test]
fn sign_ins_and_password_changes_are_events_and_failed_sign_ins_are_not() {
    const NEW: &str = "another horse battery";
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    panel.browser().sign_in("acme", "not the password").is(401);
    let mut browser = panel.signed_in("acme");
    browser.send("password", &[("current", "not the current one"), ("new", NEW), ("again", NEW)]).is(422);
    browser.send("password", &[("current", PASSWORD), ("new", NEW), ("again", NEW)]).is(303);
    let now = panel.clock.now();
    let hash = password::hash(PASSWORD).unwrap();
    panel.app.registry.set_password(acme.id, &hash, Actor::CommandLine, now).unwrap();
    let events = panel.signed_in("acme").events();
    let events_shown: Vec<String> =
        events.iter().map(|event| between(event, "</time> <span>", "</span></span>")).collect();
    let quiet = |event: &str, actor: &str| format!("{event} <span class=\"quiet\">via the {actor}");
    let expected = [
        quiet("Signed in", "panel"),
        quiet("Password changed", "command line"),
        quiet("Password changed", "panel"),
        quiet("Signed in", "panel"),
    ];
    assert_eq!(events_shown, expected);
}

fn between(text: &str, start: &str, end: &str) -> String {
    text.split_once(start).unwrap().1.split_once(end).unwrap().0.to_owned()
}
