//! One reply, and the checks that hold for every reply.

use serde_json::Value;

use super::browser::PANEL;
use super::contract::{CHANGES, is_batch, is_etag, is_timestamp, is_uuid, needs_key, resource_at};

/// The request, which a check of the reply needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub method: String,
    /// With the query.
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// Whether a proxy passed it on.
    pub is_proxied: bool,
}

impl Asked {
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The names in the query parameter `include`.
    fn include(&self) -> Vec<&str> {
        let parameters = self.target.split(['?', '&']);
        let names = parameters.filter_map(|parameter| parameter.strip_prefix("include="));
        names.flat_map(|names| names.split(',')).collect()
    }

    /// Whether the query has a moment.
    fn is_of_the_past(&self) -> bool {
        self.target.split(['?', '&']).any(|parameter| parameter.starts_with("at="))
    }

    fn has_two_authorizations(&self) -> bool {
        self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("authorization")).count()
            > 1
    }
}

/// One reply as it came.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub asked: Asked,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The refusals that come before the rate limit; a 503 or 500 can come before or after it.
const BEFORE_THE_LIMIT: &str = "
    missing_authorization malformed_api_key invalid_api_key revoked_api_key expired_api_key
    tenant_inactive insufficient_scope malformed_request overloaded
";

const LIMIT_HEADERS: [&str; 3] =
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

