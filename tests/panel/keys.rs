//! Keys on the page: created, shown once, listed, revoked, deleted, and the events that the page
//! shows.

use std::fs;
use std::path::Path;

use tenantdesk::http::Method;
use tenantdesk::model::Scopes;
use tenantdesk::secret;
use tenantdesk::store::registry::{Admin, KeyRow, NewKey};

use super::browser_session::{BrowserSession, PASSWORD, Panel};

impl Panel {
    /// The row of a key by its secret.
    fn key(&self, key: &str) -> KeyRow {
        let found = self.app.registry.find_principal(&secret::hash(key), self.clock.now());
        found.unwrap().unwrap().key
    }

    /// Whether a file of the data directory contains these bytes.
    pub(crate) fn is_on_disk(&self, secret: &str) -> bool {
        fn search(directory: &Path, secret: &[u8]) -> bool {
            fs::read_dir(directory).unwrap().any(|entry| {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => search(&path, secret),
                    false => {
                        fs::read(&path).unwrap().windows(secret.len()).any(|piece| piece == secret)
                    }
                }
            })
        }
        search(self.directory.path(), secret.as_bytes())
    }
}

#[test]
fn a_new_key_works_and_is_shown_once_and_never_stored() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let made = browser.send(
        "create",
        &[("name", "  Web shop "), ("scope", "customers:read"), ("scope", "hardware:write")],
    );
    let query = made.is(303).query().to_owned();
    // Neither HEAD nor another session consumes it.
    browser.ask(Method::HEAD, &query, None).is(200);
    assert_eq!(panel.signed_in("acme").get(&query).new_key(), None);
    let key = browser.get(&query).is(200).new_key().unwrap();

    let caller = panel.key(&key);
    assert_eq!(
        (caller.tenant_id, caller.scopes.to_string().as_str()),
        (acme.id, "customers:read hardware:write")
    );
    assert_eq!(panel.keys(&acme)[0].name, "Web shop");
    assert!(!panel.is_on_disk(&key));

    let again = browser.get(&query).is(200).saying("shown once");
    assert!(!again.text().contains(&key));
    assert!(!browser.get("").text().contains(&key));
    assert_eq!(panel.keys(&acme).len(), 1, "reloading makes no second key");

    // A key that nobody fetches for five minutes is gone.
    let late = browser.send("create", &[("name", "Late"), ("scope", "read")]).is(303);
    panel.advance(300);
    assert_eq!(browser.get(late.query()).new_key(), None);
}

#[test]
fn a_new_key_comes_with_a_request_that_works() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    for (host, server) in [
        ("desk.example:8443", "http://desk.example:8443"),
        ("[2001:db8::7]", "http://[2001:db8::7]"),
        ("a\"; rm -r ~", "http://localhost"),
    ] {
        let made = browser.send("create", &[("name", "Web shop"), ("scope", "read")]).is(303);
        let mut request = browser.request(Method::GET, made.query(), None);
        request.headers.insert("host", host.parse().unwrap());
        let page = panel.ask(&request).is(200);
        let key = page.new_key().unwrap();
        let line = format!("curl -H \"Authorization: Bearer {key}\" {server}/whoami.php");
        page.saying(&line).saying("href=\"/docs\"");
    }
}

