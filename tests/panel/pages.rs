//! Methods and parameters of the pages. `tests/browser` tests that they keep their strict
//! Content-Security-Policy, and their size.

use tenantdesk::http::Method;

use super::browser_session::Panel;

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
fn only_a_visit_of_the_page_is_served_and_no_script_of_another_page() {
    let panel = Panel::new();
    let tenant = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    let fields = [("name", "Web shop"), ("scope", "customers:read")];
    for purpose in ["empty", "iframe", "script"] {
        browser.purpose = Some(purpose);
        assert_eq!(browser.get("").is(403).token(), None, "{purpose}");
        browser.send("create", &fields).is(403);
        assert!(panel.keys(&tenant).is_empty(), "{purpose}");
    }
    browser.purpose = Some("document");
    let page = browser.send("create", &fields).is(303);
    assert_eq!(page.header("Cross-Origin-Opener-Policy"), Some("same-origin"));
    assert_eq!(panel.keys(&tenant).len(), 1);
}
