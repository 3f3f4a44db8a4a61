//! Every page: its methods, its size, and that it works with the strict Content-Security-Policy.

use base64ct::{Base64, Encoding as _};
use sha2::{Digest as _, Sha256};
use tenantdesk::http::Method;

use super::browser_session::{BrowserSession, PASSWORD, Panel};

#[test]
fn other_methods_are_refused_with_a_page() {
    let panel = Panel::new();
    for method in [Method::PUT, Method::DELETE, Method::PATCH] {
        let page = panel.ask(&panel.request(method)).is(405);
        assert_eq!(page.header("Allow"), Some("GET, HEAD, POST"));
    }
    panel.ask(&panel.request(Method::HEAD)).is(200);
}

#[test]
fn unknown_parameters_are_ignored() {
    let panel = Panel::new();
    panel.tenant("acme");
    panel.browser().get("what=ever&done=nothing&%ff=%").is(200);
    let mut browser = panel.signed_in("acme");
    let text = browser.get("").text();
    assert_eq!(browser.get("what=ever&done=nothing&revoke=x&new=").is(200).text(), text);
}

/// One page of each kind.
fn every_page(panel: &Panel) -> Vec<String> {
    panel.tenant("acme");
    let mut stranger = panel.browser();
    let mut pages = vec![stranger.get("").text(), stranger.sign_in("acme", "no").is(401).text()];
    let mut browser = panel.signed_in("acme");
    pages.push(browser.get("").text());
    pages.push(browser.send("create", &[]).is(422).text());
    let data_dir =
        browser.send("create", &[("name", "a"), ("scope", "all")]).is(303).query().to_owned();
    pages.push(browser.get(&data_dir).text());
    pages.push(browser.get("create").text());
    pages.push(browser.get("edit=1").is(200).text());
    pages.push(browser.get("revoke=1").text());
    pages.push(browser.get("delete=1").text());
    pages.push(browser.get("replace=1").is(200).text());
    pages.push(browser.send("password", &[]).is(422).text());
    pages.push(panel.ask(&panel.request(Method::PUT)).is(405).text());
    pages
}

#[test]
fn the_policy_names_what_stands_in_the_page_and_nothing_else_does() {
    let panel = Panel::new();
    let pages = every_page(&panel);
    let answer = panel.ask(&panel.request(Method::GET));
    let policy = answer.header("Content-Security-Policy").unwrap();
    for text in pages {
        for (tag, directive) in [("style", "style-src"), ("script", "script-src")] {
            let allowed = policy.split("; ").find(|part| part.starts_with(directive)).unwrap();
            for piece in text.split(&format!("<{tag}>")).skip(1) {
                let inline = piece.split(&format!("</{tag}>")).next().unwrap();
                let hash = format!("'sha256-{}'", Base64::encode_string(&Sha256::digest(inline)));
                assert!(allowed.contains(&hash), "{tag} of {text}");
            }
        }
        for forbidden in
            [" style=", " onclick", " onload", "javascript:", "src=", "<iframe", "@import", "url("]
        {
            assert!(!text.contains(forbidden), "{forbidden} in {text}");
        }
        for address in text.split("http").skip(1) {
            assert!(
                address.starts_with("://www.w3.org/2000/svg'"),
                "it asks somewhere else: {address}"
            );
        }
    }
}

#[test]
fn a_busy_page_weighs_less_than_30_kib() {
    let panel = Panel::new();
    panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    for count in 0..12 {
        browser.create_key(&format!("Nightly import of branch {count}"), &["all"]);
    }
    for key in 1..=8 {
        browser.send("revoke", &[("key", &key.to_string())]).is(303);
    }
    let weight = browser.get("").text().len();
    println!("12 keys of all scopes and 20 events: {weight} bytes");
    assert!(weight < 30 * 1024, "{weight}");
}

#[test]
fn every_refusal_is_a_page_that_leads_on() {
    let panel = Panel::new();
    panel.tenant("acme");
    let leads_on = |browser: &mut BrowserSession<'_>| {
        let page = browser.send("sign-in", &[("tenant", "acme"), ("password", "no")]);
        assert!(page.text().contains("<form"), "{}", page.text());
        page.status()
    };
    let mut browser = panel.browser();
    assert_eq!(leads_on(&mut browser), 403);
    let statuses: Vec<u16> = (0..6).map(|_| leads_on(&mut browser)).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429]);
    panel.advance(60);
    browser.send("sign-in", &[("tenant", "acme"), ("password", PASSWORD)]).is(303);
}