#[test]
fn a_form_that_cannot_be_accepted_says_why_and_keeps_what_was_typed() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let page =
        browser.send("create", &[("name", " \u{3000} "), ("scope", "employees:write")]).is(422);
    let page = page.saying("A key&#39;s name must not be empty.").saying("aria-invalid=\"true\"");
    page.saying("value=\"employees:write\" checked");
    browser
        .send("create", &[("name", "Web shop")])
        .is(422)
        .saying("at least one scope")
        .saying("value=\"Web shop\"");
    browser
        .send("create", &[("name", "Web shop"), ("scope", "customers:fly")])
        .is(422)
        .saying("at least one scope");
    browser
        .send("create", &[("name", "a\u{7}b"), ("scope", "all")])
        .is(422)
        .saying("no control characters");
    browser
        .send("create", &[("name", &"x".repeat(101)), ("scope", "all")])
        .is(422)
        .saying("at most 100 characters");
    browser.send("create", &[("name", &"ü".repeat(100)), ("scope", "all")]).is(303);
    browser.send("create", &[("name", &"ü".repeat(100)), ("scope", "all")]).is(303);
    assert_eq!(panel.keys(&acme).len(), 2, "names need not differ");
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
    let id =
        browser.panel.keys(&browser.panel.app.registry.find_tenant("acme").unwrap().unwrap())[1].id;
    for page in [browser.get(""), browser.get(&format!("delete={id}"))] {
        let text = page.is(200).text();
        for harm in ["<script>alert", "<img", "</title></style>", "<!--", ">49"] {
            assert!(!text.contains(harm), "{harm}: {text}");
        }
    }
    let list = browser.get("").text();
    assert!(list.contains("<bdi>\\u{202e}evil\\u{2066}\\u{200f}</bdi>"), "{list}");
    assert!(!list.contains(['\u{202e}', '\u{2066}', '\u{200f}']));

    let page = browser
        .send("create", &[("name", &format!("<x>{}", "x".repeat(9_997))), ("scope", "all")])
        .is(422);
    assert!(page.text().len() < 30 * 1024, "{}", page.text().len());
    assert!(!page.text().contains("<x>"));
}

#[test]
fn the_list_shows_all_of_a_key_but_the_key() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    browser.get("").is(200).saying("No keys yet");
    let key = browser.create_key("Web shop", &["customers:read"]);
    let row = panel.keys(&acme)[0].clone();
    browser.get("").saying("Web shop").saying(&key[..8]).saying("customers:read").saying("never");
    let shown =
        "<time datetime=\"2026-11-20T19:30:42Z\" title=\"2026-11-20 19:30 UTC\">2026-11-20</time>";
    browser.get("").saying(shown);
    panel.advance(3600);
    panel.app.registry.record_use(&row, panel.clock.now());
    panel.advance(7200);
    browser.get("").saying("title=\"2026-11-20 20:30 UTC\">2 hours ago<");

    let page = browser.send("revoke", &[("key", &row.id.to_string())]).is(303);
    let query = page.query().to_owned();
    let revoked = format!("Key {} “Web shop” is revoked.", row.id);
    browser.get(&query).saying(&revoked);
    browser.get("").saying("Web shop").saying("Revoked <time");
    assert!(panel.key(&key).revoked_at.is_some());
    // Revoking it again is not an error and adds no event.
    browser.send("revoke", &[("key", &row.id.to_string())]).is(303);
    browser.get(&format!("revoke={}", row.id)).is(200);
    let deleted = browser.send("delete", &[("key", &row.id.to_string())]).is(303);
    let page = browser.get(deleted.query()).saying("No keys yet");
    page.saying(&format!("Key {} “Web shop” is deleted.", row.id));
    browser.send("delete", &[("key", &row.id.to_string())]).is(404);
    let events_shown: Vec<_> = panel
        .app
        .registry
        .admin_changes(acme.id, 20)
        .unwrap()
        .into_iter()
        .map(|event| event.action)
        .collect();
    assert_eq!(events_shown, ["key deleted", "key revoked", "key created"]);
}

#[test]
fn a_key_ends_when_the_form_says() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let name = ("name", "Audit");
    let mut create = |fields: &[(&str, &str)]| {
        browser.send("create", &[&[name, ("scope", "read")], fields].concat())
    };
    for (end, date, expected) in [
        ("never", "", None),
        ("30d", "", Some("2026-12-20T19:30:42Z")),
        ("90d", "", Some("2027-02-18T19:30:42Z")),
        ("1y", "", Some("2027-11-20T19:30:42Z")),
        ("date", "2026-11-20", Some("2026-11-20T23:59:59Z")),
    ] {
        create(&[("expires", end), ("date", date)]).is(303);
        let made = panel.keys(&acme).last().unwrap().expires_at.map(|end| end.to_string());
        assert_eq!(made.as_deref(), expected, "{end}");
    }
    let count = panel.keys(&acme).len();
    for (end, date, field, reason) in [
        ("date", "2026-11-19", "date", "This date is in the past."),
        ("date", "", "date", "Enter a date."),
        ("date", "2026-02-30", "date", "Enter a date."),
        ("date", "9999-12-31", "date", "This end is too far away."),
        ("never", "2027-01-31", "expires", "Select “On a date”, or leave the date empty."),
        ("2y", "", "expires", "Select one of these."),
    ] {
        let page = create(&[("expires", end), ("date", date)])
            .is(422)
            .saying(reason)
            .saying("value=\"Audit\"");
        let page = page.saying(&format!("name=\"date\" type=\"date\" value=\"{date}\""));
        page.saying(&format!("id=\"{field}-error\">{reason}<")).saying("No key was created.");
    }
    create(&[("expires", "date"), ("date", "\"><b>")])
        .is(422)
        .saying("value=\"&#34;&#62;&#60;b&#62;\"");
    assert_eq!(panel.keys(&acme).len(), count);
}

