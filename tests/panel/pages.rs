//! Methods, parameters and refusals of the pages. `tests/browser` tests that they keep their strict
//! Content-Security-Policy, and their size.

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
