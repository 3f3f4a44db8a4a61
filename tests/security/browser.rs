//! The panel's forms, as a browser at some address sends them.

use crate::support::{Api, Reply, Tenant, TestServer, encoded};

const PANEL: &str = "/api_keys.php";

pub(crate) struct Browser {
    api: Api,
    address: &'static str,
    cookie: String,
}

impl Browser {
    pub(crate) fn new(server: &TestServer, address: &'static str) -> Browser {
        Browser { api: server.anonymous(), address, cookie: String::new() }
    }

    pub(crate) fn signed_in(
        server: &TestServer,
        tenant: &Tenant,
        address: &'static str,
    ) -> Browser {
        let mut browser = Browser::new(server, address);
        browser.sign_in(tenant, &tenant.password).is(303);
        browser
    }

    pub(crate) fn sign_in(&mut self, tenant: &Tenant, password: &str) -> Reply {
        self.cookie.clear();
        self.send("sign-in", &[("tenant", &tenant.name), ("password", password)])
    }

    pub(crate) fn page(&mut self) -> String {
        self.page_at("")
    }

    pub(crate) fn page_at(&mut self, query: &str) -> String {
        let reply = self.call("GET", query, None);
        if let Some(cookie) = cookie(&reply) {
            self.cookie = cookie;
        }
        reply.text()
    }

    /// Sends a form of the page.
    pub(crate) fn send(&mut self, action: &str, fields: &[(&str, &str)]) -> Reply {
        let page = self.page();
        let token = page.split("name=\"token\" value=\"").nth(1).unwrap();
        let token = token.split('"').next().unwrap();
        let fields = [&[("action", action), ("token", token)], fields].concat();
        let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        let reply = self.call("POST", "", Some(pairs.collect::<Vec<_>>().join("&")));
        if reply.status == 303
            && let Some(cookie) = cookie(&reply)
        {
            self.cookie = cookie;
        }
        reply
    }

    fn call(&self, method: &str, query: &str, form: Option<String>) -> Reply {
        let call = self
            .api
            .call(method, &format!("{PANEL}{query}"))
            .header("X-Forwarded-For", self.address);
        let call = call.header("Cookie", &self.cookie);
        match form {
            Some(form) => call
                .header("Content-Type", "application/x-www-form-urlencoded")
                .body(form)
                .try_send(),
            None => call.try_send(),
        }
        .unwrap()
    }
}

/// The cookie that a reply sets; one that it removes does not count.
fn cookie(reply: &Reply) -> Option<String> {
    let set = reply.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    set.map(|(_, value)| value.as_str())
        .find(|value| !value.contains("Max-Age=0"))
        .map(|value| value.split(';').next().unwrap().to_owned())
}
