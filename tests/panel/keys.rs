//! Keys on the page: created, shown once, listed, changed, revoked, deleted, and the events that the
//! page shows.

use serde_json::{Value, json};

use crate::sessions::is_on_disk;
use crate::support::browser::Browser;
use crate::support::until;
use crate::{NEW, Panel, between, new_key};

impl Panel {
    /// What the service says of a key.
    fn whoami(&self, key: &str) -> Value {
        self.service.with_key(key).get("/whoami.php").found()
    }

    /// The operator gives a key a limit.
    fn limit(&self, id: &str, limit: &str) {
        self.service.cli(&["key", "limit", "acme", id, limit]).done();
    }
}

#[test]
fn a_new_key_works_and_is_shown_once_and_never_stored() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    let scopes = [("scope", "customers:read"), ("scope", "hardware:write")];
    let made = browser.send("create", &[&[("name", "  Web shop ")], &scopes[..]].concat()).is(303);
    // Neither HEAD nor another session consumes it.
    browser.call("HEAD", made.query()).send().is(200);
    assert_eq!(new_key(&panel.signed_in().get(made.query())), None);
    let page = browser.get(made.query()).is(200);
    let key = new_key(&page).unwrap();
    page.showing(&format!("curl -H \"Authorization: Bearer {key}\" http://"))
        .showing("href=\"/docs\"");

    let whoami = panel.whoami(&key);
    assert_eq!((&whoami["tenant"], &whoami["key"]["name"]), (&json!("acme"), &json!("Web shop")));
    assert_eq!(whoami["key"]["scopes"], json!(["customers:read", "hardware:write"]));
    assert!(!is_on_disk(&panel, &key));

    let again = browser.get(made.query()).is(200).showing("shown once");
    assert!(!again.text().contains(&key));
    assert!(!browser.get("").text().contains(&key));
    assert_eq!(panel.keys().len(), 1, "reloading makes no second key");

    // A key that nobody fetches for five minutes is gone.
    let late = browser.send("create", &[("name", "Late"), ("scope", "read")]).is(303);
    panel.service.advance(300);
    assert_eq!(new_key(&browser.get(late.query())), None);
}

#[test]
fn a_form_that_cannot_be_accepted_says_why_and_keeps_what_was_typed() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    let page = browser.send("create", &[("name", " \u{3000} "), ("scope", "employees:write")]);
    let page = page.is(422).showing("A key&#39;s name must not be empty.");
    page.showing("aria-invalid=\"true\"").showing("value=\"employees:write\" checked");
    let page = browser.send("create", &[("name", "Web shop")]).is(422);
    page.showing("at least one scope").showing("value=\"Web shop\"");
    let (longest, too_long) = ("ü".repeat(100), "x".repeat(101));
    for (name, scope, reason) in [
        ("Web shop", "customers:fly", "at least one scope"),
        ("a\u{7}b", "all", "no control characters"),
        (&too_long, "all", "at most 100 characters"),
    ] {
        browser.send("create", &[("name", name), ("scope", scope)]).is(422).showing(reason);
    }
    for _ in 0..2 {
        browser.send("create", &[("name", &longest), ("scope", "all")]).is(303);
    }
    assert_eq!(panel.keys().len(), 2, "names need not differ");
}

#[test]
fn a_name_of_any_kind_is_harmless() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    for name in [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'; DROP TABLE keys; --",
        "</title></style>&amp;<!--",
        "\u{202e}evil\u{2066}\u{200f}",
        "{{ 7 * 7 }}{% raw %}",
    ] {
        browser.create_key(name, &["all"]);
    }
    let delete = format!("?delete={}", panel.keys()[1]["id"]);
    for page in [browser.get(""), browser.get(&delete)] {
        let text = page.is(200).text();
        for harm in ["<script>alert", "<img", "</title></style>", "<!--", ">49"] {
            assert!(!text.contains(harm), "{harm}: {text}");
        }
    }
    let list = browser.get("").showing("<bdi>\\u{202e}evil\\u{2066}\\u{200f}</bdi>").text();
    assert!(!list.contains(['\u{202e}', '\u{2066}', '\u{200f}']));
    let long = format!("<x>{}", "x".repeat(9_997));
    let text = browser.send("create", &[("name", &long), ("scope", "all")]).is(422).text();
    assert!(text.len() < 30 * 1024 && !text.contains("<x>"), "{}", text.len());
}

