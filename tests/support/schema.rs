//! Every answer against the OpenAPI document. An undocumented status, header or member is a fault.
//!
//! The checker knows the keywords that the document uses for answers, and panics at any other. The
//! document lets answers have further members, so that clients allow them. The checker does not.

use std::sync::LazyLock;

use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(tenantdesk::reference::OPENAPI_TEXT).expect("the document is JSON")
});

/// The errors that belong to no operation, in the form of the document.
static OF_NO_OPERATION: LazyLock<Value> = LazyLock::new(|| {
    let mut failure = DOCUMENT["components"]["responses"]["Failure"].clone();
    let examples = &mut failure["content"]["application/json"]["examples"];
    for code in ["endpoint_not_found", "method_not_allowed", "not_ready"] {
        examples[code] = json!({});
    }
    failure["headers"]["Allow"] = json!({ "schema": { "type": "string" } });
    failure
});

/// Headers that any answer may have, or a page for browsers.
const OF_ANY_ANSWER: &str = "
    x-request-id x-api-version cache-control content-type content-length date connection
    transfer-encoding x-content-type-options strict-transport-security content-security-policy
    x-frame-options referrer-policy vary content-encoding
";

fn is_of_any_answer(header: &str) -> bool {
    OF_ANY_ANSWER.split_whitespace().any(|name| name.eq_ignore_ascii_case(header))
}

/// Statuses that may come alone where a message could not be read at all (contract section 6).
const UNREAD: [u16; 3] = [400, 408, 431];

/// An answer with its request.
pub(crate) struct Answer<'a> {
    pub method: &'a str,
    /// With or without a query.
    pub target: &'a str,
    pub status: u16,
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// Fails if the answer differs from the document, which describes only paths with a key.
    pub(crate) fn check(&self) -> Result<(), String> {
        let path = self.target.split('?').next().unwrap_or_default();
        let item = path_item(path);
        if path == "/api_keys.php"
            || (item.is_none() && self.status < 400)
            || (UNREAD.contains(&self.status) && self.body.is_empty() && self.headers.len() < 4)
        {
            return Ok(());
        }
        let response = self
            .documented(item)
            .ok_or_else(|| format!("status {} is not documented", self.status))?;
        self.check_headers(response)?;
        self.check_body(response)
    }

    /// The response that the document has for the status. HEAD answers as GET does.
    fn documented(&self, item: Option<&'static Value>) -> Option<&'static Value> {
        // Methods are case-sensitive.
        let method = if self.method == "HEAD" { "get" } else { &self.method.to_lowercase() };
        let is_known = self.method == self.method.to_uppercase();
        let operation = item.and_then(|item| item.get(method)).filter(|_| is_known);
        let Some(responses) = operation.map(|operation| &operation["responses"]) else {
            return Some(&*OF_NO_OPERATION).filter(|_| self.status >= 400);
        };
        let other = || responses.get("default").filter(|_| self.status >= 400);
        responses.get(self.status.to_string()).or_else(other).map(resolve)
    }

    fn check_headers(&self, response: &'static Value) -> Result<(), String> {
        let documented: Vec<_> = members(&response["headers"]).collect();
        for (name, value) in self.headers {
            let found = documented.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            match found {
                Some((_, header)) => check_header(name, value, resolve(header))?,
                None if is_of_any_answer(name) => (),
                None => return Err(format!("the header {name} is not documented")),
            }
        }
        for (name, header) in &documented {
            let required = resolve(header).get("required") == Some(&Value::Bool(true));
            if required && !self.headers.iter().any(|(sent, _)| sent.eq_ignore_ascii_case(name)) {
                return Err(format!("the header {name} is documented as always there"));
            }
        }
        let allow = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("allow"));
        let waits = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
        if allow != (self.status == 405) || waits != matches!(self.status, 429 | 503) {
            return Err("405 alone has Allow, and 429 and 503 alone have Retry-After".to_owned());
        }
        Ok(())
    }

    fn check_body(&self, response: &'static Value) -> Result<(), String> {
        let Some(content) =
            response.get("content").and_then(Value::as_object).filter(|_| self.method != "HEAD")
        else {
            return if self.body.is_empty() {
                Ok(())
            } else {
                Err("a body is not documented".to_owned())
            };
        };
        let sent = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let sent = sent
            .map(|(_, value)| value.split(';').next().unwrap_or_default().trim())
            .unwrap_or_default();
        let media = content
            .get(sent)
            .ok_or_else(|| format!("the media type {sent:?} is not documented"))?;
        let is_packed =
            self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
        if sent != "application/json" || is_packed {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(self.body)
            .map_err(|error| format!("the body is no JSON: {error}"))?;
        check(&body, &media["schema"], "the body")?;
        self.check_error(&body["error"], media)
    }

    /// An error has the status of the answer, and a code that the response or the one for every
    /// operation has as an example.
    fn check_error(&self, error: &Value, media: &'static Value) -> Result<(), String> {
        if self.status < 400 {
            return Ok(());
        }
        if error["status"] != self.status {
            return Err(format!("the body names the status {}", error["status"]));
        }
        let code = error["code"].as_str().unwrap_or_default();
        let common = &DOCUMENT["components"]["responses"]["Failure"]["content"]["application/json"];
        let mut documented = [&media["examples"], &common["examples"]].into_iter();
        match documented.any(|examples| examples.get(code).is_some()) {
            true => Ok(()),
            false => Err(format!("the code {code} is not documented")),
        }
    }
}

