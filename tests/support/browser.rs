//! A browser that uses the panel of a running server.

use super::{Reply, TestServer};

/// A browser behind a local proxy that forwards its address.
pub(crate) struct Browser<'a> {
    server: &'a TestServer,
    address: &'static str,
    pub cookie: String,
    token: String,
}

impl Browser<'_> {
    pub(crate) fn at<'a>(server: &'a TestServer, address: &'static str) -> Browser<'a> {
        let mut browser = Browser { server, address, cookie: String::new(), token: String::new() };
        let page = browser.ask("GET", "").is(200);
        browser.keep(&page);
        browser
    }

    pub(crate) fn ask(&self, method: &str, body: &str) -> Reply {
        let api = self.server.anonymous();
        let call = api.call(method, "/api_keys.php").header("X-Forwarded-For", self.address);
        let call = call
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header("Cookie", &self.cookie);
        call.body(body.as_bytes()).send()
    }

    pub(crate) fn keep(&mut self, page: &Reply) {
        for (_, cookie) in
            page.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"))
        {
            if !cookie.contains("Max-Age=0") {
                self.cookie = cookie.split(';').next().unwrap().to_owned();
            }
        }
        if let Some((_, rest)) = page.text().split_once("name=\"token\" value=\"") {
            self.token = rest.split('"').next().unwrap().to_owned();
        }
    }

    pub(crate) fn send(&self, action: &str, fields: &[(&str, &str)]) -> Reply {
        self.ask("POST", &self.form(action, fields))
    }

    /// The body of a form.
    pub(crate) fn form(&self, action: &str, fields: &[(&str, &str)]) -> String {
        let fields = [&[("action", action), ("token", &self.token)], fields].concat();
        encode(&fields)
    }

    pub(crate) fn sign_in(&mut self, tenant: &str, password: &str) -> Reply {
        let reply = self.send("sign-in", &[("tenant", tenant), ("password", password)]);
        self.keep(&reply);
        reply
    }
}

/// Fields as a browser encodes them.
pub(crate) fn encode(fields: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| {
        format!("{}={}", crate::support::encoded(name), crate::support::encoded(value))
    };
    fields.iter().map(pair).collect::<Vec<_>>().join("&")
}
