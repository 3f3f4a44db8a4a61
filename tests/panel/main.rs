//! The panel (contract section 9) without JavaScript. `tests/browser` tests the pages in a browser.

mod forms;
mod keys;
mod server;
mod sessions;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "the harness serves other suites too")]
mod support;

use serde_json::Value;

use support::browser::Browser;
use support::{InProcess, Reply, Tenant};

/// A new password.
const NEW: &str = "another horse battery";

/// A service with the tenant acme. Its clock stands.
struct Panel {
    service: InProcess,
    acme: Tenant,
}

impl Panel {
    fn new() -> Panel {
        let (service, acme) = InProcess::at("2026-11-20T19:30:42Z");
        Panel { service, acme }
    }

    fn browser(&self) -> Browser {
        Browser::at(&self.service, "127.0.0.1")
    }

    /// A session of a tenant's admin.
    #[track_caller]
    fn signed_in_to(&self, tenant: &Tenant) -> Browser {
        let mut browser = self.browser();
        browser.sign_in(&tenant.name, &tenant.password).is(303);
        browser
    }

    #[track_caller]
    fn signed_in(&self) -> Browser {
        self.signed_in_to(&self.acme)
    }

    /// The rows of acme's keys.
    fn keys(&self) -> Vec<Value> {
        self.service.cli_json(&["key", "list", "acme"]).as_array().unwrap().clone()
    }

    /// Creates a key by the command, and returns its row and its number.
    fn key(&self) -> (Value, String) {
        let id = self.acme.key(support::ALL).id;
        (self.service.listed_key(id), id.to_string())
    }
}

impl Browser {
    /// Whether the cookies open a session.
    #[track_caller]
    fn is_signed_in(&mut self) -> bool {
        self.get("").text().contains("Sign out")
    }

    /// Creates a key and returns it from the page that shows it.
    #[track_caller]
    fn create_key(&mut self, name: &str, scopes: &[&str]) -> String {
        let scopes = scopes.iter().map(|scope| ("scope", *scope));
        let fields: Vec<_> = [("name", name)].into_iter().chain(scopes).collect();
        let made = self.send("create", &fields).is(303);
        new_key(&self.get(made.query()).is(200)).expect("the key is shown")
    }
}

/// The new key on a page.
fn new_key(page: &Reply) -> Option<String> {
    between(&page.text(), "<code id=\"secret\" tabindex=\"0\">", "<")
}

fn between(text: &str, start: &str, end: &str) -> Option<String> {
    text.split_once(start)?.1.split_once(end).map(|(found, _)| found.to_owned())
}
