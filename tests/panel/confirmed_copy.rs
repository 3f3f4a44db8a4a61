//! With a copy that confirms changes, the panel reports a change once the copy has it (contract section 16).

use std::thread;

use tenantdesk::config::Config;

use super::browser_session::Panel;
use super::support::{Answer, CopySocket, until};

fn with_copy(socket: &CopySocket) -> Panel {
    Panel::configured(|data_dir| Config { copy_socket: Some(socket.path()), ..Config::new(data_dir) })
}

#[test]
fn a_revocation_is_reported_once_the_copy_has_it() {
    let socket = CopySocket::start();
    let panel = with_copy(&socket);
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    browser.create_key("Lost", &["all"]);
    let id = panel.keys(&acme)[0].id.to_string();
    socket.answer(Answer::Hold);
    let done = thread::scope(|scope| {
        let revoking = scope.spawn(|| browser.send("revoke", &[("key", &id)]));
        until("the key is revoked here", || panel.keys(&acme)[0].revoked_at.is_some().then_some(()));
        assert!(!revoking.is_finished());
        socket.answer(Answer::Confirm);
        revoking.join().unwrap().is(303).query().to_owned()
    });
    browser.get(&done).is(200).saying("The key is revoked.");
}

#[test]
fn what_the_copy_does_not_confirm_is_not_reported_as_done() {
    let socket = CopySocket::start();
    let panel = with_copy(&socket);
    let acme = panel.tenant("acme");
    let mut browser = panel.signed_in("acme");
    browser.create_key("First", &["all"]);
    browser.create_key("Second", &["all"]);
    let [first, second] = [0, 1].map(|n| panel.keys(&acme)[n].id.to_string());
    socket.answer(Answer::Error(500, "receiver lost"));
    let unconfirmed = browser.send("revoke", &[("key", &first)]).is(503);
    assert!(unconfirmed.text().contains("may lack the change"), "{}", unconfirmed.text());
    let refused = browser.send("revoke", &[("key", &second)]).is(503);
    assert!(refused.text().contains("Nothing was changed"), "{}", refused.text());
    let revoked: Vec<bool> = panel.keys(&acme).iter().map(|key| key.revoked_at.is_some()).collect();
    assert_eq!(revoked, [true, false]);
    browser.get("").is(200);
    socket.answer(Answer::Confirm);
    until("changes are accepted again", || {
        let copy = panel.app.gauges().copy.unwrap();
        (copy.files_behind == 0).then_some(())
    });
    browser.send("revoke", &[("key", &second)]).is(303);
    browser.send("revoke", &[("key", &first)]).is(303);
}