#[test]
fn a_key_warns_of_its_end_and_cannot_be_changed_after_it() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    browser.create_key("Lasting", &["read"]);
    for date in ["2026-12-05", "2026-11-21"] {
        let fields = [("name", date), ("scope", "read"), ("expires", "date"), ("date", date)];
        browser.send("create", &fields).is(303);
    }
    let end = "datetime=\"2026-11-21T23:59:59Z\" title=\"2026-11-21 23:59 UTC\">2026-11-21<";
    let page = browser.get("").saying(end).saying("<span class=\"near\">in 1 day<");
    page.saying(">2026-12-05<").saying("<span class=\"quiet\">in 15 days<");
    panel.advance(29 * 3600);
    let mut browser = panel.signed_in("acme");
    let page = browser.get("").saying("<span class=\"near\">in 14 days<");
    let page = page.saying("Expired <time").saying(end);
    let id = panel.keys(&acme)[2].id;
    for action in ["edit", "revoke"] {
        assert!(!page.text().contains(&format!("?{action}={id}")), "{action}");
    }
    let refusal = "This key is expired and cannot be changed or replaced.";
    browser.get(&format!("replace={id}")).is(422).saying(refusal);
    let replacement = [("key", &*id.to_string()), ("overlap", "1d")];
    let page = browser.send("replace", &replacement).is(422).saying(refusal);
    page.saying("Nothing was changed.");
    browser.send("delete", &[("key", &id.to_string())]).is(303);
    assert_eq!(panel.keys(&acme).len(), 2);
}

#[test]
fn a_key_is_replaced_and_the_new_one_shown_once() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let now = panel.clock.now();
    for (overlap, end, until) in [
        ("0", "2026-11-20T19:30:42Z", "are refused from now on."),
        ("1h", "2026-11-20T20:30:42Z", "works until <time datetime=\"2026-11-20T20:30:42Z\""),
        ("1d", "2026-11-21T19:30:42Z", "works until <time datetime=\"2026-11-21T19:30:42Z\""),
        ("7d", "2026-11-27T19:30:42Z", "works until <time datetime=\"2026-11-27T19:30:42Z\""),
    ] {
        let old = browser.create_key("Web shop", &["customers:read"]);
        let row = panel.keys(&acme).last().unwrap().clone();
        let limit = std::num::NonZeroU32::new(500);
        let operator = panel.app.registry.administer(acme.id, Admin::CommandLine, now);
        operator.change_key(row.id, |key| key.rate_limit = limit).unwrap();
        browser
            .get(&format!("replace={}", row.id))
            .is(200)
            .saying("Web shop")
            .saying(&format!("value=\"{overlap}\""));
        let replaced =
            browser.send("replace", &[("key", &row.id.to_string()), ("overlap", overlap)]).is(303);
        let query = replaced.query().to_owned();
        let page = browser.get(&query).is(200);
        let page = page.saying(&format!("old key, number {}, {until}", row.id));
        let new = page.new_key().unwrap();
        assert!(!browser.get(&query).is(200).text().contains(&new), "it is shown once");
        let (old, new) = (panel.key(&old), panel.key(&new));
        assert_eq!(old.expires_at.unwrap().to_string(), end);
        assert_eq!((new.expires_at, new.rate_limit, new.scopes), (None, limit, old.scopes));
    }
    browser.get("").saying("500 requests a minute");
    let page = browser.get("activity").saying("Key replaced “<bdi>Web shop</bdi>”");
    page.saying("Key limit changed");
    let id = panel.keys(&acme).last().unwrap().id.to_string();
    let count = panel.keys(&acme).len();
    for overlap in ["", "2d", "-1h"] {
        browser
            .send("replace", &[("key", &id), ("overlap", overlap)])
            .is(422)
            .saying("Nothing was changed.");
    }
    assert_eq!(panel.keys(&acme).len(), count);
}

