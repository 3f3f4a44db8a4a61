//! A panel with a manual clock, and browser sessions that keep cookies and send the forms of their
//! page.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenantdesk::api::routes::PANEL_PATH;
use tenantdesk::clock::Clock;
use tenantdesk::config::Config;
use tenantdesk::http::{Body, Method, Request, Responder};
use tenantdesk::secret;
use tenantdesk::server::App;
use tenantdesk::store::registry::{KeyRow, TenantRow};

use crate::support::browser::encode;
use crate::support::in_process::open;

/// The initial password of every tenant.
pub(crate) const PASSWORD: &str = "correct horse battery";

pub(crate) const SESSION: &str = "tenantdesk-session";

/// A panel in this process.
pub(crate) struct Panel {
    pub directory: tempfile::TempDir,
    pub app: Arc<App>,
    pub clock: Clock,
}

impl Panel {
    pub(crate) fn new() -> Panel {
        Panel::configured(Config::new)
    }

    /// A panel with a configuration for a data directory.
    pub(crate) fn configured(configure: impl FnOnce(PathBuf) -> Config) -> Panel {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::manual("2026-11-20T19:30:42Z".parse().unwrap());
        let app = open(&configure(directory.path().join("data")), clock.clone()).unwrap();
        Panel { directory, app, clock }
    }

    /// The same data after a restart.
    pub(crate) fn restarted(self) -> Panel {
        let Panel { directory, app, clock } = self;
        drop(app);
        let app = open(&Config::new(directory.path().join("data")), clock.clone()).unwrap();
        Panel { directory, app, clock }
    }

    pub(crate) fn tenant(&self, name: &str) -> TenantRow {
        let hash = secret::hash_password(PASSWORD).unwrap();
        self.app.registry.create_tenant(name, None, &hash, None, self.clock.now()).unwrap().0
    }

    pub(crate) fn keys(&self, tenant: &TenantRow) -> Vec<KeyRow> {
        self.app.registry.list_keys(tenant.id).unwrap()
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn browser(&self) -> BrowserSession<'_> {
        BrowserSession {
            panel: self,
            cookies: BTreeMap::new(),
            secure: false,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            headers: vec![("sec-fetch-site", "same-origin")],
        }
    }

    /// A browser at another address.
    pub(crate) fn browser_at(&self, client: &str) -> BrowserSession<'_> {
        BrowserSession { client: client.parse().unwrap(), ..self.browser() }
    }

    /// A session of a tenant's admin.
    #[track_caller]
    pub(crate) fn signed_in(&self, tenant: &str) -> BrowserSession<'_> {
        let mut browser = self.browser();
        browser.sign_in(tenant, PASSWORD).is(303);
        browser.get("").is(200);
        browser
    }

    /// Sends a request to the panel and checks the properties of every response.
    #[track_caller]
    pub(crate) fn ask(&self, request: &Request) -> Page {
        let metrics = Arc::clone(&self.app.metrics);
        let (mut responder, _) =
            Responder::new(request, Arc::default(), self.clock.clone(), metrics);
        let response = self.app.panel.respond(request, &mut responder);
        let page = Page { response: response.into_inner() };
        page.check();
        page
    }

    pub(crate) fn request(&self, method: Method) -> Request {
        Request::new(method, PANEL_PATH, self.clock.now())
    }
}

/// A browser: its cookies and headers.
pub(crate) struct BrowserSession<'a> {
    pub panel: &'a Panel,
    pub cookies: BTreeMap<String, String>,
    pub secure: bool,
    pub client: IpAddr,
    pub headers: Vec<(&'static str, &'static str)>,
}