/// The paths, which all stand below `/v1` too.
fn path_item(path: &str) -> Option<&'static Value> {
    DOCUMENT["paths"].get(path.strip_prefix("/v1").unwrap_or(path))
}

fn resolve(value: &'static Value) -> &'static Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(target) => DOCUMENT
            .pointer(target.trim_start_matches('#'))
            .expect("a reference that leads somewhere"),
        None => value,
    }
}

fn check_header(name: &str, text: &str, header: &'static Value) -> Result<(), String> {
    let schema = &header["schema"];
    let value = match schema["type"].as_str() {
        Some("integer") => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        _ => Value::from(text),
    };
    check(&value, schema, name)
}

/// Checks `value` against `schema`. `place` names the value in the error. Example: `the body.data,
/// item 0`.
fn check(value: &Value, schema: &'static Value, place: &str) -> Result<(), String> {
    let schema = resolve(schema);
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        let holds = match keyword.as_str() {
            "description" | "example" | "readOnly" | "x-enum-descriptions" => true,
            // What requests may send. Other tests compare the values that come back.
            "minimum" | "minLength" | "maxLength" | "maxProperties" | "pattern"
            | "propertyNames" | "format" => true,
            "type" => {
                let types = rule.as_array().map_or(std::slice::from_ref(rule), Vec::as_slice);
                types.iter().any(|name| is_of_type(value, name.as_str().unwrap_or_default()))
            }
            "enum" => items(rule).any(|allowed| allowed == value),
            "const" => value == rule,
            "required" => {
                items(rule).filter_map(Value::as_str).all(|name| value.get(name).is_some())
            }
            "properties" => {
                for (name, member) in members(value) {
                    let rule = rule.get(name);
                    let rule = rule.ok_or_else(|| format!("{place}.{name} is not documented"))?;
                    check(member, rule, &format!("{place}.{name}"))?;
                }
                // The members have the order of the document.
                let documented = members(rule).filter(|(name, _)| value.get(name).is_some());
                let names = members(value).map(|(name, _)| name);
                value.is_null() || names.eq(documented.map(|(name, _)| name))
            }
            "additionalProperties" if rule.is_boolean() => true,
            "additionalProperties" => {
                for (name, member) in members(value) {
                    check(member, rule, &format!("{place}.{name}"))?;
                }
                true
            }
            "items" => {
                for (at, item) in items(value).enumerate() {
                    check(item, rule, &format!("{place}, item {at}"))?;
                }
                true
            }
            "oneOf" | "anyOf" => {
                let branches: Vec<_> =
                    items(rule).map(|branch| check(value, branch, place)).collect();
                let good = branches.iter().filter(|branch| branch.is_ok()).count();
                if good == 0 || (keyword == "oneOf" && good > 1) {
                    return Err(format!("{place} fits {good} of the branches: {branches:?}"));
                }
                true
            }
            unknown => panic!("the checker does not know the keyword {unknown:?}"),
        };
        if !holds {
            return Err(format!("{place} is {value}, against {keyword} {rule}"));
        }
    }
    Ok(())
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}