impl BrowserSession<'_> {
    /// The changes and the sign-ins on their page, the newest first, each without its time.
    fn events(&mut self) -> [Vec<String>; 2] {
        let text = self.get("activity").is(200).text();
        ["changes", "sign-ins"].map(|id| {
            let list = text.split_once(&format!("<h2 id=\"{id}\">")).map_or("", |(_, list)| list);
            let list = list.split("</section>").next().unwrap();
            list.split("<li>")
                .skip(1)
                .map(|event| between(event, "</time> <span>", "</li>"))
                .collect()
        })
    }
}

#[test]
fn the_last_fifty_changes_have_a_page() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    for count in 0..50 {
        browser.create_key(&format!("panel's {count}"), &["read"]);
    }
    let now = panel.clock.now();
    let typed = NewKey::new("typed", Scopes::every());
    panel.app.registry.administer(acme.id, Admin::CommandLine, now).create_key(&typed).unwrap();
    let [changes, sign_ins] = browser.events();
    assert_eq!((changes.len(), sign_ins.len()), (50, 1));
    assert!(changes[0].starts_with("Key created “<bdi>typed</bdi>”"), "{}", changes[0]);
    assert!(changes[0].contains("by the operator"), "{}", changes[0]);
    assert!(changes[49].contains("panel&#39;s 1</bdi>"), "{}", changes[49]);
    assert!(changes[49].contains("from 127.0.0.1"), "{}", changes[49]);
}

#[test]
fn sign_ins_failures_and_password_changes_are_events_with_the_address() {
    const NEW: &str = "another horse battery";
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    panel.browser_at("192.0.2.66").sign_in("acme", "not the password").is(401);
    panel.browser_at("2001:db8::7").sign_in("acme", "not the password").is(401);
    panel.browser_at("2001:db8::7").sign_in("acmf", "not the password").is(401);
    let mut browser = panel.signed_in("acme");
    let wrong = [("current", "not the current one"), ("new", NEW), ("again", NEW)];
    browser.send("password", &wrong).is(422);
    browser.send("password", &[("current", PASSWORD), ("new", NEW), ("again", NEW)]).is(303);
    let now = panel.clock.now();
    let hash = secret::hash_password(PASSWORD).unwrap();
    panel.app.registry.administer(acme.id, Admin::CommandLine, now).set_password(&hash).unwrap();
    let mut browser = panel.signed_in("acme");
    let quiet = |event: &str, by: &str| format!("{event} <span class=\"quiet\">{by}</span></span>");
    let changes =
        [quiet("Password changed", "by the operator"), quiet("Password changed", "from 127.0.0.1")];
    let failed = "<span class=\"error\">Failed sign-in</span>";
    let sign_ins = [
        quiet("Signed in", "from 127.0.0.1"),
        quiet("Signed in", "from 127.0.0.1"),
        quiet(failed, "from 2001:db8::7"),
        quiet(failed, "from 192.0.2.66"),
    ];
    assert_eq!(browser.events(), [changes.to_vec(), sign_ins.to_vec()]);
}

#[test]
fn a_tenant_has_at_most_200_keys() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    for count in 0..200 {
        let name = format!("{count} {}", "<".repeat(90));
        browser.send("create", &[("name", &name), ("scope", "all")]).is(303);
    }
    let last = panel.keys(&acme)[199].id.to_string();
    for (action, fields) in [
        ("create", [("name", "one more"), ("scope", "all")]),
        ("replace", [("key", &last), ("overlap", "0")]),
    ] {
        browser.send(action, &fields).is(422).saying("This tenant has 200 keys");
    }
    assert_eq!(panel.keys(&acme).len(), 200);
    assert!(browser.get("").is(200).text().len() < 400 * 1024);
    browser.send("delete", &[("key", &last)]).is(303);
    browser.create_key("one more", &["all"]);
}