#[test]
fn the_list_shows_all_of_a_key_but_the_key() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    browser.get("").is(200).showing("No keys yet");
    let key = browser.create_key("Web shop", &["customers:read"]);
    let id = panel.keys()[0]["id"].to_string();
    let page = browser.get("").showing("Web shop").showing(&key[..8]);
    page.showing("customers:read").showing("never").showing(
        "<time datetime=\"2026-11-20T19:30:42Z\" title=\"2026-11-20 19:30 UTC\">2026-11-20</time>",
    );
    panel.service.advance(3600);
    panel.service.with_key(&key).get("/customers.php").is(200);
    panel.service.advance(7200);
    until("the use is shown", || {
        let used = "title=\"2026-11-20 20:30 UTC\">2 hours ago<";
        browser.get("").text().contains(used).then_some(())
    });

    let page = browser.send("revoke", &[("key", &id)]).is(303);
    browser.get(page.query()).showing(&format!("Key {id} “Web shop” is revoked."));
    browser.get("").showing("Web shop").showing("Revoked <time");
    panel.service.with_key(&key).get("/customers.php").fails_with(401, "revoked_api_key");
    // Revoking it again is not an error and adds no event.
    browser.send("revoke", &[("key", &id)]).is(303);
    browser.get(&format!("?revoke={id}")).is(200);
    let page = browser.send("delete", &[("key", &id)]).is(303);
    let page = browser.get(page.query()).showing("No keys yet");
    page.showing(&format!("Key {id} “Web shop” is deleted."));
    browser.send("delete", &[("key", &id)]).is(404);
    assert_eq!(browser.changes(), ["deleted key", "revoked key", "created key"]);
}

#[test]
fn a_key_ends_when_the_form_says() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    let mut create = |end: &str, date: &str| {
        let name = [("name", "Audit"), ("scope", "read")];
        browser.send("create", &[&name[..], &[("expires", end), ("date", date)]].concat())
    };
    for (end, date, expected) in [
        ("never", "", json!(null)),
        ("30d", "", json!("2026-12-20T19:30:42Z")),
        ("90d", "", json!("2027-02-18T19:30:42Z")),
        ("1y", "", json!("2027-11-20T19:30:42Z")),
        ("date", "2026-11-20", json!("2026-11-20T23:59:59Z")),
    ] {
        create(end, date).is(303);
        assert_eq!(panel.keys().last().unwrap()["expires_at"], expected, "{end}");
    }
    let count = panel.keys().len();
    for (end, date, field, reason) in [
        ("date", "2026-11-19", "date", "This date is in the past."),
        ("date", "", "date", "Enter a date."),
        ("date", "2026-02-30", "date", "Enter a date."),
        ("date", "9999-12-31", "date", "This end is too far away."),
        ("never", "2027-01-31", "expires", "Select “On a date”, or leave the date empty."),
        ("2y", "", "expires", "Select one of these."),
    ] {
        let page = create(end, date).is(422).showing("value=\"Audit\"");
        let page = page.showing(&format!("name=\"date\" type=\"date\" value=\"{date}\""));
        page.showing(&format!("id=\"{field}-error\">{reason}<")).showing("No key was created.");
    }
    create("date", "\"><b>").is(422).showing("value=\"&#34;&#62;&#60;b&#62;\"");
    assert_eq!(panel.keys().len(), count);
}

#[test]
fn a_key_warns_of_its_end_and_cannot_be_changed_after_it() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    browser.create_key("Lasting", &["read"]);
    for date in ["2026-12-05", "2026-11-21"] {
        let fields = [("name", date), ("scope", "read"), ("expires", "date"), ("date", date)];
        browser.send("create", &fields).is(303);
    }
    let end = "datetime=\"2026-11-21T23:59:59Z\" title=\"2026-11-21 23:59 UTC\">2026-11-21<";
    let page = browser.get("").showing(end).showing("<span class=\"near\">in 1 day<");
    page.showing(">2026-12-05<").showing("<span class=\"quiet\">in 15 days<");
    panel.service.advance(29 * 3600);
    let mut browser = panel.signed_in();
    let page = browser.get("").showing("<span class=\"near\">in 14 days<");
    let page = page.showing("Expired <time").showing(end);
    let id = panel.keys()[2]["id"].to_string();
    for action in ["edit", "revoke"] {
        assert!(!page.text().contains(&format!("?{action}={id}")), "{action}");
    }
    let refusal = "This key is expired and cannot be changed or replaced.";
    browser.get(&format!("?replace={id}")).is(422).showing(refusal);
    let page = browser.send("replace", &[("key", &id), ("overlap", "1d")]).is(422);
    page.showing(refusal).showing("Nothing was changed.");
    browser.send("delete", &[("key", &id)]).is(303);
    assert_eq!(panel.keys().len(), 2);
}

