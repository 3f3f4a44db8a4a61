//! A browser that uses the panel of a service: it keeps cookies, and sends the forms of the page.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::client::Call;
use super::{Api, DataDir, Reply};

pub(crate) const PANEL: &str = "/api_keys.php";

/// A browser behind a local proxy that forwards its address.
pub(crate) struct Browser {
    api: Api,
    address: String,
    pub cookies: BTreeMap<String, String>,
    /// The headers that a browser adds.
    pub headers: Vec<(&'static str, &'static str)>,
}

impl Browser {
    pub(crate) fn at(data_dir: &Arc<DataDir>, address: &str) -> Browser {
        Browser {
            api: data_dir.anonymous(),
            address: address.to_owned(),
            cookies: BTreeMap::new(),
            headers: vec![("Sec-Fetch-Site", "same-origin")],
        }
    }

    /// A request that was not sent yet.
    pub(crate) fn call(&self, method: &str, query: &str) -> Call<'_> {
        let call = self.api.call(method, &format!("{PANEL}{query}"));
        let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        let call = call
            .header("X-Forwarded-For", &self.address)
            .header("Cookie", &cookies.collect::<Vec<_>>().join("; "));
        self.headers.iter().fold(call, |call, (name, value)| call.header(name, value))
    }

    /// A form that was not sent yet. `action` is its button.
    pub(crate) fn form(&self, action: &str, fields: &[(&str, &str)]) -> Call<'_> {
        let mut fields = [&[("action", action)], fields].concat();
        if !fields.iter().any(|(name, _)| *name == "expires") {
            fields.push(("expires", "never"));
        }
        self.post(encode(&fields))
    }

    pub(crate) fn post(&self, body: String) -> Call<'_> {
        let call = self.call("POST", "");
        call.header("Content-Type", "application/x-www-form-urlencoded").body(body)
    }

    /// The same browser, which names another host.
    pub(crate) fn at_host(&mut self, host: &str) {
        self.api = self.api.at_host(host);
    }

    #[track_caller]
    pub(crate) fn get(&mut self, query: &str) -> Reply {
        let reply = self.call("GET", query).send();
        self.keep_cookies(reply)
    }

    #[track_caller]
    pub(crate) fn send(&mut self, action: &str, fields: &[(&str, &str)]) -> Reply {
        let reply = self.form(action, fields).send();
        self.keep_cookies(reply)
    }

    /// The same where the server may end.
    pub(crate) fn try_send(&mut self, action: &str, fields: &[(&str, &str)]) -> io::Result<Reply> {
        let reply = self.form(action, fields).try_send()?;
        Ok(self.keep_cookies(reply))
    }

    #[track_caller]
    pub(crate) fn sign_in(&mut self, tenant: &str, password: &str) -> Reply {
        self.send("sign-in", &[("tenant", tenant), ("password", password)])
    }

    fn keep_cookies(&mut self, page: Reply) -> Reply {
        let is_cookie = |name: &str| name.eq_ignore_ascii_case("set-cookie");
        for (_, cookie) in page.headers.iter().filter(|(name, _)| is_cookie(name)) {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if cookie.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        page
    }
}

/// Fields as a browser encodes them.
pub(crate) fn encode(fields: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| {
        format!("{}={}", crate::support::encoded(name), crate::support::encoded(value))
    };
    fields.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// What a page of the panel must have.
impl Reply {
    /// The page contains the text.
    #[track_caller]
    pub(crate) fn showing(self, what: &str) -> Reply {
        assert!(self.text().contains(what), "the page does not show {what:?}: {}", self.text());
        self
    }

    /// The query of a redirect's location, with its `?`.
    #[track_caller]
    pub(crate) fn query(&self) -> &str {
        let location = self.header("Location").expect("a redirect");
        location.strip_prefix(PANEL).expect("to the panel")
    }

    /// Checks what holds for every response of the panel.
    #[track_caller]
    pub(super) fn check_page(&self) {
        for (name, value) in [
            ("X-Frame-Options", "DENY"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ] {
            assert_eq!(self.header(name), Some(value), "{name}: {self}");
        }
        let policy = self.header("Content-Security-Policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!["unsafe", "*", "http"].iter().any(|word| policy.contains(word)), "{policy}");
        if self.status == 303 {
            assert!(self.body.is_empty(), "{self}");
        } else {
            assert_eq!(self.header("Content-Type"), Some("text/html; charset=utf-8"), "{self}");
            assert!(self.asked.method == "HEAD" || self.text().ends_with("</html>"), "{self}");
        }
    }
}
