//! A proxy with a configuration of `examples/` changes no request and no response.

use serde_json::{Value, json};

use crate::support::contract::is_timestamp;
use crate::support::proxy::Deployment;
use crate::support::{Api, Reply, TestServer};

const KEY: &str = "6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d";

/// Requests that a proxy could change: their paths, queries, headers and bodies.
fn replies(api: &Api) -> Vec<Reply> {
    let mut replies = Vec::new();
    let mut ask = |method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]| {
        let call = api.call(method, target).header("X-Request-Id", KEY);
        let call = headers.iter().fold(call, |call, (name, value)| call.header(name, value));
        let call = if body.is_empty() { call } else { call.body(body) };
        let reply = call.send();
        let etag = reply.header("ETag").map(str::to_owned);
        replies.push(reply);
        etag
    };
    let json = ("Content-Type", "application/json");
    let named = |name: &str| json!({"name": name}).to_string().into_bytes();
    let padded = |length: usize| {
        let operation =
            json!({"method": "POST", "path": "/customers.php", "body": {"name": "Ada"}});
        let mut body = json!({"operations": [operation]}).to_string().into_bytes();
        body.resize(length, b' ');
        body
    };
    for target in ["/customers.php", "/v1/customers.php", "/customers.php"] {
        ask("POST", target, &[json, ("Idempotency-Key", KEY)], &named("a&b=c +%,;"));
    }
    ask("POST", "/batch.php", &[json], &padded(1 << 20));
    ask("POST", "/customers.php", &[json], &padded((64 << 10) + 1));
    ask("POST", "/customers.php", &[json, ("Content-Encoding", "gzip")], &named("Eva"));
    ask("POST", "/customers.php", &[json, ("Prefer", "handling=strict")], br#"{"nmae": 1}"#);
    ask("POST", "/customers.php", &[], &named("Eva"));
    let one = "/customers.php?id=1";
    let etag = ask("GET", one, &[], b"").unwrap();
    let etag = etag.as_str();
    let tags = format!("\"x\", W/{etag}");
    for (name, value) in [("If-None-Match", etag), ("If-None-Match", &tags), ("Range", "bytes=0-1")]
    {
        ask("GET", one, &[(name, value)], b"");
        ask("HEAD", one, &[(name, value)], b"");
    }
    ask("PUT", one, &[json, ("If-Match", "\"1\"")], &named("Lost"));
    ask("PUT", one, &[json, ("If-Match", &format!("W/{etag}"))], &named("Lost"));
    ask("PUT", one, &[json, ("If-Match", &format!("\"x\", {etag}"))], &named("Kept"));
    for target in [
        "/v1/customers.php?limit=1&sort=-name&total=true",
        "/customers.php?name=a%26b%3Dc+%2B%25%2C%3B&q=a%26b%3Dc%20%2B%25",
        "/customers.php?name=%FF",
        "//customers.php",
        "/./customers.php",
        "/v1/../customers.php",
        "/customers%2Ephp",
        "/customers.php/",
        "/customers.php;a=1",
        "/?x=1",
        "/nowhere",
    ] {
        ask("GET", target, &[], b"");
    }
    ask("GET", "/docs", &[("Accept-Encoding", "gzip, br")], b"");
    ask("GET", "/docs", &[("Accept-Encoding", "identity")], b"");
    ask("OPTIONS", "/customers.php", &[("Origin", "https://shop.example")], b"");
    ask("PATCH", one, &[json], &named("Eva"));
    ask("DELETE", one, &[("Idempotency-Key", KEY)], b"");
    ask("DELETE", one, &[], b"{");
    ask("DELETE", one, &[], b"");
    let wrong = api.authorized_by("Bearer tdk_short");
    replies.push(wrong.get("/customers.php"));
    let limited = (0..100).map(|_| api.get("/customers.php?limit=1")).last();
    replies.extend(limited);
    replies
}

/// The status, the headers and the body, without what differs in each run.
fn essence(reply: &Reply) -> Value {
    let differs = |text: &str| text.len() == 36 || text.parse::<u64>().is_ok_and(|n| n > 1 << 30);
    let is_left_out =
        |name: &str| ["date", "connection", "keep-alive", "transfer-encoding"].contains(&name);
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in &reply.headers {
        let name = name.to_lowercase();
        let is_own = name == "x-request-id" && value == KEY;
        if !is_left_out(&name) {
            headers.push((
                name,
                if differs(value) && !is_own { String::new() } else { value.clone() },
            ));
        }
    }
    headers.sort();
    let text = reply.text();
    let words = text.split('"').map(|word| if is_timestamp(word) { "" } else { word });
    json!([reply.asked.target, reply.status, headers, words.collect::<Vec<_>>().join("\"")])
}

#[test]
fn requests_and_responses_pass_unchanged() {
    // The two data directories are copies of one.
    let (_server, direct) = TestServer::with_api();
    let expected = replies(&direct);
    for deployment in Deployment::all() {
        let (server, api) = TestServer::with_api();
        server.set_proxy(deployment.start(server.address()));
        let found = replies(&api.at_host(deployment.host()));
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(essence(found), essence(expected), "{deployment:?}");
        }
        assert_eq!(found.len(), expected.len());
    }
}