impl BrowserSession<'_> {
    #[track_caller]
    pub(crate) fn get(&mut self, query: &str) -> Page {
        self.ask(Method::GET, query, None)
    }

    /// Sends a form; `action` is its button.
    #[track_caller]
    pub(crate) fn send(&mut self, action: &str, fields: &[(&str, &str)]) -> Page {
        let mut fields = [&[("action", action)], fields].concat();
        if !fields.iter().any(|(name, _)| *name == "expires") {
            fields.push(("expires", "never"));
        }
        self.ask(Method::POST, "", Some(encode(&fields)))
    }

    #[track_caller]
    pub(crate) fn sign_in(&mut self, tenant: &str, password: &str) -> Page {
        self.send("sign-in", &[("tenant", tenant), ("password", password)])
    }

    /// Creates a key and returns it from the page that shows it.
    #[track_caller]
    pub(crate) fn create_key(&mut self, name: &str, scopes: &[&str]) -> String {
        let mut fields = vec![("name", name)];
        fields.extend(scopes.iter().map(|scope| ("scope", *scope)));
        let made = self.send("create", &fields).is(303);
        self.get(made.query()).is(200).new_key().expect("the key is shown")
    }

    /// Whether the cookies open a session.
    #[track_caller]
    pub(crate) fn is_signed_in(&mut self) -> bool {
        self.get("").text().contains("Sign out")
    }

    pub(crate) fn request(&self, method: Method, query: &str, form: Option<String>) -> Request {
        let mut request = self.panel.request(method);
        request.query = (!query.is_empty()).then(|| query.to_owned());
        request.secure = self.secure;
        request.client = self.client;
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        request.headers.insert("cookie", cookies.join("; ").parse().unwrap());
        for (name, value) in &self.headers {
            request.headers.insert(*name, value.parse().unwrap());
        }
        if let Some(form) = form {
            request
                .headers
                .insert("content-type", "application/x-www-form-urlencoded".parse().unwrap());
            request.body = Body::Whole(form.into_bytes());
        }
        request
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, method: Method, query: &str, form: Option<String>) -> Page {
        let request = self.request(method, query, form);
        let page = self.panel.ask(&request);
        self.keep_cookies(&page);
        page
    }

    fn keep_cookies(&mut self, page: &Page) {
        for cookie in page.all("Set-Cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if cookie.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}

/// One response.
#[derive(Debug)]
pub(crate) struct Page {
    response: http::Response<Cow<'static, [u8]>>,
}

impl Page {
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Page {
        assert_eq!(self.status(), status, "{}", self.text());
        self
    }

    /// Asserts that the page contains the text.
    #[track_caller]
    pub(crate) fn saying(self, what: &str) -> Page {
        assert!(self.text().contains(what), "the page does not say {what:?}: {}", self.text());
        self
    }

    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.response.body().to_vec()).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.response.headers().get_all(name).into_iter().map(|value| value.to_str().unwrap())
    }

    /// The `Set-Cookie` header of this name.
    pub(crate) fn cookie(&self, name: &str) -> Option<&str> {
        self.all("Set-Cookie").find(|cookie| cookie.starts_with(&format!("{name}=")))
    }

    /// The query of a redirect's location.
    #[track_caller]
    pub(crate) fn query(&self) -> &str {
        let location = self.header("Location").expect("a redirect");
        location.strip_prefix(PANEL_PATH).expect("to the panel").trim_start_matches('?')
    }

    /// The new key on the page.
    pub(crate) fn new_key(&self) -> Option<String> {
        between(&self.text(), "<code id=\"secret\" tabindex=\"0\">", "<")
    }

    /// Asserts the properties of every response.
    #[track_caller]
    fn check(&self) {
        for (name, value) in [
            ("X-Frame-Options", "DENY"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "same-origin"),
        ] {
            assert_eq!(
                self.all(name).collect::<Vec<_>>(),
                [value],
                "{name} of a {}",
                self.status()
            );
        }
        let policy = self.header("Content-Security-Policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; ") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(
            !policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"),
            "{policy}"
        );
        let retry_after = match self.status() {
            429 => Some("60"),
            503 => Some("1"),
            _ => None,
        };
        assert_eq!(self.header("Retry-After"), retry_after);
        if self.status() == 303 {
            assert!(self.text().is_empty());
        } else {
            assert_eq!(self.header("Content-Type"), Some("text/html; charset=utf-8"));
            assert!(self.text().ends_with("</html>"), "{}", self.text());
        }
    }
}

fn between(text: &str, start: &str, end: &str) -> Option<String> {
    text.split_once(start)?.1.split_once(end).map(|(found, _)| found.to_owned())
}