#[test]
fn a_key_is_replaced_and_the_new_one_shown_once() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    for (overlap, end, until) in [
        ("0s", "2026-11-20T19:30:42Z", "are refused from now on."),
        ("1h", "2026-11-20T20:30:42Z", "works until <time datetime=\"2026-11-20T20:30:42Z\""),
        ("1d", "2026-11-21T19:30:42Z", "works until <time datetime=\"2026-11-21T19:30:42Z\""),
        ("7d", "2026-11-27T19:30:42Z", "works until <time datetime=\"2026-11-27T19:30:42Z\""),
    ] {
        browser.create_key("Web shop", &["customers:read"]);
        let id = panel.keys().last().unwrap()["id"].to_string();
        panel.limit(&id, "500");
        let page = browser.get(&format!("?replace={id}")).is(200);
        page.showing("Web shop").showing(&format!("value=\"{overlap}\""));
        let replaced = browser.send("replace", &[("key", &id), ("overlap", overlap)]).is(303);
        let page = browser.get(replaced.query()).is(200);
        let page = page.showing(&format!("old key, number {id}, {until}"));
        let key = new_key(&page).unwrap();
        let again = browser.get(replaced.query()).is(200);
        assert!(!again.text().contains(&key), "it is shown once");
        assert_eq!(panel.service.listed_key(id.parse().unwrap())["expires_at"], end);
        let new = panel.keys().pop().unwrap();
        let expected = (&json!(null), &json!(500), &json!(["customers:read"]));
        assert_eq!((&new["expires_at"], &new["rate_limit"], &new["scopes"]), expected);
        assert_eq!(panel.whoami(&key)["key"]["id"], new["id"]);
    }
    browser.get("").showing("500 requests a minute");
    let page = browser.get("?activity").showing("replaced key ");
    page.showing("changed the limit of key ");
    let id = panel.keys().last().unwrap()["id"].to_string();
    let count = panel.keys().len();
    for overlap in ["", "2d", "-1h"] {
        let page = browser.send("replace", &[("key", &id), ("overlap", overlap)]);
        page.is(422).showing("Nothing was changed.");
    }
    assert_eq!(panel.keys().len(), count);
}

impl Browser {
    /// The changes and the sign-ins on their page, the newest first, each without its time.
    fn events(&mut self) -> [Vec<String>; 2] {
        let text = self.get("?activity").is(200).text();
        ["changes", "sign-ins"].map(|id| {
            let list = text.split_once(&format!("<h2 id=\"{id}\">")).map_or("", |(_, list)| list);
            let events = list.split("</section>").next().unwrap().split("<li>").skip(1);
            events.map(|event| between(event, "</time> <span", "</span></li>").unwrap()).collect()
        })
    }

    /// What an admin at 127.0.0.1 or the operator has done to keys, the newest first.
    fn changes(&mut self) -> Vec<String> {
        let [changes, _] = self.events();
        let done = |event: &String| {
            let event = event.replace("An admin at 127.0.0.1", "The operator");
            between(&event, ">The operator ", " key").unwrap() + " key"
        };
        changes.iter().map(done).collect()
    }
}

#[test]
fn the_last_fifty_changes_have_a_page() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    for count in 0..50 {
        browser.create_key(&format!("panel's {count}"), &["read"]);
    }
    panel.key();
    let [changes, sign_ins] = browser.events();
    assert_eq!((changes.len(), sign_ins.len()), (50, 1));
    for (event, words) in [
        (&changes[0], ["The operator created key", "<bdi>a test&#39;s</bdi></a>”"]),
        (&changes[49], ["An admin at 127.0.0.1 created key", "panel&#39;s 1</bdi>"]),
    ] {
        assert!(words.iter().all(|words| event.contains(words)), "{event}");
    }
}

#[test]
fn sign_ins_failures_and_password_changes_are_events_with_the_address() {
    let panel = Panel::new();
    let fails = |address: &str, name: &str| {
        Browser::at(&panel.service, address).sign_in(name, "not the password").is(401);
    };
    fails("192.0.2.66", "acme");
    fails("2001:db8::7", "acme");
    fails("2001:db8::7", "acmf");
    let mut browser = panel.signed_in();
    let wrong = [("current", "not the current one"), ("new", NEW), ("again", NEW)];
    browser.send("password", &wrong).is(422);
    let present = &*panel.acme.password;
    browser.send("password", &[("current", present), ("new", NEW), ("again", NEW)]).is(303);
    let set = ["tenant", "password", "acme", "--stdin"];
    panel.service.cli_with_input(&set, &format!("{present}\n")).done();
    let changes =
        [">The operator changed the password", ">An admin at 127.0.0.1 changed the password"];
    let sign_ins = [
        ">An admin at 127.0.0.1 signed in",
        ">An admin at 127.0.0.1 signed in",
        " class=\"error\">Somebody at 2001:db8::7 failed to sign in",
        " class=\"error\">Somebody at 192.0.2.66 failed to sign in",
    ];
    let [shown_changes, shown_sign_ins] = panel.signed_in().events();
    assert_eq!(shown_changes, changes);
    assert_eq!(shown_sign_ins, sign_ins);
}

