//! A browser that uses the panel of a running server.

use super::client::Call;
use super::{Api, Reply, TestServer};

/// A browser behind a local proxy that forwards its address.
pub(crate) struct Browser {
    api: Api,
    address: &'static str,
    pub cookie: String,
}

impl Browser {
    pub(crate) fn at(server: &TestServer, address: &'static str) -> Browser {
        Browser { api: server.anonymous(), address, cookie: String::new() }
    }

    pub(crate) fn ask(&self, method: &str, body: &str) -> Reply {
        self.call(method, body).send()
    }

    /// A request that was not sent yet.
    pub(crate) fn call(&self, method: &str, body: &str) -> Call<'_> {
        let call = self.api.call(method, "/api_keys.php");
        call.header("X-Forwarded-For", self.address)
            .header("Sec-Fetch-Site", "same-origin")
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header("Cookie", &self.cookie)
            .body(body.as_bytes())
    }

    fn keep(&mut self, page: &Reply) {
        for (_, cookie) in
            page.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"))
        {
            if !cookie.contains("Max-Age=0") {
                self.cookie = cookie.split(';').next().unwrap().to_owned();
            }
        }
    }

    pub(crate) fn send(&self, action: &str, fields: &[(&str, &str)]) -> Reply {
        self.ask("POST", &self.form(action, fields))
    }

    /// The body of a form.
    pub(crate) fn form(&self, action: &str, fields: &[(&str, &str)]) -> String {
        encode(&[&[("action", action)], fields].concat())
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
