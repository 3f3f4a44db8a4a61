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