#[test]
fn a_tenant_has_at_most_200_keys() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    for count in 0..200 {
        let name = format!("{count} {}", "<".repeat(90));
        browser.send("create", &[("name", &name), ("scope", "all")]).is(303);
    }
    let last = panel.keys()[199]["id"].to_string();
    for (action, fields) in [
        ("create", [("name", "one more"), ("scope", "all")]),
        ("replace", [("key", &*last), ("overlap", "0s")]),
    ] {
        browser.send(action, &fields).is(422).showing("This tenant has 200 keys");
    }
    assert_eq!(panel.keys().len(), 200);
    assert!(browser.get("").is(200).text().len() < 400 * 1024);
    browser.send("delete", &[("key", &last)]).is(303);
    browser.create_key("one more", &["all"]);
}

#[test]
fn an_active_key_is_changed_and_each_change_is_an_event() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    browser.create_key("Web shop", &["customers:read"]);
    let before = panel.keys();
    let id = before[0]["id"].to_string();
    let page = browser.get(&format!("?edit={id}")).is(200);
    page.showing("value=\"Web shop\"").showing("value=\"keep\"");
    let mut edit = |name, expires, limit| {
        let fields = [("key", &*id), ("name", name), ("expires", expires), ("limit", limit)];
        browser.send("edit", &fields)
    };
    assert_eq!(edit("Web shop", "keep", "").is(303).query(), format!("?done=changed&key={id}"));
    assert_eq!(panel.keys(), before);
    let row = || ["name", "expires_at", "rate_limit"].map(|name| panel.keys()[0][name].clone());
    edit("Shop", "1y", " 50 ").is(303);
    assert_eq!(row(), [json!("Shop"), json!("2027-11-20T19:30:42Z"), json!(50)]);
    let limit = "Enter a number from 1 to 100, or leave it empty.";
    for (name, expires, limit, reason) in [
        (" ", "keep", "", "A key&#39;s name must not be empty."),
        ("Shop", "soon", "", "Select one of these."),
        ("Shop", "keep", "0", limit),
        ("Shop", "keep", "101", limit),
        ("Shop", "keep", "ten", limit),
    ] {
        edit(name, expires, limit).is(422).showing(reason).showing("Nothing was changed.");
    }
    edit("Shop", "never", "").is(303);
    assert_eq!(row(), [json!("Shop"), json!(null), json!(null)]);
    // The operator alone gives more than the server's limit. The panel keeps it.
    panel.limit(&id, "500");
    edit("Shop", "keep", "501").is(422).showing("from 1 to 500");
    edit("Shop", "keep", "500").is(303);
    // Without JavaScript, the date stands beside "No change".
    let date = [("key", &*id), ("name", "Shop"), ("expires", "keep"), ("date", "2027-01-01")];
    browser.send("edit", &date).is(422).showing("leave the date empty");
    let (end, limit) = ("changed the end of key", "changed the limit of key");
    let expected = [limit, limit, end, limit, end, "renamed key", "created key"];
    assert_eq!(browser.changes(), expected);
}

#[test]
fn the_list_has_active_keys_first_then_the_newest() {
    let panel = Panel::new();
    let mut browser = panel.signed_in();
    for count in 0..6 {
        let end = if count == 5 { "30d" } else { "never" };
        let fields = [("name", &*format!("Key {count}")), ("scope", "read"), ("expires", end)];
        browser.send("create", &fields).is(303);
    }
    let revoked = panel.keys()[3]["id"].to_string();
    browser.send("revoke", &[("key", &revoked)]).is(303);
    panel.service.advance(31 * 24 * 3600);
    let text = panel.signed_in().get("").is(200).text();
    let rows = text.split("<tr role=\"row\"").skip(1).filter(|row| row.contains("<td"));
    let names: Vec<String> = rows.map(|row| between(row, "<bdi>", "</bdi>").unwrap()).collect();
    assert_eq!(names, ["Key 4", "Key 2", "Key 1", "Key 0", "Key 5", "Key 3"]);
}