impl Reply {
    /// The value of the header `name`, which must not come twice.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let first = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} comes twice: {self}");
        first
    }

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {self}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The error's code, or nothing.
    pub(crate) fn code(&self) -> String {
        if self.status < 400 {
            return String::new();
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub(crate) fn message(&self) -> String {
        self.json()["error"]["message"]
            .as_str()
            .unwrap_or_else(|| panic!("no message: {self}"))
            .to_owned()
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{self}");
        self
    }

    /// The record that a 201 carries.
    #[track_caller]
    pub(crate) fn created(self) -> Value {
        self.is(201).json()
    }

    /// The body of a 200.
    #[track_caller]
    pub(crate) fn found(self) -> Value {
        self.is(200).json()
    }

    #[track_caller]
    pub(crate) fn fails_with(self, status: u16, code: &str) -> Reply {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{self}");
        self
    }

    /// The message has `what` in it, in whatever case.
    #[track_caller]
    pub(crate) fn saying(self, what: &str) -> Reply {
        assert!(
            self.message().to_lowercase().contains(&what.to_lowercase()),
            "the message does not say {what:?}: {self}"
        );
        self
    }

    /// 422 `validation_failed` with exactly these fields and codes, in this order.
    #[track_caller]
    pub(crate) fn fails_on(self, faults: &[(&str, &str)]) -> Reply {
        let reply = self.fails_with(422, "validation_failed");
        let body = reply.json();
        let errors = body["errors"].as_object().unwrap();
        let got: Vec<(&str, &str)> = errors
            .iter()
            .map(|(field, error)| (field.as_str(), error["code"].as_str().unwrap_or_default()))
            .collect();
        assert_eq!(got, faults, "{reply}");
        reply
    }

    pub(crate) fn was_replayed(&self) -> bool {
        self.header("Idempotent-Replayed").is_some()
    }

    /// One of the `X-RateLimit-` headers as a number.
    #[track_caller]
    pub(crate) fn limit(&self, which: &str) -> i64 {
        let value = self.header(&format!("X-RateLimit-{which}"));
        value
            .and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("no X-RateLimit-{which}: {self}"))
    }

    /// Checks what the contract says of every reply; the client calls it for each.
    #[track_caller]
    pub(crate) fn check(&self) {
        let answer = super::schema::Answer {
            method: &self.asked.method,
            target: &self.asked.target,
            status: self.status,
            headers: &self.headers,
            body: &self.body,
        };
        answer.check().unwrap_or_else(|fault| panic!("not as described: {fault}: {self}"));
        self.check_headers();
        let path = self.asked.path().to_owned();
        if path == PANEL && self.code() != "malformed_request" {
            self.check_page();
        } else if self.status >= 400 && self.asked.method != "HEAD" {
            self.check_envelope();
        }
        if !needs_key(&path) {
            for name in LIMIT_HEADERS {
                assert_eq!(self.header(name), None, "no limit here: {self}");
            }
        } else if self.code() != "malformed_request" {
            assert_eq!(self.header("Cache-Control"), Some("no-store"), "{self}");
            self.check_limit_headers();
        }
        match resource_at(&path) {
            Some(_) if self.status < 300 && self.asked.method != "HEAD" => self.check_success(),
            Some(_) if self.status == 304 => self.check_etag(),
            // `update_by` may have found no record.
            _ if self.code() == "precondition_failed" && self.header("ETag").is_some() => {
                self.check_etag()
            }
            None if self.status == 200 && is_journal(&path) && self.asked.method != "HEAD" => {
                self.check_changes()
            }
            _ => (),
        }
    }

    /// The version of a record: a strong entity tag, which is a number.
    #[track_caller]
    fn check_etag(&self) {
        let etag = self.header("ETag").unwrap_or_else(|| panic!("no ETag: {self}"));
        assert!(is_etag(etag), "{self}");
    }

    /// A page of the change log: the order of its entries, and their records.
    #[track_caller]
    fn check_changes(&self) {
        let body = self.json();
        assert_eq!(self.header("Link").is_some(), body["more"] == true, "{self}");
        assert_eq!(self.header("ETag"), None, "{self}");
        let entries = body["data"].as_array().unwrap();
        assert!(
            entries.windows(2).all(|pair| pair[0]["seq"].as_i64() < pair[1]["seq"].as_i64()),
            "{self}"
        );
    }

    #[track_caller]
    fn check_headers(&self) {
        let id = self.header("X-Request-Id").unwrap_or_else(|| panic!("no X-Request-Id: {self}"));
        assert!(is_uuid(id), "{self}");
        let own =
            self.asked.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("x-request-id"));
        if let Some((_, own)) = own.filter(|(_, own)| is_uuid(own)) {
            assert!(
                own.eq_ignore_ascii_case(id),
                "the request's own id {own} is taken over: {self}"
            );
        }
        assert_eq!(self.header("X-API-Version"), Some("v1"), "{self}");
        for (name, value) in &self.headers {
            assert!(
                name.eq_ignore_ascii_case("set-cookie") || self.header(name) == Some(value),
                "{self}"
            );
            assert!(
                !name.to_lowercase().starts_with("access-control-"),
                "there is no CORS: {self}"
            );
        }
        let retry_after = match self.status {
            429 => Some("60"),
            503 if self.asked.path() == PANEL || self.code() == "overloaded" => Some("1"),
            503 if self.text().contains("on its way to another machine") => Some("2"),
            503 => Some("5"),
            _ => None,
        };
        assert_eq!(self.header("Retry-After"), retry_after, "{self}");
        if self.status == 405 {
            self.check_allow();
        }
    }

    #[track_caller]
    fn check_allow(&self) {
        let mut allowed: Vec<&str> = self.header("Allow").unwrap_or_default().split(", ").collect();
        allowed.sort_unstable();
        let expected: &[&str] = match self.asked.path() {
            PANEL => &["GET", "HEAD", "POST"],
            path if is_batch(path) => &["POST"],
            path if resource_at(path).is_some() => &["DELETE", "GET", "HEAD", "POST", "PUT"],
            _ => &["GET", "HEAD"],
        };
        assert_eq!(allowed, expected, "{self}");
    }

    #[track_caller]
    fn check_envelope(&self) {
        let body = self.json();
        let code = self.code();
        assert!((11..4096).contains(&self.message().len()), "{self}");
        let has = |name: &str| body.get(name).is_some();
        let is_invalid = code == "validation_failed";
        assert_eq!([has("errors"), has("fields")], [is_invalid; 2], "{self}");
        assert!(!has("details") || code == "has_dependents", "{self}");
        assert!(!has("operation") || is_batch(self.asked.path()), "{self}");
        if is_invalid {
            let names: Vec<&String> = body["errors"].as_object().unwrap().keys().collect();
            assert_eq!(body["fields"], serde_json::json!(names), "{self}");
        }
        self.check_challenge(&code);
    }

    #[track_caller]
    fn check_challenge(&self, code: &str) {
        let challenge = self.header("WWW-Authenticate");
        match code {
            "missing_authorization" => assert_eq!(challenge, Some("Bearer"), "{self}"),
            "malformed_api_key" | "invalid_api_key" | "revoked_api_key" | "expired_api_key" => {
                assert_eq!(challenge, Some("Bearer error=\"invalid_token\""), "{self}");
            }
            "insufficient_scope" => {
                let start = "Bearer error=\"insufficient_scope\", scope=\"";
                assert!(challenge.is_some_and(|value| value.starts_with(start)), "{self}");
            }
            _ => assert_eq!(challenge, None, "{self}"),
        }
    }

    #[track_caller]
    fn check_limit_headers(&self) {
        let code = self.code();
        // The scopes that a batch needs are known once its body is read.
        let present = LIMIT_HEADERS.iter().filter(|name| self.header(name).is_some()).count();
        if code == "insufficient_scope" && is_batch(self.asked.path()) {
            return assert_eq!(present, 3, "{self}");
        }
        if code == "insufficient_scope" && !self.asked.include().is_empty() {
            // The scope of the path is checked before the limit, the scopes of `include` after it.
            return assert!([0, 3].contains(&present), "{self}");
        }
        if code == "tenant_inactive" && present == 3 {
            // The tenant was suspended after the check of the limit.
            return;
        }
        let refused_before = BEFORE_THE_LIMIT.split_whitespace().any(|before| before == code)
            || self.status == 401
            || self.status == 403
            || self.asked.method == "OPTIONS"
            || (self.status == 400 && self.asked.has_two_authorizations());
        let announced = self.header("X-Key-Expires");
        assert!(
            announced.is_none_or(is_timestamp) && !(refused_before && announced.is_some()),
            "{self}"
        );
        match self.status {
            _ if refused_before => assert_eq!(present, 0, "refused before the rate limit: {self}"),
            500 | 503 => assert!(present == 0 || present == 3, "{self}"),
            _ => assert_eq!(present, 3, "after the rate limit: {self}"),
        }
        if present == 3 {
            let (limit, remaining) = (self.limit("Limit"), self.limit("Remaining"));
            assert!(limit >= 1 && (0..limit).contains(&remaining), "{self}");
            assert!(self.limit("Reset") > 1_000_000_000, "{self}");
        }
    }

    /// `schema.rs` checks the members of a record. It does not know which `include` asked for.
    #[track_caller]
    fn check_record(&self, record: &Value) {
        let is_unknown = self.asked.is_of_the_past() && record["etag"].is_null();
        assert!(is_unknown || record["etag"].as_str().is_some_and(is_etag), "{record}");
        for name in ["employee", "customer"] {
            let is_wanted = self.asked.include().contains(&name);
            assert_eq!(record.get(name).is_some(), is_wanted, "{record}");
        }
    }

    #[track_caller]
    fn check_success(&self) {
        if self.status == 204 {
            return assert_eq!(self.header("ETag"), None, "{self}");
        }
        let body = self.json();
        let include = self.asked.include();
        if self.asked.method != "GET" || body.get("data").is_none() {
            self.check_record(&body);
            if include.is_empty() && !self.asked.is_of_the_past() {
                self.check_etag();
                let is_replay = self.was_replayed();
                assert!(is_replay || self.header("ETag") == body["etag"].as_str(), "{self}");
            } else {
                assert_eq!(self.header("ETag"), None, "with include or at: {self}");
            }
            assert_eq!(self.header("Link"), None, "{self}");
        } else {
            body["data"].as_array().unwrap().iter().for_each(|record| self.check_record(record));
            assert_eq!(self.header("Link").is_some(), body["next_cursor"].is_string(), "{self}");
            assert_eq!(self.header("ETag"), None, "a list has no version: {self}");
        }
        if self.status == 201 {
            let expected = format!("{}?id={}", self.asked.path(), body["id"]);
            let location = self.header("Location").unwrap_or_default();
            assert!(self.was_replayed() || location == expected, "{self}");
        }
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "\n  {} {} answered {}", self.asked.method, self.asked.target, self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "  {name}: {value}")?;
        }
        let text: String = self.text().chars().take(1500).collect();
        write!(f, "\n  {text}")
    }
}

fn is_journal(path: &str) -> bool {
    path.strip_prefix("/v1").unwrap_or(path) == CHANGES
}