#[test]
fn an_active_key_is_changed_and_each_change_is_an_event() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    browser.create_key("Web shop", &["customers:read"]);
    let before = panel.keys(&acme)[0].clone();
    let id = before.id.to_string();
    browser
        .get(&format!("edit={id}"))
        .is(200)
        .saying("value=\"Web shop\"")
        .saying("value=\"keep\"");
    let mut edit = |name, expires, limit| {
        let fields = [("key", &*id), ("name", name), ("expires", expires), ("limit", limit)];
        browser.send("edit", &fields)
    };
    assert_eq!(edit("Web shop", "keep", "").is(303).query(), format!("done=changed&key={id}"));
    assert_eq!(panel.keys(&acme)[0], before);
    edit("Shop", "1y", " 50 ").is(303);
    let after = panel.keys(&acme)[0].clone();
    let expected = ("Shop", Some("2027-11-20T19:30:42Z".to_owned()), std::num::NonZeroU32::new(50));
    assert_eq!(
        (&*after.name, after.expires_at.map(|end| end.to_string()), after.rate_limit),
        expected
    );
    let limit = "Enter a number from 1 to 100, or leave it empty.";
    for (name, expires, limit, reason) in [
        (" ", "keep", "", "A key&#39;s name must not be empty."),
        ("Shop", "soon", "", "Select one of these."),
        ("Shop", "keep", "0", limit),
        ("Shop", "keep", "101", limit),
        ("Shop", "keep", "ten", limit),
    ] {
        edit(name, expires, limit).is(422).saying(reason).saying("Nothing was changed.");
    }
    edit("Shop", "never", "").is(303);
    let changed = panel.keys(&acme)[0].clone();
    assert_eq!((changed.expires_at, changed.rate_limit), (None, None));
    // The operator alone gives more than the server's limit. The panel keeps it.
    let operator = panel.app.registry.administer(acme.id, Admin::CommandLine, panel.clock.now());
    let most = std::num::NonZeroU32::new(500);
    operator.change_key(before.id, |key| key.rate_limit = most).unwrap();
    edit("Shop", "keep", "501").is(422).saying("from 1 to 500");
    edit("Shop", "keep", "500").is(303);
    // Without JavaScript, the date stands beside "No change".
    let date = [("key", &*id), ("name", "Shop"), ("expires", "keep"), ("date", "2027-01-01")];
    browser.send("edit", &date).is(422).saying("leave the date empty");
    let events = panel.app.registry.admin_changes(acme.id, 20).unwrap();
    let actions: Vec<_> = events.iter().map(|event| event.action.as_str()).collect();
    let (end, limit) = ("key expiry changed", "key limit changed");
    assert_eq!(actions, [limit, limit, end, limit, end, "key renamed", "key created"]);
}

impl BrowserSession<'_> {
    /// The names of the keys in the list, from top to bottom.
    fn listed(&mut self) -> Vec<String> {
        let text = self.get("").is(200).text();
        let rows = text.split("<tr role=\"row\"").skip(1).filter(|row| row.contains("<td"));
        rows.map(|row| between(row, "<bdi>", "</bdi>")).collect()
    }
}

#[test]
fn the_list_has_active_keys_first_then_the_newest() {
    let panel = Panel::new();
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    for count in 0..61 {
        let end = if count == 60 { "30d" } else { "never" };
        let fields = [("name", &*format!("Key {count}")), ("scope", "read"), ("expires", end)];
        browser.send("create", &fields).is(303);
    }
    let revoked = panel.keys(&acme)[30].id.to_string();
    browser.send("revoke", &[("key", &revoked)]).is(303);
    panel.advance(31 * 24 * 3600);
    let names = panel.signed_in("acme").listed();
    let active = (0..60).rev().filter(|count| *count != 30);
    let expected: Vec<String> =
        active.chain([60, 30]).map(|count| format!("Key {count}")).collect();
    assert_eq!(names, expected);
}

fn between(text: &str, start: &str, end: &str) -> String {
    text.split_once(start).unwrap().1.split_once(end).unwrap().0.to_owned()
}
